//! The same order in every epoch, for inspection and full-batch training.

use graphmill_core::{NodeId, memory};

use super::SeedOrder;

/// Training nodes in the order given, in every epoch.
#[derive(Clone, Copy, Debug)]
pub struct Sequential<'a> {
    train: &'a [NodeId],
}

impl<'a> Sequential<'a> {
    /// Creates the order of the nodes `train`.
    pub fn new(train: &'a [NodeId]) -> Self {
        Self { train }
    }
}

impl SeedOrder for Sequential<'_> {
    /// Writes the order. O(T).
    fn order(&self, _epoch: u64, out: &mut Vec<NodeId>) {
        memory::demand_copy(out, self.train);
    }
}
