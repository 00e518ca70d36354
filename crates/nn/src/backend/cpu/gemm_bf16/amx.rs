//! Products of packed pairs by AMX: `tdpbf16ps` multiplies a tile of 16 rows of 16 pairs by one of
//! 16 pairs of 16 columns.
//!
//! # Algorithm
//!
//! A block of the result, two tiles by two, stays in tile registers for a whole block of the inner
//! dimension. The panels of the right factor are tiles as they are packed. Rows of the left factor
//! are tiles too; those of a transposed left factor are packed as panels, whose tiles are then
//! transposed in place.
//!
//! With `PARTS` of 2, a value is the sum of two bf16: one near it, and one near the rest, together
//! 16 significant bits. Three of the four products are added; that of both rests has 2^-16 of the
//! value and is left out. Tiles of both parts alternate. A value beyond the largest bf16 gives NaN,
//! because its rest is infinite or NaN.
//!
//! # Source
//!
//! Intel, *64 and IA-32 Architectures Optimization Reference Manual*, chapter on AMX: blocks of two
//! by two tiles, whose loads take half of the time of their products. Henry, Tang and Heinecke,
//! *Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations*,
//! ARITH 2019: products of sums of bf16.
//!
//! # Cost
//!
//! 16 cycles for 8,192 multiplications, 48 of sums of two bf16. Pairs are padded to 16, rows of the
//! left factor and columns of the right one to 32.

#![allow(unsafe_code, reason = "vector instructions")]

use std::{
    arch::{asm, x86_64::*},
    ops::Range,
    sync::OnceLock,
};

use super::{
    Columns,
    pack::{lanes, pack_across, pack_along},
};

/// Rows of a tile, pairs in a row of the left factor's, and columns of the right factor's.
pub(super) const SIDE: usize = 16;
/// Rows of the left factor that are packed together: those of a block of the result.
pub(super) const ROWS: usize = 2 * SIDE;
/// Pairs in a block of the inner dimension, of each part.
pub(super) const DEPTH: usize = 256;
/// Pairs in a block if the left factor is transposed, of all parts.
pub(super) const LONG_DEPTH: usize = 512;
/// Largest number of parts.
const MAX_PARTS: usize = 2;
/// Distance between packed rows of the left factor, in pairs: not a power of two, so that the rows
/// do not map to the same cache lines.
const STRIDE: usize = MAX_PARTS * DEPTH + 16;
/// Pairs of a tile, one after the other.
const TILE: usize = SIDE * SIDE;

/// Returns true if the processor has AMX for bf16, and Linux lets this process use it.
pub(super) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| has_instructions() && is_permitted())
}

/// Returns true if the processor has AMX for bf16 (Intel, *Software Developer's Manual*, volume 2,
/// `CPUID`, leaf 7: bits 22 and 24 of EDX).
fn has_instructions() -> bool {
    const BF16: u32 = 1 << 22;
    const TILES: u32 = 1 << 24;
    let wanted = BF16 | TILES;
    __cpuid_count(0, 0).eax >= 7 && __cpuid_count(7, 0).edx & wanted == wanted
}

/// Asks Linux for the registers of AMX, which a process has only after that (since Linux 5.16;
/// `Documentation/arch/x86/xstate.rst`).
fn is_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const XTILEDATA: libc::c_ulong = 18;
    // SAFETY: the call reads no memory of the process, and only adds registers to its state.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0 }
}

/// The tile registers of a thread, configured as eight tiles of 16 rows of 64 bytes.
struct Tiles(());

