//! Reverse Cuthill-McKee: an order in which neighbours have close ids, so that the adjacency matrix
//! has a narrow band.
//!
//! # Algorithm
//!
//! Breadth first from a peripheral node, the neighbours of each node by ascending degree; the
//! result is reversed. A peripheral node is found by repeatedly moving to the node of least degree
//! among the farthest, as long as the distance grows. Components are ordered by their least degree,
//! so that isolated nodes come last.
//!
//! # Source
//!
//! Cuthill and McKee, *Reducing the bandwidth of sparse symmetric matrices*, ACM 1969; the
//! reversal: George, 1971; the peripheral node: George and Liu, *An implementation of a
//! pseudoperipheral node finder*, ACM TOMS 5(3), 1979.
//!
//! # Cost
//!
//! O(E log d + V log V), sequential.
//!
//! # Deviations
//!
//! The search for a peripheral node ends after [`ROUNDS`] traversals.

use graphmill_core::{Graph, NodeId, Result, memory, node_order::by_keys};

use super::adjacency::{Seen, both_ways};

/// Maximum number of traversals in the search for a peripheral node: each costs as much as the
/// ordering itself, and three usually suffice.
const ROUNDS: usize = 6;

/// Computes the order. Edges are followed in both directions.
pub(super) fn order(graph: &Graph, _: u64) -> Result<Vec<NodeId>> {
    let graph = both_ways(graph)?;
    let mut seen = Seen::new(graph.num_nodes())?;
    let mut rim = PeripherySearch { graph: &graph, seen: Seen::new(graph.num_nodes())?, queue: Vec::new() };
    let mut order: Vec<NodeId> = memory::reserve(graph.num_nodes())?;
    let mut children: Vec<(usize, NodeId)> = Vec::new();
    for first in by_keys(graph.num_nodes(), |v| graph.in_degree(v) as u64)? {
        if !seen.insert(first) {
            continue;
        }
        seen.remove(first);
        let root = rim.find(first);
        seen.insert(root);
        let mut at = order.len();
        order.push(root);
        while let Some(&v) = order.get(at) {
            let new = graph.in_neighbors(v).iter().filter(|&&u| seen.insert(u));
            children.clear();
            children.extend(new.map(|&u| (graph.in_degree(u), u)));
            children.sort_unstable();
            order.extend(children.iter().map(|&(_, u)| u));
            at += 1;
        }
    }
    order.reverse();
    Ok(order)
}

/// Search for peripheral nodes of a component.
struct PeripherySearch<'a> {
    graph: &'a Graph,
    /// Empty between two traversals.
    seen: Seen,
    queue: Vec<NodeId>,
}

impl PeripherySearch<'_> {
    /// Finds a node in the component of `first` that is far from another.
    fn find(&mut self, first: NodeId) -> NodeId {
        if self.graph.in_degree(first) == 0 {
            return first;
        }
        let (mut depth, mut farthest) = self.walk(first);
        let mut root = first;
        for _ in 1..ROUNDS {
            let (deeper, beyond) = self.walk(farthest);
            if deeper <= depth {
                break;
            }
            (root, depth, farthest) = (farthest, deeper, beyond);
        }
        root
    }

    /// Number of levels from `root`, and the node of least degree in the last.
    fn walk(&mut self, root: NodeId) -> (usize, NodeId) {
        let Self { graph, seen, queue } = self;
        queue.clear();
        queue.push(root);
        seen.insert(root);
        let (mut depth, mut level) = (0, 0..1);
        loop {
            for at in level.clone() {
                let row = graph.in_neighbors(queue[at]);
                queue.extend(row.iter().filter(|&&u| seen.insert(u)));
            }
            if queue.len() == level.end {
                break;
            }
            (depth, level) = (depth + 1, level.end..queue.len());
        }
        let last = queue[level].iter().copied().min_by_key(|&v| (graph.in_degree(v), v)).unwrap_or(root);
        queue.iter().for_each(|&v| seen.remove(v));
        (depth, last)
    }
}
