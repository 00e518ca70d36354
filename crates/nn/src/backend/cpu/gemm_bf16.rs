//! Dense products in bf16 by the instructions of AVX-512 BF16: factors are rounded when they are
//! packed, and sums are f32.
//!
//! # Algorithm
//!
//! `vdpbf16ps` multiplies *pairs* of 32 bits: two bf16 that are adjacent along the inner dimension.
//! Factors are packed into such pairs:
//!
//! - the right factor once, in panels of 16 columns: `[block][panel][pair][16]`, where a block is
//!   [`DEPTH`] pairs of the inner dimension;
//! - the left factor, [`ROWS`] rows at a time, into the innermost cache, where they are multiplied
//!   by all panels;
//! - a tile of the result, 12 rows by 2 panels (8 by 3 if three panels remain, for example for 47
//!   classes; 24 by 1), stays in 24 registers for a whole block.
//!
//! If the left factor is transposed (a weight gradient), the inner dimension is long and the result
//! small. The inner dimension is then split into parts, each with a separate result, and these are
//! added in order. The rows of both factors are packed in pairs, [`LONG_DEPTH`] pairs at a time,
//! which fit the second-level cache.
//!
//! Sums run over one block; blocks, and then parts, are added to each other, so that no sum is
//! long.
//!
//! # Source
//!
//! Goto and van de Geijn, *Anatomy of High-Performance Matrix Multiplication*, ACM TOMS 2008.
//!
//! # Cost
//!
//! `m n k` multiplications, 32 per instruction, and one pass over each factor to pack it.
//!
//! # Deviations
//!
//! The outermost loop of the source is omitted, because `n` is at most a few hundred here.
//!
//! The same code with single f32 in the place of pairs, and `vfmadd`, was 0-7 % faster than the
//! `gemm` crate for plain products of width 256, 8-10 % slower for weight gradients and 26-33 %
//! slower for 47 columns, so f32 uses the crate where there is AVX-512.

#![allow(unsafe_code, reason = "vector instructions")]

use std::{
    arch::x86_64::*,
    mem::{MaybeUninit, transmute},
    ops::Range,
};

use super::{
    factors::Factors,
    level::{Isa, Level},
    parallel::{Chunks, Rows},
    scratch,
    split_sum::{MAX_PARTIALS, parts, sum_chunks},
};
use crate::backend::Side;

/// Rows of the left factor that are packed together.
const ROWS: usize = 24;
/// Pairs in a block of the inner dimension.
const DEPTH: usize = 256;
/// Distance between packed rows of the left factor, in pairs: not a power of two, so that the rows
/// do not map to the same cache lines.
const STRIDE: usize = DEPTH + 16;
/// Pairs in a block if the left factor is transposed.
const LONG_DEPTH: usize = 128;
/// Multiplications per task: some tens of microseconds.
const GRAIN: usize = 8 << 20;
/// Length of a cache line in values of [`scratch`].
const LINE: usize = 8;

/// Returns true if this machine has the instructions and [`super::with_level`] allows them.
pub(super) fn is_available() -> bool {
    Isa::current().level() == Level::Avx512 && is_x86_feature_detected!("avx512bf16")
}

/// Computes `c = beta c + a b`, where `c` has `n` columns. All dimensions must be at least 1.
///
/// # Panics
/// The machine lacks the instructions, or a factor has the wrong length.
pub(super) fn gemm(
    factors: Factors,
    beta: f32,
    c: &mut [f32],
    finish: impl Fn(Range<usize>, &mut [f32]) + Sync,
) {
    let Factors { a, side_a, b, side_b: _, k, n } = factors;
    let m = c.len() / n;
    assert!(is_available() && m * n == c.len() && a.len() == m * k && b.len() == k * n);
    match side_a {
        Side::Plain => by_rows(factors, beta, c, finish),
        Side::Transposed => {
            by_inner([Columns { data: a, width: m }], Columns { data: b, width: n }, k, beta, [c]);
            finish(0..m, c);
        }
    }
}

