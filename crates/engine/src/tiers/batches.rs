//! Minibatches of a run, from which the sizes and contents of tiers follow.

use std::{sync::Arc, time::Instant};

use graphmill_core::progress::{Progress, Unit};
use graphmill_data::Dataset;
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{MinibatchSampler, link::LinkSource, order::SeedOrder};

use crate::{
    Result, TrainConfig,
    hotness::scores::counted,
    record::{PresamplingCost, PresamplingRecord},
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
    /// Edges to learn, in a run on links: their ends and those of negatives are the seeds.
    pub(crate) links: Option<&'b LinkSource>,
    /// Collects the cost of counting them.
    pub(crate) cost: Option<&'b PresamplingCost>,
    /// Watches the counting, and may stop it.
    pub(crate) progress: &'b dyn Progress,
}

impl Batches<'_> {
    /// Score of every row by a metric of hotness: of every node, and of its aggregate, if
    /// aggregates follow the rows of the nodes.
    ///
    /// # Errors
    /// An unknown metric, an impossible option, or the progress stops the work.
    pub(crate) fn scores(&self, policy: &str) -> Result<Vec<f64>> {
        let Self { config, data, sampler, order, reuse, own, links, cost, progress } = *self;
        progress.stage(&format!("ranking the nodes by {policy}"), None, Unit::Rows);
        let clock = Instant::now();
        let (mut scores, drawn_batches) =
            counted(policy, config, data, sampler, order, (reuse, own, links), progress)?;
        if let Some(cost) = cost.filter(|_| drawn_batches > 0) {
            let seconds = clock.elapsed().as_secs_f64();
            cost.add(PresamplingRecord { drawn_batches, counted_batches: 0, seconds });
        }
        let follow = match own {
            // the dataset of a rank holds no rows
            Some(_) => config.bottom.rows_per_node() > 1,
            None => data.features.len() > scores.len() * data.features.dim,
        };
        if follow {
            // a batch reads the aggregate of a node if it reads its row
            scores.extend_from_within(..);
        }
        Ok(scores)
    }
}
