//! Linear deterministic greedy (LDG): streaming partitioning with a multiplicative penalty.
//!
//! # Algorithm
//!
//! Nodes arrive in id order; each goes to the part with the highest score `|P(i) ∩ N(v)| (1 -
//! |P(i)| / C)`, where `C = ceil(V / K)`.
//!
//! # Source
//!
//! Stanton and Kliot, *Streaming graph partitioning for large distributed graphs*, KDD 2012,
//! section 3.1.
//!
//! # Cost
//!
//! O(E + V K), sequential.
//!
//! # Deviations
//!
//! None. The method balances nodes and ignores training nodes.

use graphmill_core::{Graph, NodeId, Result, progress::Progress};

use super::{Options, PartitionBook, Partitioner, stream::stream};

/// LDG partitioner with its options.
pub(super) struct Ldg(Options);

impl Ldg {
    pub(super) fn new(options: &Options) -> Self {
        Self(options.clone())
    }
}

impl Partitioner for Ldg {
    fn partition(&self, graph: &Graph, train: &[NodeId], progress: &dyn Progress) -> Result<PartitionBook> {
        self.0.check(graph, train)?;
        let capacity = graph.num_nodes().div_ceil(self.0.parts.into());
        stream(graph, train, &self.0, progress, capacity, discounted(capacity))
    }
}

/// Score of a part by the neighbours in it and its nodes.
pub(super) fn discounted(capacity: usize) -> impl Fn(u64, u64) -> f64 {
    move |inside, size| inside as f64 * (1.0 - size as f64 / capacity as f64)
}
