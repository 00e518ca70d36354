//! Batch normalization: column statistics, then a pass over the rows.

use super::{
    columns::{self, BLOCK, Term, Values, add_columns},
    level::{Isa, kernel},
    parallel::{self, Chunks, Rows},
    scratch,
    simd::Simd,
};
use crate::{
    View,
    backend::ops::{BatchNormApply, BatchNormBackward, BatchNormForward},
};

/// Means, then biased variances, of the columns of `x`.
///
/// Blocks of rows that fit the cache are read twice, for their means and then for their squared
/// deviations. Blocks are merged by the formula of Chan, Golub and LeVeque (*Updating formulae and
/// a pairwise algorithm for computing sample variances*, 1979), which keeps the digits that
/// `E[x^2] - E[x]^2` loses.
fn statistics(x: View, stats: &mut [f32]) {
    let (isa, rows, cols, data) = (Isa::current(), x.num_rows(), x.num_cols(), x.host());
    let chunks = Chunks::new(rows, 2 * BLOCK);
    // per chunk: means, sums of squared deviations, and the sums of the current block (two kinds,
    // in f32)
    let stride = 3 * cols;
    let mut scratch = scratch::take(chunks.count().max(1) * stride);
    scratch[..2 * cols].fill(0.0);
    chunks.each((), &mut scratch, |range, (), out| {
        let (total, block) = out.split_at_mut(2 * cols);
        let block = bytemuck::cast_slice_mut::<f64, f32>(block);
        total.fill(0.0);
        let mut at = range.start;
        while at < range.end {
            let end = (at + BLOCK).min(range.end);
            let (mean, squares) = block.split_at_mut(cols);
            moments(isa, &data[at * cols..end * cols], mean, squares);
            let merged = block.iter().map(|&x| f64::from(x));
            merge(total, at - range.start, merged, end - at);
            at = end;
        }
    });
    let (total, others) = scratch.split_at_mut(stride);
    let mut seen = chunks.len_of(0);
    for (i, other) in others.chunks_exact(stride.max(1)).enumerate() {
        let len = chunks.len_of(i + 1);
        merge(&mut total[..2 * cols], seen, other[..2 * cols].iter().copied(), len);
        seen += len;
    }
    let (mean, squares) = stats.split_at_mut(cols);
    mean.iter_mut().zip(&*total).for_each(|(mean, &x)| *mean = x as f32);
    squares.iter_mut().zip(&total[cols..]).for_each(|(var, &x)| *var = (x / rows.max(1) as f64) as f32);
}

/// Merges the means and squared deviations of `more` rows into those of `seen` rows.
fn merge(total: &mut [f64], seen: usize, block: impl Iterator<Item = f64> + Clone, more: usize) {
    let (mean, squares) = total.split_at_mut(total.len() / 2);
    let share = more as f64 / (seen + more).max(1) as f64;
    let both = block.clone().zip(block.skip(mean.len()));
    for ((mean, squares), (block_mean, block_squares)) in mean.iter_mut().zip(squares).zip(both) {
        let gap = block_mean - *mean;
        *mean += gap * share;
        *squares += block_squares + gap * gap * share * seen as f64;
    }
}

pub(super) fn batch_norm(op: BatchNormForward) {
    let BatchNormForward { x, gamma, beta, eps, mut stats, out } = op;
    statistics(x, stats.reborrow().host());
    batch_norm_apply(BatchNormApply { x, gamma, beta, eps, stats: stats.as_view(), out });
}

pub(super) fn batch_norm_apply(op: BatchNormApply) {
    let BatchNormApply { x, gamma, beta, eps, stats, out } = op;
    let (isa, cols, data) = (Isa::current(), x.num_cols(), x.host());
    let (mean, var) = stats.host().split_at(cols);
    let mut scratch = scratch::take(cols.div_ceil(2));
    let slope = &mut bytemuck::cast_slice_mut::<f64, f32>(&mut scratch)[..cols];
    for ((slope, gamma), var) in slope.iter_mut().zip(gamma.host()).zip(var) {
        *slope = gamma / (var + eps).sqrt();
    }
    let (slope, beta) = (&*slope, beta.host());
    parallel::rows(x.num_rows(), 2 * cols, Rows { data: out.host(), width: cols }, |range, out| {
        normalize(isa, &data[range.start * cols..range.end * cols], mean, slope, beta, out.data);
    });
}

