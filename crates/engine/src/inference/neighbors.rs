//! Neighbours of the nodes of a chunk, and the size of chunks.

use graphmill_core::{Block, Graph, NodeId, block::Aggregation};
use graphmill_loader::{
    sampler::{HopScratch, inference::InferenceNeighbors},
    weights::SymmetricWeights,
};

/// Edges of a chunk for each node that it may have: more than the mean degree of most graphs, so
/// that only hubs make chunks shorter.
const EDGES_PER_NODE: u64 = 256;

/// The neighbours that rows are made of.
pub(super) struct Neighbors<'n> {
    pub(super) graph: &'n Graph,
    pub(super) symmetric: Option<&'n SymmetricWeights>,
    pub(super) exact: &'n InferenceNeighbors,
}

impl Neighbors<'_> {
    /// Makes `block` the neighbours of `ids` in hop `hop`, by their global numbers.
    pub(super) fn fill(
        &self,
        hop: usize,
        ids: &[NodeId],
        by: Aggregation,
        scratch: &mut HopScratch,
        block: &mut Block,
    ) {
        block.clear();
        self.exact
            .rows(self.graph, hop, ids, by, scratch, block)
            .expect("a chunk's edges fit a block, but for a node with 2^32 in-neighbours");
        if let Some(symmetric) = self.symmetric {
            symmetric.fill(self.graph, ids, block);
        }
    }
}

/// How many of `ids` (at least one) make the next chunk: at most `chunk`, and no more than their
/// edges allow; at least one.
pub(super) fn chunk_len(graph: &Graph, ids: &[NodeId], chunk: usize) -> usize {
    let most = (chunk as u64).saturating_mul(EDGES_PER_NODE).min(u64::from(u32::MAX));
    let mut edges = 0;
    let fits = |v: &&NodeId| {
        edges += graph.in_degree(**v) as u64;
        edges <= most
    };
    ids.iter().take(chunk).take_while(fits).count().max(1)
}
