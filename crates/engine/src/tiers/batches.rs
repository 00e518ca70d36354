//! Minibatches of a run, from which the sizes and contents of tiers follow.

use std::sync::Arc;

use graphmill_core::progress::Progress;
use graphmill_data::Dataset;
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{MinibatchSampler, order::SeedOrder};

use crate::{
    Result, TrainConfig,
    hotness::scores::{scores_of_rank, scores_with},
    reuse::ReusePlan,
};

/// Minibatches of a run, or a rank's shares of them.
#[derive(Clone, Copy)]
pub(crate) struct Batches<'b> {
    pub(crate) config: &'b TrainConfig,
    pub(crate) data: &'b Dataset,
    pub(crate) sampler: &'b dyn MinibatchSampler,
    pub(crate) order: &'b dyn SeedOrder,
    /// Plan of the rows that they reuse, if they do.
    pub(crate) reuse: Option<&'b ReusePlan>,
    /// Owners of the nodes, if several ranks share each batch.
    pub(crate) own: Option<&'b Arc<NodeOwnership>>,
}

impl Batches<'_> {
    /// Score of every node by a metric of hotness.
    ///
    /// # Errors
    /// An unknown metric, an impossible option, or `watch` stops the work.
    pub(crate) fn scores(&self, policy: &str, watch: &dyn Progress) -> Result<Vec<f64>> {
        let Self { config, data, sampler, order, reuse, own } = *self;
        match own {
            Some(own) => scores_of_rank(policy, config, data, sampler, order, own),
            None => scores_with(policy, config, data, sampler, order, reuse, watch),
        }
    }
}
