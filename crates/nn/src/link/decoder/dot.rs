//! Dot product: `h . t`.

use graphmill_core::End;

use super::{Decoder, DecoderConfig, PairDecoder, PairScore, pair::dot};
use crate::{Result, link::kernel::add_scaled};

#[derive(Clone)]
struct Dot;

/// Makes the decoder.
pub(super) fn make(config: &DecoderConfig) -> Result<Box<dyn Decoder>> {
    config.check()?;
    Ok(Box::new(PairDecoder::new(Box::new(Dot), config.dim, None)))
}

impl PairScore for Dot {
    fn score(&self, h: &[f32], _: &[f32], t: &[f32]) -> f32 {
        dot(h, t)
    }

    fn gradients(&self, h: &[f32], _: &[f32], t: &[f32], g: f32, [h_grad, _, t_grad]: [&mut [f32]; 3]) {
        for i in 0..h.len() {
            h_grad[i] += g * t[i];
            t_grad[i] += g * h[i];
        }
    }

    fn query(&self, _: End, fixed: &[f32], _: &[f32], out: &mut [f32]) -> bool {
        out.copy_from_slice(fixed);
        true
    }

    fn query_gradients(&self, _: End, _: &[f32], _: &[f32], grad: &[f32], [fixed_grad, _]: [&mut [f32]; 2]) {
        add_scaled(1.0, grad, fixed_grad);
    }

    fn boxed(&self) -> Box<dyn PairScore> {
        Box::new(self.clone())
    }
}
