//! The memory that a worker uses for all its batches.

use graphmill_core::{Block, block::Induce};

use super::{HopScratch, parts::Parts};
use crate::{Relabel, subgraph::SubgraphScratch};

/// Memory that a worker uses for all its batches, one after the other.
#[derive(Debug)]
pub struct Workspace {
    pub(super) relabel: Relabel,
    pub(super) hop: HopScratch,
    pub(super) parts: Parts,
    pub(super) induce: Induce,
    pub(super) subgraph: SubgraphScratch,
    /// Weights of the edges of a subgraph.
    pub(super) weights: Vec<f32>,
}

impl Workspace {
    /// A workspace for a graph of `num_nodes` nodes (see [`Relabel::new`] for the memory).
    pub fn new(num_nodes: usize) -> Self {
        Self {
            relabel: Relabel::new(num_nodes),
            hop: HopScratch::default(),
            parts: Parts::default(),
            induce: Induce::default(),
            subgraph: SubgraphScratch::default(),
            weights: Vec::new(),
        }
    }

    /// Lets one batch spread over the threads of the pool, or not (at first it may). Turn it off if
    /// every thread has a batch of its own. It changes nothing but the time.
    pub fn set_parallel(&mut self, parallel: bool) {
        self.hop.parallel = parallel;
    }

    /// Transposes a block, over the threads of the pool if one batch may be spread.
    pub fn transpose(&self, block: &mut Block) {
        if self.hop.parallel { block.par_transpose() } else { block.transpose() }
    }
}
