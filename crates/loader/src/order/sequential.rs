//! Ascending ids, the same every epoch: for looking at things, and for full-batch training.

use graphmill_core::NodeId;

use super::Order;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Sequential<'a> {
    train: &'a [NodeId],
}

impl<'a> Sequential<'a> {
    /// The nodes as they are given.
    pub fn new(train: &'a [NodeId]) -> Self {
        Self { train }
    }
}

impl Order for Sequential<'_> {
    /// O(T).
    fn order(&self, _epoch: u64, out: &mut Vec<NodeId>) {
        out.clear();
        out.extend_from_slice(self.train);
    }
}
