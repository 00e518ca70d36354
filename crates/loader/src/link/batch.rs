//! The edges of a minibatch of links.

use graphmill_core::{NodeId, memory};
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

    /// Keeps the positives for which `is_kept` holds, by their number and the node of their source,
    /// with their negatives, and of `seeds` the ends of these pairs, in first-seen order. Excluded
    /// edges stay those of all positives. O(P K).
    pub fn retain(&mut self, seeds: &mut Vec<NodeId>, is_kept: impl Fn(usize, NodeId) -> bool) {
        let (positives, each) = (self.positives, self.num_negatives());
        let source = |pair: usize| seeds[self.source[pair] as usize];
        let kept = memory::demand_collect((0..positives).filter(|&i| is_kept(i, source(i))));
        if kept.len() == positives {
            return;
        }
        let negatives = |&i: &usize| positives + i * each..positives + (i + 1) * each;
        let pairs = memory::demand_collect(kept.iter().copied().chain(kept.iter().flat_map(negatives)));
        let ends = pairs.iter().map(|&i| (source(i), seeds[self.destination[i] as usize]));
        let ends: Vec<(NodeId, NodeId)> = memory::demand_collect(ends);
        if !self.relation.is_empty() {
            self.relation = memory::demand_collect(pairs.iter().map(|&i| self.relation[i]));
        }
        self.positives = kept.len();
        self.source.clear();
        self.destination.clear();
        self.position.clear();
        seeds.clear();
        ends.into_iter().for_each(|(source, destination)| self.push(source, destination, seeds));
    }

    /// Adds the pair of two nodes; a node that is not among the seeds is appended to them.
    pub fn push(&mut self, source: NodeId, destination: NodeId, seeds: &mut Vec<NodeId>) {
        memory::demand_in_map(&mut self.position, 2);
        memory::demand(seeds, 2);
        let mut at = |node: NodeId| {
            *self.position.entry(node).or_insert_with(|| {
                seeds.push(node);
                (seeds.len() - 1) as NodeId
            })
        };
        let (source, destination) = (at(source), at(destination));
        memory::demand_push(&mut self.source, source);
        memory::demand_push(&mut self.destination, destination);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs as nodes.
    fn nodes(links: &LinkBatch, seeds: &[NodeId]) -> Vec<(NodeId, NodeId)> {
        let at = |i: &NodeId| seeds[*i as usize];
        links.source.iter().zip(&links.destination).map(|(u, v)| (at(u), at(v))).collect()
    }

    #[test]
    fn retained_positives_keep_their_negatives_and_the_excluded_edges_of_all() {
        let (mut links, mut seeds) = (LinkBatch::default(), Vec::new());
        // three positives with two negatives each
        let pairs = [(7, 1), (4, 2), (7, 3), (7, 5), (7, 6), (4, 5), (4, 9), (7, 8), (0, 3)];
        pairs.iter().for_each(|&(u, v)| links.push(u, v, &mut seeds));
        links.positives = 3;
        links.relation = (0..9).collect();
        links.excluded.refill(pairs[..3].iter().copied());
        let (mut whole, mut all) = (links.clone(), seeds.clone());
        whole.retain(&mut all, |_, _| true);
        assert_eq!((nodes(&whole, &all), &all), (pairs.to_vec(), &seeds));
        let (mut none, mut empty) = (links.clone(), seeds.clone());
        none.retain(&mut empty, |_, _| false);
        assert_eq!((none.positives, none.source.len(), none.num_negatives(), empty.len()), (0, 0, 0, 0));
        links.retain(&mut seeds, |i, source| i != 0 && source == 7);
        assert_eq!(nodes(&links, &seeds), [(7, 3), (7, 8), (0, 3)]);
        assert_eq!((&seeds[..], links.positives, links.num_negatives()), (&[7, 3, 8, 0][..], 1, 2));
        assert_eq!((&links.relation[..], links.excluded.len()), (&[2, 7, 8][..], 3));
    }
}
