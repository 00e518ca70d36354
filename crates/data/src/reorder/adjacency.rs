//! Helpers shared by the orders that traverse a graph.

use graphmill_core::{EdgeOptions, Graph, NodeId, Result, build, memory, symmetry::is_symmetric};
use rayon::prelude::*;

/// Returns the graph with every edge in both directions, without weights if it had to be built: the
/// graph itself if it is symmetric, else a copy of `12 E` bytes, and more during construction. O(V
/// + E), parallel.
pub(crate) fn both_ways(graph: &Graph) -> Result<Graph> {
    if is_symmetric(graph, false) {
        return Ok(graph.clone());
    }
    let mut dst: Vec<NodeId> = memory::reserve(graph.num_edges())?;
    let nodes = 0..graph.num_nodes() as NodeId;
    dst.par_extend(nodes.into_par_iter().flat_map_iter(|v| std::iter::repeat_n(v, graph.in_degree(v))));
    build(graph.num_nodes(), graph.indices(), &dst, EdgeOptions::UNDIRECTED)
}

/// Bit set of nodes, which stays in a core's cache for millions of nodes.
pub(super) struct Seen(Vec<u64>);

impl Seen {
    /// Creates an empty set for `nodes` nodes.
    pub(super) fn new(nodes: usize) -> Result<Self> {
        Ok(Self(memory::zeroed(nodes.div_ceil(64))?))
    }

    /// Inserts a node; returns whether it was new.
    #[inline]
    pub(super) fn insert(&mut self, v: NodeId) -> bool {
        let (word, bit) = (&mut self.0[v as usize / 64], 1 << (v % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Removes a node.
    #[inline]
    pub(super) fn remove(&mut self, v: NodeId) {
        self.0[v as usize / 64] &= !(1 << (v % 64));
    }
}
