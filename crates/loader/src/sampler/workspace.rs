//! Scratch buffers of a worker.

use graphmill_core::{Block, block::Induce};

use super::{HopScratch, parts::PartBuffers};
use crate::{Relabel, subgraph::SubgraphScratch};

/// Scratch buffers that a worker uses for all its batches, one after the other.
#[derive(Debug)]
pub struct Workspace {
    pub(super) relabel: Relabel,
    pub(super) hop: HopScratch,
    pub(super) parts: PartBuffers,
    pub(super) subgraphs: SubgraphBuffers,
}

/// Scratch buffers for subgraphs.
#[derive(Debug, Default)]
pub(crate) struct SubgraphBuffers {
    pub(super) induce: Induce,
    pub(super) scratch: SubgraphScratch,
    /// Number of neighbours that each edge represents; empty if they are not counted.
    pub(super) stands_for: Vec<f32>,
}

impl Workspace {
    /// Creates a workspace for a graph of `num_nodes` nodes (see [`Relabel::new`] for the memory).
    pub fn new(num_nodes: usize) -> Self {
        Self {
            relabel: Relabel::new(num_nodes),
            hop: HopScratch::default(),
            parts: PartBuffers::default(),
            subgraphs: SubgraphBuffers::default(),
        }
    }

    /// Sets whether a batch may use all threads of the pool, which is the default. Turn it off if
    /// every thread draws its own batch. Results do not depend on it.
    pub fn set_parallel(&mut self, parallel: bool) {
        self.hop.parallel = parallel;
    }

    /// Transposes a block, on all threads of the pool if [`Workspace::set_parallel`] allows it.
    pub fn transpose(&self, block: &mut Block) {
        if self.hop.parallel { block.par_transpose() } else { block.transpose() }
    }
}
