//! Vectors of f32 and u32 behind one trait, so that every kernel is written once.
//!
//! A value of an implementing type proves that the machine has its instructions: the types of
//! [`x86`](super::simd_x86) are created only by `unsafe` code, after detection. All methods except
//! those on raw pointers are therefore safe.
//!
//! Everything is `inline(always)`: the functions must be inlined into a caller compiled with the
//! right target features (see [`super::level`]), or they would be compiled without them.

#![allow(unsafe_code, reason = "vector instructions")]

use half::{bf16, f16};

/// An instruction set of vectors.
pub(crate) trait Simd: Copy + Send + Sync {
    /// Number of values in a vector.
    const LANES: usize;
    /// Number of vectors of sums that fit in registers besides the other variables of a loop.
    const BLOCK: usize;
    /// Vector of f32.
    type F: Copy;
    /// Vector of u32.
    type U: Copy;
    /// Vector of one truth value per lane.
    type M: Copy;

    /// # Safety
    /// `LANES` values are readable at `x`.
    unsafe fn load_full(self, x: *const f32) -> Self::F;
    /// # Safety
    /// `LANES` values are writable at `x`.
    unsafe fn store_full(self, x: *mut f32, v: Self::F);
    /// Loads the first lanes from `x`, at most `LANES` values, and the others from `fill`.
    fn load_part(self, x: &[f32], fill: Self::F) -> Self::F;
    /// Writes the first lanes to `x`, at most `LANES`.
    fn store_part(self, x: &mut [f32], v: Self::F);
    /// Loads the first lanes from `x`, at most `LANES` values; the others are zeros.
    fn load_f16(self, x: &[f16]) -> Self::F;
    /// [`Simd::load_f16`] for bf16.
    fn load_bf16(self, x: &[bf16]) -> Self::F;
    /// Loads `x[at..]` up to a vector's length, then zeros.
    fn load_u(self, x: &[u32], at: usize) -> Self::U;
    /// Stores to `x[at..]`, up to a vector's length.
    fn store_u(self, x: &mut [u32], at: usize, v: Self::U);

