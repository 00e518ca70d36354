//! Dense products in f32 by AVX2, for tall factors: rows of a batch by a weight, and gradients of
//! weights.
//!
//! # Algorithm
//!
//! ```text
//!   panels of 16 columns of b          a tile of c: 6 rows by 16 columns, in 12 registers
//!   ┌──┬──┬──┐                         ┌──┐
//!   │  │  │  │ k      a: 6 rows ────►  │  │ += a[r][p] * b[p], for every p
//!   └──┴──┴──┘        as stored        └──┘
//! ```
//!
//! - The right factor is packed once for all tasks, in panels of 16 columns; the left one is read
//!   as it is stored.
//! - Products that are added into the same result are computed tile by tile, so the result stays in
//!   the innermost cache between them.
//! - A weight gradient sums over many rows. [`LEAF`] rows of the right factor are packed, and stay
//!   in the second-level cache for all columns of the left factors.
//!
//! A value of the result is a sum over the inner dimension in its order, [`DEPTH`] terms at a time,
//! so it does not depend on the rows and columns that are computed with it.
//!
//! # Source
//!
//! Goto and van de Geijn, *Anatomy of High-Performance Matrix Multiplication*, ACM TOMS 2008.
//!
//! # Cost
//!
//! `m n k` multiplications, 8 per instruction, and one pass over the right factor to pack it.
//!
//! # Deviations
//!
//! The left factor is not packed: a batch's rows are read once, by all panels while they are in the
//! innermost cache. The library packs both factors for each of its calls, which costs most where
//! the inner dimension or the result is narrow. With AVX-512 it remains: tiles of its registers
//! were not faster there.

#![allow(unsafe_code, reason = "vector instructions")]

use std::{arch::x86_64::*, ops::Range};

use super::{
    factors::Factor,
    level::{Isa, Level},
    parallel::{self, Rows},
};

/// Rows of a tile.
const ROWS: usize = 6;
/// Columns of a panel: two vectors.
const COLS: usize = 16;
/// Rows of the left factor that all panels multiply while they are in the innermost cache.
const BLOCK: usize = 16 * ROWS;
/// Terms of a sum in one piece.
const DEPTH: usize = 512;
/// Rows that a weight gradient packs at a time.
pub(super) const LEAF: usize = 128;

/// Returns true if products run here on this machine, at the level of [`super::with_level`].
pub(super) fn is_available() -> bool {
    Isa::current().level() == Level::Avx2
}

/// Length of the panels of a factor of `k` rows and `n` columns.
pub(super) fn panels_len(k: usize, n: usize) -> usize {
    k * n.next_multiple_of(COLS)
}

/// Packs a right factor of `k` rows and `n` columns as `[panel][k][16]`, with zeros beyond the last
/// column.
pub(super) fn pack(b: Factor, k: usize, n: usize, panels: &mut [f32]) {
    let panels = Rows { data: panels, width: k * COLS };
    parallel::rows(n.div_ceil(COLS), k * COLS, panels, |range, part| {
        for (j, panel) in range.zip(part.data.chunks_exact_mut(k * COLS)) {
            let width = COLS.min(n - j * COLS);
            for (p, row) in panel.chunks_exact_mut(COLS).enumerate() {
                b.copy_row(p, j * COLS, &mut row[..width]);
                row[width..].fill(0.0);
            }
        }
    });
}

/// A product of rows by packed panels.
#[derive(Clone, Copy)]
pub(super) struct Term<'a> {
    /// Rows of `k` values.
    pub(super) a: &'a [f32],
    /// Panels of [`pack`].
    pub(super) panels: &'a [f32],
    /// Inner dimension.
    pub(super) k: usize,
}

impl<'a> Term<'a> {
    /// The product of some of the rows.
    pub(super) fn of_rows(self, rows: &Range<usize>) -> Self {
        Self { a: &self.a[rows.start * self.k..rows.end * self.k], ..self }
    }
}

/// Computes `c = beta c +` the sum of the terms, in their order; `c` has rows of `n` values.
pub(super) fn multiply(terms: &[Term], n: usize, beta: f32, c: &mut [f32]) {
    let rows = c.len() / n;
    assert!(Level::Avx2.is_available() && rows * n == c.len());
    for term in terms {
        assert!(term.k > 0 && term.a.len() == rows * term.k && term.panels.len() == panels_len(term.k, n));
    }
    // SAFETY: the machine has the instructions; the factors have the lengths of the assertions.
    unsafe { multiply_rows(terms, n, beta, c) }
}

