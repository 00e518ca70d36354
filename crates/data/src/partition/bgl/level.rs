//! Levels of coarsening: the graph itself, or blocks of its nodes with the number of edges between
//! them.

use graphmill_core::{Graph, NodeId};

use super::super::limits::Load;

/// Maximum number of a node's neighbours that are visited.
const SAMPLE: usize = 16;

/// Interface of a level: vertices, their loads, and weighted edges.
pub(super) trait Level: Sync {
    /// True if both ends of an edge list it.
    const BOTH_WAYS: bool;

    /// Number of vertices.
    fn len(&self) -> usize;

    /// Load of a vertex.
    fn load(&self, v: u32) -> Load;

    /// Calls `see` with each neighbour and the weight of the edge to it. Self-loops may be
    /// included.
    fn each(&self, v: u32, see: impl FnMut(u32, u64));

    /// Calls `see` as [`Level::each`] does, for at most `most` neighbours, spread evenly over the
    /// row.
    fn some(&self, v: u32, most: usize, see: impl FnMut(u32, u64));
}

/// Distance between picked items, for at most `most` of `length`.
#[inline]
fn step(length: usize, most: usize) -> usize {
    length.div_ceil(most).max(1)
}

/// The input graph as a level, by the in-neighbours of its nodes. At most [`SAMPLE`] of a row are
/// visited, each weighted by the entries it represents, so that the cost is that of a sparse graph;
/// training also draws about as many.
pub(super) struct Nodes<'a> {
    pub(super) graph: &'a Graph,
    pub(super) trains: &'a [bool],
}

impl Nodes<'_> {
    /// Upper bound of the visited edges.
    pub(super) fn sampled(&self) -> usize {
        self.graph.num_edges().min(self.len().saturating_mul(SAMPLE))
    }
}

impl Level for Nodes<'_> {
    const BOTH_WAYS: bool = false;

    fn len(&self) -> usize {
        self.graph.num_nodes()
    }

    #[inline]
    fn load(&self, v: u32) -> Load {
        Load::of(self.trains[v as usize])
    }

    #[inline]
    fn each(&self, v: u32, see: impl FnMut(u32, u64)) {
        self.some(v, SAMPLE, see);
    }

    #[inline]
    fn some(&self, v: u32, most: usize, mut see: impl FnMut(u32, u64)) {
        let neighbors = self.graph.in_neighbors(v as NodeId);
        let step = step(neighbors.len(), most);
        neighbors.iter().step_by(step).for_each(|&u| see(u, step as u64));
    }
}

/// Graph of blocks.
pub(super) struct Blocks {
    /// Row starts.
    pub(super) indptr: Vec<u64>,
    /// Neighbouring blocks.
    pub(super) indices: Vec<u32>,
    /// Weight of the edges between the two blocks, in either direction.
    pub(super) weights: Vec<u64>,
    /// Load of each block.
    pub(super) loads: Vec<Load>,
}

impl Level for Blocks {
    const BOTH_WAYS: bool = true;

    fn len(&self) -> usize {
        self.loads.len()
    }

    #[inline]
    fn load(&self, v: u32) -> Load {
        self.loads[v as usize]
    }

    #[inline]
    fn each(&self, v: u32, mut see: impl FnMut(u32, u64)) {
        let run = self.indptr[v as usize] as usize..self.indptr[v as usize + 1] as usize;
        self.indices[run.clone()].iter().zip(&self.weights[run]).for_each(|(&u, &weight)| see(u, weight));
    }

    #[inline]
    fn some(&self, v: u32, most: usize, mut see: impl FnMut(u32, u64)) {
        let run = self.indptr[v as usize] as usize..self.indptr[v as usize + 1] as usize;
        let (indices, weights) = (&self.indices[run.clone()], &self.weights[run]);
        let picked = (0..indices.len()).step_by(step(indices.len(), most));
        picked.for_each(|i| see(indices[i], weights[i]));
    }
}
