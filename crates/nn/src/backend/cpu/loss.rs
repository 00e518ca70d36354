//! Losses with their gradients, softmax and sigmoid.

use super::{
    level::{Isa, kernel},
    math,
    parallel::{self, Chunks, Rows},
    rows,
    simd::Simd,
};
use crate::{
    ViewMut,
    backend::ops::{SigmoidCrossEntropy, SoftmaxCrossEntropy},
};

/// Minimum number of rows per chunk of a loss.
const MIN_CHUNK: usize = 512;
/// Rows whose logarithms are computed together.
const GROUP: usize = 16;

pub(super) fn softmax_cross_entropy(op: SoftmaxCrossEntropy) -> f64 {
    let SoftmaxCrossEntropy { logits, label, weight, scale, grad } = op;
    let (isa, cols, logits) = (Isa::current(), logits.num_cols(), logits.host());
    let chunks = Chunks::new(label.len(), MIN_CHUNK);
    let mut losses = [0.0; Chunks::MAX];
    let losses = &mut losses[..chunks.count()];
    chunks.each(Rows { data: grad.host(), width: cols }, losses, |range, grad, loss| {
        let logits = &logits[range.start * cols..range.end * cols];
        let weight = if weight.is_empty() { weight } else { &weight[range.clone()] };
        loss[0] = softmax_loss(isa, logits, cols, &label[range], weight, scale, grad.data);
    });
    f64::from(scale) * losses.iter().sum::<f64>()
}

pub(super) fn sigmoid_cross_entropy(op: SigmoidCrossEntropy) -> f64 {
    let SigmoidCrossEntropy { logits, target, weight, scale, grad } = op;
    let (isa, rows, cols, logits) = (Isa::current(), logits.num_rows(), logits.num_cols(), logits.host());
    let chunks = Chunks::new(rows, MIN_CHUNK);
    let mut losses = [0.0; Chunks::MAX];
    let losses = &mut losses[..chunks.count()];
    chunks.each(Rows { data: grad.host(), width: cols }, losses, |range, grad, loss| {
        let values = range.start * cols..range.end * cols;
        let weight = if weight.is_empty() { weight } else { &weight[range] };
        loss[0] = sigmoid_loss(isa, &logits[values.clone()], cols, &target[values], weight, scale, grad.data);
    });
    f64::from(scale) * losses.iter().sum::<f64>()
}

pub(super) fn softmax(x: ViewMut) {
    let (isa, rows, cols) = (Isa::current(), x.num_rows(), x.num_cols());
    // about ten operations per value
    parallel::rows(rows, 4 * cols, Rows { data: x.host(), width: cols }, |_, x| {
        softmax_rows(isa, cols, x.data);
    });
}

pub(super) fn sigmoid(x: ViewMut) {
    let isa = Isa::current();
    rows::elements(x.host(), 3, |_, x| sigmoid_elements(isa, x));
}

/// Maximum of a row.
#[inline(always)]
fn largest<S: Simd>(s: S, x: &[f32]) -> f32 {
    let lowest = s.splat(f32::NEG_INFINITY);
    let mut max = lowest;
    let mut c = 0;
    while c < x.len() {
        max = s.max(max, s.load_or(x, c, lowest));
        c += S::LANES;
    }
    s.largest(max)
}

/// `(1 / (1 + e^-x), e^-|x|)`.
#[inline(always)]
fn logistic<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let (zero, one) = (s.splat(0.0), s.splat(1.0));
    let positive = s.gt(x, zero);
    let small = math::exp(s, s.select(positive, s.sub(zero, x), x));
    let above = s.div(one, s.add(one, small));
    (s.select(positive, above, s.mul(small, above)), small)
}

