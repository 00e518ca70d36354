//! Reverse Cuthill-McKee: an order in which neighbours' ids are close, so that the matrix has a narrow band.
//!
//! Cuthill and McKee, *Reducing the bandwidth of sparse symmetric matrices*, ACM 1969: breadth first from a node at the
//! graph's rim, the neighbours of each node by ascending degree; then all reversed (George, 1971). The rim is found as in
//! George and Liu, *An implementation of a pseudoperipheral node finder*, ACM TOMS 5(3), 1979: from a node go to the one
//! of least degree among the farthest for as long as that takes us farther out. Here at most [`ROUNDS`] times.
//!
//! O(E log d + V log V), sequential. Components follow one another by their least degree, so that isolated nodes come last.

use graphmill_core::{Graph, NodeId, Result, memory, node_order::by_keys};

use super::adjacency::{Seen, both_ways};

/// Searches for a rim at most: each costs as much as the walk itself, and three are mostly enough.
const ROUNDS: usize = 6;

/// The order. Edges are followed both ways.
pub(super) fn order(graph: &Graph, _: u64) -> Result<Vec<NodeId>> {
    let graph = both_ways(graph)?;
    let mut seen = Seen::new(graph.num_nodes())?;
    let mut rim = Rim { graph: &graph, seen: Seen::new(graph.num_nodes())?, queue: Vec::new() };
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

/// Looks for nodes at the rim of their component.
struct Rim<'a> {
    graph: &'a Graph,
    /// Empty between two walks.
    seen: Seen,
    queue: Vec<NodeId>,
}

impl Rim<'_> {
    /// A node of the component of `first` that is far from another.
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

    /// How many levels there are from `root`, and the node of least degree of the last.
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
