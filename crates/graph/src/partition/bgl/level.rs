//! A graph at one level of coarsening: the graph itself, or blocks of its nodes with the number of edges between each two.

use super::super::limits::Load;
use crate::{Graph, NodeId};

/// What partitioning sees of a level: vertices, what each holds, and edges of both directions with a weight.
pub(super) trait Level: Sync {
    /// How many vertices.
    fn len(&self) -> usize;

    /// What a vertex holds.
    fn load(&self, v: u32) -> Load;

    /// Calls `see` with every neighbour and the weight of the edge to it. Edges from a vertex to itself may be among them.
    fn each(&self, v: u32, see: impl FnMut(u32, u64));

    /// As [`Level::each`], of at most `most` neighbours, spread evenly over the row.
    fn some(&self, v: u32, most: usize, see: impl FnMut(u32, u64));
}

/// The places of at most `most` of `length` items, spread evenly.
#[inline]
fn spread(length: usize, most: usize) -> impl Iterator<Item = usize> {
    let step = length.div_ceil(most).max(1);
    (0..length).step_by(step)
}

/// The graph itself.
pub(super) struct Nodes<'a> {
    /// With every edge both ways.
    pub(super) graph: &'a Graph,
    pub(super) trains: &'a [bool],
    /// What an edge into each node weighs.
    pub(super) traffic: &'a [u16],
}

impl Level for Nodes<'_> {
    fn len(&self) -> usize {
        self.graph.num_nodes()
    }

    #[inline]
    fn load(&self, v: u32) -> Load {
        Load::of(self.trains[v as usize])
    }

    #[inline]
    fn each(&self, v: u32, mut see: impl FnMut(u32, u64)) {
        let own = u64::from(self.traffic[v as usize]);
        let neighbors = self.graph.in_neighbors(v as NodeId).iter();
        neighbors.for_each(|&u| see(u, own + u64::from(self.traffic[u as usize])));
    }

    #[inline]
    fn some(&self, v: u32, most: usize, mut see: impl FnMut(u32, u64)) {
        let own = u64::from(self.traffic[v as usize]);
        let neighbors = self.graph.in_neighbors(v as NodeId);
        spread(neighbors.len(), most).for_each(|i| {
            let u = neighbors[i];
            see(u, own + u64::from(self.traffic[u as usize]));
        });
    }
}

/// Blocks.
pub(super) struct Blocks {
    /// Row starts.
    pub(super) indptr: Vec<u64>,
    /// Neighbouring blocks, ascending in a row.
    pub(super) indices: Vec<u32>,
    /// Edges between the two.
    pub(super) weights: Vec<u64>,
    /// What each holds.
    pub(super) loads: Vec<Load>,
}

impl Level for Blocks {
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
        spread(indices.len(), most).for_each(|i| see(indices[i], weights[i]));
    }
}