/// Splits the product by rows of the result.
fn by_rows(
    Factors { a, b, side_b, k, n, .. }: Factors,
    beta: f32,
    c: &mut [f32],
    finish: impl Fn(Range<usize>, &mut [f32]) + Sync,
) {
    let m = c.len() / n;
    let len = k.div_ceil(2) * n.next_multiple_of(16);
    let mut memory = scratch::take(len.div_ceil(2) + LINE);
    let packed = pairs(&mut memory, len);
    // SAFETY: the machine has the instructions.
    unsafe { pack_right(b, side_b, k, n, packed) };
    let packed = &*packed;
    let len = (GRAIN / (n * k)).max(m.div_ceil(256)).next_multiple_of(ROWS);
    Chunks::of(m, len).each(Rows { data: c, width: n }, &mut [], |range, c, _: &mut [()]| {
        // SAFETY: the machine has the instructions.
        unsafe { multiply(&a[range.start * k..range.end * k], packed, k, n, beta, c.data) };
        finish(range, c.data);
    });
}

/// Computes `c[i] = beta c[i] + a[i]^T b`, where `a[i]` has `widths[i]` columns and `b` has `n`.
/// All dimensions must be at least 1.
///
/// # Panics
/// The machine lacks the instructions, or a factor has the wrong length.
pub(super) fn weight_gradients(
    a: [&[f32]; 2],
    widths: [usize; 2],
    b: &[f32],
    n: usize,
    beta: f32,
    c: [&mut [f32]; 2],
) {
    assert!(is_available());
    let k = b.len() / n;
    let columns = |i: usize| Columns { data: a[i], width: widths[i] };
    by_inner([columns(0), columns(1)], Columns { data: b, width: n }, k, beta, c);
}

/// Splits products with transposed left factors by parts of the inner dimension.
fn by_inner<const N: usize>(a: [Columns; N], b: Columns, k: usize, beta: f32, c: [&mut [f32]; N]) {
    let size: usize = c.iter().map(|c| c.len()).sum();
    let parts = parts(k, 4096).min(MAX_PARTIALS / size).max(1);
    let chunks = Chunks::of(k, k.div_ceil(parts).next_multiple_of(2));
    let widest = a.iter().map(|a| a.width.next_multiple_of(ROWS)).max().unwrap_or(0);
    let len = LONG_DEPTH * (widest + b.width.next_multiple_of(16));
    sum_chunks(chunks, beta, c, |range, partial| {
        let mut memory = scratch::take(len.div_ceil(2) + LINE);
        // SAFETY: the machine has the instructions.
        unsafe { multiply_transposed(a, b, range, pairs(&mut memory, len), partial) };
    });
}

/// The first `len` pairs from the first cache line on.
fn pairs(memory: &mut [f64], len: usize) -> &mut [u32] {
    let pairs: &mut [u32] = bytemuck::cast_slice_mut(memory);
    let skip = pairs.as_ptr().align_offset(64);
    &mut pairs[skip..skip + len]
}

/// Mask of the lowest `n` of 16 lanes.
#[inline(always)]
fn lanes(n: usize) -> __mmask16 {
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

/// Pairs of 32 consecutive values.
///
/// # Safety
/// The machine has the instructions.
#[inline(always)]
unsafe fn along(low: __m512, high: __m512) -> __m512i {
    // SAFETY: by the caller's guarantee; both types are 512 bits for which any value is valid.
    unsafe { transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low)) }
}

/// Packs the `len` values at `x` into pairs, and prefetches the values `ahead` of them.
///
/// # Safety
/// The machine has the instructions; the values are readable, and `out` is valid for `len` values,
/// rounded up to a multiple of 32.
#[inline(always)]
unsafe fn pack_along(x: *const f32, len: usize, ahead: usize, out: *mut u32) {
    for at in (0..len).step_by(32) {
        let left = len - at;
        // SAFETY: by the caller's guarantee; a prefetch does not fault.
        unsafe {
            let from = x.add(at);
            _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(ahead).cast());
            _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(ahead + 16).cast());
            let high = if left > 16 { load(from.add(16), left - 16) } else { _mm512_setzero_ps() };
            _mm512_storeu_si512(out.add(at / 2).cast(), along(load(from, left), high));
        }
    }
}

