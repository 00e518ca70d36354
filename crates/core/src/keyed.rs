//! Counter-based random numbers: a stream is a pure function of its key and uses no shared state,
//! so the same seed gives the same draws for any number of threads, machines or resumes.
//!
//! # Algorithm
//!
//! SplitMix64: `state += 0x9e3779b97f4a7c15; output = mix(state)`, where the initial state is the
//! mixed key.
//!
//! # Source
//!
//! Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014.
//!
//! # Cost
//!
//! O(1) per draw.

#![forbid(unsafe_code)]

/// Increment of SplitMix64: 2^64 divided by the golden ratio.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Finalizer of SplitMix64: a bijection of 64-bit words in which every input bit affects every
/// output bit.
#[inline(always)]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Folds the parts of a key, in order, into one word.
#[inline]
pub const fn key(parts: &[u64]) -> u64 {
    let mut state = GOLDEN;
    let mut i = 0;
    while i < parts.len() {
        state = mix(state ^ mix(parts[i].wrapping_add(GOLDEN))).wrapping_add(GOLDEN);
        i += 1;
    }
    state
}

/// Maps a random word uniformly to `0..n`, and to 0 if `n` is 0: the high half of a 64 x 64 bit
/// product; the bias is at most n / 2^64.
#[inline(always)]
pub const fn scaled(word: u64, n: u64) -> u64 {
    ((word as u128 * n as u128) >> 64) as u64
}

/// A stream of random numbers under one key.
///
/// ```
/// use graphmill_core::keyed::{Stream, key};
/// let mut a = Stream::new(key(&[7, 0, 3]));
/// let mut b = Stream::new(key(&[7, 0, 3]));
/// assert_eq!(a.next_u64(), b.next_u64());
/// assert!(a.below(10) < 10);
/// ```
#[derive(Clone, Debug)]
pub struct Stream {
    state: u64,
}

impl Stream {
    /// Creates the stream of `key` (see [`key`]).
    #[inline(always)]
    pub const fn new(key: u64) -> Self {
        Self { state: key }
    }

    /// Returns the next 64 random bits.
    #[inline(always)]
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// Draws uniformly from `0..n` by [`scaled`].
    #[inline(always)]
    pub const fn below(&mut self, n: u64) -> u64 {
        scaled(self.next_u64(), n)
    }

    /// Draws uniformly from `[0, 1)`, with 53 bits.
    #[inline(always)]
    pub const fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Draws from the standard normal distribution, by the Box-Muller transform of two uniforms.
    #[inline]
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Shuffles `items` (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_gives_the_published_vectors() {
        // Seed 1234567: the first outputs of the reference implementation.
        let mut stream = Stream::new(1_234_567);
        assert_eq!(stream.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(stream.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn keys_differ_by_order_and_by_part() {
        let keys = [key(&[1, 2]), key(&[2, 1]), key(&[1, 2, 0]), key(&[1, 3]), key(&[])];
        for i in 0..keys.len() {
            for j in 0..i {
                assert_ne!(keys[i], keys[j]);
            }
        }
    }

    #[test]
    fn keys_and_draws_have_fixed_values() {
        // Minibatches and checkpoints of earlier versions depend on these.
        assert_eq!((key(&[]), key(&[7, 0, 3])), (0x9e37_79b9_7f4a_7c15, 0xc521_ad40_5480_aae6));
        let stream = || Stream::new(key(&[7, 0, 3]));
        let (mut below, mut uniform) = (stream(), stream());
        assert_eq!([(); 5].map(|()| below.below(1000)), [99, 149, 667, 749, 562]);
        assert_eq!(
            [(); 3].map(|()| uniform.uniform()),
            [0.099_161_401_489_712_64, 0.149_122_279_282_927_1, 0.667_314_272_844_200_5]
        );
        assert!((stream().normal() - 0.270_658_787_749_142_9).abs() < 1e-12);
        let mut items: Vec<u32> = (0..10).collect();
        stream().shuffle(&mut items);
        assert_eq!(items, [2, 8, 9, 6, 4, 3, 7, 5, 1, 0]);
    }

    #[test]
    fn draws_are_uniform_and_normal() {
        let mut stream = Stream::new(key(&[42]));
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[stream.below(10) as usize] += 1;
        }
        // Each is binomial(1e5, 0.1): sigma 95; five sigma.
        assert!(counts.iter().all(|&c| c.abs_diff(10_000) < 475), "{counts:?}");
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..100_000 {
            let x = stream.normal();
            sum += x;
            squares += x * x;
        }
        assert!((sum / 1e5).abs() < 0.016 && (squares / 1e5 - 1.0).abs() < 0.023);
    }
}
