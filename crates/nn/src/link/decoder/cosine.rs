//! Cosine: `h . t / (|h| |t|)`, with lengths of at least 1e-6.

use graphmill_core::End;

use super::{Decoder, DecoderConfig, PairDecoder, PairScore, pair::dot};
use crate::Result;

/// Least length of a row: shorter rows are divided by it.
const MIN_LENGTH: f32 = 1e-6;

#[derive(Clone)]
struct Cosine;

/// Makes the decoder.
pub(super) fn make(config: &DecoderConfig) -> Result<Box<dyn Decoder>> {
    config.check()?;
    Ok(Box::new(PairDecoder::new(Box::new(Cosine), config.dim, None)))
}

/// Lengths of both rows.
fn lengths(h: &[f32], t: &[f32]) -> [f32; 2] {
    [h, t].map(|x| dot(x, x).sqrt().max(MIN_LENGTH))
}

/// Length of a row, and the part of the gradient of its direction that is along the row.
fn along(row: &[f32], grad: &[f32]) -> (f32, f32) {
    let length = dot(row, row).sqrt().max(MIN_LENGTH);
    (length, dot(row, grad) / length)
}

impl PairScore for Cosine {
    fn score(&self, h: &[f32], _: &[f32], t: &[f32]) -> f32 {
        let [a, b] = lengths(h, t);
        dot(h, t) / (a * b)
    }

    fn gradients(&self, h: &[f32], _: &[f32], t: &[f32], g: f32, [h_grad, _, t_grad]: [&mut [f32]; 3]) {
        let [a, b] = lengths(h, t);
        let cosine = dot(h, t) / (a * b);
        for i in 0..h.len() {
            h_grad[i] += g * (t[i] / b - cosine * h[i] / a) / a;
            t_grad[i] += g * (h[i] / a - cosine * t[i] / b) / b;
        }
    }

    fn query(&self, _: End, fixed: &[f32], _: &[f32], out: &mut [f32]) -> bool {
        out.copy_from_slice(fixed);
        self.candidate(out)
    }

    fn candidate(&self, row: &mut [f32]) -> bool {
        let length = dot(row, row).sqrt().max(MIN_LENGTH);
        row.iter_mut().for_each(|x| *x /= length);
        true
    }

    fn query_gradients(
        &self,
        _: End,
        fixed: &[f32],
        _: &[f32],
        grad: &[f32],
        [fixed_grad, _]: [&mut [f32]; 2],
    ) {
        let (length, along) = along(fixed, grad);
        for ((to, g), x) in fixed_grad.iter_mut().zip(grad).zip(fixed) {
            *to += (g - along * x / length) / length;
        }
    }

    fn candidate_gradient(&self, row: &[f32], grad: &mut [f32]) {
        let (length, along) = along(row, grad);
        grad.iter_mut().zip(row).for_each(|(g, x)| *g = (*g - along * x / length) / length);
    }

    fn boxed(&self) -> Box<dyn PairScore> {
        Box::new(self.clone())
    }
}
