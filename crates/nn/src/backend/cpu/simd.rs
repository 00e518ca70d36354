//! Vectors of f32 and u32 behind one trait, so that every kernel is written once.
//!
//! A value of an implementing type is the proof that the machine has those instructions: the types
//! of [`x86`](super::simd_x86) can only be made `unsafe`ly, after detection. That makes all methods
//! but those on raw pointers safe to call.
//!
//! Everything is `inline(always)`: the functions must dissolve into a caller compiled with the
//! right target features (see [`super::level`]), or they would be compiled without them.

use half::{bf16, f16};

/// A set of vector instructions.
pub(crate) trait Simd: Copy + Send + Sync {
    /// Values in a vector.
    const LANES: usize;
    /// Vectors of sums that fit the registers beside what a loop needs otherwise.
    const BLOCK: usize;
    /// f32 values.
    type F: Copy;
    /// u32 values.
    type U: Copy;
    /// One truth value per lane.
    type M: Copy;

    /// # Safety
    /// `LANES` values may be read at `x`.
    unsafe fn load_full(self, x: *const f32) -> Self::F;
    /// # Safety
    /// `LANES` values may be written at `x`.
    unsafe fn store_full(self, x: *mut f32, v: Self::F);
    /// The first lanes come from `x`, of which at most `LANES` values are read, the others from
    /// `fill`.
    fn load_part(self, x: &[f32], fill: Self::F) -> Self::F;
    /// Writes the first lanes to `x`, at most `LANES`.
    fn store_part(self, x: &mut [f32], v: Self::F);
    /// The first lanes come from `x`, of which at most `LANES` values are read, the others are
    /// zeros.
    fn load_f16(self, x: &[f16]) -> Self::F;
    /// As [`Simd::load_f16`].
    fn load_bf16(self, x: &[bf16]) -> Self::F;
    /// `x[at..]` as far as it goes or a vector holds, then zeros.
    fn load_u(self, x: &[u32], at: usize) -> Self::U;
    /// To `x[at..]` as far as it goes or a vector holds.
    fn store_u(self, x: &mut [u32], at: usize, v: Self::U);

    fn splat(self, x: f32) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a b + c`; rounds once where the machine can.
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    fn sqrt(self, a: Self::F) -> Self::F;
    /// `a` where `a > b`, else `b` (so a NaN in `b` stays).
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a` where `a < b`, else `b` (so a NaN in `b` stays).
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn gt(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a` where true, `b` else.
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
    /// The values with those bits.
    fn float(self, a: Self::U) -> Self::F;

    /// The sum of the lanes, always in the same order.
    fn sum(self, a: Self::F) -> f32;
    /// [`Simd::sum`] of each, not always in the same order as that.
    #[inline(always)]
    fn sum4(self, a: [Self::F; 4]) -> [f32; 4] {
        [self.sum(a[0]), self.sum(a[1]), self.sum(a[2]), self.sum(a[3])]
    }
    /// The largest lane.
    fn largest(self, a: Self::F) -> f32;

    /// `x[at..]` as far as it goes or a vector holds, then zeros.
    #[inline(always)]
    fn load(self, x: &[f32], at: usize) -> Self::F {
        self.load_or(x, at, self.splat(0.0))
    }

    /// `x[at..]` as far as it goes or a vector holds, then `fill`.
    #[inline(always)]
    fn load_or(self, x: &[f32], at: usize, fill: Self::F) -> Self::F {
        if at + Self::LANES <= x.len() {
            // SAFETY: the line above.
            unsafe { self.load_full(x.as_ptr().add(at)) }
        } else {
            self.load_part(&x[at..], fill)
        }
    }

    /// To `x[at..]` as far as it goes or a vector holds.
    #[inline(always)]
    fn store(self, x: &mut [f32], at: usize, v: Self::F) {
        if at + Self::LANES <= x.len() {
            // SAFETY: the line above.
            unsafe { self.store_full(x.as_mut_ptr().add(at), v) }
        } else {
            self.store_part(&mut x[at..], v);
        }
    }
}

/// What a feature table may hold: read as f32.
pub(crate) trait Element: bytemuck::Pod + Send + Sync {
    /// The first lanes come from `x`, of which at most [`Simd::LANES`] values are read, the others
    /// are zeros.
    fn load<S: Simd>(s: S, x: &[Self]) -> S::F;

    /// All lanes come from `x`, which is long enough.
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

/// Arrays, left to the compiler: for machines without an implementation of their own.
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
    // all bits on or off: what the compiler turns into vector comparisons and blends
    type M = [u32; N];

    #[inline(always)]
    unsafe fn load_full(self, x: *const f32) -> Self::F {
        // SAFETY: the caller's promise; an array of f32 has the alignment of one.
        unsafe { *x.cast() }
    }
    #[inline(always)]
    unsafe fn store_full(self, x: *mut f32, v: Self::F) {
        // SAFETY: the caller's promise; an array of f32 has the alignment of one.
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
        // not f32::mul_add, which is a call to a software routine without the instruction
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
