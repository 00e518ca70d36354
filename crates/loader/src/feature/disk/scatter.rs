//! The rows of a result, written in any order by several threads.

use std::marker::PhantomData;

use crate::feature::Places;

/// A result of `R x F`, row by row.
pub(super) struct Scatter<'o> {
    out: *mut f32,
    dim: usize,
    places: Places<'o>,
    result: PhantomData<&'o mut [f32]>,
}

// SAFETY: `row` is the only way in, and whoever calls it promises that no row is taken twice: threads have rows of their own.
unsafe impl Sync for Scatter<'_> {}

impl<'o> Scatter<'o> {
    /// Room for `count` rows of `dim` at their places in `out`.
    ///
    /// # Panics
    /// The places are not ascending, not as many as rows, or beyond the result.
    pub(super) fn new(count: usize, places: Places<'o>, dim: usize, out: &'o mut [f32]) -> Self {
        let rows = match places {
            Places::InOrder => count,
            Places::At(at) => {
                assert_eq!(at.len(), count, "a place for each row");
                assert!(at.is_sorted_by(|a, b| a < b), "places ascend");
                at.last().map_or(0, |&last| last as usize + 1)
            }
        };
        match places {
            Places::InOrder => assert_eq!(out.len(), rows * dim, "room for {rows} rows of {dim}"),
            Places::At(_) => assert!(out.len() >= rows * dim, "room for {rows} rows of {dim}"),
        }
        Self { out: out.as_mut_ptr(), dim, places, result: PhantomData }
    }

    /// Where the `i`-th row of the request goes; `i` is below the count of [`Scatter::new`].
    ///
    /// # Safety
    /// Nobody else has the row of that `i` meanwhile.
    #[expect(clippy::mut_from_ref, reason = "rows are distinct, as the caller promises")]
    pub(super) unsafe fn row(&self, i: usize) -> &mut [f32] {
        let row = match self.places {
            Places::InOrder => i,
            Places::At(at) => at[i] as usize,
        };
        // SAFETY: each `i` below the count has a row of its own (places strictly ascend), which is within the result (both
        // checked in `new`), which is borrowed for as long as `self`; the caller has this one alone.
        unsafe { std::slice::from_raw_parts_mut(self.out.add(row * self.dim), self.dim) }
    }
}
