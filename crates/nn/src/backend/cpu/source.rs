//! Rows that the loops over edges read: one run of memory, or a cache with a batch's own rows
//! behind it.

use super::{level::prefetch, simd::Element};
use crate::matrix::Slots;

/// Rows of values, read by number.
pub(super) trait Source: Copy + Send + Sync {
    /// Type of the stored values.
    type Value: Element;

    /// Number of values in all rows.
    fn num_values(self) -> usize;

    /// Columns `at..at + len` of row `u`, of `cols` columns.
    fn part(&self, u: usize, cols: usize, at: usize, len: usize) -> &[Self::Value];

    /// Prefetches these columns of a row, if it exists.
    fn prefetch_part(self, u: usize, cols: usize, at: usize, len: usize);

    /// Prefetches a row, if it exists.
    #[inline(always)]
    fn prefetch(self, u: usize, cols: usize) {
        self.prefetch_part(u, cols, 0, cols);
    }
}

impl<T: Element> Source for &[T] {
    type Value = T;

    #[inline(always)]
    fn num_values(self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn part(&self, u: usize, cols: usize, at: usize, len: usize) -> &[T] {
        &self[u * cols + at..][..len]
    }

    #[inline(always)]
    fn prefetch_part(self, u: usize, cols: usize, at: usize, len: usize) {
        prefetch(self, u * cols + at, len);
    }
}

impl Source for Slots<'_> {
    type Value = f32;

    #[inline(always)]
    fn num_values(self) -> usize {
        self.cached.len() + self.staged.len()
    }

    #[inline(always)]
    fn part(&self, u: usize, cols: usize, at: usize, len: usize) -> &[f32] {
        let first = u * cols;
        match first.checked_sub(self.cached.len()) {
            None => &self.cached[first + at..][..len],
            Some(first) => &self.staged[first + at..][..len],
        }
    }

    #[inline(always)]
    fn prefetch_part(self, u: usize, cols: usize, at: usize, len: usize) {
        let first = u * cols;
        match first.checked_sub(self.cached.len()) {
            None => prefetch(self.cached, first + at, len),
            Some(first) => prefetch(self.staged, first + at, len),
        }
    }
}
