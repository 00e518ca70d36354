//! Column sums, in an order that depends only on the number of rows.

use std::ops::Range;

use super::{
    level::{Isa, kernel},
    parallel::{Chunks, Parts},
    scratch::{self, Scratch},
    simd::Simd,
};
use crate::{View, ViewMut, backend::ops::shape};

/// Rows summed in f32 before the sum is added in f64: few enough for accuracy and to stay in the
/// second-level cache when they are read twice.
pub(super) const BLOCK: usize = 128;

/// Calls `f` on blocks of at most [`BLOCK`] rows, with their `parts` and `width` zeroed sums to add
/// to, and returns the sums over all blocks, the first `width` values of the result.
pub(super) fn sums<P: Parts>(
    rows: usize,
    width: usize,
    parts: P,
    f: impl Fn(Range<usize>, P, &mut [f32]) + Sync,
) -> Scratch {
    let chunks = Chunks::new(rows, 2 * BLOCK);
    // per chunk: sums in f64, then those of the current block in f32
    let stride = width + width.div_ceil(2);
    let mut scratch = scratch::take(chunks.count().max(1) * stride);
    scratch[..width].fill(0.0);
    chunks.each(parts, &mut scratch, |range, mut parts, sums| {
        let (total, block) = sums.split_at_mut(width);
        let block = &mut bytemuck::cast_slice_mut::<f64, f32>(block)[..width];
        total.fill(0.0);
        let mut at = range.start;
        while at < range.end {
            let end = (at + BLOCK).min(range.end);
            let (now, rest) = parts.cut(end - at);
            parts = rest;
            block.fill(0.0);
            f(at..end, now, block);
            total.iter_mut().zip(&*block).for_each(|(total, &x)| *total += f64::from(x));
            at = end;
        }
    });
    let (total, others) = scratch.split_at_mut(stride);
    for other in others.chunks_exact(stride.max(1)) {
        total[..width].iter_mut().zip(other).for_each(|(total, x)| *total += x);
    }
    scratch
}

/// Computes `out = out + sums`.
pub(super) fn add_to(out: ViewMut, sums: &[f64]) {
    out.host().iter_mut().zip(sums).for_each(|(out, sum)| *out = (f64::from(*out) + sum) as f32);
}

pub(super) fn add_column_sums(x: View, out: ViewMut) {
    let cols = x.num_cols();
    shape::row(out.as_view(), cols);
    let (isa, data) = (Isa::current(), x.host());
    let sums = sums(x.num_rows(), cols, (), |range, (), sums| {
        sum_block(isa, &data[range.start * cols..range.end * cols], sums);
    });
    add_to(out, &sums);
}

kernel! {
    fn sum_block[](s: S, x: &[f32], sums: &mut [f32]) {
        add_columns(s, Values(x), x.len() / sums.len().max(1), sums);
    }

    /// Sum of `x * y` in f64, as sixteen partial sums.
    fn dot_chunk[](_s: S, x: &[f32], y: &[f32]) -> f64 {
        let mut sums = [0.0f64; 16];
        let (xs, ys) = (x.chunks_exact(16), y.chunks_exact(16));
        let rest = xs.remainder().iter().zip(ys.remainder());
        let rest: f64 = rest.map(|(&x, &y)| f64::from(x) * f64::from(y)).sum();
        for (x, y) in xs.zip(ys) {
            for i in 0..16 {
                sums[i] += f64::from(x[i]) * f64::from(y[i]);
            }
        }
        sums.iter().sum::<f64>() + rest
    }
}

/// Summand of a column sum: the values of a matrix, or values derived from them.
pub(super) trait Term: Copy {
    /// Vector of columns `c..` in row `r` of `cols` columns, 0 beyond the row.
    fn at<S: Simd>(&self, s: S, r: usize, cols: usize, c: usize) -> S::F;
}

/// Values of a matrix.
#[derive(Clone, Copy)]
pub(super) struct Values<'a>(pub(super) &'a [f32]);

impl Term for Values<'_> {
    #[inline(always)]
    fn at<S: Simd>(&self, s: S, r: usize, cols: usize, c: usize) -> S::F {
        s.load(&self.0[r * cols..][..cols], c)
    }
}

/// Adds `rows` rows of terms to `sums`, for use in kernels. The sums of as many columns as possible
/// stay in registers; in memory, every row would wait for the stores of the previous row.
#[inline(always)]
pub(super) fn add_columns<S: Simd, T: Term>(s: S, term: T, rows: usize, sums: &mut [f32]) {
    let mut at = 0;
    while at < sums.len() {
        let left = (sums.len() - at).div_ceil(S::LANES);
        let count = match left {
            16.. if S::BLOCK > 8 => add_block::<S, T, 16>(s, term, rows, at, sums),
            8.. if S::BLOCK > 4 => add_block::<S, T, 8>(s, term, rows, at, sums),
            4.. => add_block::<S, T, 4>(s, term, rows, at, sums),
            2.. => add_block::<S, T, 2>(s, term, rows, at, sums),
            _ => add_block::<S, T, 1>(s, term, rows, at, sums),
        };
        at += count * S::LANES;
    }
}

/// Adds `N` vectors of columns from `at` on; returns `N`.
#[inline(always)]
fn add_block<S: Simd, T: Term, const N: usize>(
    s: S,
    term: T,
    rows: usize,
    at: usize,
    sums: &mut [f32],
) -> usize {
    let mut acc = [s.splat(0.0); N];
    for r in 0..rows {
        for (i, acc) in acc.iter_mut().enumerate() {
            *acc = s.add(*acc, term.at(s, r, sums.len(), at + i * S::LANES));
        }
    }
    for (i, &acc) in acc.iter().enumerate() {
        let sum = s.add(s.load(sums, at + i * S::LANES), acc);
        s.store(sums, at + i * S::LANES, sum);
    }
    N
}

pub(super) fn dot(x: View, y: View) -> f64 {
    shape::same(x, y);
    let (isa, x, y) = (Isa::current(), x.host(), y.host());
    let chunks = Chunks::new(x.len(), 16 * 1024);
    let mut sums = [0.0; Chunks::MAX];
    let sums = &mut sums[..chunks.count()];
    chunks.each((), sums, |range, (), sum| sum[0] = dot_chunk(isa, &x[range.clone()], &y[range]));
    sums.iter().sum()
}
