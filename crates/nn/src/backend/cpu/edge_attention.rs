//! Attention to the rows of sources and edges, which all heads share: a destination's rows are read
//! from the inner caches for the scores, the sums and their gradients.

use std::ops::Range;

use graphmill_core::Block;

use super::{
    attend_rows::{add_scaled, vector},
    attention::{entries, for_heads, softmax_rows},
    dot_attention::NEVER,
    epilogue::{Identity, backward_rows, forward_rows},
    level::{Isa, kernel},
    parallel::{self, Rows, Runs},
    simd::Simd,
};
use crate::backend::ops::{EdgeAttention, EdgeAttentionBackward};

/// Adjacent columns of the edges' rows.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    /// Rows of the sources, `S x cols`, or of the edges, `E x cols`.
    pub(super) data: &'a [f32],
    pub(super) cols: usize,
    /// Number of the columns before these.
    pub(super) first: usize,
    pub(super) of_sources: bool,
}

impl<'a> Part<'a> {
    #[inline(always)]
    fn row(&self, block: &Block, e: usize) -> &'a [f32] {
        let at = if self.of_sources { block.indices[e] as usize } else { e };
        &self.data[at * self.cols..][..self.cols]
    }
}

/// Rows that attention reads: those of edges, in two parts.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) block: &'a Block,
    pub(super) parts: [Part<'a>; 2],
    pub(super) heads: usize,
    pub(super) scale: f32,
}

