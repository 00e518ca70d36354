//! Fused multiply-adds on registers, the upper bound of dense products.

#![allow(unsafe_code, reason = "vector instructions")]

use std::hint::black_box;

/// Number of rounds of a call.
const ROUNDS: usize = 1 << 20;
/// Number of values that are updated independently, in the widest vectors.
const LANES: usize = 16 * CHAINS;
/// Number of independent vectors, at least the operation's latency times its throughput.
const CHAINS: usize = 12;
/// Floating-point operations of a call on one thread.
pub const OPERATIONS: f64 = (2 * ROUNDS * LANES) as f64;

// Plain loops, because a closure passed to `map` is not compiled with the target features, which
// costs a factor of a hundred.

/// Runs one call on every thread of the pool.
pub fn run() {
    rayon::broadcast(|_| black_box(chains(black_box(0.999), black_box(0.001))));
}

/// Repeats `x = a x + b` on independent vectors.
fn chains(a: f32, b: f32) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has the instructions.
        return unsafe { avx512(a, b) };
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: as above.
        return unsafe { avx2(a, b) };
    }
    portable(a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512(a: f32, b: f32) -> f32 {
    use std::arch::x86_64::{_mm512_add_ps, _mm512_fmadd_ps, _mm512_reduce_add_ps, _mm512_set1_ps};
    let (a, b) = (_mm512_set1_ps(a), _mm512_set1_ps(b));
    let mut x = [b; CHAINS];
    for _ in 0..ROUNDS {
        for x in &mut x {
            *x = _mm512_fmadd_ps(*x, a, b);
        }
    }
    let mut sum = x[0];
    for x in &x[1..] {
        sum = _mm512_add_ps(sum, *x);
    }
    _mm512_reduce_add_ps(sum)
}

/// [`avx512`] with twice as many rounds of vectors of half the width.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(a: f32, b: f32) -> f32 {
    use std::arch::x86_64::{_mm256_add_ps, _mm256_cvtss_f32, _mm256_fmadd_ps, _mm256_set1_ps};
    let (a, b) = (_mm256_set1_ps(a), _mm256_set1_ps(b));
    let mut x = [b; CHAINS];
    for _ in 0..2 * ROUNDS {
        for x in &mut x {
            *x = _mm256_fmadd_ps(*x, a, b);
        }
    }
    let mut sum = x[0];
    for x in &x[1..] {
        sum = _mm256_add_ps(sum, *x);
    }
    _mm256_cvtss_f32(sum)
}

/// Separate multiplications and additions, because `mul_add` without the instruction is a slow
/// call.
fn portable(a: f32, b: f32) -> f32 {
    let mut x = [b; 32];
    for _ in 0..ROUNDS * LANES / x.len() {
        x.iter_mut().for_each(|x| *x = *x * a + b);
    }
    x.iter().sum()
}