/// [`multiply`].
///
/// # Safety
/// The machine has the instructions; a term has as many rows as `c`, and the panels of `n` columns.
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_rows(terms: &[Term], n: usize, beta: f32, c: &mut [f32]) {
    let rows = c.len() / n;
    let c = c.as_mut_ptr();
    for block in (0..rows).step_by(BLOCK) {
        let end = (block + BLOCK).min(rows);
        for col in (0..n).step_by(COLS) {
            for r in (block..end).step_by(ROWS) {
                let mut beta = beta;
                for term in terms {
                    for start in (0..term.k).step_by(DEPTH) {
                        // SAFETY: row `r` and the rows of a tile after it are below `end`; the
                        // tile reads `depth` values of each from `start` on, as many rows of the
                        // panel, and the columns of `c` that are left.
                        unsafe {
                            let tile = Tile {
                                a: term.a.as_ptr().add(r * term.k + start),
                                row: term.k,
                                term: 1,
                                b: term.panels.as_ptr().add(col * term.k + start * COLS),
                                depth: DEPTH.min(term.k - start),
                                beta,
                                c: c.add(r * n + col),
                                n,
                                cols: n - col,
                            };
                            tile.run(ROWS.min(end - r));
                        }
                        beta = 1.0;
                    }
                }
            }
        }
    }
}

/// Columns of a left factor whose product is a gradient.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    /// Rows of `width` values.
    pub(super) data: &'a [f32],
    /// Number of columns.
    pub(super) width: usize,
}

/// Length of the scratch of [`multiply_transposed`] for a right factor of `n` columns.
pub(super) fn leaf_len(n: usize) -> usize {
    LEAF * n.next_multiple_of(COLS)
}

/// Computes `c`, the products of the left factors, transposed, and `b` over the rows `range` of
/// all, below each other. `scratch` has [`leaf_len`] values.
pub(super) fn multiply_transposed(
    a: &[Columns],
    b: Columns,
    range: Range<usize>,
    scratch: &mut [f32],
    c: &mut [f32],
) {
    let n = b.width;
    assert!(Level::Avx2.is_available() && scratch.len() == leaf_len(n) && range.end * n <= b.data.len());
    assert!(a.iter().all(|a| range.end * a.width <= a.data.len()));
    assert_eq!(c.len(), n * a.iter().map(|a| a.width).sum::<usize>());
    let mut beta = 0.0;
    for start in range.clone().step_by(LEAF) {
        let depth = LEAF.min(range.end - start);
        let panels = &mut scratch[..panels_len(depth, n)];
        for (j, panel) in panels.chunks_exact_mut(depth * COLS).enumerate() {
            let width = COLS.min(n - j * COLS);
            for (p, row) in panel.chunks_exact_mut(COLS).enumerate() {
                row[..width].copy_from_slice(&b.data[(start + p) * n + j * COLS..][..width]);
                row[width..].fill(0.0);
            }
        }
        let mut first = 0;
        for &Columns { data, width } in a {
            let c = &mut c[first * n..][..width * n];
            // SAFETY: the machine has the instructions; the rows from `start` on are inside, as
            // many as the panels have.
            unsafe { multiply_leaf(&data[start * width..][..depth * width], width, panels, beta, c) };
            first += width;
        }
        beta = 1.0;
    }
}

/// Computes `c = beta c +` the product of the rows `a`, transposed, and the panels.
///
/// # Safety
/// The machine has the instructions; `a` has rows of `width` values, and the panels as many rows,
/// for the columns of `c`, which has `width` rows.
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_leaf(a: &[f32], width: usize, panels: &[f32], beta: f32, c: &mut [f32]) {
    let (depth, n) = (a.len() / width, c.len() / width);
    let c = c.as_mut_ptr();
    for r in (0..width).step_by(ROWS) {
        for col in (0..n).step_by(COLS) {
            // SAFETY: row `r` of `c` is column `r` of `a`; the tile reads `depth` values of each of
            // its columns, as many rows of the panel, and the columns of `c` that are left.
            unsafe {
                let (a, b) = (a.as_ptr().add(r), panels.as_ptr().add(col * depth));
                let (c, cols) = (c.add(r * n + col), n - col);
                let tile = Tile { a, row: 1, term: width, b, depth, beta, c, n, cols };
                tile.run(ROWS.min(width - r));
            }
        }
    }
}

