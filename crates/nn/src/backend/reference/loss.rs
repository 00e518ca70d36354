//! Losses.

use super::{at, set};
use crate::{
    ViewMut,
    backend::ops::{SigmoidCrossEntropy, SoftmaxCrossEntropy},
};

/// `log(sum of exp)` of a row.
fn log_sum_exp(row: &[f32]) -> f64 {
    let max = row.iter().fold(f64::NEG_INFINITY, |m, &x| m.max(f64::from(x)));
    max + row.iter().map(|&x| (f64::from(x) - max).exp()).sum::<f64>().ln()
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(super) fn softmax_cross_entropy(op: SoftmaxCrossEntropy) -> f64 {
    let SoftmaxCrossEntropy { logits, label, weight, scale, grad } = op;
    let cols = logits.num_cols();
    let mut loss = 0.0;
    let grad = grad.host();
    for r in 0..logits.num_rows() {
        let row = &mut grad[r * cols..][..cols];
        row.fill(0.0);
        if label[r] < 0 {
            continue;
        }
        let hit = label[r] as usize;
        let w = f64::from(scale) * weight.get(r).map_or(1.0, |&w| f64::from(w));
        let norm = log_sum_exp(&logits.host()[r * cols..][..cols]);
        loss += w * (norm - at(logits, r, hit));
        for (c, g) in row.iter_mut().enumerate() {
            *g = (w * ((at(logits, r, c) - norm).exp() - f64::from(u8::from(c == hit)))) as f32;
        }
    }
    loss
}

pub(super) fn sigmoid_cross_entropy(op: SigmoidCrossEntropy) -> f64 {
    let SigmoidCrossEntropy { logits, target, weight, scale, grad } = op;
    let cols = logits.num_cols();
    let mut loss = 0.0;
    set(grad, |r, c, _| {
        let w = f64::from(scale) * weight.get(r).map_or(1.0, |&w| f64::from(w));
        let (x, t) = (at(logits, r, c), f64::from(target[r * cols + c]));
        loss += w * (x.max(0.0) + (-x.abs()).exp().ln_1p() - t * x);
        w * (logistic(x) - t)
    });
    loss
}

pub(super) fn softmax(x: ViewMut) {
    let cols = x.num_cols().max(1);
    for row in x.host().chunks_exact_mut(cols) {
        let norm = log_sum_exp(row);
        row.iter_mut().for_each(|x| *x = (f64::from(*x) - norm).exp() as f32);
    }
}

pub(super) fn sigmoid(x: ViewMut) {
    set(x, |_, _, old| logistic(f64::from(old)));
}
