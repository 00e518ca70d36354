//! The Gaussian error linear unit and its slope, by vectors of f32.
//!
//! # Algorithm
//!
//! `gelu(x) = x P` and `gelu'(x) = P + x p` with the normal distribution `P = P(X <= x)` and its
//! density `p = exp(-x^2 / 2) / sqrt(2 pi)`. The tail beyond `|x|` is `p` times a polynomial of
//! degree 5 in `t = 1 / (1 + 0.2316419 |x|)`.
//!
//! # Source
//!
//! Abramowitz and Stegun, *Handbook of mathematical functions*, 1964, 26.2.17.
//!
//! # Cost
//!
//! An exponential and a division per value, for all lanes at once.
//!
//! # Deviations
//!
//! The polynomial is within 7.5e-8 of `P`. With the rounding of f32, unit and slope are within
//! 4e-7 of their definitions for `|x| <= 1`, and within 4e-7 `|x|` elsewhere.

use super::{
    level::{Isa, kernel},
    math, rows,
    simd::Simd,
};
use crate::backend::ops::{GeluBackward, GeluForward};

/// Cost of a value relative to reading it.
const COST: usize = 4;
/// Coefficients of `t` to `t^5`.
const TAIL: [f32; 5] = [0.319_381_53, -0.356_563_78, 1.781_477_9, -1.821_255_9, 1.330_274_5];
/// `1 / sqrt(2 pi)`.
const DENSITY: f32 = 0.398_942_3;

pub(super) fn forward(op: GeluForward) {
    let GeluForward { x, out } = op;
    let (isa, x) = (Isa::current(), x.host());
    rows::elements(out.host(), COST, |first, out| units(isa, &x[first..], out));
}

pub(super) fn backward(op: GeluBackward) {
    let GeluBackward { x, grad } = op;
    let (isa, x) = (Isa::current(), x.host());
    rows::elements(grad.host(), COST, |first, grad| slopes(isa, &x[first..], grad));
}

/// `[P, p]` at `x`.
#[inline(always)]
fn normal<S: Simd>(s: S, x: S::F) -> [S::F; 2] {
    let size = s.max(s.sub(s.splat(0.0), x), x);
    let t = s.div(s.splat(1.0), s.mul_add(size, s.splat(0.231_641_9), s.splat(1.0)));
    let mut series = s.splat(TAIL[4]);
    for c in [TAIL[3], TAIL[2], TAIL[1], TAIL[0]] {
        series = s.mul_add(series, t, s.splat(c));
    }
    let density = s.mul(math::exp(s, s.mul(s.mul(x, s.splat(-0.5)), x)), s.splat(DENSITY));
    let tail = s.mul(s.mul(series, t), density);
    [s.select(s.gt(x, s.splat(0.0)), s.sub(s.splat(1.0), tail), tail), density]
}

kernel! {
    /// Units of `x`, which has at least as many values.
    fn units[](s: S, x: &[f32], out: &mut [f32]) {
        let x = &x[..out.len()];
        let mut c = 0;
        while c < x.len() {
            let v = s.load(x, c);
            let [share, _] = normal(s, v);
            s.store(out, c, s.mul(v, share));
            c += S::LANES;
        }
    }

    /// Multiplies gradients by the slopes at `x`, which has at least as many values.
    fn slopes[](s: S, x: &[f32], grad: &mut [f32]) {
        let x = &x[..grad.len()];
        let mut c = 0;
        while c < x.len() {
            let v = s.load(x, c);
            let [share, density] = normal(s, v);
            let slope = s.mul_add(v, density, share);
            s.store(grad, c, s.mul(s.load(grad, c), slope));
            c += S::LANES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Matrix,
        backend::{
            Cpu,
            cpu::level::{Level, with_level},
            ops::gelu::{gelu, slope},
        },
    };

    fn unit_and_slope(x: &[f32]) -> [Vec<f32>; 2] {
        let (x, mut out) = (Matrix::from_slice(1, x.len(), x), Matrix::zeros(1, x.len()));
        let mut grad = Matrix::from_slice(1, x.num_cols(), &vec![1.0; x.num_cols()]);
        GeluForward { x: x.view(), out: out.view_mut() }.run(&Cpu::default());
        GeluBackward { x: x.view(), grad: grad.view_mut() }.run(&Cpu::default());
        [out.view().host().to_vec(), grad.view().host().to_vec()]
    }

    #[test]
    fn units_and_slopes_are_close_to_those_in_f64_at_every_level() {
        let x: Vec<f32> = (0..100_003).map(|i| i as f32 / 5_000.0 - 10.0).collect();
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            let [units, slopes] = with_level(level, || unit_and_slope(&x));
            for ((x, unit), of_slope) in x.iter().zip(units).zip(slopes) {
                let bound = 4e-7 * x.abs().max(1.0);
                assert!((unit - gelu(*x)).abs() <= bound, "{level:?} {x}: {unit} {}", gelu(*x));
                assert!((of_slope - slope(*x)).abs() <= bound, "{level:?} {x}: {of_slope} {}", slope(*x));
            }
        }
    }

    #[test]
    fn large_values_keep_their_size_and_nan_stays() {
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            let [units, slopes] = with_level(level, || unit_and_slope(&[1e20, 50.0, -50.0, -1e18, f32::NAN]));
            assert_eq!(units[..2], [1e20, 50.0]);
            assert!(units[2..4].iter().all(|x| *x == 0.0), "{units:?}");
            assert_eq!(slopes[..4], [1.0, 1.0, 0.0, 0.0]);
            assert!(units[4].is_nan() && slopes[4].is_nan());
        }
    }
}