/// Inputs and output of a tile.
#[derive(Clone, Copy)]
struct Tile {
    /// Value of the left factor for the first row and term.
    a: *const f32,
    /// Distance of its rows.
    row: usize,
    /// Distance of its terms.
    term: usize,
    /// Panel from the first term on.
    b: *const f32,
    /// Number of terms.
    depth: usize,
    /// Factor of the old result.
    beta: f32,
    /// The tile's first value of the result.
    c: *mut f32,
    /// Distance of the result's rows.
    n: usize,
    /// Number of columns of the result from the tile on.
    cols: usize,
}

impl Tile {
    /// Computes the first `rows` (1 to [`ROWS`]) rows of the tile.
    ///
    /// # Safety
    /// The machine has the instructions. `depth` values of `rows` rows of the left factor and of
    /// the panel are readable, and as many rows of the result, [`COLS`] columns or those left, are
    /// writable.
    #[inline(always)]
    unsafe fn run(self, rows: usize) {
        // SAFETY: by the caller's guarantee.
        unsafe {
            match self.cols {
                0..=8 => self.of_rows::<1, false>(rows),
                9..COLS => self.of_rows::<2, false>(rows),
                _ => self.of_rows::<2, true>(rows),
            }
        }
    }

    /// [`Tile::run`] for `V` vectors of columns; `FULL` if no column is beyond the last.
    ///
    /// # Safety
    /// As for [`Tile::run`].
    #[inline(always)]
    unsafe fn of_rows<const V: usize, const FULL: bool>(self, rows: usize) {
        // SAFETY: by the caller's guarantee.
        unsafe {
            match rows {
                6 => self.rows::<6, V, FULL>(),
                5 => self.rows::<5, V, FULL>(),
                4 => self.rows::<4, V, FULL>(),
                3 => self.rows::<3, V, FULL>(),
                2 => self.rows::<2, V, FULL>(),
                _ => self.rows::<1, V, FULL>(),
            }
        }
    }

    /// [`Tile::of_rows`] for `R` rows.
    ///
    /// # Safety
    /// As for [`Tile::run`].
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn rows<const R: usize, const V: usize, const FULL: bool>(self) {
        // SAFETY: by the caller's guarantee; lanes beyond the last column are masked.
        unsafe {
            let mut acc = [[_mm256_setzero_ps(); V]; R];
            for p in 0..self.depth {
                let mut b = [_mm256_setzero_ps(); V];
                for (v, b) in b.iter_mut().enumerate() {
                    *b = _mm256_loadu_ps(self.b.add(p * COLS + 8 * v));
                }
                let a = self.a.add(p * self.term);
                for (r, acc) in acc.iter_mut().enumerate() {
                    let x = _mm256_broadcast_ss(&*a.add(r * self.row));
                    for (acc, &b) in acc.iter_mut().zip(&b) {
                        *acc = _mm256_fmadd_ps(x, b, *acc);
                    }
                }
            }
            let masks = [prefix(self.cols), prefix(self.cols.saturating_sub(8))];
            let beta = _mm256_set1_ps(self.beta);
            for (r, acc) in acc.iter().enumerate() {
                for (v, &sum) in acc.iter().enumerate() {
                    let at = self.c.wrapping_add(r * self.n + 8 * v);
                    let old = |at| if FULL { _mm256_loadu_ps(at) } else { _mm256_maskload_ps(at, masks[v]) };
                    let sum =
                        if self.beta == 0.0 { sum } else { _mm256_fmadd_ps(beta, old(at.cast_const()), sum) };
                    if FULL {
                        _mm256_storeu_ps(at, sum);
                    } else {
                        _mm256_maskstore_ps(at, masks[v], sum);
                    }
                }
            }
        }
    }
}