    fn splat(self, x: f32) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a b + c`, rounded once if the machine supports it.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    fn sqrt(self, a: Self::F) -> Self::F;
    /// `a` where `a > b`, else `b` (so a NaN in `b` is preserved).
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a` where `a < b`, else `b` (so a NaN in `b` is preserved).
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn gt(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a` where true, else `b`.
    fn select(self, m: Self::M, a: Self::F, b: Self::F) -> Self::F;

    fn splat_u(self, x: u32) -> Self::U;
    /// 0, 1, 2, ...
    fn iota(self) -> Self::U;
    fn add_u(self, a: Self::U, b: Self::U) -> Self::U;
    fn sub_u(self, a: Self::U, b: Self::U) -> Self::U;
    fn mul_u(self, a: Self::U, b: Self::U) -> Self::U;
    fn xor(self, a: Self::U, b: Self::U) -> Self::U;
    fn and(self, a: Self::U, b: Self::U) -> Self::U;
    fn shl(self, a: Self::U, by: u32) -> Self::U;
    fn shr(self, a: Self::U, by: u32) -> Self::U;
    fn eq_u(self, a: Self::U, b: Self::U) -> Self::M;
    fn lt_u(self, a: Self::U, b: Self::U) -> Self::M;
    fn select_u(self, m: Self::M, a: Self::U, b: Self::U) -> Self::U;
    fn bits(self, a: Self::F) -> Self::U;
    /// The floats with these bits.
    fn float(self, a: Self::U) -> Self::F;

    /// A bit for each lane, the first one lowest; higher bits are zeros.
    fn mask_bits(self, m: Self::M) -> u32;

    /// Sum of the lanes, always in the same order.
    fn sum(self, a: Self::F) -> f32;
    /// [`Simd::sum`] of each vector, possibly in another order.
    #[inline(always)]
    fn sum4(self, a: [Self::F; 4]) -> [f32; 4] {
        [self.sum(a[0]), self.sum(a[1]), self.sum(a[2]), self.sum(a[3])]
    }
    /// Maximum of the lanes.
    fn largest(self, a: Self::F) -> f32;

    /// Loads `x[at..]` up to a vector's length, then zeros.
    #[inline(always)]
    fn load(self, x: &[f32], at: usize) -> Self::F {
        self.load_or(x, at, self.splat(0.0))
    }

    /// Loads `x[at..]` up to a vector's length, then `fill`.
    #[inline(always)]
    fn load_or(self, x: &[f32], at: usize, fill: Self::F) -> Self::F {
        if holds(x.len(), at, Self::LANES) {
            // SAFETY: by the condition above.
            unsafe { self.load_full(x.as_ptr().add(at)) }
        } else {
            self.load_part(&x[at..], fill)
        }
    }

    /// Stores to `x[at..]`, up to a vector's length.
    #[inline(always)]
    fn store(self, x: &mut [f32], at: usize, v: Self::F) {
        if holds(x.len(), at, Self::LANES) {
            // SAFETY: by the condition above.
            unsafe { self.store_full(x.as_mut_ptr().add(at), v) }
        } else {
            self.store_part(&mut x[at..], v);
        }
    }
}

/// Returns true if `count` of `len` values lie from `at` on; without a sum, which could wrap.
#[inline(always)]
fn holds(len: usize, at: usize, count: usize) -> bool {
    len.checked_sub(count).is_some_and(|last| at <= last)
}

/// Element type of a feature table, read as f32.
pub(crate) trait Element: bytemuck::Pod + Send + Sync {
    /// Loads the first lanes from `x`, at most [`Simd::LANES`] values; the others are zeros.
    fn load<S: Simd>(s: S, x: &[Self]) -> S::F;

    /// Loads all lanes from `x`, which must be long enough.
    #[inline(always)]
    fn load_full<S: Simd>(s: S, x: &[Self]) -> S::F {
        Self::load(s, &x[..S::LANES])
    }
}

impl Element for f32 {
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[Self]) -> S::F {
        s.load_part(x, s.splat(0.0))
    }

    #[inline(always)]
    fn load_full<S: Simd>(s: S, x: &[Self]) -> S::F {
        s.load(&x[..S::LANES], 0)
    }
}

impl Element for f16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[Self]) -> S::F {
        s.load_f16(x)
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn load<S: Simd>(s: S, x: &[Self]) -> S::F {
        s.load_bf16(x)
    }
}

/// Arrays vectorized by the compiler, for machines without a specific implementation.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

const N: usize = 8;

/// `[f(0), f(1), ...]`.
macro_rules! lanes {
    ($i:ident => $value:expr) => {{
        let mut out = [Default::default(); N];
        for $i in 0..N {
            out[$i] = $value;
        }
        out
    }};
}

#[allow(clippy::needless_range_loop, reason = "lanes by number")]
impl Simd for Portable {
    const LANES: usize = N;
    const BLOCK: usize = 4;
    type F = [f32; N];
    type U = [u32; N];
    // all bits on or off, which the compiler turns into vector comparisons and blends
    type M = [u32; N];

    #[inline(always)]
    unsafe fn load_full(self, x: *const f32) -> Self::F {
        // SAFETY: by the caller's guarantee; an array of f32 has the alignment of f32.
        unsafe { *x.cast() }
    }
    #[inline(always)]
    unsafe fn store_full(self, x: *mut f32, v: Self::F) {
        // SAFETY: by the caller's guarantee; an array of f32 has the alignment of f32.
        unsafe { *x.cast() = v }
    }
    #[inline(always)]
    fn load_part(self, x: &[f32], fill: Self::F) -> Self::F {
        let mut out = fill;
        out.iter_mut().zip(x).for_each(|(lane, &x)| *lane = x);
        out
    }
    #[inline(always)]
    fn store_part(self, x: &mut [f32], v: Self::F) {
        x.iter_mut().zip(v).for_each(|(x, lane)| *x = lane);
    }
    #[inline(always)]
    fn load_f16(self, x: &[f16]) -> Self::F {
        let mut out = [0.0; N];
        out.iter_mut().zip(x).for_each(|(lane, x)| *lane = x.to_f32());
        out
    }
    #[inline(always)]
    fn load_bf16(self, x: &[bf16]) -> Self::F {
        let mut out = [0.0; N];
        out.iter_mut().zip(x).for_each(|(lane, x)| *lane = x.to_f32());
        out
    }
    #[inline(always)]
    fn load_u(self, x: &[u32], at: usize) -> Self::U {
        let mut out = [0; N];
        out.iter_mut().zip(&x[at..]).for_each(|(lane, &x)| *lane = x);
        out
    }
    #[inline(always)]
    fn store_u(self, x: &mut [u32], at: usize, v: Self::U) {
        x[at..].iter_mut().zip(v).for_each(|(x, lane)| *x = lane);
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        [x; N]
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => a[i] / b[i])
    }
    #[inline(always)]
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        // not f32::mul_add, which calls a software routine on machines without the instruction
        lanes!(i => a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn sqrt(self, a: Self::F) -> Self::F {
        lanes!(i => a[i].sqrt())
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(i => if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn gt(self, a: Self::F, b: Self::F) -> Self::M {
        lanes!(i => if a[i] > b[i] { !0 } else { 0 })
    }
    #[inline(always)]
    fn select(self, m: Self::M, a: Self::F, b: Self::F) -> Self::F {
        self.float(self.select_u(m, self.bits(a), self.bits(b)))
    }

    #[inline(always)]
    fn splat_u(self, x: u32) -> Self::U {
        [x; N]
    }
    #[inline(always)]
    fn iota(self) -> Self::U {
        lanes!(i => i as u32)
    }
    #[inline(always)]
    fn add_u(self, a: Self::U, b: Self::U) -> Self::U {
        lanes!(i => a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn sub_u(self, a: Self::U, b: Self::U) -> Self::U {
        lanes!(i => a[i].wrapping_sub(b[i]))
    }
    #[inline(always)]
    fn mul_u(self, a: Self::U, b: Self::U) -> Self::U {
        lanes!(i => a[i].wrapping_mul(b[i]))
    }
    #[inline(always)]
    fn xor(self, a: Self::U, b: Self::U) -> Self::U {
        lanes!(i => a[i] ^ b[i])
    }
    #[inline(always)]
    fn and(self, a: Self::U, b: Self::U) -> Self::U {
        lanes!(i => a[i] & b[i])
    }
    #[inline(always)]
    fn shl(self, a: Self::U, by: u32) -> Self::U {
        lanes!(i => a[i] << by)
    }
    #[inline(always)]
    fn shr(self, a: Self::U, by: u32) -> Self::U {
        lanes!(i => a[i] >> by)
    }
    #[inline(always)]
    fn eq_u(self, a: Self::U, b: Self::U) -> Self::M {
        lanes!(i => if a[i] == b[i] { !0 } else { 0 })
    }
    #[inline(always)]
    fn lt_u(self, a: Self::U, b: Self::U) -> Self::M {
        lanes!(i => if a[i] < b[i] { !0 } else { 0 })
    }
    #[inline(always)]
    fn select_u(self, m: Self::M, a: Self::U, b: Self::U) -> Self::U {
        lanes!(i => (a[i] & m[i]) | (b[i] & !m[i]))
    }
    #[inline(always)]
    fn mask_bits(self, m: Self::M) -> u32 {
        m.iter().zip(0..).fold(0, |bits, (lane, i)| bits | (lane & 1) << i)
    }
    #[inline(always)]
    fn bits(self, a: Self::F) -> Self::U {
        bytemuck::cast(a)
    }
    #[inline(always)]
    fn float(self, a: Self::U) -> Self::F {
        bytemuck::cast(a)
    }

    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    #[inline(always)]
    fn largest(self, a: Self::F) -> f32 {
        let mut max = a[0];
        for i in 1..N {
            max = if a[i] > max { a[i] } else { max };
        }
        max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_whose_sums_would_wrap_are_outside() {
        for (len, at) in [(8, 0), (9, 1), (20, 12)] {
            assert!(holds(len, at, 8));
        }
        for (len, at) in [(7, 0), (8, 1), (0, 0), (8, usize::MAX), (8, usize::MAX - 7)] {
            assert!(!holds(len, at, 8), "{len} values from {at} on");
        }
    }
}