impl Tiles {
    /// Configures the registers.
    ///
    /// # Safety
    /// The machine has the instructions.
    unsafe fn new() -> Self {
        /// Memory format of the configuration.
        #[repr(C, align(64))]
        struct Configuration {
            palette: u8,
            start_row: u8,
            reserved: [u8; 14],
            row_bytes: [u16; 16],
            rows: [u8; 16],
        }
        let mut configuration =
            Configuration { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        configuration.row_bytes[..8].fill(64);
        configuration.rows[..8].fill(SIDE as u8);
        // SAFETY: by the caller's guarantee; the configuration is one of palette 1.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const configuration, options(nostack, readonly)) };
        Self(())
    }
}

impl Drop for Tiles {
    /// Returns the registers to their initial state, so that a switch of threads does not save
    /// them.
    fn drop(&mut self) {
        // SAFETY: the registers were configured, so the machine has the instruction.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Left factor of a block of the result: two rows of tiles.
#[derive(Clone, Copy)]
struct Left {
    /// The first tile of each.
    tiles: [*const u32; 2],
    /// Pairs from one row of a tile to the next.
    row: usize,
    /// Pairs from one tile to the next.
    step: usize,
}

/// A block of the result, two tiles by two.
#[repr(align(64))]
struct Block([f32; ROWS * ROWS]);

/// The code of [`block`], with the instructions of one step along the inner dimension.
macro_rules! block {
    (
        $a:ident, $b:ident, $count:ident, $c:ident, $stride:ident, [$($instruction:literal,)*]
        $(, part = const $part:ident)?
    ) => {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            $($instruction,)*
            "add {a0}, {step}",
            "add {a1}, {step}",
            "dec {count}",
            "jnz 2b",
            "tilestored [{c0} + {stride}*1], tmm0",
            "tilestored [{c0} + {stride}*1 + 64], tmm1",
            "tilestored [{c1} + {stride}*1], tmm2",
            "tilestored [{c1} + {stride}*1 + 64], tmm3",
            a0 = inout(reg) $a.tiles[0] => _,
            a1 = inout(reg) $a.tiles[1] => _,
            row = in(reg) $a.row * 4,
            step = in(reg) $a.step * 4,
            b0 = inout(reg) $b[0] => _,
            b1 = inout(reg) $b[1] => _,
            line = in(reg) 64_usize,
            count = inout(reg) $count => _,
            c0 = in(reg) $c,
            c1 = in(reg) $c.wrapping_add(SIDE * $stride),
            stride = in(reg) $stride * 4,
            out("tmm0") _,
            out("tmm1") _,
            out("tmm2") _,
            out("tmm3") _,
            out("tmm4") _,
            out("tmm5") _,
            out("tmm6") _,
            out("tmm7") _,
            $(part = const $part,)?
            options(nostack)
        )
    };
}

/// Multiplies `count` steps of tiles, `PARTS` each, of each row of `a` by those of the two panels
/// `b`, and writes the block of the result to `c`, whose rows are `stride` values apart. The second
/// part of `a` is `PART` bytes behind the first.
///
/// # Safety
/// The tile registers are configured; the tiles are readable, the block is writable, and `count` is
/// at least 1.
#[inline(always)]
unsafe fn block<const PARTS: usize, const PART: usize>(
    _: &Tiles,
    a: Left,
    b: [*const u32; 2],
    count: usize,
    c: *mut f32,
    stride: usize,
) {
    // SAFETY: by the caller's guarantee; the pointers stay within the tiles until the last step.
    unsafe {
        if PARTS == 1 {
            block!(
                a,
                b,
                count,
                c,
                stride,
                [
                    "tileloadd tmm4, [{a0} + {row}*1]",
                    "tileloadd tmm6, [{b0} + {line}*1]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tileloadd tmm7, [{b1} + {line}*1]",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tileloadd tmm5, [{a1} + {row}*1]",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "add {b0}, 1024",
                    "add {b1}, 1024",
                ]
            );
        } else {
            block!(a, b, count, c, stride, [
                "tileloadd tmm4, [{a0} + {row}*1 + {part}]",
                "tileloadd tmm6, [{b0} + {line}*1]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{b1} + {line}*1]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{a1} + {row}*1 + {part}]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "tileloadd tmm4, [{a0} + {row}*1]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tileloadd tmm5, [{a1} + {row}*1]",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "tileloadd tmm6, [{b0} + {line}*1 + 1024]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tileloadd tmm7, [{b1} + {line}*1 + 1024]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {b0}, 2048",
                "add {b1}, 2048",
            ], part = const PART);
        }
    }
}

/// Multiplies two rows of tiles by all panels `b` of `count` steps of tiles each, and adds the
/// first `rows` rows of the result to `beta c`, where `c` has `n` columns.
///
/// # Safety
/// As for [`block`]; the machine has AVX-512, `b` holds the panels of `n` columns, and `c` the
/// rows.
#[inline(always)]
unsafe fn all_panels<const PARTS: usize, const PART: usize>(
    tiles: &Tiles,
    a: Left,
    b: &[u32],
    count: usize,
    (beta, rows): (f32, usize),
    c: &mut [f32],
    n: usize,
) {
    let panel = count * PARTS * TILE;
    let mut memory = Block([0.0; ROWS * ROWS]);
    for j in (0..n).step_by(ROWS) {
        let width = ROWS.min(n - j);
        let first = j / SIDE * panel;
        // a single last panel is multiplied twice
        let second = if width > SIDE { first + panel } else { first };
        let b = [b[first..first + panel].as_ptr(), b[second..second + panel].as_ptr()];
        // SAFETY: the panels are inside by the lines above; a whole block is inside `c`, which has
        // `rows` rows of `n` columns, and the memory is a block; masked lanes are not accessed.
        unsafe {
            if beta == 0.0 && rows == ROWS && width == ROWS {
                let c = c[j..][..(ROWS - 1) * n + ROWS].as_mut_ptr();
                block::<PARTS, PART>(tiles, a, b, count, c, n);
                continue;
            }
            block::<PARTS, PART>(tiles, a, b, count, memory.0.as_mut_ptr(), ROWS);
            let factor = _mm512_set1_ps(beta);
            for (c, sums) in c.chunks_exact_mut(n).zip(memory.0.chunks_exact(ROWS)).take(rows) {
                for (c, sums) in c[j..j + width].chunks_mut(SIDE).zip(sums.chunks_exact(SIDE)) {
                    let mask = lanes(c.len());
                    let mut sum = _mm512_loadu_ps(sums.as_ptr());
                    if beta != 0.0 {
                        sum = _mm512_fmadd_ps(factor, _mm512_maskz_loadu_ps(mask, c.as_ptr()), sum);
                    }
                    _mm512_mask_storeu_ps(c.as_mut_ptr(), mask, sum);
                }
            }
        }
    }
}

/// Computes rows of `c = beta c + a b`, with `b` packed by [`super::pack::pack_right`] in blocks of
/// [`DEPTH`] pairs, and units of [`SIDE`] pairs.
///
/// # Safety
/// The machine has the instructions.
///
/// # Panics
/// A slice has the wrong length.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) unsafe fn multiply<const PARTS: usize>(
    a: &[f32],
    b: &[u32],
    k: usize,
    n: usize,
    beta: f32,
    c: &mut [f32],
) {
    /// Bytes of a row of a tile.
    const PART: usize = SIDE * size_of::<u32>();
    /// Packed left factor.
    #[repr(align(64))]
    struct Packed([u32; ROWS * STRIDE]);
    let columns = n.next_multiple_of(SIDE);
    assert!(a.len() * n == c.len() * k);
    assert!(b.len() == k.div_ceil(2).next_multiple_of(SIDE) * PARTS * columns);
    // SAFETY: by the caller's guarantee.
    let tiles = unsafe { Tiles::new() };
    // zeros, because rows of a block beyond the last are computed too
    let mut packed = Packed([0; ROWS * STRIDE]);
    let packed = packed.0.as_mut_ptr();
    let rows_of_tiles = [packed, packed.wrapping_add(SIDE * STRIDE)];
    let left = Left { tiles: rows_of_tiles.map(<*mut u32>::cast_const), row: STRIDE, step: PARTS * SIDE };
    let block = 2 * DEPTH;
    for (a, c) in a.chunks(ROWS * k).zip(c.chunks_mut(ROWS * n)) {
        let rows = c.len() / n;
        for start in (0..k).step_by(block) {
            let depth = block.min(k - start);
            let count = depth.div_ceil(2 * SIDE);
            let b = &b[start / 2 * PARTS * columns..][..count * SIDE * PARTS * columns];
            let beta = if start == 0 { beta } else { 1.0 };
            // SAFETY: `start + depth <= k`, so the values are inside each row; a packed row is as
            // long as a block, and its pairs are written in tiles.
            unsafe {
                for r in 0..rows {
                    let from = a[r * k + start..].as_ptr();
                    pack_along::<PARTS>(from, depth, ROWS * k, packed.add(r * STRIDE));
                }
                all_panels::<PARTS, PART>(&tiles, left, b, count, (beta, rows), c, n);
            }
        }
    }
}

/// Computes `c`, the products of each `a` transposed and `b` over the rows `range` of both, one
/// after the other. `packed` is scratch for [`LONG_DEPTH`] pairs of the columns of `b`, rounded up
/// to 16, and of the widest `a`, rounded up to [`ROWS`].
///
/// # Safety
/// The machine has the instructions.
///
/// # Panics
/// A slice has the wrong length.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub(super) unsafe fn multiply_transposed<const N: usize, const PARTS: usize>(
    a: [Columns; N],
    b: Columns,
    range: Range<usize>,
    packed: &mut [u32],
    c: &mut [f32],
) {
    /// Bytes of a tile.
    const PART: usize = TILE * size_of::<u32>();
    let n = b.width;
    let (rows, widest) = a.iter().fold((0, 0), |(rows, widest), a| (rows + a.width, a.width.max(widest)));
    assert!(a.iter().all(|a| range.end * a.width <= a.data.len()));
    assert!(range.end * n <= b.data.len() && c.len() == rows * n);
    let (left, right) = packed.split_at_mut(LONG_DEPTH * widest.next_multiple_of(ROWS));
    assert!(right.len() >= LONG_DEPTH * n.next_multiple_of(SIDE));
    // SAFETY: by the caller's guarantee.
    let tiles = unsafe { Tiles::new() };
    let block = 2 * LONG_DEPTH / PARTS;
    for start in range.clone().step_by(block) {
        let depth = block.min(range.end - start);
        let count = depth.div_ceil(2 * SIDE);
        let beta = if start == range.start { 0.0 } else { 1.0 };
        let (panel, pairs) = (count * PARTS * TILE, count * SIDE);
        let from = b.data[start * n..].as_ptr();
        // SAFETY: the assertions above ensure that the rows, and their packed pairs, are inside.
        unsafe { pack_across::<SIDE, PARTS>(from, depth, n, pairs, right.as_mut_ptr()) };
        let right = &right[..panel * n.div_ceil(SIDE)];
        let mut c = &mut c[..];
        for a in &a {
            let m = a.width;
            let (own, rest) = c.split_at_mut(m * n);
            let left = &mut left[..panel * m.div_ceil(SIDE)];
            let from = a.data[start * m..].as_ptr();
            // SAFETY: as above; each factor has separate rows of `c`.
            unsafe { pack_across::<SIDE, PARTS>(from, depth, m, pairs, left.as_mut_ptr()) };
            for tile in left.as_chunks_mut::<TILE>().0 {
                // SAFETY: by the caller's guarantee.
                unsafe { transpose(tile) };
            }
            for first in (0..m).step_by(ROWS) {
                let rows = ROWS.min(m - first);
                let at = first / SIDE * panel;
                // a single last panel is multiplied twice
                let second = if rows > SIDE { at + panel } else { at };
                let tile = |at: usize| left[at..at + panel].as_ptr();
                let left = Left { tiles: [tile(at), tile(second)], row: SIDE, step: PARTS * TILE };
                let c = &mut own[first * n..(first + rows) * n];
                // SAFETY: the slices of the lines above are as long as the panels.
                unsafe { all_panels::<PARTS, PART>(&tiles, left, right, count, (beta, rows), c, n) };
            }
            c = rest;
        }
    }
}

