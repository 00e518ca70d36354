//! Draws by recency from few edges, each of which has a clock.
//!
//! # Algorithm
//!
//! An edge of weight `w` rings at the time `E / w`, where `E` has the standard exponential
//! distribution. The `k` edges that ring first are `k` weighted draws without replacement. Weights
//! and logarithms are computed by series for [`LANES`] edges at a time, without calls and branches.
//!
//! # Source
//!
//! Efraimidis and Spirakis, *Weighted random sampling with a reservoir*, IPL 97(5), 2006.
//!
//! # Cost
//!
//! O(n) for `n` edges.
//!
//! # Deviations
//!
//! The series have relative errors below `2^-39`, and clocks are compared to `2^-45`.

use graphmill_core::keyed::Stream;

use super::decay::age;

/// Maximum number of edges with clocks.
pub(super) const MAX_CLOCKS: usize = 128;
/// Number of clocks that are computed together.
const LANES: usize = 8;
/// Age in half lives from which an edge has no clock: weights stay normal numbers.
const MAX_AGE: f64 = 1000.0;
/// Adding this number rounds a small one to an integer in the last bits.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// Number with the last bits 0 whose unit is 1.
const INTEGER: u64 = 0x4330_0000_0000_0000;
/// The square root of a half.
const MIDDLE: u64 = 0x3fe6_a09e_667f_3bcd;
/// Coefficients of the exponential series, the last first.
const EXP: [f64; 12] = {
    let mut all = [1.0; 12];
    let mut n = 1;
    while n < 12 {
        all[11 - n] = all[12 - n] / n as f64;
        n += 1;
    }
    all
};
/// Number of terms of the logarithm.
const LN_TERMS: u32 = 7;

/// Draws `out.len()` of the edges of these ascending times, which are at most [`MAX_CLOCKS`] and at
/// least as many, in any order: places from 0 on. False if too many edges are too old for clocks;
/// nothing is drawn then.
pub(super) fn draw(half_life: f64, times: &[i64], stream: &mut Stream, out: &mut [u32]) -> bool {
    let (Some(&last), false) = (times.last(), out.is_empty()) else { return true };
    if age(half_life, last, times[times.len() - out.len()]) > MAX_AGE {
        return false;
    }
    let mut clocks = [u64::MAX; MAX_CLOCKS];
    for ((clocks, times), first) in
        clocks.chunks_mut(LANES).zip(times.chunks(LANES)).zip((0..).step_by(LANES))
    {
        let (mut weights, mut numbers) = ([0.0; LANES], [0.5; LANES]);
        for (i, &time) in times.iter().enumerate() {
            weights[i] = age(half_life, last, time);
            // above 0
            numbers[i] = stream.uniform() + 0.5 / (1u64 << 53) as f64;
        }
        powers(&mut weights);
        exponentials(&mut numbers);
        for (i, clock) in clocks[..times.len()].iter_mut().enumerate() {
            // clocks are positive, so their bits are in their order
            *clock = (numbers[i] / weights[i]).to_bits() & !(MAX_CLOCKS as u64 - 1) | (first + i) as u64;
        }
    }
    let clocks = &mut clocks[..times.len()];
    clocks.select_nth_unstable(out.len() - 1);
    for (to, clock) in out.iter_mut().zip(clocks) {
        *to = (*clock % MAX_CLOCKS as u64) as u32;
    }
    true
}

/// Replaces ages from 0 on by `2^-age`, and by 0 above [`MAX_AGE`].
#[inline(always)]
fn powers(ages: &mut [f64; LANES]) {
    let clamped = ages.map(|age| -age.min(MAX_AGE));
    let rounded = clamped.map(|x| x + ROUND);
    let mut rest = [0.0; LANES];
    for i in 0..LANES {
        rest[i] = (clamped[i] - (rounded[i] - ROUND)) * std::f64::consts::LN_2;
    }
    let mut sums = [0.0; LANES];
    for coefficient in EXP {
        sums.iter_mut().zip(&rest).for_each(|(sum, x)| *sum = *sum * x + coefficient);
    }
    for i in 0..LANES {
        let scale = f64::from_bits(rounded[i].to_bits().wrapping_add(1023) << 52);
        ages[i] = if ages[i] > MAX_AGE { 0.0 } else { sums[i] * scale };
    }
}

/// Replaces numbers above 0 and up to 1 by `-ln`.
#[inline(always)]
fn exponentials(numbers: &mut [f64; LANES]) {
    let (mut exponents, mut parts) = ([0.0; LANES], [0.0; LANES]);
    for i in 0..LANES {
        // the number is part * 2^-exponent, with a part from the root of a half to that of 2
        let bits = numbers[i].to_bits();
        let halvings = (MIDDLE + (1 << 52)).wrapping_sub(1).wrapping_sub(bits) >> 52;
        exponents[i] = f64::from_bits(INTEGER | halvings) - f64::from_bits(INTEGER);
        let part = f64::from_bits(bits.wrapping_add(halvings << 52));
        parts[i] = (part - 1.0) / (part + 1.0);
    }
    let squares = parts.map(|x| x * x);
    let mut sums = [0.0; LANES];
    for term in (0..LN_TERMS).rev() {
        let coefficient = 1.0 / f64::from(2 * term + 1);
        sums.iter_mut().zip(&squares).for_each(|(sum, x)| *sum = *sum * x + coefficient);
    }
    for i in 0..LANES {
        numbers[i] = exponents[i] * std::f64::consts::LN_2 - 2.0 * parts[i] * sums[i];
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed::key;

    use super::*;

    #[test]
    fn series_are_those_of_the_library() {
        for i in 0..=4000 {
            let age = f64::from(i) * 0.251;
            let mut ages = [age; LANES];
            powers(&mut ages);
            let expected = if age > MAX_AGE { 0.0 } else { (-age).exp2() };
            assert!((ages[3] - expected).abs() <= 2e-12 * expected, "{age}: {} {expected}", ages[3]);
        }
        let lowest = 0.5 / (1u64 << 53) as f64;
        let few = [lowest, 1e-9, 0.25, 0.5, 0.707, 0.708, 0.999_999, 1.0 - f64::EPSILON / 2.0, 1.0];
        for number in few.into_iter().chain((1..1000).map(|i| f64::from(i) / 1000.0)) {
            let mut numbers = [number; LANES];
            exponentials(&mut numbers);
            let expected = -number.ln();
            assert!((numbers[5] - expected).abs() <= 2e-12 * expected, "{number}: {} {expected}", numbers[5]);
        }
    }

    #[test]
    fn places_are_distinct_and_old_edges_have_no_clocks() {
        for (count, seed) in [(1, 1), (7, 2), (20, 3), (40, 4), (128, 5)] {
            let times: Vec<i64> = (0..count).map(|i| i * 3).collect();
            for k in 0..=count as usize {
                let (mut out, stream) = (vec![0; k], &mut Stream::new(key(&[seed, k as u64])));
                assert!(draw(5.0, &times, stream, &mut out));
                out.sort_unstable();
                assert!(
                    out.windows(2).all(|pair| pair[0] < pair[1]) && out.iter().all(|i| i64::from(*i) < count)
                );
            }
        }
        let (mut out, stream) = ([0; 2], &mut Stream::new(1));
        assert!(draw(1.0, &[-5000, 0, 999], stream, &mut out));
        assert!(out.contains(&1) && out.contains(&2));
        assert!(!draw(1.0, &[-5000, -2, 999], stream, &mut out));
    }
}
