//! Reused bottom-layer rows and their age.

use std::sync::Arc;

use graphmill_core::Matrix;
use graphmill_nn::{Projected, Reused};

use super::Lookahead;

/// Rows from `from` to the start of the next slice, all made from the same parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// First row of the slice.
    pub from: usize,
    /// Version of the parameters: the number of updates before.
    pub version: u64,
}

/// Rows of a super-batch's hot nodes, by slot.
#[derive(Debug, Default)]
pub struct Embeddings {
    /// Outputs of the bottom layer, before norm, activation and dropout: `K x O`.
    pub rows: Matrix,
    /// Aggregates that the rows were made from, if gradients flow through them; else empty.
    pub aggregates: Vec<Matrix>,
    /// Coordinates of the rows in the basis, `K x k`; empty without a basis.
    pub coordinates: Matrix,
    /// Directions in which the rows follow the parameters, or empty.
    pub basis: Arc<Vec<Matrix>>,
    /// True if the weights get gradients in the directions of the basis.
    pub learns: bool,
    /// Versions of the rows.
    pub slices: Vec<Slice>,
    /// Largest age of a row when it is read, in updates.
    pub bound: u64,
}

/// Reused rows with the batches that read them.
#[derive(Clone, Debug)]
pub struct Reuse {
    /// The batches, with the slots of their rows.
    pub ahead: Arc<Lookahead>,
    /// The rows.
    pub rows: Arc<Embeddings>,
}

impl Reuse {
    /// Rows that batch `number` of the epoch reuses.
    pub fn rows_of(&self, number: u64) -> Reused<'_> {
        self.rows.reused(self.ahead.reused(number))
    }
}

impl Embeddings {
    /// Gives the table memory for `count` rows of `width` values without aggregates, which one
    /// version of the parameters makes, and which are at most `bound` updates old when they are
    /// read. The rows are not made.
    pub(crate) fn fit(&mut self, count: usize, width: usize, version: u64, bound: u64) {
        self.rows.resize(count, width);
        self.slices.clear();
        self.slices.extend((count > 0).then_some(Slice { from: 0, version }));
        self.bound = bound;
    }

    /// Rows in these slots, as a model reads them.
    pub(crate) fn reused<'a>(&'a self, slots: &'a [u32]) -> Reused<'a> {
        let (coordinates, basis) = (self.coordinates.view(), &self.basis[..]);
        let projected = (!basis.is_empty()).then_some(Projected { coordinates, basis, learns: self.learns });
        Reused { rows: self.rows.view(), slots, aggregates: &self.aggregates, projected }
    }

    /// Age of the oldest row, in updates, for a model after `step` updates. O(slices).
    ///
    /// # Panics
    /// The age exceeds the bound, which is an error in the strategy.
    pub fn staleness(&self, step: u64) -> u64 {
        let oldest = self.slices.iter().map(|slice| slice.version).min().unwrap_or(step);
        let staleness = step.saturating_sub(oldest);
        assert!(
            staleness <= self.bound,
            "reused rows are {staleness} updates old; the bound is {}",
            self.bound
        );
        staleness
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staleness_is_the_age_of_the_oldest_row() {
        let slice = |from, version| Slice { from, version };
        let rows = Embeddings {
            slices: vec![slice(0, 7), slice(3, 4), slice(9, 5)],
            bound: 6,
            ..Embeddings::default()
        };
        assert_eq!([7, 8, 10].map(|step| rows.staleness(step)), [3, 4, 6]);
        assert_eq!(Embeddings::default().staleness(5), 0);
    }

    #[test]
    #[should_panic = "7 updates old; the bound is 6"]
    fn rows_beyond_the_bound_are_never_read() {
        let slices = vec![Slice { from: 0, version: 4 }];
        Embeddings { slices, bound: 6, ..Embeddings::default() }.staleness(11);
    }
}
