//! Fennel: streaming partitioning with an additive penalty.
//!
//! # Algorithm
//!
//! Nodes arrive in id order; each goes to the part with the highest score `|P(i) ∩ N(v)| - α γ
//! |P(i)|^(γ - 1)`, with `γ = 1.5` and `α = √K E / V^1.5` (`E` counts an edge once). A part takes
//! at most `1.1 V / K` nodes.
//!
//! # Source
//!
//! Tsourakakis, Gkantsidis, Radunovic and Vojnovic, *Fennel: streaming graph partitioning for
//! massive scale graphs*, WSDM 2014, section 4, with the paper's `γ`.
//!
//! # Cost
//!
//! O(E + V K), sequential.
//!
//! # Deviations
//!
//! None. Like the paper's, the method does not balance training nodes.

use graphmill_core::{Graph, NodeId, Result, progress::Progress, symmetry::is_symmetric};

use super::{Options, PartitionBook, Partitioner, stream::stream};

const GAMMA: f64 = 1.5;

/// Fennel partitioner with its options.
pub(super) struct Fennel(Options);

impl Fennel {
    pub(super) fn new(options: &Options) -> Self {
        Self(options.clone())
    }
}

impl Partitioner for Fennel {
    fn partition(&self, graph: &Graph, train: &[NodeId], progress: &dyn Progress) -> Result<PartitionBook> {
        self.0.check(graph, train)?;
        let (nodes, parts) = (graph.num_nodes() as f64, f64::from(self.0.parts));
        let edges = graph.num_edges() as f64 / if is_symmetric(graph, false) { 2.0 } else { 1.0 };
        let alpha = parts.sqrt() * edges / nodes.powf(GAMMA);
        let capacity = ((nodes / parts * (1.0 + self.0.slack)).floor()).max((nodes / parts).ceil()) as usize;
        let score = |inside: u64, size: u64| inside as f64 - alpha * GAMMA * (size as f64).powf(GAMMA - 1.0);
        stream(graph, train, &self.0, progress, capacity, score)
    }
}
