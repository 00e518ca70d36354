//! A graph at one level of coarsening: the graph itself, or blocks of its nodes with the number of edges between each two.

use graphmill_core::{Graph, NodeId};

use super::super::limits::Load;

/// Neighbours of a node that are looked at.
const SAMPLE: usize = 16;

/// What partitioning sees of a level: vertices, what each holds, and weighted edges.
pub(super) trait Level: Sync {
    /// Whether the edges of a vertex are known at both ends.
    const BOTH_WAYS: bool;

    /// How many vertices.
    fn len(&self) -> usize;

    /// What a vertex holds.
    fn load(&self, v: u32) -> Load;

    /// Calls `see` with neighbours and the weights of the edges to them. Edges from a vertex to itself may be among them.
    fn each(&self, v: u32, see: impl FnMut(u32, u64));

    /// As [`Level::each`], of at most `most` neighbours, spread evenly over the row.
    fn some(&self, v: u32, most: usize, see: impl FnMut(u32, u64));
}

/// Between which of `length` items at most `most` are picked evenly.
#[inline]
fn step(length: usize, most: usize) -> usize {
    length.div_ceil(most).max(1)
}

/// The graph itself, by the in-neighbours of its nodes. Of these at most [`SAMPLE`] are looked at, each for as many as it is picked of: so the
/// time is that of a graph of few edges, as is the training's, which draws about as many.
pub(super) struct Nodes<'a> {
    pub(super) graph: &'a Graph,
    pub(super) trains: &'a [bool],
}

impl Nodes<'_> {
    /// How many edges are looked at, at most.
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

/// Blocks.
pub(super) struct Blocks {
    /// Row starts.
    pub(super) indptr: Vec<u64>,
    /// Neighbouring blocks.
    pub(super) indices: Vec<u32>,
    /// Weight of the edges between the two, in either direction.
    pub(super) weights: Vec<u64>,
    /// What each holds.
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