/// Transposes a tile of 16 x 16 pairs.
///
/// # Safety
/// The machine has AVX-512.
#[inline(always)]
unsafe fn transpose(tile: &mut [u32; TILE]) {
    // SAFETY: by the caller's guarantee; a tile is 16 vectors.
    unsafe {
        let mut rows = [_mm512_setzero_si512(); SIDE];
        for (row, from) in rows.iter_mut().zip(tile.chunks_exact(SIDE)) {
            *row = _mm512_loadu_si512(from.as_ptr().cast());
        }
        let mut other = rows;
        for i in (0..SIDE).step_by(2) {
            other[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
            other[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
        }
        for i in (0..SIDE).step_by(4) {
            rows[i] = _mm512_unpacklo_epi64(other[i], other[i + 2]);
            rows[i + 1] = _mm512_unpackhi_epi64(other[i], other[i + 2]);
            rows[i + 2] = _mm512_unpacklo_epi64(other[i + 1], other[i + 3]);
            rows[i + 3] = _mm512_unpackhi_epi64(other[i + 1], other[i + 3]);
        }
        // quarter `q` of row `4 g + c` now has column `4 q + c` of rows `4 g` to `4 g + 3`
        for c in 0..4 {
            for half in [0, 8] {
                let (low, high) = (rows[half + c], rows[half + 4 + c]);
                other[half + c] = _mm512_shuffle_i32x4::<0x88>(low, high);
                other[half + 4 + c] = _mm512_shuffle_i32x4::<0xdd>(low, high);
            }
            for (q, first) in [(0, 0), (1, 4)] {
                let (low, high) = (other[first + c], other[first + 8 + c]);
                rows[4 * q + c] = _mm512_shuffle_i32x4::<0x88>(low, high);
                rows[8 + 4 * q + c] = _mm512_shuffle_i32x4::<0xdd>(low, high);
            }
        }
        for (row, to) in rows.iter().zip(tile.chunks_exact_mut(SIDE)) {
            _mm512_storeu_si512(to.as_mut_ptr().cast(), *row);
        }
    }
}
