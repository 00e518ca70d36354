//! Products of packed pairs by `vdpbf16ps`: a tile of the result, 12 rows by 2 panels (8 by 3 if
//! three panels remain, for example for 47 classes; 24 by 1), stays in 24 registers for a whole
//! block.

#![allow(unsafe_code, reason = "vector instructions")]

use std::{
    arch::x86_64::*,
    mem::{MaybeUninit, transmute},
    ops::Range,
};

use super::{
    Columns,
    pack::{lanes, pack_across, pack_along},
};

/// Rows of the left factor that are packed together.
pub(super) const ROWS: usize = 24;
/// Pairs in a block of the inner dimension.
pub(super) const DEPTH: usize = 256;
/// Pairs in a block if the left factor is transposed.
pub(super) const LONG_DEPTH: usize = 128;
/// Distance between packed rows of the left factor, in pairs: not a power of two, so that the rows
/// do not map to the same cache lines.
const STRIDE: usize = DEPTH + 16;

/// Computes rows of `c = beta c + a b`, with `b` packed by [`pack_right`].
///
/// # Safety
/// The machine has the instructions.
///
/// # Panics
/// A slice has the wrong length.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) unsafe fn multiply(a: &[f32], b: &[u32], k: usize, n: usize, beta: f32, c: &mut [f32]) {
    /// Packed left factor.
    #[repr(align(64))]
    struct Left([u32; ROWS * STRIDE]);
    let panels = n.div_ceil(16);
    assert!(a.len() * n == c.len() * k && b.len() == k.div_ceil(2) * panels * 16);
    // zeros, because rows of a tile beyond the last are computed too
    let mut left = Left([0; ROWS * STRIDE]);
    let left = left.0.as_mut_ptr();
    for (a, c) in a.chunks(ROWS * k).zip(c.chunks_mut(ROWS * n)) {
        let rows = c.len() / n;
        for start in (0..k).step_by(2 * DEPTH) {
            let depth = (2 * DEPTH).min(k - start);
            let count = depth.div_ceil(2);
            // SAFETY: `start + depth <= k`, so the values are inside each row; a packed row is as
            // long as a block; the panels of a block are `count * panels * 16` pairs.
            unsafe {
                for r in 0..rows {
                    pack_along::<1>(a[r * k + start..].as_ptr(), depth, ROWS * k, left.add(r * STRIDE));
                }
                let b = b[start / 2 * panels * 16..][..count * panels * 16].as_ptr();
                let beta = if start == 0 { beta } else { 1.0 };
                let job = Tile { a: left, b, count, n, n_left: n, beta, c: c.as_mut_ptr() };
                all_panels::<STRIDE, 1>(job, rows);
            }
        }
    }
}

/// Computes `c`, the product of `a` transposed and `b` over the rows `range` of both. `packed` is
/// scratch for [`LONG_DEPTH`] pairs of both factors' columns, rounded up to [`ROWS`] and 16.
///
/// # Safety
/// The machine has the instructions.
///
/// # Panics
/// A slice has the wrong length.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) unsafe fn multiply_transposed<const N: usize>(
    a: [Columns; N],
    b: Columns,
    range: Range<usize>,
    packed: &mut [u32],
    c: &mut [f32],
) {
    let n = b.width;
    let (rows, widest) = a.iter().fold((0, 0), |(rows, widest), a| (rows + a.width, a.width.max(widest)));
    assert!(a.iter().all(|a| range.end * a.width <= a.data.len()));
    assert!(range.end * n <= b.data.len() && c.len() == rows * n);
    let (left, right) = packed.split_at_mut(LONG_DEPTH * widest.next_multiple_of(ROWS));
    assert!(right.len() >= LONG_DEPTH * n.next_multiple_of(16));
    for start in range.clone().step_by(2 * LONG_DEPTH) {
        let depth = (2 * LONG_DEPTH).min(range.end - start);
        let count = depth.div_ceil(2);
        let beta = if start == range.start { 0.0 } else { 1.0 };
        // SAFETY: the assertions above ensure that the rows, and their packed pairs, are inside.
        unsafe { pack_across::<16, 1>(b.data[start * n..].as_ptr(), depth, n, count, right.as_mut_ptr()) };
        let mut c = &mut c[..];
        for a in &a {
            let m = a.width;
            let (own, rest) = c.split_at_mut(m * n);
            // SAFETY: as above; each factor has separate rows of `c`.
            unsafe {
                pack_across::<ROWS, 1>(a.data[start * m..].as_ptr(), depth, m, count, left.as_mut_ptr());
                for first in (0..m).step_by(ROWS) {
                    let a = left[first * count..][..ROWS * count].as_ptr();
                    let c = own[first * n..].as_mut_ptr();
                    let job = Tile { a, b: right.as_ptr(), count, n, n_left: n, beta, c };
                    all_panels::<1, ROWS>(job, ROWS.min(m - first));
                }
            }
            c = rest;
        }
    }
}

