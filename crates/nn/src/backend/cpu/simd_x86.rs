//! [`Simd`] by x86-64 instructions: AVX-512, and AVX2 with FMA.

#![allow(unsafe_code, reason = "vector instructions")]

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::simd::Simd;

/// AVX-512 F, BW, DQ and VL. A value proves that the machine has them.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

/// AVX2, FMA and F16C. A value proves that the machine has them.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx512 {
    /// # Safety
    /// The machine has these instructions.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

impl Avx2 {
    /// # Safety
    /// The machine has these instructions.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// Methods that are one intrinsic each.
macro_rules! one_to_one {
    ($($name:ident($($arg:ident: $ty:ident),*) -> $out:ident = $intrinsic:ident;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: Self::$ty),*) -> Self::$out {
            // SAFETY: `self` proves that the machine has the instruction.
            unsafe { $intrinsic($($arg),*) }
        }
    )*};
}

/// Methods that are one expression of intrinsics each.
macro_rules! by_expression {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty = $value:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $ty),*) -> $out {
            // SAFETY: `self` proves that the machine has the instructions.
            unsafe { $value }
        }
    )*};
}

/// The lowest `n` bits, `n` at most 16.
#[inline(always)]
fn low_bits(n: usize) -> __mmask16 {
    ((1u32 << n.min(16)) - 1) as __mmask16
}

impl Simd for Avx512 {
    const LANES: usize = 16;
    const BLOCK: usize = 16;
    type F = __m512;
    type U = __m512i;
    type M = __mmask16;

