//! Random partitioning, the baseline that ignores the edges.
//!
//! # Algorithm
//!
//! Distributes a shuffle over the parts, training nodes first, so that parts differ by at most one
//! training node and one node.
//!
//! # Source
//!
//! The customary baseline.
//!
//! # Cost
//!
//! O(V log V) for the shuffle.
//!
//! # Memory
//!
//! `18 V` bytes.

use graphmill_core::{Graph, NodeId, Result, keyed, memory, node_order::by_keys, progress::Progress};

use super::{Options, PartitionBook, Partitioner};

/// Separates these draws from others with the same seed.
const DOMAIN: u64 = 0x7061_7274_7261_6e64;

/// Random partitioner with its options.
pub(super) struct Random(Options);

impl Random {
    pub(super) fn new(options: &Options) -> Self {
        Self(options.clone())
    }
}

impl Partitioner for Random {
    fn partition(&self, graph: &Graph, train: &[NodeId], _: &dyn Progress) -> Result<PartitionBook> {
        self.0.check(graph, train)?;
        let trains = super::trains(graph.num_nodes(), train)?;
        // A training node has the highest bit of its key clear, so that it sorts before all others.
        let key = |v| keyed::key(&[DOMAIN, self.0.seed, v]) >> 1 | u64::from(!trains[v as usize]) << 63;
        let order = by_keys(graph.num_nodes(), |v| key(u64::from(v)))?;
        let mut of: Vec<u16> = memory::zeroed(order.len())?;
        for (i, &v) in order.iter().enumerate() {
            of[v as usize] = (i % usize::from(self.0.parts)) as u16;
        }
        PartitionBook::new(self.0.parts, of)
    }
}