/// Inputs and outputs of a tile.
#[derive(Clone, Copy)]
struct Tile {
    /// Packed rows.
    a: *const u32,
    /// Panels of `count x 16`.
    b: *const u32,
    /// Pairs of the inner dimension.
    count: usize,
    beta: f32,
    c: *mut f32,
    /// Number of columns of `c`.
    n: usize,
    /// Number of those columns from the tile on.
    n_left: usize,
}

/// Multiplies packed rows of the left factor by all panels of a block, for the first `rows` (at
/// most [`ROWS`]) rows of `c`.
///
/// # Safety
/// The machine has the instructions. `a` holds [`ROWS`] rows of pairs, `ROW` apart from row to row
/// and `PAIR` from pair to pair; `b` the panels of all columns; `c` the rows.
#[inline(always)]
unsafe fn all_panels<const ROW: usize, const PAIR: usize>(job: Tile, rows: usize) {
    let panels = job.n.div_ceil(16);
    let mut j = 0;
    while j < panels {
        // SAFETY: the panels from `j` on are inside, as many as a tile reads, and so are their
        // columns of `c`.
        unsafe {
            let (b, c) = (job.b.add(j * job.count * 16), job.c.add(j * 16));
            let job = Tile { b, c, n_left: job.n - j * 16, ..job };
            match panels - j {
                1 => {
                    tiles::<24, 1, ROW, PAIR>(job, rows);
                    j += 1;
                }
                3 => {
                    tiles::<8, 3, ROW, PAIR>(job, rows);
                    j += 3;
                }
                // the 100 columns of a weight gradient leave 4 rows
                _ => {
                    let whole = if rows % 12 <= 4 { rows - rows % 12 } else { rows };
                    tiles::<12, 2, ROW, PAIR>(job, whole);
                    if whole < rows {
                        let (a, c) = (job.a.add(whole * ROW), job.c.add(whole * job.n));
                        tiles::<4, 2, ROW, PAIR>(Tile { a, c, ..job }, rows - whole);
                    }
                    j += 2;
                }
            }
        }
    }
}

/// Multiplies the rows by `V` panels, `R` (a divisor of [`ROWS`]) rows at a time.
///
/// # Safety
/// As for [`all_panels`], for `V` panels.
#[inline(always)]
unsafe fn tiles<const R: usize, const V: usize, const ROW: usize, const PAIR: usize>(job: Tile, rows: usize) {
    for r in (0..rows).step_by(R) {
        // SAFETY: by the caller's guarantee; `R` divides `ROWS`, so all rows of the tile are in
        // `a`.
        unsafe {
            let (a, c) = (job.a.add(r * ROW), job.c.add(r * job.n));
            tile::<R, V, ROW, PAIR>(Tile { a, c, ..job }, (rows - r).min(R));
        }
    }
}

/// Computes one tile in registers and writes its first `rows` rows.
///
/// # Safety
/// As for [`tiles`].
#[inline(always)]
unsafe fn tile<const R: usize, const V: usize, const ROW: usize, const PAIR: usize>(job: Tile, rows: usize) {
    // SAFETY: by the caller's guarantee; lanes beyond the last column are masked; the casts are
    // between types of 512 bits for which any value is valid.
    unsafe {
        let mut acc = [[_mm512_setzero_ps(); V]; R];
        for p in 0..job.count {
            let mut b = [MaybeUninit::<__m512bh>::uninit(); V];
            for (v, b) in b.iter_mut().enumerate() {
                b.write(transmute::<__m512i, __m512bh>(_mm512_loadu_si512(
                    job.b.add((v * job.count + p) * 16).cast(),
                )));
            }
            for (r, acc) in acc.iter_mut().enumerate() {
                let pair = _mm512_set1_epi32(*job.a.add(r * ROW + p * PAIR) as i32);
                let a = transmute::<__m512i, __m512bh>(pair);
                for (acc, b) in acc.iter_mut().zip(&b) {
                    *acc = _mm512_dpbf16_ps(*acc, a, b.assume_init());
                }
            }
        }
        let beta = _mm512_set1_ps(job.beta);
        for (r, acc) in acc.iter().enumerate() {
            if r >= rows {
                break;
            }
            for (v, &sum) in acc.iter().enumerate() {
                let at = job.c.add(r * job.n + v * 16);
                let mask = lanes(job.n_left - v * 16);
                let sum = if job.beta == 0.0 {
                    sum
                } else {
                    _mm512_fmadd_ps(beta, _mm512_maskz_loadu_ps(mask, at), sum)
                };
                _mm512_mask_storeu_ps(at, mask, sum);
            }
        }
    }
}