/// Mask of the first `n` of eight lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn prefix(n: usize) -> __m256i {
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_cmpgt_epi32(_mm256_set1_epi32(n.min(8) as i32), lanes)
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed::Stream;

    use super::*;
    use crate::backend::Side;

    fn random(len: usize, stream: &mut Stream) -> Vec<f32> {
        (0..len).map(|_| stream.uniform() as f32 - 0.5).collect()
    }

    /// Sum of the products of two runs of values, `piece` terms at a time, after `beta` times an
    /// old value.
    fn sum(terms: impl Iterator<Item = (f32, f32)>, piece: usize, beta: f32, old: f32) -> f32 {
        let terms: Vec<_> = terms.collect();
        let (mut sum, mut beta) = (old, beta);
        for piece in terms.chunks(piece) {
            let of_piece = piece.iter().fold(0.0, |sum, (x, y)| x.mul_add(*y, sum));
            sum = if beta == 0.0 { of_piece } else { beta.mul_add(sum, of_piece) };
            beta = 1.0;
        }
        sum
    }

    #[test]
    fn every_value_is_its_sum_in_order() {
        if !Level::Avx2.is_available() {
            return;
        }
        let mut stream = Stream::new(1);
        let shapes =
            [(1, 1, 8), (6, 48, 16), (5, 100, 47), (97, 7, 17), (200, 3, 2), (4, 1030, 40), (13, 9, 7)];
        // Miri, which interprets the test, takes fewer terms of the same blocks, pieces and masks
        let small = [(1, 1, 8), (6, 4, 16), (5, 3, 47), (97, 2, 17), (1, DEPTH + 1, 2), (13, 9, 7)];
        for &(m, k, n) in if cfg!(miri) { &small[..] } else { &shapes[..] } {
            for (side, beta) in [(Side::Plain, 0.0), (Side::Transposed, 0.7)] {
                let (a, b) = (random(m * k, &mut stream), random(k * n, &mut stream));
                let (x, y) = (random(m * 9, &mut stream), random(9 * n, &mut stream));
                let old = random(m * n, &mut stream);
                let mut panels = [vec![f32::NAN; panels_len(k, n)], vec![f32::NAN; panels_len(9, n)]];
                pack(Factor::new(&b, side, if side == Side::Plain { n } else { k }), k, n, &mut panels[0]);
                pack(Factor::new(&y, Side::Plain, n), 9, n, &mut panels[1]);
                let terms = [Term { a: &a, panels: &panels[0], k }, Term { a: &x, panels: &panels[1], k: 9 }];
                let mut c = old.clone();
                multiply(&terms, n, beta, &mut c);
                for (i, row) in c.chunks(n).enumerate() {
                    for (j, &found) in row.iter().enumerate() {
                        let of = |p| if side == Side::Plain { b[p * n + j] } else { b[j * k + p] };
                        let first = sum((0..k).map(|p| (a[i * k + p], of(p))), DEPTH, beta, old[i * n + j]);
                        let both = sum((0..9).map(|p| (x[i * 9 + p], y[p * n + j])), DEPTH, 1.0, first);
                        assert_eq!(found, both, "{m} x {k} x {n}: row {i}, column {j}");
                    }
                }
                // a row does not depend on the others
                let last = m - 1..m;
                let mut row = old[last.start * n..].to_vec();
                multiply(&terms.map(|term| term.of_rows(&last)), n, beta, &mut row);
                assert_eq!(row, c[last.start * n..]);
            }
        }
    }

    #[test]
    fn gradients_sum_rows_leaf_by_leaf() {
        if !Level::Avx2.is_available() {
            return;
        }
        let mut stream = Stream::new(2);
        let last = if cfg!(miri) { (2 * LEAF, [7, 2], 17) } else { (3 * LEAF + 5, [20, 7], 47) };
        for (rows, widths, n) in [(1, [1, 2], 8), (LEAF, [6, 13], 3), last] {
            let (a, b) = (widths.map(|w| random(rows * w, &mut stream)), random(rows * n, &mut stream));
            let range = rows / 3..rows;
            let mut c = vec![f32::NAN; (widths[0] + widths[1]) * n];
            let columns = |i: usize| Columns { data: &a[i], width: widths[i] };
            let of_b = Columns { data: &b, width: n };
            let mut scratch = vec![f32::NAN; leaf_len(n)];
            multiply_transposed(&[columns(0), columns(1)], of_b, range.clone(), &mut scratch, &mut c);
            for (i, row) in c.chunks(n).enumerate() {
                let (a, width, i) =
                    if i < widths[0] { (&a[0], widths[0], i) } else { (&a[1], widths[1], i - widths[0]) };
                for (j, &found) in row.iter().enumerate() {
                    let terms = range.clone().map(|p| (a[p * width + i], b[p * n + j]));
                    assert_eq!(found, sum(terms, LEAF, 0.0, 0.0), "{rows} rows: {i}, {j}");
                }
            }
        }
    }
}
