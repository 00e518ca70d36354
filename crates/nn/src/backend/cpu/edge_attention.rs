//! Attention to the rows of edges, which all heads share: a destination's rows are read from the
//! inner caches for the scores, the sums and their gradients.

use std::ops::Range;

use graphmill_core::Block;

use super::{
    attend_rows::{add_scaled, dots, vector},
    attention::{entries, for_heads, softmax_rows},
    dot_attention::NEVER,
    epilogue::{Identity, backward_rows, forward_rows},
    level::{Isa, kernel},
    parallel::{self, Rows, Runs},
    simd::Simd,
};
use crate::backend::ops::{EdgeAttention, EdgeAttentionBackward};

/// Rows that attention reads: those of edges, `E x F`, or of their sources, `S x F`.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) block: &'a Block,
    pub(super) rows: &'a [f32],
    pub(super) cols: usize,
    pub(super) heads: usize,
    pub(super) scale: f32,
    pub(super) of_sources: bool,
}

impl<'a> Job<'a> {
    #[inline(always)]
    fn row(&self, e: usize) -> &'a [f32] {
        let at = if self.of_sources { self.block.indices[e] as usize } else { e };
        &self.rows[at * self.cols..][..self.cols]
    }

    /// Vectors of heads `h..h + N` of destination `v`.
    #[inline(always)]
    fn of<'x, const N: usize>(&self, x: &'x [f32], v: usize, h: usize) -> [&'x [f32]; N] {
        let mut out: [&[f32]; N] = [&[]; N];
        for i in 0..N {
            out[i] = &x[(v * self.heads + h + i) * self.cols..][..self.cols];
        }
        out
    }
}

pub(super) fn forward(op: EdgeAttention) {
    let EdgeAttention { block, rows, query, scale, dropout, alpha, used, out } = op;
    let (heads, cols) = (alpha.num_cols(), rows.num_cols());
    if heads == 0 {
        return;
    }
    let (isa, drops) = (Isa::current(), dropout.threshold() != 0);
    let (job, query) =
        (Job { block, rows: rows.host(), cols, heads, scale, of_sources: false }, query.host());
    // without dropout, the matrix after dropout is empty
    let used = if drops { entries(block, used.host(), heads) } else { entries(block, &mut [], 0) };
    let parts = (entries(block, alpha.host(), heads), used, Rows { data: out.host(), width: heads * cols });
    parallel::runs(&block.indptr, 4 * heads * cols, parts, |rows, (alpha, used, out)| {
        products(isa, job, query, rows.clone(), scale, alpha.0.data);
        alpha.1.data.fill(NEVER);
        softmax_rows(isa, block, heads, 1.0, rows.clone(), alpha.0.data, alpha.1.data);
        // a destination without edges would attend to itself
        alpha.1.data.fill(0.0);
        let weights = if drops {
            used.0.data.copy_from_slice(alpha.0.data);
            used.1.data.fill(0.0);
            let first = block.indptr[rows.start] as usize;
            forward_rows(isa, Identity, None, dropout, first, heads, used.0.data);
            used.0.data
        } else {
            alpha.0.data
        };
        sums(isa, job, rows, weights, out.data);
    });
}

pub(super) fn backward(op: EdgeAttentionBackward) {
    let EdgeAttentionBackward { block, rows, query, scale, dropout, alpha, used, grad, .. } = op;
    let (heads, cols, width) = (alpha.num_cols(), rows.num_cols(), op.rows_grad.num_cols());
    if heads == 0 {
        return;
    }
    let isa = Isa::current();
    let (job, query) =
        (Job { block, rows: rows.host(), cols, heads, scale, of_sources: false }, query.host());
    let (alpha, used, grad) = (alpha.host(), used.host(), grad.host());
    let of_scores = entries(block, op.score_grad.host(), heads);
    let of_rows = Runs { data: op.rows_grad.host(), indptr: &block.indptr, width };
    let of_queries = Rows { data: op.query_grad.host(), width: heads * cols };
    let parts = (of_scores, of_rows, of_queries);
    parallel::runs(&block.indptr, 8 * heads * cols, parts, |rows, (scores, of_rows, of_queries)| {
        let edges = block.indptr[rows.start] as usize..block.indptr[rows.end] as usize;
        let entries = edges.start * heads..edges.end * heads;
        let (alpha, used) = (&alpha[entries.clone()], &used[entries]);
        let scores = (scores.0.data, scores.1.data);
        scores.1.fill(0.0);
        products(isa, job, grad, rows.clone(), 1.0, scores.0);
        if dropout.threshold() != 0 {
            backward_rows(isa, Identity, dropout, edges.start, heads, used, scores.0, &mut []);
        }
        through_softmax(isa, job, rows.clone(), alpha, scores.0);
        sums(isa, job, rows.clone(), scores.0, of_queries.data);
        if width > 0 {
            row_gradients(isa, job, width, [grad, query], rows, [used, scores.0], of_rows.data);
        }
    });
}