pub(super) fn batch_norm_backward(op: BatchNormBackward) {
    let BatchNormBackward { x, gamma, eps, stats, mut grad, gamma_grad, beta_grad } = op;
    let (isa, rows, cols, data) = (Isa::current(), x.num_rows(), x.num_cols(), x.host());
    let (mean, var) = stats.host().split_at(cols);
    let old = grad.as_view().host();
    // sums of g and of g (x - mean)
    let mut sums = columns::sums(rows, 2 * cols, (), |range, (), sums| {
        let range = range.start * cols..range.end * cols;
        gradient_sums(isa, &data[range.clone()], &old[range], mean, sums);
    });
    let mut scratch = scratch::take(cols.div_ceil(2) * 3);
    let mut factors =
        bytemuck::cast_slice_mut::<f64, f32>(&mut scratch).chunks_exact_mut(cols.next_multiple_of(2).max(1));
    let mut factor = || factors.next().map(|x| &mut x[..cols]).unwrap_or_default();
    let (of_grad, of_x, constant) = (factor(), factor(), factor());
    let (sum, dot) = sums[..2 * cols].split_at_mut(cols);
    for c in 0..cols {
        let inverse = 1.0 / (f64::from(var[c]) + f64::from(eps)).sqrt();
        let slope = f64::from(gamma.host()[c]) * inverse;
        dot[c] *= inverse;
        // slope (g - (sum + dot (x - mean) inverse) / rows)
        of_grad[c] = slope as f32;
        of_x[c] = (-slope * dot[c] * inverse / rows as f64) as f32;
        constant[c] = (-slope * sum[c] / rows as f64) as f32;
    }
    columns::add_to(beta_grad, sum);
    columns::add_to(gamma_grad, dot);
    let (of_grad, of_x, constant) = (&*of_grad, &*of_x, &*constant);
    parallel::rows(rows, 2 * cols, Rows { data: grad.reborrow().host(), width: cols }, |range, grad| {
        let x = &data[range.start * cols..range.end * cols];
        combine(isa, x, mean, of_grad, of_x, constant, grad.data);
    });
}

/// `(x - mean)^2`.
#[derive(Clone, Copy)]
struct Squares<'a> {
    x: &'a [f32],
    mean: &'a [f32],
}

impl Term for Squares<'_> {
    #[inline(always)]
    fn at<S: Simd>(&self, s: S, r: usize, cols: usize, c: usize) -> S::F {
        let gap = s.sub(Values(self.x).at(s, r, cols, c), s.load(self.mean, c));
        s.mul(gap, gap)
    }
}

/// `grad (x - mean)`.
#[derive(Clone, Copy)]
struct Products<'a> {
    x: &'a [f32],
    mean: &'a [f32],
    grad: &'a [f32],
}

impl Term for Products<'_> {
    #[inline(always)]
    fn at<S: Simd>(&self, s: S, r: usize, cols: usize, c: usize) -> S::F {
        let gap = s.sub(Values(self.x).at(s, r, cols, c), s.load(self.mean, c));
        s.mul(gap, Values(self.grad).at(s, r, cols, c))
    }
}

kernel! {
    /// Means and sums of squared deviations of a block of rows.
    fn moments[](s: S, x: &[f32], mean: &mut [f32], squares: &mut [f32]) {
        mean.fill(0.0);
        squares.fill(0.0);
        let rows = x.len() / mean.len().max(1);
        add_columns(s, Values(x), rows, mean);
        let inverse = 1.0 / rows.max(1) as f32;
        mean.iter_mut().for_each(|x| *x *= inverse);
        add_columns(s, Squares { x, mean }, rows, squares);
    }

    fn normalize[](s: S, x: &[f32], mean: &[f32], slope: &[f32], beta: &[f32], out: &mut [f32]) {
        let cols = mean.len().max(1);
        for (x, out) in x.chunks_exact(cols).zip(out.chunks_exact_mut(cols)) {
            let mut c = 0;
            while c < out.len() {
                let gap = s.sub(s.load(x, c), s.load(mean, c));
                let y = s.mul_add(gap, s.load(slope, c), s.load(beta, c));
                s.store(out, c, y);
                c += S::LANES;
            }
        }
    }

    /// Adds the columns of `grad`, then those of `grad (x - mean)`, to `sums`.
    fn gradient_sums[](s: S, x: &[f32], grad: &[f32], mean: &[f32], sums: &mut [f32]) {
        let (sum, dot) = sums.split_at_mut(mean.len());
        let rows = x.len() / mean.len().max(1);
        add_columns(s, Values(grad), rows, sum);
        add_columns(s, Products { x, mean, grad }, rows, dot);
    }

    /// Computes `g = of_grad g + of_x (x - mean) + constant`.
    fn combine[](
        s: S, x: &[f32], mean: &[f32], of_grad: &[f32], of_x: &[f32], constant: &[f32], grad: &mut [f32],
    ) {
        let cols = mean.len().max(1);
        for (x, grad) in x.chunks_exact(cols).zip(grad.chunks_exact_mut(cols)) {
            let mut c = 0;
            while c < grad.len() {
                let gap = s.sub(s.load(x, c), s.load(mean, c));
                let g = s.mul_add(s.load(grad, c), s.load(of_grad, c), s.load(constant, c));
                let g = s.mul_add(gap, s.load(of_x, c), g);
                s.store(grad, c, g);
                c += S::LANES;
            }
        }
    }
}
