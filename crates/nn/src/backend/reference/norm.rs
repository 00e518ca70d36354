//! Normalizations.

use super::{at, set};
use crate::backend::ops::{
    BatchNormApply, BatchNormBackward, BatchNormForward, L2NormBackward, L2NormForward, LayerNormBackward,
    LayerNormForward,
};

pub(super) fn batch_norm(op: BatchNormForward) {
    let BatchNormForward { x, gamma, beta, eps, mut stats, out } = op;
    let (rows, count) = (x.num_rows(), x.num_rows().max(1) as f64);
    let mean = |c| (0..rows).map(|r| at(x, r, c)).sum::<f64>() / count;
    set(stats.reborrow(), |which, c, _| {
        let mean = mean(c);
        match which {
            0 => mean,
            _ => (0..rows).map(|r| (at(x, r, c) - mean).powi(2)).sum::<f64>() / count,
        }
    });
    batch_norm_apply(BatchNormApply { x, gamma, beta, eps, stats: stats.as_view(), out });
}

pub(super) fn batch_norm_apply(op: BatchNormApply) {
    let BatchNormApply { x, gamma, beta, eps, stats, out } = op;
    set(out, |r, c, _| {
        let inverse = 1.0 / (at(stats, 1, c) + f64::from(eps)).sqrt();
        at(gamma, 0, c) * (at(x, r, c) - at(stats, 0, c)) * inverse + at(beta, 0, c)
    });
}

pub(super) fn batch_norm_backward(op: BatchNormBackward) {
    let BatchNormBackward { x, gamma, eps, stats, grad, gamma_grad, beta_grad } = op;
    let (rows, cols) = (x.num_rows(), x.num_cols());
    let (gamma_grad, beta_grad, grad) = (gamma_grad.host(), beta_grad.host(), grad.host());
    for c in 0..cols {
        let inverse = 1.0 / (at(stats, 1, c) + f64::from(eps)).sqrt();
        let hat = |r| (at(x, r, c) - at(stats, 0, c)) * inverse;
        let sum: f64 = (0..rows).map(|r| f64::from(grad[r * cols + c])).sum();
        let dot: f64 = (0..rows).map(|r| f64::from(grad[r * cols + c]) * hat(r)).sum();
        for r in 0..rows {
            let g = &mut grad[r * cols + c];
            *g = (at(gamma, 0, c) * inverse * (f64::from(*g) - (sum + hat(r) * dot) / rows as f64)) as f32;
        }
        gamma_grad[c] = (f64::from(gamma_grad[c]) + dot) as f32;
        beta_grad[c] = (f64::from(beta_grad[c]) + sum) as f32;
    }
}

pub(super) fn layer_norm(op: LayerNormForward) {
    let LayerNormForward { x, gamma, beta, eps, stats, out } = op;
    let cols = x.num_cols();
    let (stats, out) = (stats.host(), out.host());
    for r in 0..x.num_rows() {
        let mean = (0..cols).map(|c| at(x, r, c)).sum::<f64>() / cols as f64;
        let var = (0..cols).map(|c| (at(x, r, c) - mean).powi(2)).sum::<f64>() / cols as f64;
        let inverse = 1.0 / (var + f64::from(eps)).sqrt();
        for c in 0..cols {
            out[r * cols + c] = (at(gamma, 0, c) * (at(x, r, c) - mean) * inverse + at(beta, 0, c)) as f32;
        }
        stats[r * 2..][..2].copy_from_slice(&[mean as f32, var as f32]);
    }
}

pub(super) fn layer_norm_backward(op: LayerNormBackward) {
    let LayerNormBackward { x, gamma, eps, stats, grad, gamma_grad, beta_grad } = op;
    let (rows, cols) = (x.num_rows(), x.num_cols());
    let grad = grad.host();
    let hat = |r, c| (at(x, r, c) - at(stats, r, 0)) / (at(stats, r, 1) + f64::from(eps)).sqrt();
    set(gamma_grad, |_, c, old| {
        f64::from(old) + (0..rows).map(|r| f64::from(grad[r * cols + c]) * hat(r, c)).sum::<f64>()
    });
    set(beta_grad, |_, c, old| {
        f64::from(old) + (0..rows).map(|r| f64::from(grad[r * cols + c])).sum::<f64>()
    });
    for r in 0..rows {
        let row = &mut grad[r * cols..][..cols];
        let inverse = 1.0 / (at(stats, r, 1) + f64::from(eps)).sqrt();
        let scaled = |row: &[f32], c| f64::from(row[c]) * at(gamma, 0, c);
        let sum: f64 = (0..cols).map(|c| scaled(row, c)).sum();
        let dot: f64 = (0..cols).map(|c| scaled(row, c) * hat(r, c)).sum();
        for (c, g) in row.iter_mut().enumerate() {
            let scaled = f64::from(*g) * at(gamma, 0, c);
            *g = (inverse * (scaled - (sum + hat(r, c) * dot) / cols as f64)) as f32;
        }
    }
}

pub(super) fn l2_norm(op: L2NormForward) {
    let L2NormForward { x, norms, out } = op;
    let norm = |r| (0..x.num_cols()).map(|c| at(x, r, c).powi(2)).sum::<f64>().sqrt();
    set(norms, |r, _, _| norm(r));
    set(out, |r, c, _| at(x, r, c) / norm(r).max(1e-12));
}

pub(super) fn l2_norm_backward(op: L2NormBackward) {
    let L2NormBackward { y, norms, grad } = op;
    let cols = y.num_cols();
    let grad = grad.host();
    for r in 0..y.num_rows() {
        let row = &mut grad[r * cols..][..cols];
        let norm = at(norms, r, 0);
        let inverse = if norm > 1e-12 { 1.0 / norm } else { 0.0 };
        let dot: f64 = (0..cols).map(|c| f64::from(row[c]) * at(y, r, c)).sum();
        for (c, g) in row.iter_mut().enumerate() {
            *g = (inverse * (f64::from(*g) - dot * at(y, r, c))) as f32;
        }
    }
}
