//! Fennel (Tsourakakis et al., *Fennel: streaming graph partitioning for massive scale graphs*, WSDM 2014, section 4):
//! `argmax |P(i) ∩ N(v)| - α γ |P(i)|^(γ - 1)` with the paper's `γ = 1.5`, `α = √K E / V^1.5` and room for `1.1 V / K` nodes (`E` counts
//! an edge once). Does not know of training nodes. O(E + V K).

use graphmill_core::{Graph, NodeId, Result, progress::Progress, symmetry::is_symmetric};

use super::{Options, PartitionBook, Partitioner, stream::stream};

const GAMMA: f64 = 1.5;

/// See the module's text.
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
