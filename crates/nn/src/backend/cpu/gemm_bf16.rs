//! Dense products in bf16 by the instructions of AVX-512 BF16, or of AMX where the processor has
//! it: factors are rounded when they are packed, and sums are f32.
//!
//! # Algorithm
//!
//! Both instructions multiply *pairs* of 32 bits: two bf16 that are adjacent along the inner
//! dimension. `vdpbf16ps` ([`vectors`]) multiplies a pair by 16 others, `tdpbf16ps` ([`amx`]) a
//! tile of 16 x 16 pairs by another. Factors are packed into such pairs ([`pack`]):
//!
//! - the right factor once, in panels of 16 columns: `[block][panel][pair][16]`, where a block is
//!   256 pairs of the inner dimension;
//! - the left factor, some rows at a time, into the innermost cache, where they are multiplied by
//!   all panels.
//!
//! If the left factor is transposed (a weight gradient), the inner dimension is long and the result
//! small. The inner dimension is then split into parts, each with a separate result, and these are
//! added in order. The rows of both factors are packed in pairs, some at a time, which fit the
//! second-level cache.
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
//! `m n k` multiplications, 32 per instruction or 8,192, and one pass over each factor to pack it.
//!
//! # Deviations
//!
//! The outermost loop of the source is omitted, because `n` is at most a few hundred here.
//!
//! The same code with single f32 in the place of pairs, and `vfmadd`, was 0-7 % faster than the
//! `gemm` crate for plain products of width 256, 8-10 % slower for weight gradients and 26-33 %
//! slower for 47 columns, so f32 uses the crate where there is AVX-512.

#![allow(unsafe_code, reason = "vector instructions")]

#[cfg(target_os = "linux")]
mod amx;
mod pack;
#[cfg(test)]
mod tests;
mod vectors;

use std::ops::Range;

use super::{
    Precision,
    factors::Factors,
    level::{Isa, Level},
    parallel::{Chunks, Rows},
    scratch,
    split_sum::{MAX_PARTIALS, parts, sum_chunks},
};
use crate::backend::Side;

/// Multiplications per task: some tens of microseconds.
const GRAIN: usize = 8 << 20;
/// Length of a cache line in values of [`scratch`].
const LINE: usize = 8;

/// Instructions that multiply packed pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// `vdpbf16ps`.
    Vectors,
    /// `tdpbf16ps`.
    #[cfg(target_os = "linux")]
    Tiles,
    /// `tdpbf16ps` of sums of two bf16.
    #[cfg(target_os = "linux")]
    TwoTiles,
}

impl Unit {
    /// The fastest one of this machine for factors of `precision`, if it has one.
    pub(super) fn of(precision: Precision) -> Option<Self> {
        match precision {
            Precision::F32 => None,
            _ if !is_available() => None,
            #[cfg(target_os = "linux")]
            Precision::Bf16 if amx::is_available() => Some(Self::Tiles),
            Precision::Bf16 => Some(Self::Vectors),
            #[cfg(target_os = "linux")]
            Precision::Tf32 if amx::is_available() => Some(Self::TwoTiles),
            Precision::Tf32 => None,
        }
    }

    /// Number of bf16 whose sum is a value.
    fn parts(self) -> usize {
        match self {
            Self::Vectors => 1,
            #[cfg(target_os = "linux")]
            Self::Tiles => 1,
            #[cfg(target_os = "linux")]
            Self::TwoTiles => 2,
        }
    }

    /// Pairs of a block are a multiple of this.
    fn pairs(self) -> usize {
        match self {
            Self::Vectors => 1,
            #[cfg(target_os = "linux")]
            Self::Tiles | Self::TwoTiles => amx::SIDE,
        }
    }

    /// Rows of the left factor that are packed together.
    fn rows(self) -> usize {
        match self {
            Self::Vectors => vectors::ROWS,
            #[cfg(target_os = "linux")]
            Self::Tiles | Self::TwoTiles => amx::ROWS,
        }
    }

    /// Pairs in a block if the left factor is transposed, of all parts.
    fn long_depth(self) -> usize {
        match self {
            Self::Vectors => vectors::LONG_DEPTH,
            #[cfg(target_os = "linux")]
            Self::Tiles | Self::TwoTiles => amx::LONG_DEPTH,
        }
    }

