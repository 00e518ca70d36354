//! Edges that a minibatch must not read.

use graphmill_core::{NodeId, keyed, memory};

/// Edges that are left out of the blocks of one batch, such as those whose existence it predicts.
///
/// Every sampler draws as from the graph without these edges: a node has as many neighbours as its
/// fanout if so many remain, and each set of them has the probability that it has without the edges
/// ([`sample_remaining`](crate::sampler::sample_remaining)). No layer, cache or device reads a
/// message over them.
///
/// ```
/// use graphmill_loader::link::ExcludedEdges;
///
/// let mut excluded = ExcludedEdges::default();
/// excluded.refill([(3, 1), (2, 1), (3, 1)]);
/// assert_eq!(excluded.sources_of(1), [(1, 2), (1, 3)]);
/// assert!(excluded.contains(3, 1) && !excluded.contains(1, 3));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExcludedEdges {
    /// Destination and source of each edge, ascending, distinct.
    edges: Vec<(NodeId, NodeId)>,
    /// Bits of hashes of the destinations: a node whose bit is not set has no excluded edge.
    marks: Vec<u64>,
}

/// Bits of marks for each edge: few nodes without an excluded edge have a bit that is set.
const BITS_PER_EDGE: usize = 16;

impl ExcludedEdges {
    /// Replaces the edges by these, each a source and a destination. O(n log n).
    pub fn refill(&mut self, edges: impl IntoIterator<Item = (NodeId, NodeId)>) {
        self.edges.clear();
        let edges = edges.into_iter().map(|(source, destination)| (destination, source));
        memory::demand_extend(&mut self.edges, edges);
        self.edges.sort_unstable();
        self.edges.dedup();
        let bits = (self.edges.len() * BITS_PER_EDGE).next_power_of_two().max(64);
        self.marks.clear();
        memory::demand_len(&mut self.marks, bits / 64, 0);
        for &(destination, _) in &self.edges {
            let bit = mark(destination, bits);
            self.marks[bit / 64] |= 1 << (bit % 64);
        }
    }

    /// Removes all edges and keeps the memory.
    pub fn clear(&mut self) {
        self.edges.clear();
        self.marks.clear();
    }

    /// Returns false if no edge into `destination` is excluded. O(1), so that hops find the few
    /// destinations with excluded edges among many.
    pub(crate) fn may_reach(&self, destination: NodeId) -> bool {
        if self.is_empty() {
            return false;
        }
        let bit = mark(destination, self.marks.len() * 64);
        self.marks[bit / 64] >> (bit % 64) & 1 == 1
    }

    /// Returns true if no edge is excluded.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// Number of distinct edges.
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Returns true if the edge from `source` to `destination` is excluded. O(log n).
    pub fn contains(&self, source: NodeId, destination: NodeId) -> bool {
        self.edges.binary_search(&(destination, source)).is_ok()
    }

    /// Nodes with excluded edges into them, ascending.
    pub fn destinations(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.edges.chunk_by(|a, b| a.0 == b.0).map(|of_node| of_node[0].0)
    }

    /// Excluded edges into `destination`: the destination and the source of each, ascending.
    /// O(log n), or O(1) for most nodes without excluded edges.
    pub fn sources_of(&self, destination: NodeId) -> &[(NodeId, NodeId)] {
        if !self.may_reach(destination) {
            return &[];
        }
        let start = self.edges.partition_point(|&(v, _)| v < destination);
        let len = self.edges[start..].partition_point(|&(v, _)| v == destination);
        &self.edges[start..start + len]
    }
}

/// Number of the bit of a node, below `bits`, a power of two.
fn mark(node: NodeId, bits: usize) -> usize {
    keyed::mix(u64::from(node)) as usize & (bits - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_distinct_and_found_by_their_ends() {
        let mut excluded = ExcludedEdges::default();
        assert!(excluded.is_empty());
        excluded.refill([(3, 1), (2, 1), (3, 1), (5, 0), (1, 7)]);
        assert_eq!((excluded.len(), excluded.is_empty()), (4, false));
        assert_eq!(excluded.sources_of(1), [(1, 2), (1, 3)]);
        assert_eq!((excluded.sources_of(4).len(), excluded.sources_of(7).len()), (0, 1));
        assert!(excluded.contains(3, 1) && !excluded.contains(1, 3) && !excluded.contains(5, 1));
        excluded.clear();
        assert_eq!(excluded, ExcludedEdges::default());
    }
}
