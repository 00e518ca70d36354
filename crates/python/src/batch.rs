//! Minibatches as users get them: arrays of 64-bit ids, and gathered rows.

#![forbid(unsafe_code)]

use crate::pool::{Lease, Pool};

/// Result of a method: a list of nodes, and edges as positions in that list. Reused between
/// batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// Ids of the nodes, the seeds first.
    pub nodes: Vec<u32>,
    /// Position of each edge's source.
    pub src: Vec<u32>,
    /// Position of each edge's destination.
    pub dst: Vec<u32>,
    /// Number of each edge in the user's list.
    pub edges: Vec<u64>,
    /// Tree of each node, if every seed has its own tree.
    pub tree: Option<Vec<u32>>,
    /// Position of each seed in the list, if the seeds do not come first.
    pub roots: Option<Vec<u32>>,
    /// Number of nodes that each hop added, where the seeds are the first hop; `None` if hops are
    /// not counted.
    pub nodes_per_hop: Option<Vec<usize>>,
    /// Number of edges that each hop added.
    pub edges_per_hop: Option<Vec<usize>>,
}

impl Drawn {
    /// Empties the lists and keeps their memory.
    pub fn clear(&mut self) {
        let Self { nodes, src, dst, edges, tree, roots, nodes_per_hop, edges_per_hop } = self;
        [nodes, src, dst].into_iter().for_each(Vec::clear);
        edges.clear();
        (*tree, *roots, *nodes_per_hop, *edges_per_hop) = (None, None, None, None);
    }
}

/// A minibatch. Arrays of ids are `i64`.
pub struct Batch {
    /// Number of the batch in the epoch.
    pub number: u64,
    /// Positions of the seeds among the inputs (`B`).
    pub inputs: Lease,
    /// Global ids of the nodes (`N`).
    pub nodes: Lease,
    /// Sources, then destinations of the edges, as positions in `nodes` (`2 x M`).
    pub edge_index: Lease,
    /// Numbers of the edges in the user's list (`M`).
    pub edges: Lease,
    /// Tree of each node (`N`).
    pub tree: Option<Lease>,
    /// Position of each seed in `nodes` (`B`).
    pub roots: Option<Lease>,
    /// Rows of each table.
    pub tables: Vec<Lease>,
    /// Number of nodes that each hop added.
    pub nodes_per_hop: Option<Vec<usize>>,
    /// Number of edges that each hop added.
    pub edges_per_hop: Option<Vec<usize>>,
}

impl Batch {
    /// Number of seeds `B`.
    pub fn num_seeds(&self) -> usize {
        self.inputs.of::<i64>().len()
    }

    /// Number of nodes `N`.
    pub fn num_nodes(&self) -> usize {
        self.nodes.of::<i64>().len()
    }

    /// Number of edges `M`.
    pub fn num_edges(&self) -> usize {
        self.edges.of::<i64>().len()
    }
}

/// Concatenates the lists as `i64`, in memory of the pool.
pub(crate) fn wide<T: Copy + Into<u64>>(pool: &Pool, lists: &[&[T]]) -> Lease {
    let mut lease = pool.take(8 * lists.iter().map(|list| list.len()).sum::<usize>());
    let values = lists.iter().flat_map(|list| list.iter());
    lease.of_mut::<i64>().iter_mut().zip(values).for_each(|(to, &value)| *to = value.into() as i64);
    lease
}
