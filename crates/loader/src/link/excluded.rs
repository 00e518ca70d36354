//! Edges that a minibatch must not read.

use std::ops::Range;

use graphmill_core::{Block, Graph, NodeId, block::Aggregation, keyed};

/// Edges that are left out of the blocks of one batch, such as those whose existence it predicts.
///
/// Walks do not cross them, and their visits are those of the graph without these edges. Other
/// samplers draw from the whole graph, and the edges are removed from each hop as soon as it is
/// drawn, before its sources are numbered. So no layer, cache or device reads a message over them.
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
        self.edges.extend(edges.into_iter().map(|(source, destination)| (destination, source)));
        self.edges.sort_unstable();
        self.edges.dedup();
        let bits = (self.edges.len() * BITS_PER_EDGE).next_power_of_two().max(64);
        self.marks.clear();
        self.marks.resize(bits / 64, 0);
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
    pub(super) fn may_reach(&self, destination: NodeId) -> bool {
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
    pub fn sources_of(&self, destination: NodeId) -> &[(NodeId, NodeId)] {
        let start = self.edges.partition_point(|&(v, _)| v < destination);
        let len = self.edges[start..].partition_point(|&(v, _)| v == destination);
        &self.edges[start..start + len]
    }

    /// Removes the edges from a hop that was drawn from `graph` for the destinations `dst`: a block
    /// whose indices are still node ids, and the positions of its edges, if it names them.
    /// With `d` destinations that have excluded edges, it costs O(D + E + d log n).
    ///
    /// Weights that estimate a mean over the `d` neighbours of a node are scaled to the mean over
    /// the neighbours that are left: by `d / (d - e)`, if `e` of them are excluded, or by the
    /// weights of the edges, if `by_weight`. Other weights and the coefficients of symmetric
    /// normalisation stay those of the whole graph.
    pub fn remove_from(
        &self,
        graph: &Graph,
        dst: &[NodeId],
        aggregation: Aggregation,
        by_weight: bool,
        block: &mut Block,
        mut positions: Option<&mut Vec<u64>>,
    ) {
        if self.is_empty() {
            return;
        }
        let weighted = !block.edge_weight.is_empty();
        let (mut from, mut to) = (0, 0);
        for (i, &v) in dst.iter().enumerate() {
            let end = block.indptr[i + 1] as usize;
            let excluded = if self.may_reach(v) { self.sources_of(v) } else { &[] };
            let start = to;
            if excluded.is_empty() {
                shift(from..end, to, block, positions.as_deref_mut());
                (from, to) = (end, to + end - from);
                block.indptr[i + 1] = to as u32;
                continue;
            }
            for e in from..end {
                if excluded.binary_search(&(v, block.indices[e])).is_err() {
                    shift(e..e + 1, to, block, positions.as_deref_mut());
                    to += 1;
                }
            }
            if weighted && aggregation == Aggregation::Mean {
                let factor = self.scale(graph, v, by_weight);
                block.edge_weight[start..to].iter_mut().for_each(|weight| *weight *= factor);
            }
            block.indptr[i + 1] = to as u32;
            from = end;
        }
        block.indices.truncate(to);
        if weighted {
            block.edge_weight.truncate(to);
        }
        if let Some(positions) = positions {
            positions.truncate(to);
        }
    }

    /// Factor from a mean over all neighbours of `v` to one over those that are left, 1 if none is.
    fn scale(&self, graph: &Graph, v: NodeId, by_weight: bool) -> f32 {
        let first = graph.indptr()[v as usize] as usize;
        let weights = graph.edge_weight().filter(|_| by_weight);
        let weight = |i: usize| weights.map_or(1.0, |weights| f64::from(weights[first + i]));
        let (mut all, mut left) = (0.0, 0.0);
        for (i, &u) in graph.in_neighbors(v).iter().enumerate() {
            all += weight(i);
            left += if self.contains(u, v) { 0.0 } else { weight(i) };
        }
        if left > 0.0 { (all / left) as f32 } else { 1.0 }
    }
}

/// Moves edges of a hop, with their weights and positions, to `to` and after.
fn shift(edges: Range<usize>, to: usize, block: &mut Block, positions: Option<&mut Vec<u64>>) {
    if to == edges.start {
        return;
    }
    block.indices.copy_within(edges.clone(), to);
    if !block.edge_weight.is_empty() {
        block.edge_weight.copy_within(edges.clone(), to);
    }
    if let Some(positions) = positions {
        positions.copy_within(edges, to);
    }
}

/// Number of the bit of a node, below `bits`, a power of two.
fn mark(node: NodeId, bits: usize) -> usize {
    keyed::mix(u64::from(node)) as usize & (bits - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hop into the nodes 0 and 4.
    fn hop(edge_weight: &[f32]) -> Block {
        Block {
            num_dst: 2,
            indptr: vec![0, 3, 5],
            indices: vec![1, 2, 3, 0, 2],
            edge_weight: edge_weight.to_vec(),
            ..Block::default()
        }
    }

    fn graph() -> Graph {
        Graph::new(vec![0, 3, 3, 3, 3, 5].into(), vec![1, 2, 3, 0, 2].into()).unwrap()
    }

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

    #[test]
    fn excluded_edges_leave_their_rows_alone() {
        let mut excluded = ExcludedEdges::default();
        excluded.refill([(2, 0), (0, 4), (4, 0)]);
        let (mut block, mut positions) = (hop(&[]), vec![0, 1, 2, 3, 4]);
        excluded.remove_from(&graph(), &[0, 4], Aggregation::Mean, false, &mut block, Some(&mut positions));
        assert_eq!((&block.indptr[..], &block.indices[..]), (&[0, 2, 3][..], &[1, 3, 2][..]));
        assert_eq!(positions, [0, 2, 4]);
        excluded.refill([]);
        let mut block = hop(&[]);
        excluded.remove_from(&graph(), &[0, 4], Aggregation::Mean, false, &mut block, None);
        assert_eq!(block.indices, hop(&[]).indices);
    }

    #[test]
    fn weights_of_a_mean_are_those_of_the_remaining_neighbours() {
        let mut excluded = ExcludedEdges::default();
        excluded.refill([(2, 0)]);
        let third = 1.0 / 3.0;
        let mut block = hop(&[third, third, third, 0.5, 0.5]);
        excluded.remove_from(&graph(), &[0, 4], Aggregation::Mean, false, &mut block, None);
        assert_eq!(block.edge_weight, [0.5, 0.5, 0.5, 0.5]);
        let mut block = hop(&[1.0; 5]);
        excluded.remove_from(&graph(), &[0, 4], Aggregation::Sum, false, &mut block, None);
        assert_eq!(block.edge_weight, [1.0; 4]);
        let weighted = graph().with_edge_weight(vec![1.0, 2.0, 1.0, 1.0, 1.0].into()).unwrap();
        let mut block = hop(&[0.25, 0.5, 0.25, 0.5, 0.5]);
        excluded.remove_from(&weighted, &[0, 4], Aggregation::Mean, true, &mut block, None);
        assert_eq!(block.edge_weight, [0.5, 0.5, 0.5, 0.5]);
    }

    #[test]
    fn a_row_without_remaining_neighbours_is_empty() {
        let mut excluded = ExcludedEdges::default();
        excluded.refill([(1, 0), (2, 0), (3, 0)]);
        let mut block = hop(&[0.2; 5]);
        excluded.remove_from(&graph(), &[0, 4], Aggregation::Mean, false, &mut block, None);
        assert_eq!((&block.indptr[..], &block.edge_weight[..]), (&[0, 0, 2][..], &[0.2, 0.2][..]));
    }
}
