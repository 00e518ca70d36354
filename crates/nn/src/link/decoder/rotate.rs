//! RotatE.
//!
//! # Algorithm
//!
//! `gamma - sum over i of |h[i] e^(i theta[i]) - t[i]|` over complex numbers. A row holds the real
//! parts, then the imaginary parts; angles are uniform in `[-pi, pi]` at first.
//!
//! # Source
//!
//! Sun, Deng, Nie and Tang, *RotatE: knowledge graph embedding by relational rotation in complex
//! space*, ICLR 2019, equation 3.
//!
//! # Cost
//!
//! O(F) per pair.

use graphmill_core::{End, keyed::Stream};

use super::{Decoder, DecoderConfig, PairDecoder, PairScore};
use crate::{Param, Result, link::kernel::Kernel};

#[derive(Clone)]
struct RotatE {
    gamma: f32,
}

/// Makes the decoder.
pub(super) fn make(config: &DecoderConfig) -> Result<Box<dyn Decoder>> {
    config.check()?;
    config.check_complex()?;
    let &DecoderConfig { dim, relations, key, gamma, .. } = config;
    let mut angles = Param::zeros("angles", relations, dim / 2);
    let mut stream = Stream::new(key);
    let draw = |x: &mut f32| *x = (std::f64::consts::PI * (2.0 * stream.uniform() - 1.0)) as f32;
    angles.value.view_mut().host().iter_mut().for_each(draw);
    Ok(Box::new(PairDecoder::new(Box::new(RotatE { gamma }), dim, Some(angles))))
}

/// Rotated source minus destination in dimension `i`, and the rotated source.
fn difference(h: &[f32], r: &[f32], t: &[f32], i: usize) -> [(f32, f32); 2] {
    let (n, (sin, cos)) = (h.len() / 2, r[i].sin_cos());
    let rotated = (h[i] * cos - h[n + i] * sin, h[i] * sin + h[n + i] * cos);
    [(rotated.0 - t[i], rotated.1 - t[n + i]), rotated]
}

/// Angle by which the end beside the candidates is rotated: back, if the candidates are sources,
/// because a rotation keeps distances.
fn angle(end: End, theta: f32) -> f32 {
    if end == End::Destination { theta } else { -theta }
}

impl PairScore for RotatE {
    fn score(&self, h: &[f32], r: &[f32], t: &[f32]) -> f32 {
        let length = |i: usize| {
            let [(x, y), _] = difference(h, r, t, i);
            x.hypot(y)
        };
        self.gamma - (0..h.len() / 2).map(length).sum::<f32>()
    }

    fn gradients(&self, h: &[f32], r: &[f32], t: &[f32], g: f32, [h_grad, r_grad, t_grad]: [&mut [f32]; 3]) {
        let n = h.len() / 2;
        for i in 0..n {
            let [(x, y), (re, im)] = difference(h, r, t, i);
            let length = x.hypot(y);
            if length == 0.0 {
                continue;
            }
            let (x, y, (sin, cos)) = (g * x / length, g * y / length, r[i].sin_cos());
            h_grad[i] -= x * cos + y * sin;
            h_grad[n + i] -= y * cos - x * sin;
            // the derivative of the rotated source by the angle is i times itself
            r_grad[i] -= y * re - x * im;
            t_grad[i] += x;
            t_grad[n + i] += y;
        }
    }

    fn query(&self, end: End, fixed: &[f32], r: &[f32], out: &mut [f32]) -> bool {
        let n = fixed.len() / 2;
        for i in 0..n {
            let (a, b, (sin, cos)) = (fixed[i], fixed[n + i], angle(end, r[i]).sin_cos());
            (out[i], out[n + i]) = (a * cos - b * sin, a * sin + b * cos);
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
        for i in 0..n {
            let (sin, cos) = angle(end, r[i]).sin_cos();
            let (a, b, g, h) = (fixed[i], fixed[n + i], grad[i], grad[n + i]);
            fixed_grad[i] += g * cos + h * sin;
            fixed_grad[n + i] += h * cos - g * sin;
            let (re, im) = (a * cos - b * sin, a * sin + b * cos);
            r_grad[i] += angle(end, h * re - g * im);
        }
    }

    fn kernel(&self) -> Kernel {
        Kernel::Modulus(self.gamma)
    }

    fn boxed(&self) -> Box<dyn PairScore> {
        Box::new(self.clone())
    }
}
