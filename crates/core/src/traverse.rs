//! Reachability: weakly connected components and hop counts.
//!
//! # Algorithm
//!
//! Components come from a concurrent union-find: every edge hooks the larger of its two roots under
//! the smaller by compare-and-swap, and finds halve paths on the way. Parents only decrease, so a
//! finished tree's root is its smallest node, regardless of the order in which threads process the
//! edges.
//!
//! # Source
//!
//! Jayanti and Tarjan, *A randomized concurrent algorithm for disjoint set union*, PODC 2016;
//! Sutton, Ben-Nun and Barak, *Optimizing parallel graph connectivity computation via subgraph
//! sampling* (Afforest), IPDPS 2018.
//!
//! # Cost
//!
//! Almost O(V + E) in practice, parallel.
//!
//! # Deviations
//!
//! Node numbers replace the random order of Jayanti and Tarjan, as in Afforest.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;
use serde::Serialize;

use crate::{Graph, NodeId};

/// Smallest node of the weakly connected component of every node (`V`): two nodes are connected if
/// a path joins them that may follow edges in either direction.
///
/// Almost O(V + E) work in practice (O((V + E) log V) expected for unordered ids, O(V) per find at
/// worst), `4 V` bytes in addition to the result; parallel, the same for any number of threads.
///
/// ```
/// use graphmill_core::{Graph, traverse::weak_components};
/// // 2 -> 0, 3 alone, 1 alone
/// let graph = Graph::new(vec![0, 1, 1, 1, 1].into(), vec![2].into()).unwrap();
/// assert_eq!(weak_components(&graph), [0, 1, 0, 3]);
/// ```
pub fn weak_components(graph: &Graph) -> Vec<NodeId> {
    let nodes = graph.num_nodes() as NodeId;
    let forest = Forest::new(graph.num_nodes());
    (0..nodes).into_par_iter().with_min_len(1 << 10).for_each(|v| {
        graph.in_neighbors(v).iter().for_each(|&u| forest.join(u, v));
    });
    forest.roots()
}

/// Components under construction: any number of threads may add edges.
#[derive(Debug)]
pub struct Forest {
    // Relaxed suffices: a parent entry guards no other data, any value ever stored in it is a
    // smaller-or-equal member of the same component, and the join of the loop orders later reads.
    parent: Vec<AtomicU32>,
}

impl Forest {
    /// Creates a forest of isolated nodes.
    pub fn new(nodes: usize) -> Self {
        Self { parent: (0..nodes as NodeId).into_par_iter().map(AtomicU32::new).collect() }
    }

    /// Adds an edge.
    #[inline]
    pub fn join(&self, u: NodeId, v: NodeId) {
        // Soon most nodes are direct children of one root.
        if self.parent[u as usize].load(Relaxed) != self.parent[v as usize].load(Relaxed) {
            union(&self.parent, u, v);
        }
    }

    /// Result of [`weak_components`], after all edges were added.
    pub fn roots(self) -> Vec<NodeId> {
        let nodes = self.parent.len() as NodeId;
        (0..nodes).into_par_iter().with_min_len(1 << 12).map(|v| find(&self.parent, v)).collect()
    }
}

/// Current root of `v`'s tree, with path halving.
fn find(parent: &[AtomicU32], mut v: NodeId) -> NodeId {
    loop {
        let up = parent[v as usize].load(Relaxed);
        if up == v {
            return v;
        }
        let above = parent[up as usize].load(Relaxed);
        if above != up {
            // A lost race means that another thread has already moved `v` further up.
            let _ = parent[v as usize].compare_exchange_weak(up, above, Relaxed, Relaxed);
        }
        v = above;
    }
}

/// Joins the trees of `u` and `v`, the larger root under the smaller.
fn union(parent: &[AtomicU32], u: NodeId, v: NodeId) {
    let (mut u, mut v) = (u, v);
    loop {
        u = find(parent, u);
        v = find(parent, v);
        if u == v {
            return;
        }
        let (low, high) = (u.min(v), u.max(v));
        // Fails if another thread hooked `high` meanwhile: continue from there.
        if parent[high as usize].compare_exchange(high, low, Relaxed, Relaxed).is_ok() {
            return;
        }
    }
}

/// Number and size of components.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Components {
    /// Number of components; an isolated node is one.
    pub count: usize,
    /// Nodes in the largest; 0 in an empty graph.
    pub largest: usize,
    /// Smallest node of the largest component (the first of several equally large), if any.
    pub largest_root: Option<NodeId>,
}

/// Summarizes the result of [`weak_components`]. O(V).
pub fn summarize(components: &[NodeId]) -> Components {
    summarize_with(components, |_| false).0
}

