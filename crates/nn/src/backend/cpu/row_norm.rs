//! Normalization of each row: layer normalization and unit length.

use super::{
    columns,
    level::{Isa, kernel},
    parallel::{self, Rows},
    simd::Simd,
};
use crate::backend::ops::{L2NormBackward, L2NormForward, LayerNormBackward, LayerNormForward};

/// Norm below which a row is (nearly) unchanged and has gradient 0.
const TINY: f32 = 1e-12;

pub(super) fn layer_norm(op: LayerNormForward) {
    let LayerNormForward { x, gamma, beta, eps, stats, out } = op;
    let (isa, cols, data) = (Isa::current(), x.num_cols(), x.host());
    let (gamma, beta) = (gamma.host(), beta.host());
    let parts = (Rows { data: stats.host(), width: 2 }, Rows { data: out.host(), width: cols });
    parallel::rows(x.num_rows(), 2 * cols, parts, |range, (stats, out)| {
        let x = &data[range.start * cols..range.end * cols];
        layer_norm_rows(isa, x, gamma, beta, eps, stats.data, out.data);
    });
}

pub(super) fn layer_norm_backward(op: LayerNormBackward) {
    let LayerNormBackward { x, gamma, eps, stats, grad, gamma_grad, beta_grad } = op;
    let (isa, cols, data) = (Isa::current(), x.num_cols(), x.host());
    let (gamma, stats) = (gamma.host(), stats.host());
    let grad = Rows { data: grad.host(), width: cols };
    let sums = columns::sums(x.num_rows(), 2 * cols, grad, |range, grad, sums| {
        let x = &data[range.start * cols..range.end * cols];
        layer_norm_back_rows(isa, x, gamma, eps, &stats[2 * range.start..2 * range.end], grad.data, sums);
    });
    columns::add_to(beta_grad, &sums[..cols]);
    columns::add_to(gamma_grad, &sums[cols..2 * cols]);
}

pub(super) fn l2_norm(op: L2NormForward) {
    let L2NormForward { x, norms, out } = op;
    let (isa, cols, data) = (Isa::current(), x.num_cols(), x.host());
    let parts = (Rows { data: norms.host(), width: 1 }, Rows { data: out.host(), width: cols });
    parallel::rows(x.num_rows(), 2 * cols, parts, |range, (norms, out)| {
        l2_norm_rows(isa, &data[range.start * cols..range.end * cols], cols, norms.data, out.data);
    });
}

pub(super) fn l2_norm_backward(op: L2NormBackward) {
    let L2NormBackward { y, norms, grad } = op;
    let (isa, cols, y, norms) = (Isa::current(), y.num_cols(), y.host(), norms.host());
    parallel::rows(norms.len(), 2 * cols, Rows { data: grad.host(), width: cols }, |range, grad| {
        let y = &y[range.start * cols..range.end * cols];
        l2_norm_back_rows(isa, y, cols, &norms[range], grad.data);
    });
}

/// Dot product of two rows.
#[inline(always)]
pub(super) fn dot<S: Simd>(s: S, x: &[f32], y: &[f32]) -> f32 {
    let mut sum = s.splat(0.0);
    let mut c = 0;
    let y = &y[..x.len()];
    while c < x.len() {
        sum = s.mul_add(s.load(x, c), s.load(y, c), sum);
        c += S::LANES;
    }
    s.sum(sum)
}