impl<'a> Job<'a> {
    /// Attention to rows of sources `x`, `S x F`, and of edges, `E x K`.
    pub(super) fn new(
        block: &'a Block,
        x: (&'a [f32], usize),
        rows: (&'a [f32], usize),
        heads: usize,
    ) -> Self {
        let part = |(data, cols), first, of_sources| Part { data, cols, first, of_sources };
        Self { block, parts: [part(x, 0, true), part(rows, x.1, false)], heads, scale: 1.0 }
    }

    /// Number of columns of all parts.
    #[inline(always)]
    fn cols(&self) -> usize {
        self.parts[0].cols + self.parts[1].cols
    }

    /// Columns of a part in the vectors of heads `h..h + N` of row `v`.
    #[inline(always)]
    fn of<'x, const N: usize>(&self, x: &'x [f32], part: Part, v: usize, h: usize) -> [&'x [f32]; N] {
        let mut out: [&[f32]; N] = [&[]; N];
        for i in 0..N {
            out[i] = &x[(v * self.heads + h + i) * self.cols() + part.first..][..part.cols];
        }
        out
    }
}

pub(super) fn forward(op: EdgeAttention) {
    let EdgeAttention { block, x, rows, query, scale, dropout, alpha, used, out } = op;
    let (heads, cols) = (alpha.num_cols(), x.num_cols() + rows.num_cols());
    if heads == 0 {
        return;
    }
    let (isa, drops) = (Isa::current(), dropout.threshold() != 0);
    let of_rows = (rows.host(), rows.num_cols());
    let job = Job { scale, ..Job::new(block, (x.host(), x.num_cols()), of_rows, heads) };
    let query = query.host();
    // without dropout, the matrix after dropout is empty
    let used = if drops { entries(block, used.host(), heads) } else { entries(block, &mut [], 0) };
    let parts = (entries(block, alpha.host(), heads), used, Rows { data: out.host(), width: heads * cols });
    parallel::runs(&block.indptr, 4 * heads * cols, parts, |rows, (alpha, used, out)| {
        products(isa, job, query, true, rows.clone(), scale, alpha.0.data);
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
    let EdgeAttentionBackward { block, x, rows, query, scale, dropout, alpha, used, grad, .. } = op;
    let (heads, cols) = (alpha.num_cols(), x.num_cols() + rows.num_cols());
    if heads == 0 {
        return op.x_grad.host().fill(0.0);
    }
    let isa = Isa::current();
    let of_rows = (rows.host(), rows.num_cols());
    let job = Job { scale, ..Job::new(block, (x.host(), x.num_cols()), of_rows, heads) };
    let (query, grad) = (query.host(), grad.host());
    let (alpha, used) = (alpha.host(), used.host());
    let score_grad = op.score_grad.host();
    let rows_grad = op.rows_grad.host();
    let width = if rows_grad.is_empty() { 0 } else { rows.num_cols() };
    let of_scores = entries(block, score_grad, heads);
    let of_rows = Runs { data: rows_grad, indptr: &block.indptr, width };
    let of_queries = Rows { data: op.query_grad.host(), width: heads * cols };
    let parts = (of_scores, of_rows, of_queries);
    parallel::runs(&block.indptr, 8 * heads * cols, parts, |rows, (scores, of_rows, of_queries)| {
        let edges = block.indptr[rows.start] as usize..block.indptr[rows.end] as usize;
        let entries = edges.start * heads..edges.end * heads;
        let (alpha, used) = (&alpha[entries.clone()], &used[entries]);
        let scores = (scores.0.data, scores.1.data);
        scores.1.fill(0.0);
        products(isa, job, grad, false, rows.clone(), 1.0, scores.0);
        if dropout.threshold() != 0 {
            backward_rows(isa, Identity, dropout, edges.start, heads, used, scores.0, &mut []);
        }
        through_softmax(isa, job, rows.clone(), alpha, scores.0);
        sums(isa, job, rows.clone(), scores.0, of_queries.data);
        if width > 0 {
            row_gradients(isa, job, [grad, query], rows, [used, scores.0], of_rows.data);
        }
    });
    let (t, scores) = (&block.transposed, &*score_grad);
    let to = Rows { data: op.x_grad.host(), width: x.num_cols() };
    parallel::runs(&t.indptr, 2 * heads * x.num_cols(), to, |sources, to| {
        source_gradients(isa, job, [grad, query], sources, [used, scores], to.data);
    });
}

kernel! {
    /// Computes `scale x[v, h] . row[e]` for the edges of some destinations, or with the row of `x`
    /// that destinations share.
    fn products[](
        s: S, job: Job<'_>, x: &[f32], shared: bool, rows: Range<usize>, scale: f32, out: &mut [f32],
    ) {
        let (heads, base) = (job.heads, job.block.indptr[rows.start] as usize);
        for v in rows {
            let run = job.block.edges(v);
            let out = &mut out[(run.start - base) * heads..(run.end - base) * heads];
            let own = if shared { job.block.own_row(v) } else { v };
            for_heads!(heads, (h, N) => {
                let mut e = run.start;
                // as many edges as make four sums, which are added up together
                while N < 4 && e + 4 / N <= run.end {
                    let to = &mut out[(e - run.start) * heads..];
                    match N {
                        1 => products_of::<S, 1, 4>(s, job, x, (own, h), e, scale, to),
                        _ => products_of::<S, 2, 2>(s, job, x, (own, h), e, scale, to),
                    }
                    e += 4 / N;
                }
                while e < run.end {
                    let to = &mut out[(e - run.start) * heads..];
                    products_of::<S, N, 1>(s, job, x, (own, h), e, scale, to);
                    e += 1;
                }
            });
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

    /// Computes `out[v, h] = sum over the edges of weight[e, h] row[e]` for some destinations.
    fn sums[](s: S, job: Job<'_>, rows: Range<usize>, weight: &[f32], out: &mut [f32]) {
        let Job { block, heads, .. } = job;
        let (base, cols) = (block.indptr[rows.start] as usize, job.cols());
        if cols == 0 {
            return;
        }
        for (v, out) in rows.zip(out.chunks_exact_mut(heads * cols)) {
            let weight = &weight[(block.indptr[v] as usize - base) * heads..];
            for_heads!(heads, (h, N) => add_tile::<S, N>(s, job, v, h, false, weight, out));
        }
    }

    /// Computes `out[e] = sum over h of used[e, h] grad[v, h] + score_grad[e, h] query[v, h]` for
    /// the edges of some destinations, in the columns of the second part.
    fn row_gradients[](
        s: S, job: Job<'_>, of: [&[f32]; 2], rows: Range<usize>, weights: [&[f32]; 2], out: &mut [f32],
    ) {
        let (heads, base, part) = (job.heads, job.block.indptr[rows.start] as usize, job.parts[1]);
        for v in rows {
            for e in job.block.edges(v) {
                let out = &mut out[(e - base) * part.cols..][..part.cols];
                let at = (e - base) * heads;
                let mut c = 0;
                while c < part.cols {
                    let mut sum = s.splat(0.0);
                    for h in 0..heads {
                        let [grad] = job.of::<1>(of[0], part, v, h);
                        let [query] = job.of::<1>(of[1], part, job.block.own_row(v), h);
                        sum = s.mul_add(s.splat(weights[0][at + h]), s.load(grad, c), sum);
                        sum = s.mul_add(s.splat(weights[1][at + h]), s.load(query, c), sum);
                    }
                    s.store(out, c, sum);
                    c += S::LANES;
                }
            }
        }
    }

    /// Computes `out[u] = sum over edges e to v and h of used[e, h] grad[v, h] + score_grad[e, h]
    /// query[v, h]` for some sources, in the columns of the first part.
    fn source_gradients[](
        s: S, job: Job<'_>, of: [&[f32]; 2], sources: Range<usize>, weights: [&[f32]; 2], out: &mut [f32],
    ) {
        let cols = job.parts[0].cols;
        if cols == 0 {
            return;
        }
        for (u, out) in sources.zip(out.chunks_exact_mut(cols)) {
            let mut at = 0;
            while at < cols {
                at += S::LANES
                    * match (cols - at).div_ceil(S::LANES) {
                        8.. if S::BLOCK > 8 => source_tile::<S, 8>(s, job, of, (u, at), weights, out),
                        7 if S::BLOCK > 8 => source_tile::<S, 7>(s, job, of, (u, at), weights, out),
                        4.. => source_tile::<S, 4>(s, job, of, (u, at), weights, out),
                        2.. => source_tile::<S, 2>(s, job, of, (u, at), weights, out),
                        _ => source_tile::<S, 1>(s, job, of, (u, at), weights, out),
                    };
            }
        }
    }
}

/// Part of the products: `G` edges from `e`, and `N` heads from `h`. `out` begins with edge `e`.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "edges and heads by number")]
fn products_of<S: Simd, const N: usize, const G: usize>(
    s: S,
    job: Job,
    x: &[f32],
    (own, h): (usize, usize),
    e: usize,
    scale: f32,
    out: &mut [f32],
) {
    let mut acc = [[s.splat(0.0); N]; G];
    for part in job.parts {
        let of_heads = job.of::<N>(x, part, own, h);
        let mut edges: [&[f32]; G] = [&[]; G];
        for g in 0..G {
            edges[g] = part.row(job.block, e + g);
        }
        let full = part.cols / S::LANES * S::LANES;
        let mut c = 0;
        while c < full {
            let mut rows = [s.splat(0.0); G];
            for g in 0..G {
                rows[g] = s.load(&edges[g][c..c + S::LANES], 0);
            }
            for i in 0..N {
                let w = s.load(&of_heads[i][c..c + S::LANES], 0);
                for g in 0..G {
                    acc[g][i] = s.mul_add(rows[g], w, acc[g][i]);
                }
            }
            c += S::LANES;
        }
        if c < part.cols {
            let zero = s.splat(0.0);
            for i in 0..N {
                let w = s.load_part(&of_heads[i][c..], zero);
                for g in 0..G {
                    acc[g][i] = s.mul_add(s.load_part(&edges[g][c..], zero), w, acc[g][i]);
                }
            }
        }
    }
    if N * G == 4 {
        let sums = s.sum4([acc[0][0], acc[1 / N][1 % N], acc[2 / N][2 % N], acc[3 / N][3 % N]]);
        for i in 0..4 {
            out[i / N * job.heads + h + i % N] = scale * sums[i];
        }
        return;
    }
    for g in 0..G {
        for i in 0..N {
            out[g * job.heads + h + i] = scale * s.sum(acc[g][i]);
        }
    }
}

/// Part of the gradient of source `u`: `M` vectors of columns from `at`, the last of which may be
/// partial; returns `M`.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "vectors by number")]
fn source_tile<S: Simd, const M: usize>(
    s: S,
    job: Job,
    of: [&[f32]; 2],
    (u, at): (usize, usize),
    weights: [&[f32]; 2],
    out: &mut [f32],
) -> usize {
    let (heads, part, t) = (job.heads, job.parts[0], &job.block.transposed);
    let len = (M * S::LANES).min(part.cols - at);
    assert!(len > (M - 1) * S::LANES);
    let mut acc = [s.splat(0.0); M];
    for i in t.indptr[u] as usize..t.indptr[u + 1] as usize {
        let (e, v) = (t.edge[i] as usize, t.dst[i] as usize);
        let own = [v, job.block.own_row(v)];
        for h in 0..heads {
            for k in 0..2 {
                let [row] = job.of::<1>(of[k], part, own[k], h);
                let (row, weight) = (&row[at..at + len], s.splat(weights[k][e * heads + h]));
                for j in 0..M {
                    acc[j] = s.mul_add(weight, vector::<S, f32, M>(s, row, j), acc[j]);
                }
            }
        }
    }
    for j in 0..M {
        s.store(&mut out[at..at + len], j * S::LANES, acc[j]);
    }
    M
}

/// Computes heads `h..h + N` of the sums of destination `v`, or adds them to `out`, `H x J`.
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
    for part in job.parts {
        let mut at = 0;
        while at < part.cols {
            let place = (v, h, at);
            at += S::LANES
                * match (part.cols - at).div_ceil(S::LANES) {
                    8.. if N <= 2 && S::BLOCK > 8 => tile::<S, N, 8>(s, job, part, place, add, weight, out),
                    7 if N <= 2 && S::BLOCK > 8 => tile::<S, N, 7>(s, job, part, place, add, weight, out),
                    4.. if N <= 4 && S::BLOCK > 8 => tile::<S, N, 4>(s, job, part, place, add, weight, out),
                    2.. if N <= 4 => tile::<S, N, 2>(s, job, part, place, add, weight, out),
                    _ => tile::<S, N, 1>(s, job, part, place, add, weight, out),
                };
        }
    }
}

/// Part of [`add_tile`]: `M` vectors of columns of a part from `at`, the last of which may be
/// partial; returns `M`.
#[inline(always)]
fn tile<S: Simd, const N: usize, const M: usize>(
    s: S,
    job: Job,
    part: Part,
    (v, h, at): (usize, usize, usize),
    add: bool,
    weight: &[f32],
    out: &mut [f32],
) -> usize {
    let Job { block, heads, .. } = job;
    let len = (M * S::LANES).min(part.cols - at);
    assert!(len > (M - 1) * S::LANES);
    let mut acc = [[s.splat(0.0); M]; N];
    for (i, e) in block.edges(v).enumerate() {
        let weight = &weight[i * heads + h..][..N];
        add_scaled::<S, f32, N, M>(s, weight, &part.row(block, e)[at..at + len], &mut acc);
    }
    for i in 0..N {
        let out = &mut out[(h + i) * job.cols() + part.first + at..][..len];
        for (j, &acc) in acc[i].iter().enumerate() {
            let sum = if add { s.add(acc, vector::<S, f32, M>(s, out, j)) } else { acc };
            s.store(out, j * S::LANES, sum);
        }
    }
    M
}
