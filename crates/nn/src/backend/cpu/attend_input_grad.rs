//! Gradients of attention over input rows ([`super::attend_input`]): those of the heads' vectors,
//! in the same runs of destinations, and those of the rows, as a gather over the transposed block.

use std::ops::Range;

use graphmill_core::Block;

use super::{
    attend_input::by_head,
    attend_rows::{Input, add_entries, add_row, add_scaled, dots, entry_dots, of_heads},
    attention::{entries, for_heads},
    columns,
    level::{Isa, kernel, prefetch},
    parallel::{self, Rows},
    simd::Simd,
    source::Source,
    sum::ahead,
};
use crate::{
    ViewMut,
    backend::ops::{AttendInputBackward, AttendInputTransposed},
    matrix::Table,
};

pub(super) fn backward(op: AttendInputBackward) {
    let AttendInputBackward {
        block,
        x,
        slope,
        score,
        alpha,
        used,
        grad,
        score_grad,
        source_grad,
        target_grad,
    } = op;
    let (cols, heads) = (x.num_cols(), score.num_cols());
    if heads == 0 {
        return;
    }
    let given = [score.host(), alpha.host(), used.host()];
    let (grad, outputs) = (grad.host(), [score_grad, source_grad, target_grad]);
    if let Some(x) = x.slots() {
        return back(Input { block, x, cols, heads }, slope, given, grad, outputs);
    }
    match x.table() {
        Table::F32(x) => back(Input { block, x, cols, heads }, slope, given, grad, outputs),
        Table::F16(x) => back(Input { block, x, cols, heads }, slope, given, grad, outputs),
        Table::Bf16(x) => back(Input { block, x, cols, heads }, slope, given, grad, outputs),
    }
}

/// `given` are score, attention, and attention after dropout; the outputs are the gradients of
/// score, source and target.
fn back<R: Source>(
    job: Input<R>,
    slope: f32,
    given: [&[f32]; 3],
    grad: &[f32],
    [score_grad, source_grad, target_grad]: [ViewMut; 3],
) {
    let isa = Isa::current();
    let Input { block, cols, heads, .. } = job;
    let size = cols * heads;
    let parts = entries(block, score_grad.host(), heads);
    let sums = columns::sums(block.num_dst, 2 * size, parts, |rows, (edges, own), sums| {
        let grad = &grad[rows.start * size..rows.end * size];
        back_rows(isa, job, slope, given, grad, rows, edges.data, own.data, sums);
    });
    for (out, sums) in [source_grad, target_grad].into_iter().zip(sums[..2 * size].chunks_exact(size.max(1)))
    {
        for (i, out) in out.host().iter_mut().enumerate() {
            *out = sums[i % heads * cols + i / heads] as f32;
        }
    }
}

pub(super) fn transposed(op: AttendInputTransposed) {
    let AttendInputTransposed { block, source, target, used, grad, score_grad, x_grad } = op;
    let (cols, heads) = (x_grad.num_cols(), source.num_cols());
    if cols == 0 {
        return;
    }
    let isa = Isa::current();
    let weights = by_head(source, target);
    let job = Transposed {
        block,
        weights: &bytemuck::cast_slice(&weights)[..2 * cols * heads],
        used: used.host(),
        grad: grad.host(),
        score_grad: score_grad.host(),
        cols,
        heads,
    };
    let indptr = &block.transposed.indptr;
    parallel::runs(indptr, cols * heads, Rows { data: x_grad.host(), width: cols }, |rows, out| {
        transposed_rows(isa, job, rows, out.data);
    });
}

kernel! {

    /// Writes the gradients of some destinations' scores to `edges` and `own`, and adds their
    /// contributions to the gradients of the heads' vectors (source, then target: `H x F` each) to
    /// `sums`.
    fn back_rows[R: Source](
        s: S,
        job: Input<'_, R>,
        slope: f32,
        given: [&[f32]; 3],
        grad: &[f32],
        rows: Range<usize>,
        edges: &mut [f32],
        own: &mut [f32],
        sums: &mut [f32],
    ) {
        let Input { block, heads, cols, .. } = job;
        let base = block.indptr[rows.start] as usize;
        let size = heads * cols;
        let (of_source, of_target) = sums.split_at_mut(size);
        for ((i, v), own) in rows.enumerate().zip(own.chunks_exact_mut(heads)) {
            let grad = &grad[i * size..][..size];
            let edges = &mut edges[job.run(v, base)];
            let row = job.row(block.own_row(v));
            let of_edges = given.map(|x| &x[job.run(v, 0)]);
            let of_own = given.map(|x| &x[(block.num_edges() + v) * heads..][..heads]);
            for_heads!(heads, (h, N) => {
                let of_grad = of_heads::<R, N>(job, grad, h);
                entry_dots(s, job, v, h, of_grad, [0.0; N], edges);
                own[h..h + N].copy_from_slice(&dots(s, row, of_grad, [0.0; N]));
                let sum = score_gradients::<N>(heads, h, slope, of_edges, of_own, edges, own);
                for i in 0..N {
                    add_row(s, sum[i], row, &mut of_target[(h + i) * cols..][..cols]);
                }
            });
            if cols > 0 {
                add_entries(s, job, v, edges, own, true, of_source);
            }
        }
    }

    /// Computes the gradients of some sources' rows.
    fn transposed_rows[](s: S, job: Transposed<'_>, rows: Range<usize>, out: &mut [f32]) {
        for (u, out) in rows.zip(out.chunks_exact_mut(job.cols)) {
            let mut at = 0;
            while at < job.cols {
                at += S::LANES * match (job.cols - at).div_ceil(S::LANES) {
                    16.. if S::BLOCK > 8 => job.block::<_, 16>(s, u, at, out),
                    8.. if S::BLOCK > 4 => job.block::<_, 8>(s, u, at, out),
                    4.. => job.block::<_, 4>(s, u, at, out),
                    2.. => job.block::<_, 2>(s, u, at, out),
                    _ => job.block::<_, 1>(s, u, at, out),
                };
            }
        }
    }
}

