//! Nodes by the times from which they exist, and non-edges among those of a time.
//!
//! # Algorithm
//!
//! Nodes are ordered by the times from which they exist, so those of a time are a prefix. A draw
//! proposes nodes of the prefix until one is no known edge; after 64 proposals, it is drawn from a
//! list of those that are left.
//!
//! # Source
//!
//! Rejection with a bounded number of proposals is common knowledge.
//!
//! # Cost
//!
//! O(C log C) to order `C` candidates, 20 bytes for each, and O(log d) per proposal with `d` known
//! edges of the fixed end.

use std::ops::Range;

use graphmill_core::{End, NodeId, keyed::Stream};
use rayon::prelude::*;

use super::known::Known;

/// Proposals that hit a known edge before a node is drawn from a list of all that are left.
const MAX_TRIES: usize = 64;

/// Candidates with the times from which they exist.
///
/// ```
/// use graphmill_loader::link::ExistingNodes;
///
/// let nodes = ExistingNodes::new(5..8, &[30, 10, 20]);
/// assert_eq!(nodes.at(20), [6, 7]);
/// assert!(nodes.exists(7, 20) && !nodes.exists(5, 29));
/// ```
#[derive(Clone, Debug)]
pub struct ExistingNodes {
    first: NodeId,
    /// Time from which each candidate exists.
    exists: Vec<i64>,
    /// Candidates in the order of these times.
    nodes: Vec<NodeId>,
    /// These times, ascending.
    times: Vec<i64>,
}

impl ExistingNodes {
    /// Orders the `candidates`, each with the time from which it exists. O(C log C).
    ///
    /// # Panics
    /// The numbers of candidates and of times differ.
    pub fn new(candidates: Range<NodeId>, time: &[i64]) -> Self {
        assert_eq!(candidates.len(), time.len(), "a time for each candidate");
        let first = candidates.start;
        let mut nodes: Vec<NodeId> = candidates.collect();
        nodes.par_sort_unstable_by_key(|&u| (time[(u - first) as usize], u));
        let times = nodes.par_iter().map(|&u| time[(u - first) as usize]).collect();
        Self { first, exists: time.to_vec(), nodes, times }
    }

    /// Candidates that exist at `time`, in the order of their times.
    pub fn at(&self, time: i64) -> &[NodeId] {
        &self.nodes[..self.times.partition_point(|&exists| exists <= time)]
    }

    /// Time from which `node` exists; `None` if it is no candidate.
    pub fn time(&self, node: NodeId) -> Option<i64> {
        self.exists.get(node.checked_sub(self.first)? as usize).copied()
    }

    /// Returns true if `node` is a candidate that exists at `time`.
    pub fn exists(&self, node: NodeId, time: i64) -> bool {
        self.time(node).is_some_and(|exists| exists <= time)
    }

    /// Draws a node of those that exist at `time` and for which `fits` holds, equally likely;
    /// `None` if there is none.
    pub(super) fn draw(
        &self,
        time: i64,
        fits: impl Fn(&NodeId) -> bool,
        stream: &mut Stream,
    ) -> Option<NodeId> {
        let of = |from: &[NodeId], stream: &mut Stream| {
            from.get(stream.below(from.len().max(1) as u64) as usize).copied()
        };
        let existing = self.at(time);
        let proposed = { (0..MAX_TRIES).filter_map(|_| of(existing, stream)) }.find(&fits);
        proposed.or_else(|| {
            let left: Vec<NodeId> = existing.iter().copied().filter(&fits).collect();
            of(&left, stream)
        })
    }
}

/// Known edges among the nodes that exist at a time: other nodes are no negatives.
#[derive(Clone, Copy, Debug)]
pub struct KnownAt<'a> {
    /// Known edges.
    pub known: &'a dyn Known,
    /// Nodes that may replace an end.
    pub nodes: &'a ExistingNodes,
    /// The time.
    pub time: i64,
}

impl Known for KnownAt<'_> {
    fn ends_of(&self, end: End, node: NodeId) -> &[NodeId] {
        self.known.ends_of(end, node)
    }

    fn is_negative(&self, end: End, edge: (NodeId, NodeId), node: NodeId) -> bool {
        self.nodes.exists(node, self.time) && self.known.is_negative(end, edge, node)
    }

    fn draw(
        &self,
        end: End,
        edge: (NodeId, NodeId),
        candidates: &Range<NodeId>,
        stream: &mut Stream,
    ) -> Option<NodeId> {
        let fits = |u: &NodeId| candidates.contains(u) && self.known.is_negative(end, edge, *u);
        self.nodes.draw(self.time, fits, stream)
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed::key;
    use proptest::prelude::*;

    use super::*;
    use crate::link::KnownEdges;

    proptest! {
        #[test]
        fn negatives_at_a_time_are_the_existing_candidates_without_an_edge(
            edges in prop::collection::vec((0u32..6, 6u32..14), 0..30),
            exists in prop::collection::vec(0i64..10, 8),
            time in -1i64..11,
            source in 0u32..6,
        ) {
            let (from, to): (Vec<u32>, Vec<u32>) = edges.iter().copied().unzip();
            let known = KnownEdges::new(14, &from, &to).unwrap();
            let nodes = ExistingNodes::new(6..14, &exists);
            let at = KnownAt { known: &known, nodes: &nodes, time };
            let expected: Vec<u32> = (6..14)
                .filter(|&v| exists[v as usize - 6] <= time && !edges.contains(&(source, v)))
                .collect();
            let edge = (source, 6);
            for v in 0..20 {
                prop_assert_eq!(at.is_negative(End::Destination, edge, v), expected.contains(&v));
            }
            let draw = |i| at.draw(End::Destination, edge, &(6..14), &mut Stream::new(key(&[i])));
            // each of at most 8 is missed by 400 draws with a probability of 1e-23
            let mut seen: Vec<u32> = (0..400).filter_map(draw).collect();
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen, expected);
        }
    }
}