kernel! {
    fn layer_norm_rows[](
        s: S, x: &[f32], gamma: &[f32], beta: &[f32], eps: f32, stats: &mut [f32], out: &mut [f32],
    ) {
        let cols = gamma.len().max(1);
        let rows = x.chunks_exact(cols).zip(out.chunks_exact_mut(cols));
        for ((x, out), stats) in rows.zip(stats.chunks_exact_mut(2)) {
            let mut sum = s.splat(0.0);
            let mut c = 0;
            while c < cols {
                sum = s.add(sum, s.load(x, c));
                c += S::LANES;
            }
            let mean = s.sum(sum) / cols as f32;
            let mut squares = s.splat(0.0);
            let mut c = 0;
            while c < cols {
                // lanes beyond the row have deviation 0
                let gap = s.sub(s.load_or(x, c, s.splat(mean)), s.splat(mean));
                squares = s.mul_add(gap, gap, squares);
                c += S::LANES;
            }
            let var = s.sum(squares) / cols as f32;
            let inverse = s.splat(1.0 / (var + eps).sqrt());
            let mut c = 0;
            while c < cols {
                let hat = s.mul(s.sub(s.load(x, c), s.splat(mean)), inverse);
                let y = s.mul_add(hat, s.load(gamma, c), s.load(beta, c));
                s.store(out, c, y);
                c += S::LANES;
            }
            stats.copy_from_slice(&[mean, var]);
        }
    }

    /// Adds the columns of the gradient, then those of its product with the normalized rows, to
    /// `sums`.
    fn layer_norm_back_rows[](
        s: S, x: &[f32], gamma: &[f32], eps: f32, stats: &[f32], grad: &mut [f32], sums: &mut [f32],
    ) {
        let cols = gamma.len().max(1);
        let (beta_sum, gamma_sum) = sums.split_at_mut(gamma.len());
        let rows = x.chunks_exact(cols).zip(grad.chunks_exact_mut(cols));
        for ((x, grad), stats) in rows.zip(stats.chunks_exact(2)) {
            let mean = s.splat(stats[0]);
            let inverse = 1.0 / (stats[1] + eps).sqrt();
            let (mut sum, mut dot) = (s.splat(0.0), s.splat(0.0));
            let mut c = 0;
            while c < cols {
                let hat = s.mul(s.sub(s.load(x, c), mean), s.splat(inverse));
                let g = s.load(grad, c);
                let new_beta = s.add(s.load(beta_sum, c), g);
                let new_gamma = s.mul_add(g, hat, s.load(gamma_sum, c));
                s.store(beta_sum, c, new_beta);
                s.store(gamma_sum, c, new_gamma);
                // beyond the row g is 0
                let scaled = s.mul(g, s.load(gamma, c));
                sum = s.add(sum, scaled);
                dot = s.mul_add(scaled, hat, dot);
                c += S::LANES;
            }
            let sum = s.splat(s.sum(sum) / cols as f32);
            let dot = s.splat(s.sum(dot) / cols as f32);
            let mut c = 0;
            while c < cols {
                let hat = s.mul(s.sub(s.load(x, c), mean), s.splat(inverse));
                let scaled = s.mul(s.load(grad, c), s.load(gamma, c));
                let rest = s.sub(scaled, s.mul_add(hat, dot, sum));
                s.store(grad, c, s.mul(rest, s.splat(inverse)));
                c += S::LANES;
            }
        }
    }

    fn l2_norm_rows[](s: S, x: &[f32], cols: usize, norms: &mut [f32], out: &mut [f32]) {
        let rows = x.chunks_exact(cols.max(1)).zip(out.chunks_exact_mut(cols.max(1)));
        if cols == 0 {
            norms.fill(0.0);
        }
        for ((x, out), norm) in rows.zip(norms) {
            *norm = dot(s, x, x).sqrt();
            let inverse = s.splat(1.0 / if *norm > TINY { *norm } else { TINY });
            let mut c = 0;
            while c < cols {
                s.store(out, c, s.mul(s.load(x, c), inverse));
                c += S::LANES;
            }
        }
    }

    fn l2_norm_back_rows[](s: S, y: &[f32], cols: usize, norms: &[f32], grad: &mut [f32]) {
        let rows = y.chunks_exact(cols.max(1)).zip(grad.chunks_exact_mut(cols.max(1)));
        for ((y, grad), &norm) in rows.zip(norms) {
            let along = s.splat(-dot(s, y, grad));
            let inverse = s.splat(if norm > TINY { 1.0 / norm } else { 0.0 });
            let mut c = 0;
            while c < cols {
                let g = s.mul_add(along, s.load(y, c), s.load(grad, c));
                s.store(grad, c, s.mul(g, inverse));
                c += S::LANES;
            }
        }
    }
}
