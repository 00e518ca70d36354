//! Times of the edges that a run learns and ranks.

use std::collections::BTreeSet;

use graphmill_core::NodeId;
use graphmill_loader::link::ExistingNodes;

/// Times of the edges of a run.
#[derive(Clone, Debug)]
pub(crate) struct RowTimes {
    /// Time of each edge that trains, validates or tests.
    pub(crate) of_parts: [Vec<i64>; 3],
    /// Times of the training edges, ascending.
    pub(super) distinct: Vec<i64>,
    /// Destinations by the times from which they exist, if they have times.
    pub(crate) existing: Option<ExistingNodes>,
    /// True if an edge joins its ends in both directions, so that neither is a negative of the
    /// other.
    pub(crate) both: bool,
    /// Number of training edges that are not learned, because they have no negative.
    pub(crate) left_out: usize,
}

impl RowTimes {
    /// Creates the times of the edges of each part.
    pub(crate) fn new(of_parts: [Vec<i64>; 3], existing: Option<ExistingNodes>) -> Self {
        let mut distinct = of_parts[0].clone();
        distinct.sort_unstable();
        distinct.dedup();
        Self { of_parts, distinct, existing, both: false, left_out: 0 }
    }

    /// Number of a time among those of the training edges.
    pub(crate) fn number(&self, time: i64) -> u32 {
        self.distinct.partition_point(|&of| of < time) as u32
    }

    /// Numbers of times of the rows that train, validate and test.
    pub(crate) fn counts(&self) -> [usize; 3] {
        self.of_parts.each_ref().map(|times| times.iter().collect::<BTreeSet<_>>().len())
    }

    /// Returns true if a training edge is later than one that validates or tests.
    pub(crate) fn train_is_later(&self) -> bool {
        let [train, others @ ..] = &self.of_parts;
        let first = others.iter().flatten().min();
        train.iter().max().zip(first).is_some_and(|(last, first)| last > first)
    }

    /// Time from which each of `count` rows of the table exists, if destinations have times; others
    /// always exist.
    pub(crate) fn of_nodes(&self, count: usize) -> Option<Vec<i64>> {
        let nodes = self.existing.as_ref()?;
        Some((0..count as NodeId).map(|row| nodes.time(row).unwrap_or(i64::MIN)).collect())
    }
}
