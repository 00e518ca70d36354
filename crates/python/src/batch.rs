//! A minibatch as users get it: whole arrays of 64-bit ids, and gathered rows.

use crate::pool::{Lease, Pool};

/// What a method draws: a list of nodes, and edges by places in that list. A workspace: cleared and
/// filled again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// The nodes' ids, the seeds first.
    pub nodes: Vec<u32>,
    /// Place of each edge's source.
    pub src: Vec<u32>,
    /// Place of each edge's destination.
    pub dst: Vec<u32>,
    /// The user's number of each edge.
    pub edges: Vec<u64>,
    /// Which tree each node is of, where every seed has one of its own.
    pub tree: Option<Vec<u32>>,
    /// Where each seed is in the list, where they are not the first.
    pub roots: Option<Vec<u32>>,
    /// How many nodes each hop added, the seeds being the first hop; where that is told.
    pub nodes_per_hop: Option<Vec<usize>>,
    /// How many edges each hop added.
    pub edges_per_hop: Option<Vec<usize>>,
}

impl Drawn {
    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        let Self { nodes, src, dst, edges, tree, roots, nodes_per_hop, edges_per_hop } = self;
        [nodes, src, dst].into_iter().for_each(Vec::clear);
        edges.clear();
        (*tree, *roots, *nodes_per_hop, *edges_per_hop) = (None, None, None, None);
    }
}

/// A minibatch. Arrays of ids are `i64`.
pub struct Batch {
    /// Its number in the epoch.
    pub number: u64,
    /// Places of the seeds among the inputs (`B`).
    pub inputs: Lease,
    /// Global ids of the nodes (`N`).
    pub nodes: Lease,
    /// Sources, then destinations of the edges, as places in `nodes` (`2 x M`).
    pub edge_index: Lease,
    /// The user's numbers of the edges (`M`).
    pub edges: Lease,
    /// Which tree each node is of (`N`).
    pub tree: Option<Lease>,
    /// Where each seed is in `nodes` (`B`).
    pub roots: Option<Lease>,
    /// Rows of each table.
    pub tables: Vec<Lease>,
    /// Nodes that each hop added.
    pub nodes_per_hop: Option<Vec<usize>>,
    /// Edges that each hop added.
    pub edges_per_hop: Option<Vec<usize>>,
}

impl Batch {
    /// `B`.
    pub fn num_seeds(&self) -> usize {
        self.inputs.of::<i64>().len()
    }

    /// `N`.
    pub fn num_nodes(&self) -> usize {
        self.nodes.of::<i64>().len()
    }

    /// `M`.
    pub fn num_edges(&self) -> usize {
        self.edges.of::<i64>().len()
    }
}

/// Values widened to `i64`, in memory of the pool.
pub(crate) fn wide<T: Copy + Into<u64>>(pool: &Pool, lists: &[&[T]]) -> Lease {
    let mut lease = pool.lend(8 * lists.iter().map(|list| list.len()).sum::<usize>());
    let values = lists.iter().flat_map(|list| list.iter());
    lease.of_mut::<i64>().iter_mut().zip(values).for_each(|(to, &value)| *to = value.into() as i64);
    lease
}
