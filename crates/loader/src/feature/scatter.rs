//! A result whose rows several threads write, each row by one of them.

#![allow(unsafe_code, reason = "disjoint parallel writes")]

use std::{marker::PhantomData, slice::from_raw_parts_mut};

use super::OutputRows;

/// Rows of a result (`R x F`) that a request may write.
pub(super) struct Scatter<'o> {
    start: *mut f32,
    rows: usize,
    dim: usize,
    places: OutputRows<'o>,
    result: PhantomData<&'o mut [f32]>,
}

// SAFETY: it only hands out rows of `f32` (which may be sent between threads) by `row`, whose
// callers guarantee that no two of them hold the same row.
unsafe impl Sync for Scatter<'_> {}

impl<'o> Scatter<'o> {
    /// Creates the rows for a request of `count` rows.
    ///
    /// # Panics
    /// The places are not strictly ascending rows of `out`, their number is not `count`, or 32 bits
    /// do not number them.
    pub(super) fn new(out: &'o mut [f32], dim: usize, count: usize, places: OutputRows<'o>) -> Self {
        // callers number rows by `u32`, and two rows of the same number would be one slice twice
        assert!(u32::try_from(count.saturating_sub(1)).is_ok(), "a request of {count} rows, more than 2^32");
        let rows = out.len().checked_div(dim).unwrap_or(count);
        match places {
            OutputRows::InOrder => assert!(count <= rows, "the result has {count} rows of {dim}"),
            OutputRows::At(at) => {
                assert_eq!(at.len(), count, "each row has a position");
                assert!(at.windows(2).all(|pair| pair[0] < pair[1]), "positions ascend");
                assert!(
                    at.last().is_none_or(|&last| (last as usize) < rows),
                    "positions are within the result"
                );
            }
        }
        Self { start: out.as_mut_ptr(), rows, dim, places, result: PhantomData }
    }

    /// Row of the result for the request's `i`-th row.
    ///
    /// # Safety
    /// While the slice lives, no other call has the same `i`.
    #[allow(clippy::mut_from_ref, reason = "rows of different i do not overlap, and callers use each i once")]
    pub(super) unsafe fn row(&self, i: usize) -> &mut [f32] {
        let row = match self.places {
            OutputRows::InOrder => i,
            OutputRows::At(at) => at[i] as usize,
        };
        assert!(row < self.rows);
        // SAFETY: the row lies within the exclusively borrowed result (just asserted; `rows * dim`
        // values are in it by construction). Output rows ascend strictly, so different `i` are
        // different rows, and the caller guarantees that no other call has the same `i`.
        unsafe { from_raw_parts_mut(self.start.add(row * self.dim), self.dim) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "more than 2^32")]
    fn requests_whose_numbers_would_repeat_are_refused() {
        let numbered = u32::MAX as usize + 1;
        assert_eq!(Scatter::new(&mut [], 0, numbered, OutputRows::InOrder).rows, numbered);
        Scatter::new(&mut [], 0, numbered + 1, OutputRows::InOrder);
    }
}
