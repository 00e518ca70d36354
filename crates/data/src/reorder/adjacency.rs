//! What the orders that walk a graph share.

use graphmill_core::{EdgeOptions, Graph, NodeId, Result, build, memory, symmetry::is_symmetric};
use rayon::prelude::*;

/// The graph with every edge both ways, without weights where it had to be made: the graph itself where it is symmetric,
/// else `12 E` bytes and more while it is made. O(V + E), parallel.
pub(crate) fn both_ways(graph: &Graph) -> Result<Graph> {
    if is_symmetric(graph, false) {
        return Ok(graph.clone());
    }
    let mut dst: Vec<NodeId> = memory::reserve(graph.num_edges())?;
    let nodes = 0..graph.num_nodes() as NodeId;
    dst.par_extend(nodes.into_par_iter().flat_map_iter(|v| std::iter::repeat_n(v, graph.in_degree(v))));
    build(graph.num_nodes(), graph.indices(), &dst, EdgeOptions::UNDIRECTED)
}

/// A set of nodes, a bit each: of a graph of millions it stays in a core's cache.
pub(super) struct Seen(Vec<u64>);

impl Seen {
    /// None of `nodes` nodes.
    pub(super) fn new(nodes: usize) -> Result<Self> {
        Ok(Self(memory::zeroed(nodes.div_ceil(64))?))
    }

    /// Puts a node in; whether it was not.
    #[inline]
    pub(super) fn insert(&mut self, v: NodeId) -> bool {
        let (word, bit) = (&mut self.0[v as usize / 64], 1 << (v % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Takes a node out.
    #[inline]
    pub(super) fn remove(&mut self, v: NodeId) {
        self.0[v as usize / 64] &= !(1 << (v % 64));
    }
}
