//! Known edges, and uniform draws among the pairs that are none.
//!
//! # Algorithm
//!
//! The ends that a fixed end is linked to are a sorted list `r`. The number of candidates that are
//! not in it and precede `r[k]` is `r[k] - k`, which ascends with `k`: the `t`-th candidate without
//! an edge is found by binary search, so a draw needs one random number and is never rejected.
//!
//! # Source
//!
//! Selection by rank in the complement of a sorted list is common knowledge; other libraries draw
//! pairs and reject edges, a bounded number of times.
//!
//! # Cost
//!
//! O(log d) per draw and per look-up. O(E) to build, and 4 bytes per edge and 8 per node for each
//! end that is fixed.

use std::ops::Range;

use graphmill_core::{EdgeOptions, End, Graph, NodeId, Result, build, keyed::Stream, symmetry::is_symmetric};
use rayon::prelude::*;

/// Edges that are no negatives.
///
/// ```
/// use graphmill_core::End;
/// use graphmill_loader::link::{Known, KnownEdges};
///
/// let known = KnownEdges::new(4, &[0, 0], &[1, 3])?;
/// // 0 is linked to 1 and 3
/// assert!(Known::is_negative(&known, End::Destination, (0, 1), 2));
/// assert!(!Known::is_negative(&known, End::Destination, (0, 1), 3));
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait Known: std::fmt::Debug + Send + Sync {
    /// Ends of the edges of `node`, if it is the other end than `end`: ascending.
    fn ends_of(&self, end: End, node: NodeId) -> &[NodeId];

    /// Returns true if a node may replace this end of `edge` (source, destination): the edge is not
    /// known, and its ends differ.
    fn is_negative(&self, end: End, edge: (NodeId, NodeId), node: NodeId) -> bool {
        let fixed = if end == End::Source { edge.1 } else { edge.0 };
        node != fixed && self.ends_of(end, fixed).binary_search(&node).is_err()
    }

    /// Draws a node that may replace this end of `edge` (source, destination): uniformly among the
    /// `candidates` that have no known edge with the other end and are not that end. `None` if
    /// there is no such candidate.
    fn draw(
        &self,
        end: End,
        edge: (NodeId, NodeId),
        candidates: &Range<NodeId>,
        stream: &mut Stream,
    ) -> Option<NodeId> {
        let fixed = if end == End::Source { edge.1 } else { edge.0 };
        let linked = self.ends_of(end, fixed);
        let start = linked.partition_point(|&u| u < candidates.start);
        let end = linked.partition_point(|&u| u < candidates.end);
        let linked = &linked[start..end];
        // an edge to itself is no negative either
        let itself = candidates.contains(&fixed) && linked.binary_search(&fixed).is_err();
        let taken = linked.len() + usize::from(itself);
        let free = (candidates.len() - taken) as u64;
        if free == 0 {
            return None;
        }
        let number = stream.below(free) as NodeId;
        let node = candidates.start + nth_missing(linked, candidates.start, number);
        // `fixed` is a free candidate of the list without it: those from it on move by one
        let node = if itself && node >= fixed {
            candidates.start + nth_missing(linked, candidates.start, number + 1)
        } else {
            node
        };
        Some(node)
    }
}

/// Edges that are known to exist, for negatives that do not.
///
/// ```
/// use graphmill_core::{
///     End,
///     keyed::{Stream, key},
/// };
/// use graphmill_loader::link::{Known, KnownEdges};
///
/// // 0 is linked to 1 and 3, so the only other destination of its edges is 2
/// let known = KnownEdges::new(4, &[0, 0], &[1, 3])?;
/// assert!(known.contains(0, 3) && !known.contains(3, 0));
/// let mut stream = Stream::new(key(&[1]));
/// assert_eq!(known.draw(End::Destination, (0, 1), &(0..4), &mut stream), Some(2));
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct KnownEdges {
    /// Sources of each destination, ascending and distinct.
    sources: Graph,
    /// Destinations of each source; `None` if they are the same.
    destinations: Option<Graph>,
}

impl KnownEdges {
    /// Creates the edges of `nodes` nodes from each source to its destination; repeated edges count
    /// once. O(E).
    ///
    /// # Errors
    /// The lists have different lengths, or a node is not below `nodes`.
    pub fn new(nodes: usize, source: &[NodeId], destination: &[NodeId]) -> Result<Self> {
        let sources = build(nodes, source, destination, EdgeOptions::DIRECTED)?;
        let destinations = build(nodes, destination, source, EdgeOptions::DIRECTED)?;
        let is_symmetric =
            sources.indptr() == destinations.indptr() && sources.indices() == destinations.indices();
        Ok(Self { sources, destinations: (!is_symmetric).then_some(destinations) })
    }

