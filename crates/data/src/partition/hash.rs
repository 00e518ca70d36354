//! Hash partitioning.
//!
//! # Algorithm
//!
//! The part of a node is a hash of its id: given `K` and the seed, every node's part can be
//! computed without a book.
//!
//! # Source
//!
//! The customary baseline of distributed graph systems.
//!
//! # Cost
//!
//! O(V), parallel.

use graphmill_core::{Graph, NodeId, Result, keyed, memory, progress::Progress};
use rayon::prelude::*;

use super::{Options, PartitionBook, Partitioner};

/// Separates this hash from other draws with the same seed.
const DOMAIN: u64 = 0x7061_7274_6861_7368;

/// Hash partitioner with its options.
pub(super) struct Hash(Options);

impl Hash {
    pub(super) fn new(options: &Options) -> Self {
        Self(options.clone())
    }
}

impl Partitioner for Hash {
    fn partition(&self, graph: &Graph, train: &[NodeId], _: &dyn Progress) -> Result<PartitionBook> {
        self.0.check(graph, train)?;
        let part = |v: NodeId| {
            let hash = keyed::key(&[DOMAIN, self.0.seed, v.into()]);
            ((u128::from(hash) * u128::from(self.0.parts)) >> 64) as u16
        };
        let mut of = memory::reserve(graph.num_nodes())?;
        of.par_extend((0..graph.num_nodes() as NodeId).into_par_iter().map(part));
        PartitionBook::new(self.0.parts, of)
    }
}
