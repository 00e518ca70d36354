//! The stages of a minibatch's way, each written once and run inline or by workers as the strategy
//! says: `order` picks seeds, `sample` draws blocks, `extract` gathers feature rows (all three here,
//! read-only and shared by any number of threads), `train` updates the model ([`crate::learner`]).

use graphmill_graph::{Graph, NodeId};
use graphmill_loader::{
    Feature, Form, MiniBatch, Sampler, Traffic, Workspace, feature::Rows, order::Order,
    weights::SymmetricWeights,
};

/// The read-only stages. One value serves every worker.
pub struct Loader<'a> {
    /// Who hears from whom.
    pub graph: &'a Graph,
    /// The nodes that train.
    pub train: &'a [NodeId],
    /// The run's seed.
    pub seed: u64,
    /// Seeds per batch, at least 1.
    pub batch_size: usize,
    /// The ordering.
    pub order: Order,
    /// The sampler.
    pub sampler: Box<dyn Sampler>,
    /// The feature rows.
    pub feature: &'a dyn Feature,
    /// Whether the bottom layer reads the feature table in place.
    pub fused: bool,
    /// Which blocks the backward pass wants transposed, a bit each.
    pub transposed: u64,
    /// Degrees, where the model wants symmetric weights.
    pub symmetric: Option<SymmetricWeights>,
}

impl Loader<'_> {
    /// How many batches an epoch has.
    pub fn num_batches(&self) -> u64 {
        self.train.len().div_ceil(self.batch_size) as u64
    }

    /// Stage 1: this epoch's order of the training nodes.
    pub fn order(&self, epoch: u64, out: &mut Vec<NodeId>) {
        (self.order)(self.train, self.seed, epoch, out);
    }

    /// Stage 1, for one batch: takes batch `number`'s seeds from `order`.
    pub fn pick(&self, order: &[NodeId], number: u64, batch: &mut MiniBatch) {
        let start = number as usize * self.batch_size;
        batch.number = number;
        batch.seeds.clear();
        batch.seeds.extend_from_slice(&order[start..(start + self.batch_size).min(order.len())]);
    }

    /// Stage 2: draws the blocks of a batch.
    pub fn sample(&self, epoch: u64, workspace: &mut Workspace, batch: &mut MiniBatch) {
        let form =
            Form { fused: self.fused, transposed: self.transposed, symmetric: self.symmetric.as_ref() };
        self.sampler.sample(self.graph, self.seed, epoch, form, workspace, batch);
    }

    /// Stage 3: gathers the feature rows of the input nodes. On the fast path nothing is gathered,
    /// and what the bottom layer will read is counted.
    pub fn extract(&self, batch: &mut MiniBatch) {
        let dim = self.feature.dim();
        if batch.is_fused() {
            let rows = (batch.blocks[0].num_edges() + batch.blocks[0].num_dst) as u64;
            batch.features.resize(0, dim);
            batch.traffic =
                Traffic { host: Rows { rows, bytes: rows * self.feature.row_bytes() }, ..Traffic::default() };
            return;
        }
        batch.features.resize(batch.input_nodes.len(), dim);
        batch.traffic = self.feature.read(&batch.input_nodes, batch.features.view_mut().host());
    }
}
