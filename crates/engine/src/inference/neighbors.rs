//! Neighbours of the nodes of a chunk, and the length of chunks.

use graphmill_core::{Block, Graph, NodeId, block::Aggregation};
use graphmill_loader::{
    sampler::{HopScratch, inference::InferenceNeighbors},
    weights::SymmetricWeights,
};

use crate::Result;

/// Maximum edges of a chunk, per node of its maximum length. Above the mean degree of most graphs,
/// so only hubs make chunks shorter.
const EDGES_PER_NODE: u64 = 256;

/// Neighbours that inference aggregates, with their weights.
pub(super) struct Neighbors<'n> {
    pub(super) graph: &'n Graph,
    pub(super) symmetric: Option<&'n SymmetricWeights>,
    pub(super) selection: &'n InferenceNeighbors,
}

impl Neighbors<'_> {
    /// Fills `block` with the neighbours of `ids` in hop `hop`, by global id.
    ///
    /// # Errors
    /// A node has 2^32 in-neighbours, or another rank did not reply.
    pub(super) fn fill(
        &self,
        hop: usize,
        ids: &[NodeId],
        by: Aggregation,
        scratch: &mut HopScratch,
        block: &mut Block,
    ) -> Result<()> {
        block.clear();
        self.selection.rows(self.graph, hop, ids, by, scratch, block)?;
        if let Some(symmetric) = self.symmetric {
            symmetric.fill(self.graph, ids, None, block);
        }
        Ok(())
    }
}

/// Number of the first `ids` that form the next chunk: at most `chunk`, bounded by their edges, and
/// at least one. `ids` must not be empty.
pub(super) fn chunk_len(graph: &Graph, ids: &[NodeId], chunk: usize) -> usize {
    let max_edges = (chunk as u64).saturating_mul(EDGES_PER_NODE).min(u64::from(u32::MAX));
    let mut edges = 0;
    let fits = |v: &&NodeId| {
        edges += graph.in_degree(**v) as u64;
        edges <= max_edges
    };
    ids.iter().take(chunk).take_while(fits).count().max(1)
}