kernel! {
    fn softmax_rows[](s: S, cols: usize, x: &mut [f32]) {
        for row in x.chunks_exact_mut(cols.max(1)) {
            let max = s.splat(largest(s, row));
            let mut sum = s.splat(0.0);
            let mut c = 0;
            while c < cols {
                // beyond the row, e^-inf adds 0
                let e = math::exp(s, s.sub(s.load_or(row, c, s.splat(f32::NEG_INFINITY)), max));
                sum = s.add(sum, e);
                s.store(row, c, e);
                c += S::LANES;
            }
            let inverse = s.splat(1.0 / s.sum(sum));
            let mut c = 0;
            while c < cols {
                s.store(row, c, s.mul(s.load(row, c), inverse));
                c += S::LANES;
            }
        }
    }

    fn softmax_loss[](
        s: S, logits: &[f32], cols: usize, label: &[i32], weight: &[f32], scale: f32, grad: &mut [f32],
    ) -> f64 {
        let mut loss = 0.0;
        for first in (0..label.len()).step_by(GROUP) {
            let last = (first + GROUP).min(label.len());
            // per row: sum of exponentials, weight, and the distance of the label's logit below the
            // largest
            let (mut sums, mut weights, mut gaps) = ([1.0f32; GROUP], [0.0f32; GROUP], [0.0f32; GROUP]);
            for r in first..last {
                let (x, grad) = (&logits[r * cols..][..cols], &mut grad[r * cols..][..cols]);
                if label[r] < 0 {
                    grad.fill(0.0);
                    continue;
                }
                let hit = label[r] as usize;
                let top = largest(s, x);
                let max = s.splat(top);
                let mut sum = s.splat(0.0);
                let mut c = 0;
                while c < cols {
                    let e = math::exp(s, s.sub(s.load_or(x, c, s.splat(f32::NEG_INFINITY)), max));
                    sum = s.add(sum, e);
                    s.store(grad, c, e);
                    c += S::LANES;
                }
                let sum = s.sum(sum);
                let w = if weight.is_empty() { 1.0 } else { weight[r] };
                let factor = s.splat(w * scale / sum);
                let mut c = 0;
                while c < cols {
                    s.store(grad, c, s.mul(s.load(grad, c), factor));
                    c += S::LANES;
                }
                grad[hit] -= w * scale;
                (sums[r - first], weights[r - first], gaps[r - first]) = (sum, w, top - x[hit]);
            }
            let mut c = 0;
            while c < GROUP {
                let ln = math::ln(s, s.load(&sums, c));
                s.store(&mut sums, c, ln);
                c += S::LANES;
            }
            for ((&w, &ln), &gap) in weights.iter().zip(&sums).zip(&gaps) {
                loss += f64::from(w) * (f64::from(ln) + f64::from(gap));
            }
        }
        loss
    }

    fn sigmoid_loss[](
        s: S, logits: &[f32], cols: usize, target: &[u8], weight: &[f32], scale: f32, grad: &mut [f32],
    ) -> f64 {
        let mut loss = 0.0;
        let cols = cols.max(1);
        let rows = logits.chunks_exact(cols).zip(target.chunks_exact(cols)).zip(grad.chunks_exact_mut(cols));
        for (r, ((x, target), grad)) in rows.enumerate() {
            let w = if weight.is_empty() { 1.0 } else { weight[r] };
            let factor = s.splat(w * scale);
            let mut sum = s.splat(0.0);
            let mut c = 0;
            while c < cols {
                let end = (c + S::LANES).min(cols);
                let mut t = [0.0f32; 16];
                t.iter_mut().zip(&target[c..end]).for_each(|(t, &x)| *t = f32::from(x));
                let t = s.load(&t, 0);
                // beyond the row, the loss of this logit is 0
                let v = s.load_or(x, c, s.splat(f32::NEG_INFINITY));
                let (p, small) = logistic(s, v);
                let v = s.max(s.splat(f32::MIN), v);
                let part = s.add(s.max(s.splat(0.0), v), math::ln_1p(s, small));
                sum = s.add(sum, s.sub(part, s.mul(t, v)));
                s.store(grad, c, s.mul(factor, s.sub(p, t)));
                c += S::LANES;
            }
            loss += f64::from(w) * f64::from(s.sum(sum));
        }
        loss
    }

    fn sigmoid_elements[](s: S, x: &mut [f32]) {
        let mut c = 0;
        while c < x.len() {
            let (p, _) = logistic(s, s.load(x, c));
            s.store(x, c, p);
            c += S::LANES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Matrix,
        backend::cpu::{Level, with_level},
    };

    #[test]
    fn large_logits_give_finite_losses() {
        let rows: [f32; 12] = [-1e30, -1e30, -1e30, -1e30, 1e30, -1e30, 3e38, 0.0, 88.0, -1e38, 0.0, 100.0];
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            with_level(level, || {
                let logits = Matrix::from_slice(3, 4, &rows);
                let mut p = logits.clone();
                softmax(p.view_mut());
                assert_eq!(p.view().host()[..8], [0.25, 0.25, 0.25, 0.25, 0.0, 0.0, 1.0, 0.0]);
                let mut grad = Matrix::zeros(3, 4);
                let (label, weight, scale) = (&[0, 2, 3], &[], 1.0);
                let op = SoftmaxCrossEntropy {
                    logits: logits.view(),
                    label,
                    weight,
                    scale,
                    grad: grad.view_mut(),
                };
                let loss = softmax_cross_entropy(op);
                assert!((loss - 4f64.ln()).abs() < 1e-5, "{loss}");
                assert!(grad.view().host().iter().all(|x| x.is_finite()));
                let target = &[0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1];
                let op = SigmoidCrossEntropy {
                    logits: logits.view(),
                    target,
                    weight,
                    scale,
                    grad: grad.view_mut(),
                };
                let loss = sigmoid_cross_entropy(op);
                assert!((loss - 2.0 * 2f64.ln()).abs() < 1e-5, "{loss}");
                assert!(grad.view().host().iter().all(|x| x.is_finite()));
            });
        }
    }
}
