//! Attention over input rows (GAT, aggregate first), and its gradients.
//!
//! A row is read once for its dot products with every head's vector and soon after, from the inner caches,
//! for the sums: all is done destination by destination, in runs of destinations whose rows fit there.
//! The sums of several heads stay in registers together, so that a loaded row serves them all.

use std::ops::Range;

use graphmill_graph::Block;

use super::{
    aggregate::{OWN_AHEAD, Sum, Unit},
    attention::{entries, for_heads, softmax_rows},
    columns,
    epilogue::{Identity, forward_rows},
    level::{Isa, kernel, prefetch},
    parallel::{self, Rows},
    scratch::{self, Scratch},
    simd::Simd,
};
use crate::{
    View, ViewMut,
    backend::{Dropout, shape},
};

/// The rows that attention reads.
#[derive(Clone, Copy)]
pub(super) struct Input<'a> {
    block: &'a Block,
    /// `S x F`.
    x: &'a [f32],
    cols: usize,
    heads: usize,
}

impl<'a> Input<'a> {
    fn new(block: &'a Block, x: View<'a>, heads: usize) -> Self {
        Self { block, x: x.host(), cols: x.num_cols(), heads }
    }

    #[inline(always)]
    fn row(&self, u: usize) -> &'a [f32] {
        &self.x[u * self.cols..][..self.cols]
    }

    /// The entries of destination `v` in a matrix whose edges' part begins with edge `base`.
    #[inline(always)]
    fn run(&self, v: usize, base: usize) -> Range<usize> {
        let run = self.block.edges(v);
        (run.start - base) * self.heads..(run.end - base) * self.heads
    }
}

/// Two matrices of `F x H`, each as `H x F`, one after the other.
fn by_head(source: View, target: View) -> Scratch {
    let (cols, heads) = (source.num_rows(), source.num_cols());
    let mut scratch = scratch::take(cols * heads);
    let weights: &mut [f32] = bytemuck::cast_slice_mut(&mut scratch);
    for (i, w) in source.host().iter().chain(target.host()).enumerate() {
        let (part, i) = (i / (cols * heads), i % (cols * heads));
        weights[(part * heads + i % heads) * cols + i / heads] = *w;
    }
    scratch
}

#[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
pub(super) fn attend_input(
    block: &Block,
    x: View,
    source: View,
    target: View,
    slope: f32,
    dropout: Dropout,
    score: ViewMut,
    alpha: ViewMut,
    used: ViewMut,
    out: ViewMut,
) {
    let of_entries = [score.as_view(), alpha.as_view()];
    let heads = shape::attend_input(block, x, [source, target], of_entries, out.as_view());
    let drops = dropout.threshold() != 0;
    if drops {
        shape::same(score.as_view(), used.as_view());
    }
    if heads == 0 {
        return;
    }
    let (isa, job) = (Isa::current(), Input::new(block, x, heads));
    let (cols, edges) = (job.cols, block.num_edges());
    let weights = by_head(source, target);
    let (of_source, of_target) = bytemuck::cast_slice(&weights)[..2 * cols * heads].split_at(cols * heads);
    // nothing to cut where nothing is dropped
    let used = if drops { entries(block, used.host(), heads) } else { entries(block, &mut [], 0) };
    let alphas = (entries(block, alpha.host(), heads), used);
    let parts = (entries(block, score.host(), heads), alphas, Rows { data: out.host(), width: heads * cols });
    parallel::runs(&block.indptr, cols, parts, |rows, (score, (alpha, used), out)| {
        let first = block.indptr[rows.start] as usize;
        score_rows(isa, job, of_source, of_target, rows.clone(), score.0.data, score.1.data);
        alpha.0.data.copy_from_slice(score.0.data);
        alpha.1.data.copy_from_slice(score.1.data);
        softmax_rows(isa, block, heads, slope, rows.clone(), alpha.0.data, alpha.1.data);
        let weights = if drops {
            used.0.data.copy_from_slice(alpha.0.data);
            used.1.data.copy_from_slice(alpha.1.data);
            forward_rows(isa, Identity, None, dropout, first, heads, used.0.data);
            forward_rows(isa, Identity, None, dropout, edges + rows.start, heads, used.1.data);
            used
        } else {
            alpha
        };
        sum_rows(isa, job, rows, weights.0.data, weights.1.data, out.data);
    });
}

