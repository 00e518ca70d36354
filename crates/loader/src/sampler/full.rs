//! All neighbours at every hop: the exact neighbourhood that sampling approximates.

use graphmill_core::{Block, Result};

use super::{EdgeSampler, HopProperties, HopRequest, HopSampler, HopScratch, neighbor::Neighbor};

/// Takes every in-neighbour over `L` hops.
#[derive(Clone, Debug)]
pub struct Full(Neighbor);

impl Full {
    /// Creates the sampler for `layers` hops.
    ///
    /// # Errors
    /// `layers` is 0 or more than 64.
    pub fn new(layers: usize) -> Result<Self, String> {
        Neighbor::new(vec![-1; layers]).map(Self)
    }
}

impl HopSampler for Full {
    fn num_layers(&self) -> usize {
        self.0.num_layers()
    }

    fn properties(&self) -> HopProperties {
        self.0.properties()
    }

    fn sample_hop(&self, request: &HopRequest, scratch: &mut HopScratch, block: &mut Block) -> Result<()> {
        self.0.sample_hop(request, scratch, block)
    }

    fn by_edges(&self) -> Option<&dyn EdgeSampler> {
        self.0.by_edges()
    }
}