/// Summarizes as [`summarize`] does, and counts the single-node components for which `counts`
/// holds.
pub fn summarize_with(components: &[NodeId], counts: impl Fn(NodeId) -> bool) -> (Components, usize) {
    let mut alone = 0;
    let mut sizes = vec![0u32; components.len()];
    for &root in components {
        sizes[root as usize] += 1;
    }
    let mut summary = Components::default();
    for (root, &size) in sizes.iter().enumerate().filter(|(_, size)| **size > 0) {
        summary.count += 1;
        if size as usize > summary.largest {
            summary.largest = size as usize;
            summary.largest_root = Some(root as NodeId);
        }
        alone += usize::from(size == 1 && counts(root as NodeId));
    }
    (summary, alone)
}

/// Number of hops from every node (`V`) to the nearest of `sources` along edges from receivers to
/// senders (as a sampler expands its seeds), [`u32::MAX`] for unreachable nodes. Sources outside
/// the graph are ignored. Breadth first, O(V + E).
///
/// ```
/// use graphmill_core::{Graph, traverse::bfs_levels};
/// // 0 <- 1 <- 2, 3 alone
/// let graph = Graph::new(vec![0, 1, 2, 2, 2].into(), vec![1, 2].into()).unwrap();
/// assert_eq!(bfs_levels(&graph, &[0]), [0, 1, 2, u32::MAX]);
/// ```
pub fn bfs_levels(graph: &Graph, sources: &[NodeId]) -> Vec<u32> {
    let mut level = vec![u32::MAX; graph.num_nodes()];
    let mut frontier: Vec<NodeId> = Vec::new();
    for &v in sources {
        if level.get(v as usize) == Some(&u32::MAX) {
            level[v as usize] = 0;
            frontier.push(v);
        }
    }
    let mut next = Vec::new();
    let mut depth = 0;
    while !frontier.is_empty() {
        depth += 1;
        for &v in &frontier {
            for &u in graph.in_neighbors(v) {
                if level[u as usize] == u32::MAX {
                    level[u as usize] = depth;
                    next.push(u);
                }
            }
        }
        std::mem::swap(&mut frontier, &mut next);
        next.clear();
    }
    level
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{EdgeOptions, build};

    /// Simplest possible version: flood from every uncoloured node.
    fn flood(nodes: u32, pairs: &[(u32, u32)]) -> Vec<u32> {
        let mut of = vec![u32::MAX; nodes as usize];
        for root in 0..nodes {
            let mut stack = vec![root];
            while let Some(v) = stack.pop() {
                if of[v as usize] != u32::MAX {
                    continue;
                }
                of[v as usize] = root;
                for &(a, b) in pairs {
                    if a == v {
                        stack.push(b);
                    } else if b == v {
                        stack.push(a);
                    }
                }
            }
        }
        of
    }

    #[test]
    fn a_long_path_stored_backwards_is_one_component() {
        let nodes = 100_000;
        let src: Vec<u32> = (1..nodes).rev().collect();
        let dst: Vec<u32> = (0..nodes - 1).rev().collect();
        let graph = build(nodes as usize, &src, &dst, EdgeOptions::DIRECTED).unwrap();
        let summary = summarize(&weak_components(&graph));
        assert_eq!(summary, Components { count: 1, largest: nodes as usize, largest_root: Some(0) });
        assert_eq!(bfs_levels(&graph, &[0])[nodes as usize - 1], nodes - 1);
    }

    #[test]
    fn empty_graphs_have_no_component() {
        assert!(weak_components(&Graph::default()).is_empty());
        assert_eq!(summarize(&[]), Components::default());
        assert!(bfs_levels(&Graph::default(), &[5]).is_empty());
    }

    #[test]
    fn the_first_of_equally_large_components_wins() {
        // {0}, {1, 3}, {2, 4}.
        assert_eq!(summarize(&[0, 1, 2, 1, 2]), Components { count: 3, largest: 2, largest_root: Some(1) });
    }

    proptest! {
        #[test]
        fn same_as_flooding(pairs in prop::collection::vec((0u32..60, 0u32..60), 0..80)) {
            let (src, dst): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
            let graph = build(60, &src, &dst, EdgeOptions::DIRECTED).unwrap();
            let found = weak_components(&graph);
            prop_assert_eq!(&found, &flood(60, &pairs));
            let summary = summarize(&found);
            prop_assert_eq!(summary.count, (0..60).filter(|&v| found[v as usize] == v).count());
        }

        /// Levels are the least fixed point of "one more than the best receiver".
        #[test]
        fn levels_are_shortest(
            pairs in prop::collection::vec((0u32..30, 0u32..30), 0..60), from in 0u32..30
        ) {
            let (src, dst): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
            let graph = build(30, &src, &dst, EdgeOptions::DIRECTED).unwrap();
            let mut expected = vec![u32::MAX; 30];
            expected[from as usize] = 0;
            for _ in 0..30 {
                for &(u, v) in &pairs {
                    let through = expected[v as usize].saturating_add(1);
                    expected[u as usize] = expected[u as usize].min(through);
                }
            }
            prop_assert_eq!(bfs_levels(&graph, &[from]), expected);
        }
    }
}