#[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
pub(super) fn backward(
    block: &Block,
    x: View,
    slope: f32,
    score: View,
    alpha: View,
    used: View,
    grad: View,
    score_grad: ViewMut,
    source_grad: ViewMut,
    target_grad: ViewMut,
) {
    let weights = [source_grad.as_view(), target_grad.as_view()];
    let heads = shape::attend_input(block, x, weights, [score, alpha], grad);
    shape::same(score, used);
    shape::same(score, score_grad.as_view());
    if heads == 0 {
        return;
    }
    let (isa, job) = (Isa::current(), Input::new(block, x, heads));
    let (cols, size) = (job.cols, job.cols * heads);
    let (grad, given) = (grad.host(), [score.host(), alpha.host(), used.host()]);
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

pub(super) fn transposed(
    block: &Block,
    source: View,
    target: View,
    used: View,
    grad: View,
    score_grad: View,
    x_grad: ViewMut,
) {
    let of_entries = [used, score_grad];
    let heads = shape::attend_input(block, x_grad.as_view(), [source, target], of_entries, grad);
    shape::local(block);
    let cols = x_grad.num_cols();
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
    /// `x[u] . source + x[own_row(v)] . target` for the entries of some destinations.
    fn score_rows[](
        s: S,
        job: Input<'_>,
        source: &[f32],
        target: &[f32],
        rows: Range<usize>,
        edges: &mut [f32],
        own: &mut [f32],
    ) {
        let Input { block, heads, .. } = job;
        let base = block.indptr[rows.start] as usize;
        for (v, own) in rows.zip(own.chunks_exact_mut(heads)) {
            let (row, edges) = (job.row(block.own_row(v)), &mut edges[job.run(v, base)]);
            for_heads!(heads, (h, N) => {
                let of_target = dots::<_, N>(s, row, of_heads(job, target, h), [0.0; N]);
                let source = of_heads::<N>(job, source, h);
                entry_dots(s, job, v, h, source, of_target, edges);
                own[h..h + N].copy_from_slice(&dots(s, row, source, of_target));
            });
        }
    }

    /// `out[v, h] = sum over the entries of weight[e, h] x[u]` for some destinations.
    fn sum_rows[](s: S, job: Input<'_>, rows: Range<usize>, edges: &[f32], own: &[f32], out: &mut [f32]) {
        let Input { block, heads, cols, .. } = job;
        if cols == 0 {
            return;
        }
        let base = block.indptr[rows.start] as usize;
        let rows = rows.zip(own.chunks_exact(heads)).zip(out.chunks_exact_mut(heads * cols));
        for ((v, own), out) in rows {
            add_entries(s, job, v, &edges[job.run(v, base)], own, false, out);
        }
    }

    /// The gradients of the scores of some destinations, to `edges` and `own`; what they contribute to those of
    /// the heads' vectors (source, then target: `H x F` each) is added to `sums`.
    fn back_rows[](
        s: S,
        job: Input<'_>,
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
                let of_grad = of_heads::<N>(job, grad, h);
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

    /// The gradients of some sources' rows.
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

// Loops over arrays of vectors go by index, and nothing here is a closure: iterator adapters and closures are
// not always inlined into functions compiled for the instructions that `S` stands for.

/// Rows `h..h + N` of `w` (`H x F`).
#[inline(always)]
fn of_heads<'a, const N: usize>(job: Input, w: &'a [f32], h: usize) -> [&'a [f32]; N] {
    let mut rows: [&[f32]; N] = [&[]; N];
    for i in 0..N {
        rows[i] = &w[(h + i) * job.cols..][..job.cols];
    }
    rows
}

/// `add[i] + x . w[i]`, all of one length.
#[inline(always)]
fn dots<S: Simd, const N: usize>(s: S, x: &[f32], w: [&[f32]; N], add: [f32; N]) -> [f32; N] {
    let mut acc = [s.splat(0.0); N];
    let mut c = 0;
    while c + S::LANES <= x.len() {
        let x = s.load(x, c);
        for i in 0..N {
            acc[i] = s.mul_add(x, s.load(w[i], c), acc[i]);
        }
        c += S::LANES;
    }
    if c < x.len() {
        let zero = s.splat(0.0);
        let x = s.load_part(&x[c..], zero);
        for i in 0..N {
            acc[i] = s.mul_add(x, s.load_part(&w[i][c..], zero), acc[i]);
        }
    }
    let mut out = [0.0; N];
    let mut i = 0;
    while i + 4 <= N {
        let sums = s.sum4([acc[i], acc[i + 1], acc[i + 2], acc[i + 3]]);
        for j in 0..4 {
            out[i + j] = add[i + j] + sums[j];
        }
        i += 4;
    }
    while i < N {
        out[i] = add[i] + s.sum(acc[i]);
        i += 1;
    }
    out
}

/// [`dots`] of the rows of a destination's edges, for heads `h..h + N`.
#[inline(always)]
fn entry_dots<S: Simd, const N: usize>(
    s: S,
    job: Input,
    v: usize,
    h: usize,
    w: [&[f32]; N],
    add: [f32; N],
    out: &mut [f32],
) {
    let ahead = if h > 0 || job.cols == 0 { 0 } else { Sum::<Unit>::ahead(job.x, job.cols) };
    if ahead != 0
        && let Some(ids) = &job.block.dst_ids
        && let Some(&next) = ids.get(v + OWN_AHEAD)
    {
        prefetch(job.x, next as usize * job.cols, job.cols);
    }
    for (i, e) in job.block.edges(v).enumerate() {
        if ahead != 0
            && let Some(&next) = job.block.indices.get(e + ahead)
        {
            prefetch(job.x, next as usize * job.cols, job.cols);
        }
        let sums = dots(s, job.row(job.block.indices[e] as usize), w, add);
        out[i * job.heads + h..][..N].copy_from_slice(&sums);
    }
}

/// From the gradients of the attention that was used, in `edges` and `own`, to those of the scores; returns the
/// latter's sums. `of_edges` and `of_own` are score, attention, and attention used.
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
    // a dropped entry hands nothing back; the others what the dropout's scale makes of it
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

/// The entry whose values begin at `at`: from the gradient of its attention to that of its score.
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

/// `out += a x`.
#[inline(always)]
fn add_row<S: Simd>(s: S, a: f32, x: &[f32], out: &mut [f32]) {
    let mut c = 0;
    while c < x.len() {
        let sum = s.mul_add(s.splat(a), s.load(x, c), s.load(out, c));
        s.store(out, c, sum);
        c += S::LANES;
    }
}

/// `out[h] = (out[h] if add) + sum over the entries of destination v of weight[e, h] x[u]`, `out` of `H x F`.
#[inline(always)]
fn add_entries<S: Simd>(s: S, job: Input, v: usize, edges: &[f32], own: &[f32], add: bool, out: &mut [f32]) {
    let left = |at: usize| (job.cols - at).div_ceil(S::LANES);
    let mut h = 0;
    while h < job.heads {
        let mut at = 0;
        let heads = match job.heads - h {
            4.. => 4,
            2.. => 2,
            _ => 1,
        };
        while at < job.cols {
            let tile = Tile { job, v, h, at, edges, own, add };
            // as many sums as the registers hold
            at += S::LANES
                * match (heads, left(at)) {
                    (4, 4..) if S::BLOCK > 8 => tile.sum::<_, 4, 4>(s, out),
                    (4, 3) if S::BLOCK > 8 => tile.sum::<_, 4, 3>(s, out),
                    (4, 2..) if S::BLOCK > 4 => tile.sum::<_, 4, 2>(s, out),
                    (4, _) => tile.sum::<_, 4, 1>(s, out),
                    (2, 8..) if S::BLOCK > 8 => tile.sum::<_, 2, 8>(s, out),
                    (2, 4..) if S::BLOCK > 4 => tile.sum::<_, 2, 4>(s, out),
                    (2, 2..) => tile.sum::<_, 2, 2>(s, out),
                    (2, _) => tile.sum::<_, 2, 1>(s, out),
                    (_, 16..) if S::BLOCK > 8 => tile.sum::<_, 1, 16>(s, out),
                    (_, 8..) if S::BLOCK > 4 => tile.sum::<_, 1, 8>(s, out),
                    (_, 4..) => tile.sum::<_, 1, 4>(s, out),
                    (_, 2..) => tile.sum::<_, 1, 2>(s, out),
                    (_, _) => tile.sum::<_, 1, 1>(s, out),
                };
        }
        h += heads;
    }
}

/// Heads from `h` and columns from `at` on of what [`add_entries`] computes.
#[derive(Clone, Copy)]
struct Tile<'a> {
    job: Input<'a>,
    v: usize,
    h: usize,
    at: usize,
    edges: &'a [f32],
    own: &'a [f32],
    add: bool,
}

impl Tile<'_> {
    /// `N` heads and `M` vectors of columns, of which the last may be partial; returns `M`.
    #[inline(always)]
    fn sum<S: Simd, const N: usize, const M: usize>(self, s: S, out: &mut [f32]) -> usize {
        let Self { job, v, h, at, edges, own, add } = self;
        let Input { block, heads, cols, .. } = job;
        let len = (M * S::LANES).min(cols - at);
        assert!(len > (M - 1) * S::LANES);
        let mut acc = [[s.splat(0.0); M]; N];
        for (i, &u) in block.indices[block.edges(v)].iter().enumerate() {
            let weight = &edges[i * heads + h..][..N];
            add_scaled(s, weight, &job.row(u as usize)[at..at + len], &mut acc);
        }
        add_scaled(s, &own[h..h + N], &job.row(block.own_row(v))[at..at + len], &mut acc);
        for i in 0..N {
            let out = &mut out[(h + i) * cols + at..][..len];
            for (j, &acc) in acc[i].iter().enumerate() {
                let sum = if add { s.add(acc, vector::<S, M>(s, out, j)) } else { acc };
                s.store(out, j * S::LANES, sum);
            }
        }
        M
    }
}