    /// Creates the edges of an undirected graph, which shares the graph's memory.
    ///
    /// `None` if a list of neighbours does not ascend strictly, or an edge is not stored both ways.
    /// O(E).
    pub fn of_undirected(graph: &Graph) -> Option<Self> {
        let ascends = |v: NodeId| graph.in_neighbors(v).is_sorted_by(|a, b| a < b);
        let nodes = 0..graph.num_nodes() as NodeId;
        let is_undirected = nodes.into_par_iter().all(ascends) && is_symmetric(graph, false);
        is_undirected.then(|| Self { sources: graph.clone(), destinations: None })
    }

    /// Ends of the edges of `node`, if it is the other end than `end`: ascending.
    pub fn ends_of(&self, end: End, node: NodeId) -> &[NodeId] {
        match (end, &self.destinations) {
            (End::Destination, Some(destinations)) => destinations.in_neighbors(node),
            _ => self.sources.in_neighbors(node),
        }
    }

    /// Number of nodes.
    pub fn num_nodes(&self) -> usize {
        self.sources.num_nodes()
    }

    /// Returns true if there is an edge from `source` to `destination`. O(log d).
    pub fn contains(&self, source: NodeId, destination: NodeId) -> bool {
        self.sources.in_neighbors(destination).binary_search(&source).is_ok()
    }
}

impl Known for KnownEdges {
    fn ends_of(&self, end: End, node: NodeId) -> &[NodeId] {
        self.ends_of(end, node)
    }
}

/// The `number`-th offset from `start`, from 0, that is not in the ascending list.
fn nth_missing(list: &[NodeId], start: NodeId, number: NodeId) -> NodeId {
    let missing_before = |k: usize| list[k] - start - k as NodeId;
    let (mut low, mut high) = (0, list.len());
    while low < high {
        let middle = low.midpoint(high);
        if missing_before(middle) <= number {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    number + low as NodeId
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed::key;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn draws_are_the_candidates_without_an_edge(
            edges in prop::collection::vec((0u32..12, 0u32..12), 0..60),
            fixed in 0u32..12,
            replaced in 0u32..12,
            bounds in (0u32..12, 0u32..13),
            end in prop::sample::select(vec![End::Source, End::Destination]),
        ) {
            let (source, destination): (Vec<_>, Vec<_>) = edges.iter().copied().unzip();
            let known = KnownEdges::new(12, &source, &destination).unwrap();
            let candidates = bounds.0.min(bounds.1)..bounds.1;
            let edge = if end == End::Source { (replaced, fixed) } else { (fixed, replaced) };
            let expected: Vec<NodeId> = candidates
                .clone()
                .filter(|&u| {
                    let pair = if end == End::Source { (u, fixed) } else { (fixed, u) };
                    u != fixed && !edges.contains(&pair)
                })
                .collect();
            let mut seen: Vec<NodeId> = (0..400)
                .filter_map(|i| known.draw(end, edge, &candidates, &mut Stream::new(key(&[i]))))
                .collect();
            for u in candidates.clone() {
                prop_assert_eq!(known.is_negative(end, edge, u), expected.contains(&u));
            }
            seen.sort_unstable();
            seen.dedup();
            // each of at most 12 is missed by 400 draws with a probability of 1e-15
            prop_assert_eq!(seen, expected);
        }
    }

    #[test]
    fn draws_are_uniform() {
        let known = KnownEdges::new(8, &[1, 4, 6], &[0, 0, 0]).unwrap();
        let mut counts = [0u32; 8];
        let mut stream = Stream::new(key(&[3]));
        for _ in 0..40_000 {
            counts[known.draw(End::Source, (1, 0), &(0..8), &mut stream).unwrap() as usize] += 1;
        }
        // binomial(4e4, 0.25): sigma 87
        let expected = [0, 0, 10_000, 10_000, 0, 10_000, 0, 10_000];
        for (count, expected) in counts.into_iter().zip(expected) {
            assert!(count.abs_diff(expected) < 435 && (expected > 0) == (count > 0), "{counts:?}");
        }
    }

    #[test]
    fn undirected_graphs_are_shared() {
        let graph = build(4, &[0, 1], &[1, 2], EdgeOptions::UNDIRECTED).unwrap();
        let known = KnownEdges::of_undirected(&graph).unwrap();
        assert!(known.contains(2, 1) && known.contains(1, 2) && !known.contains(0, 2));
        assert_eq!(known.ends_of(End::Destination, 1), known.ends_of(End::Source, 1));
        let one_way = build(4, &[0, 1], &[1, 2], EdgeOptions::DIRECTED).unwrap();
        assert!(KnownEdges::of_undirected(&one_way).is_none());
        assert_eq!(known.num_nodes(), 4);
        let twice = Graph::new(vec![0, 2, 4].into(), vec![1, 1, 0, 0].into()).unwrap();
        assert!(KnownEdges::of_undirected(&twice).is_none(), "the list has an edge twice");
    }
}