    /// Packs the right factor, as [`pack::pack_right`].
    ///
    /// # Safety
    /// The machine has the instructions.
    unsafe fn pack_right(self, b: &[f32], side: Side, size: [usize; 2], out: &mut [u32]) {
        // SAFETY: by the caller's guarantee.
        unsafe {
            match self {
                Self::Vectors => pack::pack_right::<1>(b, side, size, [vectors::DEPTH, 1], out),
                #[cfg(target_os = "linux")]
                Self::Tiles => pack::pack_right::<1>(b, side, size, [amx::DEPTH, amx::SIDE], out),
                #[cfg(target_os = "linux")]
                Self::TwoTiles => pack::pack_right::<2>(b, side, size, [amx::DEPTH, amx::SIDE], out),
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

/// Returns true if this machine has the instructions and [`super::with_level`] allows them.
fn is_available() -> bool {
    Isa::current().level() == Level::Avx512 && is_x86_feature_detected!("avx512bf16")
}

/// Computes `c[i] = beta c[i] + a[i]^T b` by `unit`, where `a[i]` has `widths[i]` columns and `b`
/// has `n`. All dimensions must be at least 1.
///
/// # Panics
/// The machine lacks the instructions, or a factor has the wrong length.
pub(super) fn weight_gradients(
    unit: Unit,
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
    by_inner(unit, [columns(0), columns(1)], Columns { data: b, width: n }, k, beta, c);
}

/// Computes `c = beta c + a b` by `unit`, where `c` has `n` columns, and calls `finish` with each
/// run of complete rows. All dimensions must be at least 1.
///
/// # Panics
/// The machine lacks the instructions, or a factor has the wrong length.
pub(super) fn gemm(
    unit: Unit,
    factors: Factors,
    beta: f32,
    c: &mut [f32],
    finish: impl Fn(Range<usize>, &mut [f32]) + Sync,
) {
    let Factors { a, side_a, b, side_b: _, k, n } = factors;
    let m = c.len() / n;
    assert!(is_available() && m * n == c.len() && a.len() == m * k && b.len() == k * n);
    match side_a {
        Side::Plain => by_rows(unit, factors, beta, c, finish),
        Side::Transposed => {
            let (a, b) = (Columns { data: a, width: m }, Columns { data: b, width: n });
            by_inner(unit, [a], b, k, beta, [c]);
            finish(0..m, c);
        }
    }
}

/// Splits the product by rows of the result.
fn by_rows(
    unit: Unit,
    Factors { a, b, side_b, k, n, .. }: Factors,
    beta: f32,
    c: &mut [f32],
    finish: impl Fn(Range<usize>, &mut [f32]) + Sync,
) {
    let m = c.len() / n;
    let len = k.div_ceil(2).next_multiple_of(unit.pairs()) * unit.parts() * n.next_multiple_of(16);
    let mut memory = scratch::take(len.div_ceil(2) + LINE);
    let packed = pairs(&mut memory, len);
    // SAFETY: the machine has the instructions.
    unsafe { unit.pack_right(b, side_b, [k, n], packed) };
    let packed = &*packed;
    let len = (GRAIN / (n * k)).max(m.div_ceil(256)).next_multiple_of(unit.rows());
    Chunks::of(m, len).each(Rows { data: c, width: n }, &mut [], |range, c, _: &mut [()]| {
        let a = &a[range.start * k..range.end * k];
        // SAFETY: the machine has the instructions.
        unsafe {
            match unit {
                Unit::Vectors => vectors::multiply(a, packed, k, n, beta, c.data),
                #[cfg(target_os = "linux")]
                Unit::Tiles => amx::multiply::<1>(a, packed, k, n, beta, c.data),
                #[cfg(target_os = "linux")]
                Unit::TwoTiles => amx::multiply::<2>(a, packed, k, n, beta, c.data),
            }
        }
        finish(range, c.data);
    });
}

/// Splits products with transposed left factors by parts of the inner dimension.
fn by_inner<const N: usize>(
    unit: Unit,
    a: [Columns; N],
    b: Columns,
    k: usize,
    beta: f32,
    c: [&mut [f32]; N],
) {
    let size: usize = c.iter().map(|c| c.len()).sum();
    let parts = parts(k, 4096).min(MAX_PARTIALS / size).max(1);
    let chunks = Chunks::of(k, k.div_ceil(parts).next_multiple_of(2));
    let widest = a.iter().map(|a| a.width.next_multiple_of(unit.rows())).max().unwrap_or(0);
    let len = unit.long_depth() * (widest + b.width.next_multiple_of(16));
    sum_chunks(chunks, beta, c, |range, partial| {
        let mut memory = scratch::take(len.div_ceil(2) + LINE);
        let packed = pairs(&mut memory, len);
        // SAFETY: the machine has the instructions.
        unsafe {
            match unit {
                Unit::Vectors => vectors::multiply_transposed(a, b, range, packed, partial),
                #[cfg(target_os = "linux")]
                Unit::Tiles => amx::multiply_transposed::<N, 1>(a, b, range, packed, partial),
                #[cfg(target_os = "linux")]
                Unit::TwoTiles => amx::multiply_transposed::<N, 2>(a, b, range, packed, partial),
            }
        }
    });
}

/// The first `len` pairs from the first cache line on.
fn pairs(memory: &mut [f64], len: usize) -> &mut [u32] {
    let pairs: &mut [u32] = bytemuck::cast_slice_mut(memory);
    let skip = pairs.as_ptr().align_offset(64);
    &mut pairs[skip..skip + len]
}