/// Vector `j` of `M` in a row, the last of which may be partial.
#[inline(always)]
fn vector<S: Simd, const M: usize>(s: S, row: &[f32], j: usize) -> S::F {
    if j + 1 < M {
        s.load(&row[..(M - 1) * S::LANES], j * S::LANES)
    } else {
        s.load_part(&row[(M - 1) * S::LANES..], s.splat(0.0))
    }
}

/// Adds a row of at most `M` vectors, times each weight.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "heads and vectors by number")]
fn add_scaled<S: Simd, const N: usize, const M: usize>(
    s: S,
    weight: &[f32],
    row: &[f32],
    acc: &mut [[S::F; M]; N],
) {
    let weight = &weight[..N];
    let mut vectors = [s.splat(0.0); M];
    for j in 0..M {
        vectors[j] = vector::<S, M>(s, row, j);
    }
    for i in 0..N {
        let weight = s.splat(weight[i]);
        for j in 0..M {
            acc[i][j] = s.mul_add(weight, vectors[j], acc[i][j]);
        }
    }
}

/// What [`transposed`] reads.
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
    /// `M` vectors of columns from `at` on of source `u`; returns `M`.
    #[inline(always)]
    fn block<S: Simd, const M: usize>(self, s: S, u: usize, at: usize, out: &mut [f32]) -> usize {
        let Self { block, weights, used, grad, score_grad, cols, heads } = self;
        let len = (M * S::LANES).min(cols - at);
        assert!(len > (M - 1) * S::LANES);
        let t = &block.transposed;
        let run = t.indptr[u] as usize..t.indptr[u + 1] as usize;
        let (source, target) = weights.split_at(heads * cols);
        let ahead = Sum::<Unit>::ahead(grad, cols * heads);
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