/// Turns the gradients of the attention after dropout, in `edges` and `own`, into those of the
/// scores, and returns the sums of the latter. `of_edges` and `of_own` are score, attention, and
/// attention after dropout.
#[inline(always)]
fn score_gradients<const N: usize>(
    heads: usize,
    h: usize,
    slope: f32,
    of_edges: [&[f32]; 3],
    of_own: [&[f32]; 3],
    edges: &mut [f32],
    own: &mut [f32],
) -> [f32; N] {
    // a dropped entry has gradient 0; the others are scaled as in dropout
    let mut mean = [0.0; N];
    let [_, _, used] = of_edges;
    for at in (h..edges.len()).step_by(heads) {
        for i in 0..N {
            mean[i] += used[at + i] * edges[at + i];
        }
    }
    for i in 0..N {
        mean[i] += of_own[2][h + i] * own[h + i];
    }
    let mut sum = [0.0; N];
    for at in (h..edges.len()).step_by(heads) {
        through_softmax(at, slope, of_edges, &mean, edges, &mut sum);
    }
    through_softmax(h, slope, of_own, &mean, own, &mut sum);
    sum
}

/// Turns the gradient of the attention of the entry at `at` into that of its score.
#[inline(always)]
fn through_softmax<const N: usize>(
    at: usize,
    slope: f32,
    [score, alpha, used]: [&[f32]; 3],
    mean: &[f32; N],
    grad: &mut [f32],
    sum: &mut [f32; N],
) {
    let (score, alpha, used) = (&score[at..at + N], &alpha[at..at + N], &used[at..at + N]);
    let grad = &mut grad[at..at + N];
    for i in 0..N {
        let g = used[i] * grad[i] - alpha[i] * mean[i];
        grad[i] = if score[i] > 0.0 { g } else { slope * g };
        sum[i] += grad[i];
    }
}

/// Inputs of [`transposed`].
#[derive(Clone, Copy)]
pub(super) struct Transposed<'a> {
    block: &'a Block,
    /// Source, then target: `H x F` each.
    weights: &'a [f32],
    used: &'a [f32],
    grad: &'a [f32],
    score_grad: &'a [f32],
    cols: usize,
    heads: usize,
}

impl Transposed<'_> {
    /// Computes `M` vectors of columns from `at` on of source `u`; returns `M`.
    #[inline(always)]
    fn block<S: Simd, const M: usize>(self, s: S, u: usize, at: usize, out: &mut [f32]) -> usize {
        let Self { block, weights, used, grad, score_grad, cols, heads } = self;
        let len = (M * S::LANES).min(cols - at);
        assert!(len > (M - 1) * S::LANES);
        let t = &block.transposed;
        let run = t.indptr[u] as usize..t.indptr[u + 1] as usize;
        let (source, target) = weights.split_at(heads * cols);
        let ahead = ahead(grad, cols * heads);
        let mut acc = [[s.splat(0.0); M]];
        for h in 0..heads {
            let row = |v: usize| &grad[(v * heads + h) * cols + at..][..len];
            let vector = h * cols + at..h * cols + at + len;
            let mut of_source = 0.0;
            for k in run.clone() {
                if ahead != 0
                    && at == 0
                    && let Some(&next) = t.dst.get(k + ahead)
                {
                    prefetch(grad, (next as usize * heads + h) * cols, cols);
                }
                let e = t.edge[k] as usize * heads + h;
                add_scaled(s, &used[e..=e], row(t.dst[k] as usize), &mut acc);
                of_source += score_grad[e];
            }
            if u < block.num_dst {
                let own = (block.num_edges() + u) * heads + h;
                add_scaled(s, &used[own..=own], row(u), &mut acc);
                of_source += score_grad[own];
                let mut of_target = score_grad[own];
                for e in block.edges(u) {
                    of_target += score_grad[e * heads + h];
                }
                add_scaled(s, &[of_target], &target[vector.clone()], &mut acc);
            }
            add_scaled(s, &[of_source], &source[vector], &mut acc);
        }
        for (j, &acc) in acc[0].iter().enumerate() {
            s.store(&mut out[at..at + len], j * S::LANES, acc);
        }
        M
    }
}
