//! DistMult.
//!
//! # Algorithm
//!
//! `sum over i of h[i] r[i] t[i]`.
//!
//! # Source
//!
//! Yang, Yih, He, Gao and Deng, *Embedding entities and relations for learning and inference in
//! knowledge bases*, ICLR 2015, section 3.1.
//!
//! # Cost
//!
//! O(F) per pair.

use graphmill_core::End;

use super::{Decoder, DecoderConfig, PairDecoder, PairScore};
use crate::{Param, Result};

#[derive(Clone)]
struct DistMult;

/// Makes the decoder.
pub(super) fn make(config: &DecoderConfig) -> Result<Box<dyn Decoder>> {
    config.check()?;
    let &DecoderConfig { dim, relations, key, .. } = config;
    let relation = Param::glorot("relation", relations, dim, 1, dim, key);
    Ok(Box::new(PairDecoder::new(Box::new(DistMult), dim, Some(relation))))
}

impl PairScore for DistMult {
    fn score(&self, h: &[f32], r: &[f32], t: &[f32]) -> f32 {
        h.iter().zip(r).zip(t).map(|((h, r), t)| h * r * t).sum()
    }

    fn gradients(&self, h: &[f32], r: &[f32], t: &[f32], g: f32, [h_grad, r_grad, t_grad]: [&mut [f32]; 3]) {
        for i in 0..h.len() {
            h_grad[i] += g * r[i] * t[i];
            r_grad[i] += g * h[i] * t[i];
            t_grad[i] += g * h[i] * r[i];
        }
    }

    fn query(&self, _: End, fixed: &[f32], r: &[f32], out: &mut [f32]) -> bool {
        out.iter_mut().zip(fixed.iter().zip(r)).for_each(|(out, (x, r))| *out = x * r);
        true
    }

    fn query_gradients(
        &self,
        _: End,
        fixed: &[f32],
        r: &[f32],
        grad: &[f32],
        [fixed_grad, r_grad]: [&mut [f32]; 2],
    ) {
        for i in 0..grad.len() {
            fixed_grad[i] += grad[i] * r[i];
            r_grad[i] += grad[i] * fixed[i];
        }
    }

    fn boxed(&self) -> Box<dyn PairScore> {
        Box::new(self.clone())
    }
}
