//! TransE.
//!
//! # Algorithm
//!
//! `gamma - |h + r - t|`, by the norm 1 or 2. Initial values are those of RotatE's code: uniform in
//! `[-(gamma + 2) / F, (gamma + 2) / F]`.
//!
//! # Source
//!
//! Bordes, Usunier, Garcia-Duran, Weston and Yakhnenko, *Translating embeddings for modeling
//! multi-relational data*, NeurIPS 2013, section 2.
//!
//! # Cost
//!
//! O(F) per pair.

use graphmill_core::{End, keyed::Stream};

use super::{Decoder, DecoderConfig, PairDecoder, PairScore};
use crate::{
    Error, Param, Result,
    link::kernel::{Kernel, add_scaled},
};

#[derive(Clone)]
struct TransE {
    gamma: f32,
    /// True for the Euclidean norm.
    is_euclidean: bool,
}

/// Makes the decoder.
pub(super) fn make(config: &DecoderConfig) -> Result<Box<dyn Decoder>> {
    config.check()?;
    let &DecoderConfig { dim, relations, key, gamma, norm, .. } = config;
    if !(1..=2).contains(&norm) {
        return Err(Error::config("norm", norm, "must be 1 or 2"));
    }
    let mut relation = Param::zeros("relation", relations, dim);
    let (bound, mut stream) = ((f64::from(gamma) + 2.0) / dim as f64, Stream::new(key));
    let draw = |x: &mut f32| *x = (bound * (2.0 * stream.uniform() - 1.0)) as f32;
    relation.value.view_mut().host().iter_mut().for_each(draw);
    let score = TransE { gamma, is_euclidean: norm == 2 };
    Ok(Box::new(PairDecoder::new(Box::new(score), dim, Some(relation))))
}

impl TransE {
    fn distance(&self, h: &[f32], r: &[f32], t: &[f32]) -> f32 {
        let parts = h.iter().zip(r).zip(t).map(|((h, r), t)| h + r - t);
        if self.is_euclidean { parts.map(|x| x * x).sum::<f32>().sqrt() } else { parts.map(f32::abs).sum() }
    }
}

impl PairScore for TransE {
    fn score(&self, h: &[f32], r: &[f32], t: &[f32]) -> f32 {
        self.gamma - self.distance(h, r, t)
    }

    fn gradients(&self, h: &[f32], r: &[f32], t: &[f32], g: f32, [h_grad, r_grad, t_grad]: [&mut [f32]; 3]) {
        // at a distance of 0 there is no direction, and the gradient is 0
        let distance = self.distance(h, r, t).max(f32::MIN_POSITIVE);
        for i in 0..h.len() {
            let x = h[i] + r[i] - t[i];
            let slope = match (self.is_euclidean, x == 0.0) {
                (_, true) => 0.0,
                (true, false) => x / distance,
                (false, false) => x.signum(),
            };
            h_grad[i] -= g * slope;
            r_grad[i] -= g * slope;
            t_grad[i] += g * slope;
        }
    }

    fn query(&self, end: End, fixed: &[f32], r: &[f32], out: &mut [f32]) -> bool {
        let sign = if end == End::Destination { 1.0 } else { -1.0 };
        out.iter_mut().zip(fixed.iter().zip(r)).for_each(|(out, (x, r))| *out = x + sign * r);
        true
    }

    fn query_gradients(
        &self,
        end: End,
        _: &[f32],
        _: &[f32],
        grad: &[f32],
        [fixed_grad, r_grad]: [&mut [f32]; 2],
    ) {
        add_scaled(1.0, grad, fixed_grad);
        add_scaled(if end == End::Destination { 1.0 } else { -1.0 }, grad, r_grad);
    }

    fn kernel(&self) -> Kernel {
        if self.is_euclidean { Kernel::Euclidean(self.gamma) } else { Kernel::Manhattan(self.gamma) }
    }

    fn boxed(&self) -> Box<dyn PairScore> {
        Box::new(self.clone())
    }
}
