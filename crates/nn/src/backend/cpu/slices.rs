//! Weighted sums of rows a slice of columns at a time, so that the slice of all rows summed stays
//! in a core's cache.
//!
//! Zeng et al., *Accurate, Efficient and Scalable Training of Graph Neural Networks*, JPDC 2021,
//! section 5.3, algorithm 7: the graph is not partitioned (`Q_v = 1`), the columns are (`Q_f`
//! slices), and slices next to each other go to the same thread (section 6.2). The bytes that move
//! from memory are the rows, once, and the edges, once a slice.
//!
//! Two things differ. A slice is first copied so that its rows lie together: rows of a matrix by
//! rows are a multiple of some power of two apart, so their slices would share a few sets of the
//! cache and evict each other (the paper stores features by columns). And where a thread has no
//! slice left, it takes rows from another's.
//!
//! Every value is summed in the order in which [`Sum::run`] sums it: the same bits, whatever the
//! slices.

use std::{marker::PhantomData, ops::Range};

use super::{
    level::{Isa, kernel, prefetch, prefetch_at},
    parallel::{self, Rows},
    scratch,
    simd::Element,
    sum::{Sum, Weight, run_of_row},
};

/// Values in a cache line. Slices begin on one where rows do, so that no two threads write to the
/// same.
pub(super) const LINE: usize = 16;

/// Rows ahead to ask for while a slice is copied: each is a few lines, far from the last.
const COPY_AHEAD: usize = 16;
/// The same of the sums written. (The rows summed are close enough: asking for those costs more
/// than waiting.)
const SUMS_AHEAD: usize = 8;

impl<W: Weight, T: Element> Sum<'_, W, T> {
    /// As [`Sum::run`], for one head, `width` columns at a time (a multiple of [`LINE`]).
    pub(super) fn run_sliced(self, width: usize, out: &mut [f32]) {
        assert!(self.heads == 1 && width > 0 && width.is_multiple_of(LINE), "one head and whole lines");
        let cols = self.cols;
        if cols == 0 || self.indptr.len() < 2 {
            return;
        }
        assert_eq!(out.len(), (self.indptr.len() - 1) * cols, "a row of sums for each run of edges");
        let out = Shared { data: out.as_mut_ptr(), len: out.len(), cols, rows: PhantomData };
        self.slices(Isa::current(), 0..cols.div_ceil(width), width, &out);
    }

    /// The slices numbered `range`: halves until there is one.
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

    /// The columns `columns` of all sums.
    fn slice(&self, isa: Isa, columns: Range<usize>, out: &Shared) {
        let width = columns.len().next_multiple_of(LINE);
        let rows = self.src.len() / self.cols;
        // where the memory begins within a line
        let mut memory = scratch::take(rows * width / 2 + LINE / 2);
        let memory: &mut [f32] = bytemuck::cast_slice_mut(&mut memory);
        let start = memory.as_ptr().align_offset(4 * LINE);
        let start = if start < LINE { start } else { 0 };
        let copy = &mut memory[start..start + rows * width];
        parallel::rows(rows, width, Rows { data: &mut *copy, width }, |rows, copy| {
            copy_slice(isa, self.src, self.cols, columns.clone(), rows, width, copy.data);
        });
        let Self { indptr, indices, weight, mean, own, heads, beta, .. } = *self;
        let job = Sum { indptr, indices, weight, mean, own, src: &*copy, cols: width, heads, beta };
        parallel::runs(indptr, width, (), |rows, ()| {
            sum_slice(isa, &job, rows, columns.clone(), out);
        });
    }
}

/// Sums that several threads write, each columns or rows of its own.
pub(super) struct Shared<'a> {
    data: *mut f32,
    len: usize,
    cols: usize,
    rows: PhantomData<&'a mut [f32]>,
}

// SAFETY: the pointer stands for an exclusive borrow of plain values, and threads take disjoint
// parts of it (`Shared::part`).
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    /// Asks for columns of a row, if there is one.
    #[inline(always)]
    fn prefetch(&self, row: usize, columns: Range<usize>) {
        prefetch_at(self.data.wrapping_add(row * self.cols + columns.start), columns.len());
    }

    /// Columns of a row.
    ///
    /// # Safety
    /// No other part with any of these columns of this row exists at the same time.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "disjoint parts of one exclusive borrow, as the caller promises")]
    unsafe fn part(&self, row: usize, columns: Range<usize>) -> &mut [f32] {
        assert!(columns.start <= columns.end && columns.end <= self.cols && row < self.len / self.cols);
        // SAFETY: the part lies within the `len` values, by the line above; the caller promises
        // that it is the only one.
        unsafe {
            std::slice::from_raw_parts_mut(self.data.add(row * self.cols + columns.start), columns.len())
        }
    }
}

kernel! {
    fn sum_slice[W: Weight](s: S, job: &Sum<'_, W, f32>, rows: Range<usize>, columns: Range<usize>, out: &Shared<'_>) {
        for v in rows {
            out.prefetch(v + SUMS_AHEAD, columns.clone());
            // SAFETY: a row is in one piece of one slice's rows only, and slices have no column in
            // common.
            let out = unsafe { out.part(v, columns.clone()) };
            run_of_row(s, job, v, 0, 0, 0, out);
        }
    }

    /// Columns of the rows `rows` of a matrix of `cols` columns to rows of `width`; what is beyond
    /// stays as it was.
    fn copy_slice[T: Element](
        s: S, src: &[T], cols: usize, columns: Range<usize>, rows: Range<usize>, width: usize, out: &mut [f32],
    ) {
        for (u, out) in rows.zip(out.chunks_exact_mut(width)) {
            prefetch(src, (u + COPY_AHEAD) * cols + columns.start, columns.len());
            let row = &src[u * cols..][columns.clone()];
            let out = &mut out[..row.len()];
            let mut c = 0;
            while c + S::LANES <= row.len() {
                s.store(out, c, T::load_full(s, &row[c..]));
                c += S::LANES;
            }
            if c < row.len() {
                s.store_part(&mut out[c..], T::load(s, &row[c..]));
            }
        }
    }
}
