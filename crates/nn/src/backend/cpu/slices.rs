//! Weighted sums of rows by slices of columns, so that the slice of all source rows stays in a
//! core's cache.
//!
//! # Algorithm
//!
//! The graph is not partitioned (`Q_v = 1`), but the columns are (`Q_f` slices), and adjacent
//! slices are processed by the same thread (section 6.2). Every value is summed in the order of
//! [`Sum::run`], so the bits do not depend on the slices.
//!
//! # Source
//!
//! Zeng et al., *Accurate, Efficient and Scalable Training of Graph Neural Networks*, JPDC 2021,
//! section 5.3, algorithm 7.
//!
//! # Cost
//!
//! Memory traffic is the rows once and the edges once per slice.
//!
//! # Memory
//!
//! A copy of one slice of the source rows per thread.
//!
//! # Deviations
//!
//! - A slice is first copied to adjacent rows. Rows of a row-major matrix are often a multiple of a
//!   power of two apart, so their slices would share a few cache sets and evict each other. (The
//!   paper stores features by columns.)
//! - A thread without slices left takes rows from another thread's slice.

#![allow(unsafe_code, reason = "disjoint parallel writes")]

use std::{marker::PhantomData, ops::Range};

use super::{
    level::{Isa, kernel, prefetch_at},
    parallel::{self, Rows},
    scratch,
    simd::Element,
    source::Source,
    sum::{Sum, Weight, run_of_row},
};

/// Values in a cache line. Slices begin on a line if rows do, so that two threads never write to
/// the same line.
pub(super) const LINE: usize = 16;

/// Distance in rows of the prefetch while a slice is copied: each row is a few lines, far from the
/// previous one.
const COPY_PREFETCH_ROWS: usize = 16;
/// Distance in rows of the prefetch of the sums. (The source rows are not prefetched: they are
/// close enough that a prefetch costs more than it saves.)
const SUM_PREFETCH_ROWS: usize = 8;

impl<W: Weight, R: Source> Sum<'_, W, R> {
    /// [`Sum::run`] for one head, `width` columns at a time (a multiple of [`LINE`]).
    pub(super) fn run_sliced(self, width: usize, out: &mut [f32]) {
        assert!(self.heads == 1 && width > 0 && width.is_multiple_of(LINE), "one head and whole lines");
        let cols = self.cols;
        if cols == 0 || self.indptr.len() < 2 {
            return;
        }
        assert_eq!(out.len(), (self.indptr.len() - 1) * cols, "one row of sums per run of edges");
        let out = Shared { data: out.as_mut_ptr(), len: out.len(), cols, rows: PhantomData };
        self.slices(Isa::current(), 0..cols.div_ceil(width), width, &out);
    }

    /// Computes the slices with numbers `range`, halving it until one is left.
    fn slices(&self, isa: Isa, range: Range<usize>, width: usize, out: &Shared) {
        if range.len() == 1 {
            let first = range.start * width;
            return self.slice(isa, first..(first + width).min(self.cols), out);
        }
        let mid = range.start + range.len() / 2;
        rayon::join(
            || self.slices(isa, range.start..mid, width, out),
            || self.slices(isa, mid..range.end, width, out),
        );
    }

    /// Computes the columns `columns` of all sums.
    fn slice(&self, isa: Isa, columns: Range<usize>, out: &Shared) {
        let width = columns.len().next_multiple_of(LINE);
        let rows = self.src.num_values() / self.cols;
        // offset of the memory within a cache line
        let mut memory = scratch::take_uncounted(rows * width / 2 + LINE / 2);
        let memory: &mut [f32] = bytemuck::cast_slice_mut(&mut memory);
        let start = memory.as_ptr().align_offset(4 * LINE);
        let start = if start < LINE { start } else { 0 };
        let copy = &mut memory[start..start + rows * width];
        parallel::rows(rows, width, Rows { data: &mut *copy, width }, |rows, copy| {
            copy_slice(isa, self.src, self.cols, columns.clone(), rows, width, copy.data);
        });
        let Self { indptr, indices, weight, mean, own, heads, beta, .. } = *self;
        let job = Sum { indptr, indices, weight, mean, own, src: &copy[..], cols: width, heads, beta };
        parallel::runs(indptr, width, (), |rows, ()| {
            sum_slice(isa, &job, rows, columns.clone(), out);
        });
    }
}

/// Sums that several threads write, each thread separate columns or rows.
pub(super) struct Shared<'a> {
    data: *mut f32,
    len: usize,
    cols: usize,
    rows: PhantomData<&'a mut [f32]>,
}

// SAFETY: the pointer represents an exclusive borrow of plain values, and threads write disjoint
// parts of it (`Shared::part`).
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    /// Prefetches columns of a row, if the row exists.
    #[inline(always)]
    fn prefetch(&self, row: usize, columns: Range<usize>) {
        prefetch_at(self.data.wrapping_add(row * self.cols + columns.start), columns.len());
    }

    /// The given columns of a row.
    ///
    /// # Safety
    /// No other part with any of these columns of this row exists at the same time.
    #[inline(always)]
    #[allow(
        clippy::mut_from_ref,
        reason = "disjoint parts of one exclusive borrow, as the caller guarantees"
    )]
    unsafe fn part(&self, row: usize, columns: Range<usize>) -> &mut [f32] {
        assert!(columns.start <= columns.end && columns.end <= self.cols && row < self.len / self.cols);
        // SAFETY: the assertion above ensures that the part lies within the `len` values, and the
        // caller guarantees that it is the only one.
        unsafe {
            std::slice::from_raw_parts_mut(self.data.add(row * self.cols + columns.start), columns.len())
        }
    }
}

kernel! {
    fn sum_slice[W: Weight](
        s: S, job: &Sum<'_, W>, rows: Range<usize>, columns: Range<usize>, out: &Shared<'_>,
    ) {
        for v in rows {
            out.prefetch(v + SUM_PREFETCH_ROWS, columns.clone());
            // SAFETY: each row is in one range of one slice's rows only, and slices have disjoint
            // columns.
            let out = unsafe { out.part(v, columns.clone()) };
            run_of_row(s, job, v, 0, 0, 0, out);
        }
    }

    /// Copies columns of the rows `rows` of a matrix of `cols` columns to rows of `width`. Values
    /// beyond the columns are unchanged.
    fn copy_slice[R: Source](
        s: S, src: R, cols: usize, columns: Range<usize>, rows: Range<usize>, width: usize,
        out: &mut [f32],
    ) {
        for (u, out) in rows.zip(out.chunks_exact_mut(width)) {
            src.prefetch_part(u + COPY_PREFETCH_ROWS, cols, columns.start, columns.len());
            let row = src.part(u, cols, columns.start, columns.len());
            let out = &mut out[..row.len()];
            let mut c = 0;
            while c + S::LANES <= row.len() {
                s.store(out, c, R::Value::load_full(s, &row[c..]));
                c += S::LANES;
            }
            if c < row.len() {
                s.store_part(&mut out[c..], R::Value::load(s, &row[c..]));
            }
        }
    }
}