/// Packs `depth` rows of `cols` values into pairs of vertically adjacent values, in panels of `P`
/// columns: `[panel][pair][P]`.
///
/// # Safety
/// The machine has the instructions; the rows are readable from `x` on, and `out` is valid for
/// `cols`, rounded up to panels, times the pairs of `depth`.
#[inline(always)]
unsafe fn pack_across<const P: usize>(x: *const f32, depth: usize, cols: usize, out: *mut u32) {
    let count = depth.div_ceil(2);
    // SAFETY: by the caller's guarantee; lanes beyond the row and beyond the panel are masked.
    unsafe {
        // 0, 16, 1, 17, ...
        let iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let order = _mm512_add_epi32(
            _mm512_set1_epi32(16 << 16),
            _mm512_mullo_epi32(_mm512_set1_epi32(0x1_0001), iota),
        );
        for p in 0..count {
            let both = p * 2 + 1 < depth;
            for col in (0..cols).step_by(P) {
                for v in (0..P).step_by(16) {
                    if col + v >= cols {
                        break;
                    }
                    let from = x.add(p * 2 * cols + col + v);
                    let len = (cols - col - v).min(P - v);
                    let low = load(from, len);
                    let high = if both { load(from.add(cols), len) } else { _mm512_setzero_ps() };
                    let pairs = _mm512_permutexvar_epi16(order, along(low, high));
                    let to = out.add(col * count + p * P + v);
                    _mm512_mask_storeu_epi32(to.cast(), lanes(P - v), pairs);
                }
            }
        }
    }
}

/// Packs the right factor (`k x n`, or `n x k` transposed) as `[block][panel][pair][16]`.
///
/// # Safety
/// The machine has the instructions.
///
/// # Panics
/// A slice has the wrong length.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn pack_right(b: &[f32], side: Side, k: usize, n: usize, out: &mut [u32]) {
    let panels = n.div_ceil(16);
    assert!(b.len() == k * n && out.len() == k.div_ceil(2) * panels * 16);
    let mut row = [0u32; DEPTH];
    for start in (0..k).step_by(2 * DEPTH) {
        let depth = (2 * DEPTH).min(k - start);
        let count = depth.div_ceil(2);
        let out = &mut out[start / 2 * panels * 16..][..count * panels * 16];
        if side == Side::Plain {
            // SAFETY: rows `start..start + depth` are inside, and `out` is as long as these panels.
            unsafe { pack_across::<16>(b[start * n..].as_ptr(), depth, n, out.as_mut_ptr()) };
            continue;
        }
        for j in 0..n {
            // SAFETY: the row's `depth` values are inside, and `row` is as long as a block.
            unsafe { pack_along(b[j * k + start..][..depth].as_ptr(), depth, k, row.as_mut_ptr()) };
            let panel = &mut out[j / 16 * count * 16..][..count * 16];
            for (to, &pair) in panel[j % 16..].iter_mut().step_by(16).zip(&row) {
                *to = pair;
            }
        }
    }
}

/// Computes rows of `c = beta c + a b`, with `b` packed by [`pack_right`].
///
/// # Safety
/// The machine has the instructions.
///
/// # Panics
/// A slice has the wrong length.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn multiply(a: &[f32], b: &[u32], k: usize, n: usize, beta: f32, c: &mut [f32]) {
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
                    pack_along(a[r * k + start..].as_ptr(), depth, ROWS * k, left.add(r * STRIDE));
                }
                let b = b[start / 2 * panels * 16..][..count * panels * 16].as_ptr();
                let beta = if start == 0 { beta } else { 1.0 };
                let job = Tile { a: left, b, count, n, n_left: n, beta, c: c.as_mut_ptr() };
                all_panels::<STRIDE, 1>(job, rows);
            }
        }
    }
}

/// Factor of a product over its rows.
#[derive(Clone, Copy)]
struct Columns<'a> {
    data: &'a [f32],
    width: usize,
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
unsafe fn multiply_transposed<const N: usize>(
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
        unsafe { pack_across::<16>(b.data[start * n..].as_ptr(), depth, n, right.as_mut_ptr()) };
        let mut c = &mut c[..];
        for a in &a {
            let m = a.width;
            let (own, rest) = c.split_at_mut(m * n);
            // SAFETY: as above; each factor has separate rows of `c`.
            unsafe {
                pack_across::<ROWS>(a.data[start * m..].as_ptr(), depth, m, left.as_mut_ptr());
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