    #[inline(always)]
    unsafe fn load_full(self, x: *const f32) -> Self::F {
        // SAFETY: by the caller's guarantee.
        unsafe { _mm512_loadu_ps(x) }
    }
    #[inline(always)]
    unsafe fn store_full(self, x: *mut f32, v: Self::F) {
        // SAFETY: by the caller's guarantee.
        unsafe { _mm512_storeu_ps(x, v) }
    }
    #[inline(always)]
    fn load_part(self, x: &[f32], fill: Self::F) -> Self::F {
        // SAFETY: only lanes inside the slice are read.
        unsafe { _mm512_mask_loadu_ps(fill, low_bits(x.len()), x.as_ptr()) }
    }
    #[inline(always)]
    fn store_part(self, x: &mut [f32], v: Self::F) {
        // SAFETY: only lanes inside the slice are written.
        unsafe { _mm512_mask_storeu_ps(x.as_mut_ptr(), low_bits(x.len()), v) }
    }
    #[inline(always)]
    fn load_f16(self, x: &[f16]) -> Self::F {
        // SAFETY: only lanes inside the slice are read.
        unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(low_bits(x.len()), x.as_ptr().cast())) }
    }
    #[inline(always)]
    fn load_bf16(self, x: &[bf16]) -> Self::F {
        // SAFETY: only lanes inside the slice are read.
        unsafe {
            let bits = _mm256_maskz_loadu_epi16(low_bits(x.len()), x.as_ptr().cast());
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits)))
        }
    }
    #[inline(always)]
    fn load_u(self, x: &[u32], at: usize) -> Self::U {
        let x = &x[at..];
        // SAFETY: only lanes inside the slice are read.
        unsafe { _mm512_maskz_loadu_epi32(low_bits(x.len()), x.as_ptr().cast()) }
    }
    #[inline(always)]
    fn store_u(self, x: &mut [u32], at: usize, v: Self::U) {
        let x = &mut x[at..];
        // SAFETY: only lanes inside the slice are written.
        unsafe { _mm512_mask_storeu_epi32(x.as_mut_ptr().cast(), low_bits(x.len()), v) }
    }

    // transposes while adding: a third of the instructions of four sums
    #[inline(always)]
    fn sum4(self, a: [__m512; 4]) -> [f32; 4] {
        // SAFETY: `self` proves that the machine has the instructions; both types are 16 bytes of
        // f32.
        unsafe {
            let low = _mm512_add_ps(_mm512_unpacklo_ps(a[0], a[1]), _mm512_unpackhi_ps(a[0], a[1]));
            let high = _mm512_add_ps(_mm512_unpacklo_ps(a[2], a[3]), _mm512_unpackhi_ps(a[2], a[3]));
            let all = _mm512_add_ps(
                _mm512_shuffle_ps::<0b01_00_01_00>(low, high),
                _mm512_shuffle_ps::<0b11_10_11_10>(low, high),
            );
            let half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps::<1>(all));
            let quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half));
            std::mem::transmute::<__m128, [f32; 4]>(quarter)
        }
    }

    #[inline(always)]
    fn mask_bits(self, m: Self::M) -> u32 {
        u32::from(m)
    }

    one_to_one! {
        add(a: F, b: F) -> F = _mm512_add_ps;
        sub(a: F, b: F) -> F = _mm512_sub_ps;
        mul(a: F, b: F) -> F = _mm512_mul_ps;
        div(a: F, b: F) -> F = _mm512_div_ps;
        mul_add(a: F, b: F, c: F) -> F = _mm512_fmadd_ps;
        sqrt(a: F) -> F = _mm512_sqrt_ps;
        max(a: F, b: F) -> F = _mm512_max_ps;
        min(a: F, b: F) -> F = _mm512_min_ps;
        add_u(a: U, b: U) -> U = _mm512_add_epi32;
        sub_u(a: U, b: U) -> U = _mm512_sub_epi32;
        mul_u(a: U, b: U) -> U = _mm512_mullo_epi32;
        xor(a: U, b: U) -> U = _mm512_xor_si512;
        and(a: U, b: U) -> U = _mm512_and_si512;
        eq_u(a: U, b: U) -> M = _mm512_cmpeq_epu32_mask;
        lt_u(a: U, b: U) -> M = _mm512_cmplt_epu32_mask;
        bits(a: F) -> U = _mm512_castps_si512;
        float(a: U) -> F = _mm512_castsi512_ps;
    }
    by_expression! {
        splat(x: f32) -> Self::F = _mm512_set1_ps(x);
        gt(a: Self::F, b: Self::F) -> Self::M = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b);
        select(m: Self::M, a: Self::F, b: Self::F) -> Self::F = _mm512_mask_blend_ps(m, b, a);
        splat_u(x: u32) -> Self::U = _mm512_set1_epi32(x as i32);
        iota() -> Self::U = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        shl(a: Self::U, by: u32) -> Self::U = _mm512_sllv_epi32(a, _mm512_set1_epi32(by as i32));
        shr(a: Self::U, by: u32) -> Self::U = _mm512_srlv_epi32(a, _mm512_set1_epi32(by as i32));
        select_u(m: Self::M, a: Self::U, b: Self::U) -> Self::U = _mm512_mask_blend_epi32(m, b, a);
        sum(a: Self::F) -> f32 = _mm512_reduce_add_ps(a);
        largest(a: Self::F) -> f32 = _mm512_reduce_max_ps(a);
    }
}

/// Table of masks: eight values from index `8 - n` on have the first `n` lanes on.
static PREFIX: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// Mask of the first `n` lanes, `n` at most 8.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn prefix(n: usize) -> __m256i {
    // SAFETY: eight values follow in the table, because at most 8 is subtracted from 8.
    unsafe { _mm256_loadu_si256(PREFIX.as_ptr().add(8 - n.min(8)).cast()) }
}

