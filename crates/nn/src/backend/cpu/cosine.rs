//! Cosines of time encodings.
//!
//! # Algorithm
//!
//! The angle `w t + b` is computed in f64 and reduced by the nearest multiple of `2 pi` to `r`, and
//! `cos r = 2 cos^2(r / 2) - 1`, with a series of degree 14 for the cosine of the half.
//!
//! # Source
//!
//! W. J. Cody and W. Waite, *Software manual for the elementary functions*, 1980, for the reduction
//! by a constant in parts.
//!
//! # Cost
//!
//! Some 20 operations in f64 per value with fused multiplications, without branches, so that the
//! compiler uses vectors.
//!
//! # Deviations
//!
//! Up to `|angle| = 2^31`, values are within 3.1e-8 of the cosine of the rounded angle: half a unit
//! in the last place of f32 near 1. Beyond, the products with the parts of `2 pi` are rounded, as
//! the angle itself is, and the error grows with it by `4e-16 |angle|`.

use super::{
    level::{Isa, kernel},
    simd::{Portable, Simd},
};

/// 1.5 * 2^52: adding it rounds a number below 2^51 to an integer.
const ROUND: f64 = 6_755_399_441_055_744.0;
const INVERSE: f64 = 1.0 / std::f64::consts::TAU;
/// `2 pi` in three parts. The first two have 24 bits, so that their products with integers below
/// 2^29 are exact.
const HIGH: f64 = std::f32::consts::TAU as f64;
const MIDDLE: f64 = (std::f64::consts::TAU - HIGH) as f32 as f64;
const LOW: f64 = 2.449_293_598_294_706_4e-16 + (std::f64::consts::TAU - HIGH - MIDDLE);
/// Coefficients of `(r / 2)^2`, of the series of the cosine: `(-1)^k / (2 k)!`, divided by `4^k`.
const SERIES: [f64; 8] = [
    1.0,
    -1.0 / (2.0 * 4.0),
    1.0 / (24.0 * 16.0),
    -1.0 / (720.0 * 64.0),
    1.0 / (40_320.0 * 256.0),
    -1.0 / (3_628_800.0 * 1_024.0),
    1.0 / (479_001_600.0 * 4_096.0),
    -1.0 / (87_178_291_200.0 * 16_384.0),
];

/// Number of values that are computed together.
const BLOCK: usize = 16;

/// `a b + c`, rounded once if the machine has the instruction: a call of a function elsewhere.
#[inline(always)]
fn mul_add<S: Simd>(a: f64, b: f64, c: f64) -> f64 {
    if S::BLOCK > Portable::BLOCK { a.mul_add(b, c) } else { a * b + c }
}

/// Cosine of an angle.
#[inline(always)]
fn cosine<S: Simd>(angle: f64) -> f32 {
    let turns = mul_add::<S>(angle, INVERSE, ROUND) - ROUND;
    let rest = mul_add::<S>(-turns, HIGH, angle);
    let rest = mul_add::<S>(-turns, LOW, mul_add::<S>(-turns, MIDDLE, rest));
    // angles beyond 2^51 turns are not reduced
    let rest = rest.clamp(-std::f64::consts::PI, std::f64::consts::PI);
    let square = rest * rest;
    let mut half = SERIES[7];
    for c in [SERIES[6], SERIES[5], SERIES[4], SERIES[3], SERIES[2], SERIES[1], SERIES[0]] {
        half = mul_add::<S>(half, square, c);
    }
    mul_add::<S>(2.0 * half, half, -1.0) as f32
}

/// Frequencies and phases of the columns, padded to whole blocks.
pub(crate) struct Waves {
    weight: Vec<[f64; BLOCK]>,
    bias: Vec<[f64; BLOCK]>,
    len: usize,
}

impl Waves {
    /// The columns `cos(weight[i] t + bias[i])`.
    pub(crate) fn new(weight: &[f64], bias: &[f64]) -> Self {
        let blocks = |values: &[f64]| {
            let block = |values: &[f64]| {
                let mut block = [0.0; BLOCK];
                block[..values.len()].copy_from_slice(values);
                block
            };
            values.chunks(BLOCK).map(block).collect()
        };
        Self { weight: blocks(weight), bias: blocks(bias), len: weight.len() }
    }
}

/// Computes `out[r, first + i] = cos(weight[i] t[r] + bias[i])`, for rows of `width` values.
pub(crate) fn cosines(of: &Waves, t: &[f64], (out, width, first): (&mut [f32], usize, usize)) {
    rows(Isa::current(), of, t, out, width, first);
}

kernel! {
    #[allow(clippy::needless_range_loop, reason = "values by number")]
    fn rows[](s: S, of: &Waves, t: &[f64], out: &mut [f32], width: usize, first: usize) {
        let _ = s;
        for (row, &t) in out.chunks_exact_mut(width.max(1)).zip(t) {
            let row = row[first..][..of.len].chunks_mut(BLOCK);
            for ((to, w), b) in row.zip(&of.weight).zip(&of.bias) {
                // whole blocks: single values take as long as vectors
                let mut values = [0.0; BLOCK];
                for i in 0..BLOCK {
                    values[i] = cosine::<S>(w[i] * t + b[i]);
                }
                match to.first_chunk_mut() {
                    Some(to) => *to = values,
                    None => to.iter_mut().zip(values).for_each(|(to, x)| *to = x),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::level::{Level, with_level};

    /// Largest difference from the cosine in f64, over many angles of up to `size`.
    fn worst(size: f64) -> f64 {
        let weight: Vec<f64> = (0..101).map(|i| size * (f64::from(i) / 50.0 - 1.0)).collect();
        let (bias, t): (Vec<f64>, Vec<f64>) =
            (vec![0.25; 101], (0..997).map(|i| (f64::from(i) / 996.0).powi(3)).collect());
        let mut out = vec![0.0; 101 * 997];
        cosines(&Waves::new(&weight, &bias), &t, (&mut out, 101, 0));
        let error = |(i, &x): (usize, &f32)| {
            (f64::from(x) - (weight[i % 101] * t[i / 101] + bias[i % 101]).cos()).abs()
        };
        out.iter().enumerate().map(error).fold(0.0, f64::max)
    }

    #[test]
    fn cosines_are_close_to_those_in_f64_at_every_level() {
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            with_level(level, || {
                for size in [1.0, 4.0, 1e3, 1e6, 2f64.powi(31)] {
                    assert!(worst(size) < 3.1e-8, "{level:?}, {size}: {:e}", worst(size));
                }
                assert!(worst(1e12) < 4e-4 + 3.1e-8, "{level:?}: {:e}", worst(1e12));
            });
        }
    }

    #[test]
    fn extreme_angles_have_cosines_in_range_and_nan_stays() {
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            let (mut out, t) = ([9.0; 6], [0.0, 1e16, -1e20, 1e300, -1e17, f64::NAN]);
            with_level(level, || cosines(&Waves::new(&[1.0], &[0.0]), &t, (&mut out, 1, 0)));
            assert_eq!(out[0], 1.0);
            assert!(out[..5].iter().all(|x| (-1.0..=1.0).contains(x)) && out[5].is_nan(), "{out:?}");
        }
    }
}
