//! Bilinear form.
//!
//! # Algorithm
//!
//! `h^T W_r t`, with a matrix for each relation.
//!
//! # Source
//!
//! Nickel, Tresp and Kriegel, *A three-way model for collective learning on multi-relational data*
//! (RESCAL), ICML 2011, section 3.
//!
//! # Cost
//!
//! O(F^2) per pair.

use graphmill_core::End;

use super::{Decoder, DecoderConfig, PairDecoder, PairScore, pair::dot};
use crate::{Param, Result};

#[derive(Clone)]
struct Bilinear;

/// Makes the decoder.
pub(super) fn make(config: &DecoderConfig) -> Result<Box<dyn Decoder>> {
    config.check()?;
    let &DecoderConfig { dim, relations, key, .. } = config;
    let relation = Param::glorot("relation", relations, dim * dim, dim, dim, key);
    Ok(Box::new(PairDecoder::new(Box::new(Bilinear), dim, Some(relation))))
}

impl PairScore for Bilinear {
    fn score(&self, h: &[f32], r: &[f32], t: &[f32]) -> f32 {
        h.iter().zip(r.chunks_exact(t.len())).map(|(h, row)| h * dot(row, t)).sum()
    }

    fn gradients(&self, h: &[f32], r: &[f32], t: &[f32], g: f32, [h_grad, r_grad, t_grad]: [&mut [f32]; 3]) {
        let rows = r.chunks_exact(t.len()).zip(r_grad.chunks_exact_mut(t.len()));
        for ((row, row_grad), (h, h_grad)) in rows.zip(h.iter().zip(h_grad)) {
            *h_grad += g * dot(row, t);
            for j in 0..t.len() {
                row_grad[j] += g * h * t[j];
                t_grad[j] += g * h * row[j];
            }
        }
    }

    fn query(&self, end: End, fixed: &[f32], r: &[f32], out: &mut [f32]) -> bool {
        let rows = r.chunks_exact(fixed.len());
        match end {
            End::Source => out.iter_mut().zip(rows).for_each(|(out, row)| *out = dot(row, fixed)),
            End::Destination => {
                out.fill(0.0);
                for (h, row) in fixed.iter().zip(rows) {
                    out.iter_mut().zip(row).for_each(|(out, w)| *out += h * w);
                }
            }
        }
        true
    }

    fn boxed(&self) -> Box<dyn PairScore> {
        Box::new(self.clone())
    }
}
