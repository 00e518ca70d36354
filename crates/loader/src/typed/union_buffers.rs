//! Scratch buffers of subgraphs over all types.

use graphmill_core::{Block, NodeId};

use crate::sampler::SubgraphBuffers;

/// Scratch buffers for subgraphs of the union.
#[derive(Debug, Default)]
pub(super) struct UnionBuffers {
    pub(super) of_union: SubgraphBuffers,
    /// Global ids of the nodes, ascending.
    pub(super) nodes: Vec<NodeId>,
    /// Edges among the nodes, by any relation.
    pub(super) block: Block,
    /// Position of each edge in the union.
    pub(super) positions: Vec<u64>,
    /// First edge of each row that no relation has yet, and where its relation begins in the union.
    pub(super) rows: Vec<(usize, u64)>,
    /// Number of neighbours that each edge of a relation represents.
    pub(super) stands_for: Vec<f32>,
}
