//! Row operations of attention over input rows: dot products with every head's vector, and sums for
//! several heads that stay in registers together, so that each row is loaded once.
//!
//! Loops over arrays of vectors use indices, and closures are avoided, because iterator adapters
//! and closures are not always inlined into functions compiled for the instructions of `S`.

use std::ops::Range;

use graphmill_core::Block;

use super::{
    simd::{Element, Simd},
    source::Source,
    sum::{OWN_PREFETCH_DISTANCE, ahead},
};

/// Rows that attention reads.
#[derive(Clone, Copy)]
pub(super) struct Input<'a, R> {
    pub(super) block: &'a Block,
    /// `S x F`.
    pub(super) x: R,
    pub(super) cols: usize,
    pub(super) heads: usize,
}

impl<R: Source> Input<'_, R> {
    #[inline(always)]
    pub(super) fn row(&self, u: usize) -> &[R::Value] {
        self.x.part(u, self.cols, 0, self.cols)
    }

    /// Entries of destination `v` in a matrix whose edge part begins with edge `base`.
    #[inline(always)]
    pub(super) fn run(&self, v: usize, base: usize) -> Range<usize> {
        let run = self.block.edges(v);
        (run.start - base) * self.heads..(run.end - base) * self.heads
    }
}

/// Rows `h..h + N` of `w` (`H x F`).
#[inline(always)]
pub(super) fn of_heads<'a, R: Source, const N: usize>(
    job: Input<R>,
    w: &'a [f32],
    h: usize,
) -> [&'a [f32]; N] {
    let mut rows: [&[f32]; N] = [&[]; N];
    for i in 0..N {
        rows[i] = &w[(h + i) * job.cols..][..job.cols];
    }
    rows
}

/// Computes `add[i] + x . w[i]`, all of one length.
#[inline(always)]
pub(super) fn dots<S: Simd, T: Element, const N: usize>(
    s: S,
    x: &[T],
    w: [&[f32]; N],
    add: [f32; N],
) -> [f32; N] {
    let mut acc = [s.splat(0.0); N];
    let mut c = 0;
    while c + S::LANES <= x.len() {
        let x = T::load_full(s, &x[c..]);
        for i in 0..N {
            acc[i] = s.mul_add(x, s.load(w[i], c), acc[i]);
        }
        c += S::LANES;
    }
    if c < x.len() {
        let zero = s.splat(0.0);
        let x = T::load(s, &x[c..]);
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

/// Computes [`dots`] of the rows of a destination's edges, for heads `h..h + N`.
#[inline(always)]
pub(super) fn entry_dots<S: Simd, R: Source, const N: usize>(
    s: S,
    job: Input<R>,
    v: usize,
    h: usize,
    w: [&[f32]; N],
    add: [f32; N],
    out: &mut [f32],
) {
    let ahead = if h > 0 || job.cols == 0 { 0 } else { ahead(job.x, job.cols) };
    if ahead != 0
        && let Some(ids) = &job.block.dst_ids
        && let Some(&next) = ids.get(v + OWN_PREFETCH_DISTANCE)
    {
        job.x.prefetch(next as usize, job.cols);
    }
    for (i, e) in job.block.edges(v).enumerate() {
        if ahead != 0
            && let Some(&next) = job.block.indices.get(e + ahead)
        {
            job.x.prefetch(next as usize, job.cols);
        }
        let sums = dots(s, job.row(job.block.indices[e] as usize), w, add);
        out[i * job.heads + h..][..N].copy_from_slice(&sums);
    }
}

/// `out += a x`.
#[inline(always)]
pub(super) fn add_row<S: Simd, T: Element>(s: S, a: f32, x: &[T], out: &mut [f32]) {
    let mut c = 0;
    while c < x.len() {
        let sum = s.mul_add(s.splat(a), T::load(s, &x[c..]), s.load(out, c));
        s.store(out, c, sum);
        c += S::LANES;
    }
}

/// Computes
/// `out[h] = (out[h] if add) + sum over the entries of destination v of weight[e, h] x[u]`; `out`
/// is `H x F`.
#[inline(always)]
pub(super) fn add_entries<S: Simd, R: Source>(
    s: S,
    job: Input<R>,
    v: usize,
    edges: &[f32],
    own: &[f32],
    add: bool,
    out: &mut [f32],
) {
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
            // as many sums as fit in registers
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

/// Part of [`add_entries`]: heads from `h` and columns from `at` on.
#[derive(Clone, Copy)]
struct Tile<'a, R> {
    job: Input<'a, R>,
    v: usize,
    h: usize,
    at: usize,
    edges: &'a [f32],
    own: &'a [f32],
    add: bool,
}

impl<R: Source> Tile<'_, R> {
    /// Computes `N` heads and `M` vectors of columns, the last of which may be partial; returns
    /// `M`.
    #[inline(always)]
    fn sum<S: Simd, const N: usize, const M: usize>(self, s: S, out: &mut [f32]) -> usize {
        let Self { job, v, h, at, edges, own, add } = self;
        let Input { block, heads, cols, .. } = job;
        let len = (M * S::LANES).min(cols - at);
        assert!(len > (M - 1) * S::LANES);
        let mut acc = [[s.splat(0.0); M]; N];
        for (i, &u) in block.indices[block.edges(v)].iter().enumerate() {
            let weight = &edges[i * heads + h..][..N];
            add_scaled::<S, R::Value, N, M>(s, weight, &job.row(u as usize)[at..at + len], &mut acc);
        }
        add_scaled::<S, R::Value, N, M>(
            s,
            &own[h..h + N],
            &job.row(block.own_row(v))[at..at + len],
            &mut acc,
        );
        for i in 0..N {
            let out = &mut out[(h + i) * cols + at..][..len];
            for (j, &acc) in acc[i].iter().enumerate() {
                let sum = if add { s.add(acc, vector::<S, _, M>(s, out, j)) } else { acc };
                s.store(out, j * S::LANES, sum);
            }
        }
        M
    }
}

/// Vector `j` of `M` in a row, the last of which may be partial.
#[inline(always)]
pub(super) fn vector<S: Simd, T: Element, const M: usize>(s: S, row: &[T], j: usize) -> S::F {
    if j + 1 < M {
        T::load_full(s, &row[..(M - 1) * S::LANES][j * S::LANES..])
    } else {
        T::load(s, &row[(M - 1) * S::LANES..])
    }
}

/// Adds a row of at most `M` vectors, times each weight.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "heads and vectors by number")]
pub(super) fn add_scaled<S: Simd, T: Element, const N: usize, const M: usize>(
    s: S,
    weight: &[f32],
    row: &[T],
    acc: &mut [[S::F; M]; N],
) {
    let weight = &weight[..N];
    let mut vectors = [s.splat(0.0); M];
    for j in 0..M {
        vectors[j] = vector::<S, T, M>(s, row, j);
    }
    for i in 0..N {
        let weight = s.splat(weight[i]);
        for j in 0..M {
            acc[i][j] = s.mul_add(weight, vectors[j], acc[i][j]);
        }
    }
}
