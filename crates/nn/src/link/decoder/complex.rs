//! ComplEx.
//!
//! # Algorithm
//!
//! The real part of `sum over i of h[i] r[i] conj(t[i])`. A row holds the real parts, then the
//! imaginary parts.
//!
//! # Source
//!
//! Trouillon, Welbl, Riedel, Gaussier and Bouchard, *Complex embeddings for simple link
//! prediction*, ICML 2016, equation 9.
//!
//! # Cost
//!
//! O(F) per pair.

use graphmill_core::End;

use super::{Decoder, DecoderConfig, PairDecoder, PairScore};
use crate::{Param, Result};

#[derive(Clone)]
struct ComplEx;

/// Makes the decoder.
pub(super) fn make(config: &DecoderConfig) -> Result<Box<dyn Decoder>> {
    config.check()?;
    config.check_complex()?;
    let &DecoderConfig { dim, relations, key, .. } = config;
    let relation = Param::glorot("relation", relations, dim, 1, dim, key);
    Ok(Box::new(PairDecoder::new(Box::new(ComplEx), dim, Some(relation))))
}

impl PairScore for ComplEx {
    fn score(&self, h: &[f32], r: &[f32], t: &[f32]) -> f32 {
        let n = h.len() / 2;
        let term = |i: usize| {
            let [(a, b), (c, d), (e, f)] = [h, r, t].map(|x| (x[i], x[n + i]));
            (a * c - b * d) * e + (a * d + b * c) * f
        };
        (0..n).map(term).sum()
    }

    fn gradients(&self, h: &[f32], r: &[f32], t: &[f32], g: f32, [h_grad, r_grad, t_grad]: [&mut [f32]; 3]) {
        let n = h.len() / 2;
        for i in 0..n {
            let [(a, b), (c, d), (e, f)] = [h, r, t].map(|x| (x[i], x[n + i]));
            h_grad[i] += g * (c * e + d * f);
            h_grad[n + i] += g * (c * f - d * e);
            r_grad[i] += g * (a * e + b * f);
            r_grad[n + i] += g * (a * f - b * e);
            t_grad[i] += g * (a * c - b * d);
            t_grad[n + i] += g * (a * d + b * c);
        }
    }

    fn query(&self, end: End, fixed: &[f32], r: &[f32], out: &mut [f32]) -> bool {
        let n = fixed.len() / 2;
        for i in 0..n {
            let [(a, b), (c, d)] = [fixed, r].map(|x| (x[i], x[n + i]));
            (out[i], out[n + i]) = match end {
                End::Destination => (a * c - b * d, a * d + b * c),
                End::Source => (c * a + d * b, c * b - d * a),
            };
        }
        true
    }

    fn query_gradients(
        &self,
        end: End,
        fixed: &[f32],
        r: &[f32],
        grad: &[f32],
        [fixed_grad, r_grad]: [&mut [f32]; 2],
    ) {
        let n = fixed.len() / 2;
        // as the source, the candidate is multiplied by the conjugate of the relation
        let sign = if end == End::Destination { 1.0 } else { -1.0 };
        for i in 0..n {
            let [(a, b), (c, d), (g, h)] = [fixed, r, grad].map(|x| (x[i], x[n + i]));
            fixed_grad[i] += g * c + sign * h * d;
            fixed_grad[n + i] += h * c - sign * g * d;
            r_grad[i] += g * a + h * b;
            r_grad[n + i] += sign * (h * a - g * b);
        }
    }

    fn boxed(&self) -> Box<dyn PairScore> {
        Box::new(self.clone())
    }
}
