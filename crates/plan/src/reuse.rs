//! Costs of rows that the host makes once for several minibatches (`--reuse layered`), measured on
//! the first super-batch.

use std::time::Instant;

use graphmill_core::NodeId;
use graphmill_data::Dataset;
use graphmill_engine::{
    Error, Result, TrainConfig,
    config::Switch,
    learner::Learner,
    reuse::{Embeddings, Preview, ReusePlan, RowMaker, RowVersion},
    stage::{DrawAhead, Loader},
    strategy::{Chosen, HotSplit, LayeredOptions, reuse_plan},
};
use graphmill_loader::{MinibatchSampler, Seeds, Workspace, order::SeedOrder};
use serde::{Deserialize, Serialize};

/// Number of times that the rows are made; the fastest counts.
const TIMES: usize = 3;

/// Costs of reused rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReusedRows {
    /// Seconds of the host, on all cores, to make rows, per minibatch.
    pub make: f64,
    /// Bytes of rows that cross the link, per minibatch.
    pub moved: f64,
    /// Bytes of the tables of rows on each device that trains.
    pub table: f64,
    /// True if the host makes rows while devices train.
    pub ahead: bool,
}

impl ReusedRows {
    /// Names and values of the numbers, which are at least 0.
    pub(crate) fn numbers(&self) -> [(&'static str, f64); 3] {
        [("reuse.make", self.make), ("reuse.moved", self.moved), ("reuse.table", self.table)]
    }
}

/// Plan of the super-batches of a run on devices, if its batches reuse rows.
///
/// # Errors
/// The options contradict each other or the dataset.
pub(crate) fn plan_of(
    config: &TrainConfig,
    data: &Dataset,
    sampler: &dyn MinibatchSampler,
    order: &dyn SeedOrder,
) -> Result<Option<ReusePlan>> {
    let chosen = Chosen::find(config)?;
    if !chosen.reuses_rows() {
        return Ok(None);
    }
    chosen.check(config, sampler)?;
    if config.own.get::<LayeredOptions>().hot_split == HotSplit::Timed {
        return Err(Error::usage(
            "--hot-split timed: a run changes the share by the time that its devices wait, which a profile \
             does not measure; use a share from 0 to 1, or auto, which is predicted as 1",
        ));
    }
    let mut run = config.clone();
    run.devices = "virtual:1".parse().map_err(|e| Error::usage(format!("--devices virtual:1: {e}")))?;
    // as settled on devices
    let options = run.own.get_mut::<LayeredOptions>();
    if options.hot_prefetch == Switch::Auto {
        options.hot_prefetch = Switch::On;
    }
    reuse_plan(&run, data, sampler, order).map(Some)
}

/// Lets batches reuse the rows of the first super-batch, and measures their costs. Also returns the
/// number of its batches.
///
/// # Errors
/// As for training.
pub(crate) fn reuse_rows(
    plan: &ReusePlan,
    loader: &mut Loader,
    learner: &mut Learner,
    seeds: &[NodeId],
) -> Result<(ReusedRows, u64)> {
    let Preview { batches, reuse } = plan.preview(loader, seeds, 0, 0);
    let count = (batches.end - batches.start).max(1);
    let (nodes, mut rows) = (reuse.ahead.slots.nodes(), Embeddings::default());
    plan.shape.resize(&mut rows, nodes.len(), u64::MAX);
    let mut maker = RowMaker::new(&learner.model, loader.graph.num_nodes());
    let (steps, snapshot) = (learner.context.detached(), Default::default());
    let mut least = f64::INFINITY;
    for _ in 0..TIMES {
        let clock = Instant::now();
        let from = RowVersion { batch: (0, 0), version: 0, snapshot: &snapshot, rank: 0 };
        maker.make(loader, &steps, from, nodes, 0, &mut rows)?;
        least = least.min(clock.elapsed().as_secs_f64());
    }
    let mut space = Workspace::new(loader.graph.num_nodes());
    for number in batches.clone() {
        // later draws include the blocks that were drawn ahead
        reuse.ahead.complete(loader, seeds, number, &mut space, Seeds::default())?;
    }
    let each = |sum: f64| sum / count as f64;
    let moved = each(nodes.len() as f64 * plan.shape.bytes() as f64);
    let table = plan.table_bytes() as f64;
    let costs = ReusedRows { make: each(least), moved, table, ahead: plan.tables > 1 };
    loader.ahead = Some(reuse.ahead.clone());
    learner.context.reuse = Some(reuse);
    Ok((costs, count))
}
