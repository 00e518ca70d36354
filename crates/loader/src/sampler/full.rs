//! All neighbours at every hop: what sampling approximates.

use graphmill_graph::{Block, Graph, NodeId, Result, block::Aggregation};

use super::{BatchKey, Sampler, Scratch, neighbor::Neighbor};

/// Takes every in-neighbour over `L` hops.
#[derive(Clone, Debug)]
pub struct Full(Neighbor);

impl Full {
    /// Over `layers` hops.
    ///
    /// # Errors
    /// No hops, or more than 64.
    pub fn new(layers: usize) -> Result<Self, String> {
        Neighbor::new(&vec![-1; layers]).map(Self)
    }
}

impl Sampler for Full {
    fn num_layers(&self) -> usize {
        self.0.num_layers()
    }

    fn is_random(&self) -> bool {
        false
    }

    fn draws_by_node(&self) -> bool {
        true
    }

    fn sample_layer(
        &self,
        graph: &Graph,
        hop: usize,
        dst: &[NodeId],
        key: BatchKey,
        aggregation: Aggregation,
        scratch: &mut Scratch,
        block: &mut Block,
    ) -> Result<()> {
        self.0.sample_layer(graph, hop, dst, key, aggregation, scratch, block)
    }
}