kernel! {
    /// Computes `scale x[v, h] . rows[e]` for the edges of some destinations.
    fn products[](s: S, job: Job<'_>, x: &[f32], rows: Range<usize>, scale: f32, out: &mut [f32]) {
        let (heads, base) = (job.heads, job.block.indptr[rows.start] as usize);
        for v in rows {
            for e in job.block.edges(v) {
                let out = &mut out[(e - base) * heads..][..heads];
                for_heads!(heads, (h, N) => {
                    let sums = dots(s, job.row(e), job.of::<N>(x, v, h), [0.0; N]);
                    for i in 0..N {
                        out[h + i] = scale * sums[i];
                    }
                });
            }
        }
    }

    /// Turns the gradients of attention weights into those of scores, in place.
    fn through_softmax[](s: S, job: Job<'_>, rows: Range<usize>, alpha: &[f32], grad: &mut [f32]) {
        let _ = s;
        let (heads, base) = (job.heads, job.block.indptr[rows.start] as usize);
        for v in rows {
            let run = job.block.edges(v);
            let run = (run.start - base) * heads..(run.end - base) * heads;
            let (alpha, grad) = (&alpha[run.clone()], &mut grad[run]);
            for h in 0..heads {
                let mut mean = 0.0;
                for at in (h..alpha.len()).step_by(heads) {
                    mean += alpha[at] * grad[at];
                }
                for at in (h..alpha.len()).step_by(heads) {
                    grad[at] = job.scale * alpha[at] * (grad[at] - mean);
                }
            }
        }
    }

    /// Computes `out[v, h] = sum over the edges of weight[e, h] rows[e]` for some destinations.
    fn sums[](s: S, job: Job<'_>, rows: Range<usize>, weight: &[f32], out: &mut [f32]) {
        let Job { block, heads, cols, .. } = job;
        let base = block.indptr[rows.start] as usize;
        if cols == 0 {
            return;
        }
        for (v, out) in rows.zip(out.chunks_exact_mut(heads * cols)) {
            let weight = &weight[(block.indptr[v] as usize - base) * heads..];
            for_heads!(heads, (h, N) => add_tile::<S, N>(s, job, v, h, false, weight, out));
        }
    }

    /// Computes `out[e] = sum over h of used[e, h] grad[v, h] + score_grad[e, h] query[v, h]` for
    /// the edges of some destinations, in the first `width` columns.
    fn row_gradients[](
        s: S,
        job: Job<'_>,
        width: usize,
        of: [&[f32]; 2],
        rows: Range<usize>,
        weights: [&[f32]; 2],
        out: &mut [f32],
    ) {
        let (heads, base) = (job.heads, job.block.indptr[rows.start] as usize);
        for v in rows {
            for e in job.block.edges(v) {
                let out = &mut out[(e - base) * width..][..width];
                let at = (e - base) * heads;
                let mut c = 0;
                while c < width {
                    let mut sum = s.splat(0.0);
                    for h in 0..heads {
                        let [grad] = job.of::<1>(of[0], v, h);
                        let [query] = job.of::<1>(of[1], v, h);
                        sum = s.mul_add(s.splat(weights[0][at + h]), s.load(grad, c), sum);
                        sum = s.mul_add(s.splat(weights[1][at + h]), s.load(query, c), sum);
                    }
                    s.store(out, c, sum);
                    c += S::LANES;
                }
            }
        }
    }
}

/// Computes heads `h..h + N` of the sums of destination `v`, or adds them to `out`, `H x F`.
#[inline(always)]
pub(super) fn add_tile<S: Simd, const N: usize>(
    s: S,
    job: Job,
    v: usize,
    h: usize,
    add: bool,
    weight: &[f32],
    out: &mut [f32],
) {
    let (cols, mut at) = (job.cols, 0);
    while at < cols {
        let place = (v, h, at);
        at += S::LANES
            * match (cols - at).div_ceil(S::LANES) {
                8.. if N <= 2 && S::BLOCK > 8 => tile::<S, N, 8>(s, job, place, add, weight, out),
                4.. if N <= 4 && S::BLOCK > 8 => tile::<S, N, 4>(s, job, place, add, weight, out),
                2.. if N <= 4 => tile::<S, N, 2>(s, job, place, add, weight, out),
                _ => tile::<S, N, 1>(s, job, place, add, weight, out),
            };
    }
}

/// Part of [`add_tile`]: `M` vectors of columns from `at`, the last of which may be partial;
/// returns `M`.
#[inline(always)]
fn tile<S: Simd, const N: usize, const M: usize>(
    s: S,
    job: Job,
    (v, h, at): (usize, usize, usize),
    add: bool,
    weight: &[f32],
    out: &mut [f32],
) -> usize {
    let Job { block, heads, cols, .. } = job;
    let len = (M * S::LANES).min(cols - at);
    assert!(len > (M - 1) * S::LANES);
    let mut acc = [[s.splat(0.0); M]; N];
    for (i, e) in block.edges(v).enumerate() {
        let weight = &weight[i * heads + h..][..N];
        add_scaled::<S, f32, N, M>(s, weight, &job.row(e)[at..at + len], &mut acc);
    }
    for i in 0..N {
        let out = &mut out[(h + i) * cols + at..][..len];
        for (j, &acc) in acc[i].iter().enumerate() {
            let sum = if add { s.add(acc, vector::<S, f32, M>(s, out, j)) } else { acc };
            s.store(out, j * S::LANES, sum);
        }
    }
    M
}
