//! Bottom-layer rows to be reused, and how old they are.

use std::sync::Arc;

use graphmill_core::Matrix;
use graphmill_nn::{Projected, Reused};

use super::Ahead;

/// Rows `from..` up to the next slice's, all made from the same parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The first of them.
    pub from: usize,
    /// The version of the parameters: updates made until then.
    pub version: u64,
}

/// The rows of a super-batch's hot nodes, by slot.
#[derive(Debug, Default)]
pub struct Embeddings {
    /// What the bottom layer makes of them, before norm, activation and dropout: `K x O`.
    pub rows: Matrix,
    /// What it made them from, where gradients go through them too.
    pub kept: Vec<Matrix>,
    /// Their coordinates in the basis, `K x k`, where they follow the parameters in its directions.
    pub coordinates: Matrix,
    /// The basis; empty where there is none.
    pub basis: Arc<Vec<Matrix>>,
    /// Whether the weights get the gradient of that part.
    pub learns: bool,
    /// Which rows are how old.
    pub slices: Vec<Slice>,
    /// Updates that a row may be old when it is read.
    pub bound: u64,
}

/// Rows to reuse, and the batches that reuse them.
#[derive(Clone, Debug)]
pub struct Reuse {
    /// The batches, which know the slots of their rows.
    pub ahead: Arc<Ahead>,
    /// The rows.
    pub rows: Arc<Embeddings>,
}

impl Reuse {
    /// The rows that batch `number` of the epoch reuses.
    pub fn rows_of(&self, number: u64) -> Reused<'_> {
        self.rows.reused(self.ahead.reused(number))
    }
}

impl Embeddings {
    /// The rows in these slots, as a model reads them.
    fn reused<'a>(&'a self, slots: &'a [u32]) -> Reused<'a> {
        let (coordinates, basis) = (self.coordinates.view(), &self.basis[..]);
        let projected = (!basis.is_empty()).then_some(Projected { coordinates, basis, learns: self.learns });
        Reused { rows: self.rows.view(), slots, aggregates: &self.kept, projected }
    }

    /// How old the oldest row is for a model that has made `step` updates. O(slices).
    ///
    /// # Panics
    /// It is older than the bound: a fault of the strategy that must not go unseen.
    pub fn staleness(&self, step: u64) -> u64 {
        let oldest = self.slices.iter().map(|slice| slice.version).min().unwrap_or(step);
        let staleness = step.saturating_sub(oldest);
        assert!(
            staleness <= self.bound,
            "reused rows are {staleness} updates old; they may be {} at most",
            self.bound
        );
        staleness
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_row_counts() {
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
    #[should_panic = "7 updates old; they may be 6 at most"]
    fn rows_beyond_the_bound_are_not_read() {
        let slices = vec![Slice { from: 0, version: 4 }];
        Embeddings { slices, bound: 6, ..Embeddings::default() }.staleness(11);
    }
}