/// The first eight values, with zeros beyond the slice.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn load_eight(x: &[u16]) -> __m128i {
    let mut part = [0u16; 8];
    let from = if x.len() >= 8 {
        x.as_ptr()
    } else {
        part[..x.len()].copy_from_slice(x);
        part.as_ptr()
    };
    // SAFETY: eight values are readable there.
    unsafe { _mm_loadu_si128(from.cast()) }
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    const BLOCK: usize = 8;
    type F = __m256;
    type U = __m256i;
    type M = __m256;

    #[inline(always)]
    unsafe fn load_full(self, x: *const f32) -> Self::F {
        // SAFETY: by the caller's guarantee.
        unsafe { _mm256_loadu_ps(x) }
    }
    #[inline(always)]
    unsafe fn store_full(self, x: *mut f32, v: Self::F) {
        // SAFETY: by the caller's guarantee.
        unsafe { _mm256_storeu_ps(x, v) }
    }
    #[inline(always)]
    fn load_part(self, x: &[f32], fill: Self::F) -> Self::F {
        // SAFETY: only lanes inside the slice are read.
        unsafe {
            let mask = prefix(x.len());
            _mm256_blendv_ps(fill, _mm256_maskload_ps(x.as_ptr(), mask), _mm256_castsi256_ps(mask))
        }
    }
    #[inline(always)]
    fn store_part(self, x: &mut [f32], v: Self::F) {
        // SAFETY: only lanes inside the slice are written.
        unsafe { _mm256_maskstore_ps(x.as_mut_ptr(), prefix(x.len()), v) }
    }
    #[inline(always)]
    fn load_f16(self, x: &[f16]) -> Self::F {
        // SAFETY: `self` proves that the machine has the instruction.
        unsafe { _mm256_cvtph_ps(load_eight(bytemuck::cast_slice(x))) }
    }
    #[inline(always)]
    fn load_bf16(self, x: &[bf16]) -> Self::F {
        // SAFETY: `self` proves that the machine has the instructions.
        unsafe {
            let bits = load_eight(bytemuck::cast_slice(x));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits)))
        }
    }
    #[inline(always)]
    fn load_u(self, x: &[u32], at: usize) -> Self::U {
        let x = &x[at..];
        // SAFETY: only lanes inside the slice are read.
        unsafe { _mm256_maskload_epi32(x.as_ptr().cast(), prefix(x.len())) }
    }
    #[inline(always)]
    fn store_u(self, x: &mut [u32], at: usize, v: Self::U) {
        let x = &mut x[at..];
        // SAFETY: only lanes inside the slice are written.
        unsafe { _mm256_maskstore_epi32(x.as_mut_ptr().cast(), prefix(x.len()), v) }
    }

    one_to_one! {
        add(a: F, b: F) -> F = _mm256_add_ps;
        sub(a: F, b: F) -> F = _mm256_sub_ps;
        mul(a: F, b: F) -> F = _mm256_mul_ps;
        div(a: F, b: F) -> F = _mm256_div_ps;
        mul_add(a: F, b: F, c: F) -> F = _mm256_fmadd_ps;
        sqrt(a: F) -> F = _mm256_sqrt_ps;
        max(a: F, b: F) -> F = _mm256_max_ps;
        min(a: F, b: F) -> F = _mm256_min_ps;
        add_u(a: U, b: U) -> U = _mm256_add_epi32;
        sub_u(a: U, b: U) -> U = _mm256_sub_epi32;
        mul_u(a: U, b: U) -> U = _mm256_mullo_epi32;
        xor(a: U, b: U) -> U = _mm256_xor_si256;
        and(a: U, b: U) -> U = _mm256_and_si256;
        bits(a: F) -> U = _mm256_castps_si256;
        float(a: U) -> F = _mm256_castsi256_ps;
    }
    by_expression! {
        splat(x: f32) -> Self::F = _mm256_set1_ps(x);
        gt(a: Self::F, b: Self::F) -> Self::M = _mm256_cmp_ps::<_CMP_GT_OQ>(a, b);
        select(m: Self::M, a: Self::F, b: Self::F) -> Self::F = _mm256_blendv_ps(b, a, m);
        splat_u(x: u32) -> Self::U = _mm256_set1_epi32(x as i32);
        iota() -> Self::U = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        shl(a: Self::U, by: u32) -> Self::U = _mm256_sllv_epi32(a, _mm256_set1_epi32(by as i32));
        shr(a: Self::U, by: u32) -> Self::U = _mm256_srlv_epi32(a, _mm256_set1_epi32(by as i32));
        eq_u(a: Self::U, b: Self::U) -> Self::M = _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b));
        // only a signed comparison exists, so both ranges are shifted by 2^31
        lt_u(a: Self::U, b: Self::U) -> Self::M = {
            let top = _mm256_set1_epi32(i32::MIN);
            _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_xor_si256(b, top), _mm256_xor_si256(a, top)))
        };
        select_u(m: Self::M, a: Self::U, b: Self::U) -> Self::U =
            _mm256_blendv_epi8(b, a, _mm256_castps_si256(m));
        mask_bits(m: Self::M) -> u32 = _mm256_movemask_ps(m) as u32;
        sum(a: Self::F) -> f32 = {
            let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        };
        largest(a: Self::F) -> f32 = {
            let four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        };
    }
}
