//! The interface of runs on links that stay open: embeddings of all nodes, with the decoder that
//! scores pairs of them.

use graphmill_core::{End, NodeId};
use graphmill_nn::Matrix;

use crate::link::split::Edge;

/// Embeddings of all nodes with their decoder, for any number of threads. Nodes are numbered in
/// their types.
pub(crate) trait OpenLinks: Send + Sync {
    /// Names of the relations, each with the numbers of the node types of its source and
    /// destination among those that have embeddings.
    fn relations(&self) -> Vec<(String, [usize; 2])>;

    /// Width of the embeddings.
    fn width(&self) -> usize;

    /// The `k` best candidates of each node as the `end` of an edge of a relation, the best first,
    /// with their scores: those without a known edge, or all if `include_known`.
    fn top(
        &self,
        of: (usize, End),
        nodes: &[NodeId],
        k: usize,
        include_known: bool,
    ) -> Vec<Vec<(NodeId, f32)>>;

    /// Scores of pairs of a relation, to the bit those of [`OpenLinks::top`] for destinations.
    fn scores(&self, relation: usize, pairs: &[Edge]) -> Vec<f32>;

    /// Embeddings of nodes of a type.
    fn embeddings(&self, node_type: usize, nodes: &[NodeId]) -> Matrix;
}
