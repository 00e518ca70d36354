//! Ascending ids, the same every epoch: for looking at things, and for full-batch training.

use graphmill_graph::NodeId;

/// See [`super::Order`]. O(n).
pub fn order(nodes: &[NodeId], _seed: u64, _epoch: u64, out: &mut Vec<NodeId>) {
    out.clear();
    out.extend_from_slice(nodes);
}
