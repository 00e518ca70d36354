//! The edges of a minibatch of links.

use graphmill_core::NodeId;
use rustc_hash::FxHashMap;

use super::ExcludedEdges;

/// Pairs of seeds that a minibatch scores: `P` positives, then `P x K` negatives, those of a
/// positive together.
///
/// The default has no pairs.
#[derive(Clone, Debug, Default)]
pub struct LinkBatch {
    /// Position of each pair's source among the seeds, `P + P K`.
    pub source: Vec<NodeId>,
    /// Position of each pair's destination among the seeds, `P + P K`.
    pub destination: Vec<NodeId>,
    /// Relation of each pair, `P + P K`, or empty: there is one.
    pub relation: Vec<u32>,
    /// Number of positives, `P`.
    pub positives: usize,
    /// Edges that no hop may read.
    pub excluded: ExcludedEdges,
    /// Position of each seed.
    position: FxHashMap<NodeId, NodeId>,
}

impl LinkBatch {
    /// Number of negatives of each positive, `K`.
    pub fn num_negatives(&self) -> usize {
        self.source.len().saturating_sub(self.positives) / self.positives.max(1)
    }

    /// Removes all pairs and keeps the memory.
    pub fn clear(&mut self) {
        let Self { source, destination, relation, positives, excluded, position } = self;
        source.clear();
        destination.clear();
        relation.clear();
        *positives = 0;
        excluded.clear();
        position.clear();
    }

    /// Gives the seeds other positions: the seed at position `p` gets `to[p]`.
    pub fn renumber(&mut self, to: &[NodeId]) {
        let Self { source, destination, position, .. } = self;
        let ends = source.iter_mut().chain(destination).chain(position.values_mut());
        ends.for_each(|at| *at = to[*at as usize]);
    }

    /// Adds the pair of two nodes; a node that is not among the seeds is appended to them.
    pub fn push(&mut self, source: NodeId, destination: NodeId, seeds: &mut Vec<NodeId>) {
        let mut at = |node: NodeId| {
            *self.position.entry(node).or_insert_with(|| {
                seeds.push(node);
                (seeds.len() - 1) as NodeId
            })
        };
        let (source, destination) = (at(source), at(destination));
        self.source.push(source);
        self.destination.push(destination);
    }
}
