//! Factors rounded to bf16, or to sums of two bf16, and packed into pairs that are adjacent along
//! the inner dimension.

#![allow(unsafe_code, reason = "vector instructions")]

use std::{arch::x86_64::*, mem::transmute};

use crate::backend::Side;

/// Largest number of pairs of a row in a block, of all parts.
const MAX_PAIRS: usize = 512;

/// Mask of the lowest `n` of 16 lanes.
#[inline(always)]
pub(super) fn lanes(n: usize) -> __mmask16 {
    ((1u32 << n.min(16)) - 1) as __mmask16
}

/// The first `min(len, 16)` values at `x`, then zeros.
///
/// # Safety
/// The machine has AVX-512, and the values are readable.
#[inline(always)]
unsafe fn load(x: *const f32, len: usize) -> __m512 {
    // SAFETY: by the caller's guarantee; masked lanes are not read.
    unsafe { if len >= 16 { _mm512_loadu_ps(x) } else { _mm512_maskz_loadu_ps(lanes(len), x) } }
}

/// Pairs of 32 consecutive values: each value is the sum of `PARTS` bf16, the largest first.
///
/// # Safety
/// The machine has the instructions.
#[inline(always)]
unsafe fn along<const PARTS: usize>(mut low: __m512, mut high: __m512) -> [__m512i; PARTS] {
    // SAFETY: by the caller's guarantee; both types are 512 bits for which any value is valid.
    unsafe {
        let mut parts = [_mm512_setzero_si512(); PARTS];
        for (i, part) in parts.iter_mut().enumerate() {
            *part = transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
            if i + 1 < PARTS {
                low = _mm512_sub_ps(low, widened(_mm512_castsi512_si256(*part)));
                high = _mm512_sub_ps(high, widened(_mm512_extracti64x4_epi64::<1>(*part)));
            }
        }
        parts
    }
}

/// Values of 16 bf16.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn widened(x: __m256i) -> __m512 {
    // SAFETY: by the caller's guarantee.
    unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(x))) }
}

/// Place of a part of a pair among the packed pairs of its row or panel: 16 pairs of each part
/// alternate.
#[inline(always)]
fn place<const PARTS: usize>(pair: usize, part: usize) -> usize {
    (pair / 16 * PARTS + part) * 16 + pair % 16
}

/// Packs the `len` values at `x` into pairs, and prefetches the values `ahead` of them.
///
/// # Safety
/// The machine has the instructions; the values are readable, and `out` is valid for the parts of
/// `len` values, rounded up to a multiple of 32.
#[inline(always)]
pub(super) unsafe fn pack_along<const PARTS: usize>(x: *const f32, len: usize, ahead: usize, out: *mut u32) {
    for at in (0..len).step_by(32) {
        let left = len - at;
        // SAFETY: by the caller's guarantee; a prefetch does not fault.
        unsafe {
            let from = x.add(at);
            _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(ahead).cast());
            _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(ahead + 16).cast());
            let high = if left > 16 { load(from.add(16), left - 16) } else { _mm512_setzero_ps() };
            for (part, pairs) in along::<PARTS>(load(from, left), high).into_iter().enumerate() {
                _mm512_storeu_si512(out.add(place::<PARTS>(at / 2, part)).cast(), pairs);
            }
        }
    }
}

/// Packs `depth` rows of `cols` values into `count` pairs of vertically adjacent values, in panels
/// of `P` columns: `[panel][pair][P]`, with `PARTS` pairs for each. Pairs beyond the rows are
/// zeros.
///
/// # Safety
/// The machine has the instructions; the rows are readable from `x` on, `count` pairs are at least
/// `depth` rows, and `out` is valid for `cols`, rounded up to panels, times `count` and `PARTS`.
#[inline(always)]
pub(super) unsafe fn pack_across<const P: usize, const PARTS: usize>(
    x: *const f32,
    depth: usize,
    cols: usize,
    count: usize,
    out: *mut u32,
) {
    // SAFETY: by the caller's guarantee; lanes beyond the row and beyond the panel are masked.
    unsafe {
        // 0, 16, 1, 17, ...
        let iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let order = _mm512_add_epi32(
            _mm512_set1_epi32(16 << 16),
            _mm512_mullo_epi32(_mm512_set1_epi32(0x1_0001), iota),
        );
        for p in 0..count {
            let rows = depth.saturating_sub(p * 2);
            for col in (0..cols).step_by(P) {
                for v in (0..P).step_by(16) {
                    if col + v >= cols {
                        break;
                    }
                    let from = x.wrapping_add(p * 2 * cols + col + v);
                    let len = (cols - col - v).min(P - v);
                    let low = if rows > 0 { load(from, len) } else { _mm512_setzero_ps() };
                    let high = if rows > 1 { load(from.add(cols), len) } else { _mm512_setzero_ps() };
                    for (part, pairs) in along::<PARTS>(low, high).into_iter().enumerate() {
                        let pairs = _mm512_permutexvar_epi16(order, pairs);
                        let to = out.add(col * count * PARTS + place::<PARTS>(p, part) * P + v);
                        _mm512_mask_storeu_epi32(to.cast(), lanes(P - v), pairs);
                    }
                }
            }
        }
    }
}

/// Packs the right factor (`k x n`, or `n x k` transposed) as `[block][panel][pair][16]`, with
/// `PARTS` pairs for each. A block has `block` pairs, the last one a multiple of `unit`, a divisor
/// of 16; those beyond `k` are zeros.
///
/// # Safety
/// The machine has the instructions.
///
/// # Panics
/// A slice has the wrong length.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) unsafe fn pack_right<const PARTS: usize>(
    b: &[f32],
    side: Side,
    [k, n]: [usize; 2],
    [block, unit]: [usize; 2],
    out: &mut [u32],
) {
    let columns = n.next_multiple_of(16);
    assert!(b.len() == k * n && 16 % unit == 0 && block % 16 == 0 && block * PARTS <= MAX_PAIRS);
    assert!(out.len() == k.div_ceil(2).next_multiple_of(unit) * PARTS * columns);
    let mut row = [0u32; MAX_PAIRS];
    for start in (0..k).step_by(2 * block) {
        let depth = (2 * block).min(k - start);
        let count = depth.div_ceil(2).next_multiple_of(unit);
        let out = &mut out[start / 2 * PARTS * columns..][..count * PARTS * columns];
        if side == Side::Plain {
            let from = b[start * n..].as_ptr();
            // SAFETY: rows `start..start + depth` are inside, and `out` is as long as these panels.
            unsafe { pack_across::<16, PARTS>(from, depth, n, count, out.as_mut_ptr()) };
            continue;
        }
        for j in 0..n {
            let from = b[j * k + start..][..depth].as_ptr();
            // SAFETY: the row's `depth` values are inside, and `row` is as long as a block.
            unsafe { pack_along::<PARTS>(from, depth, k, row.as_mut_ptr()) };
            let panel = &mut out[j / 16 * count * PARTS * 16..][..count * PARTS * 16];
            for (to, &pair) in panel[j % 16..].iter_mut().step_by(16).zip(&row) {
                *to = pair;
            }
        }
    }
}
