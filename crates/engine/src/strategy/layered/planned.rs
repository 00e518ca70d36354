//! The plan of a run's super-batches, settled at the start of the run.

use std::sync::Arc;

use graphmill_data::Dataset;
use graphmill_loader::{Feature, MinibatchSampler, Seeds, Workspace, feature::Host, order::SeedOrder};
use graphmill_nn::{backend::Cpu, cost::BlockShape};

use super::{HotSplit, LayeredOptions, split, super_batch::SuperBatchMaker};
use crate::{
    Result, TrainConfig, build,
    hotness::scores::loader,
    learner::Learner,
    memory,
    reuse::ReusePlan,
    stage::Loader,
    strategy::{batches_per_update, interface::StrategyContext},
};

/// Maker of a run's super-batches. At the start of a run, settles their length, the number of hot
/// nodes and the memory for their rows; a resumed run has those of its start.
///
/// # Errors
/// As [`SuperBatchMaker::new`], or a hop cannot be drawn.
pub(super) fn maker(
    context: &StrategyContext,
    loader: &Loader,
    learner: &Learner,
) -> Result<SuperBatchMaker> {
    let config = context.config;
    let round = batches_per_update(config);
    let mut maker = SuperBatchMaker::new(context, loader, learner, round)?;
    let position = learner.history.position();
    if position.length > 0 {
        maker.split *= position.share.unwrap_or(1.0);
        maker.reserved = position.reserved.unwrap_or(usize::MAX);
        return Ok(maker);
    }
    let has_budget = config.device_budget.0 > 0;
    let is_planned = !matches!(config.own.get::<LayeredOptions>().hot_split, HotSplit::Share(_));
    if has_budget && is_planned {
        // shares of the rows that there are, not of all that there may be
        maker.plan.max_hot = maker.plan.held_rows(context.exchange, loader)?;
    }
    learner.history.set_start(maker.plan.length, round, maker.plan.max_hot);
    let share = is_planned.then(|| split::choose(context, loader, learner, &maker.plan)).transpose()?;
    maker.split *= share.unwrap_or(1.0);
    // devices reserve memory for the rows that there are, too
    let reserved = has_budget.then(|| maker.next_plan().held_rows(context.exchange, loader)).transpose()?;
    learner.history.assign(share, reserved);
    maker.reserved = reserved.unwrap_or(usize::MAX);
    Ok(maker)
}

/// Plan of the super-batches of a run that has not begun, for the tiers of its devices and for
/// predictions.
///
/// # Errors
/// The model does not support the options, a metric of hotness cannot be computed, or the options
/// do not fit the dataset.
pub fn reuse_plan(
    config: &TrainConfig,
    data: &Dataset,
    sampler: &dyn MinibatchSampler,
    order: &dyn SeedOrder,
) -> Result<ReusePlan> {
    let feature: Arc<dyn Feature> = Arc::new(Host::new(&data.features));
    reuse_plan_of(&StrategyContext::new(config, data, sampler, order, &feature))
}

/// [`reuse_plan`] of a run with this context. If it has other ranks, all ranks call this at the
/// same time and get the same plan.
///
/// # Errors
/// As [`reuse_plan`], or a rank did not take part.
pub(crate) fn reuse_plan_of(context: &StrategyContext) -> Result<ReusePlan> {
    let StrategyContext { config, data, sampler, order, .. } = *context;
    let unread = Host::new(&data.features);
    let mut loader = loader(config, data, sampler, order, &unread)?;
    (loader.feature, loader.own) = (&**context.feature, context.own.cloned());
    let model = build::model(config, data)?;
    loader.symmetric = build::symmetric(&model, data);
    loader.aggregation = model.aggregation();
    let (mut seeds, mut space) = (Vec::new(), Workspace::new(data.num_nodes()));
    loader.first(0, 1, &mut seeds);
    let first = loader.sample(0, &mut space, loader.pick(0, &seeds, 0, Seeds::default())?)?;
    let shapes: Vec<BlockShape> = first.blocks.iter().map(BlockShape::from).collect();
    let mut orders = model.orders(&shapes);
    if memory::keeps_sparse(config, data) {
        model.start_with_product(&mut orders);
    }
    let backend = Cpu { precision: build::precision(config) };
    let learner = Learner::new(&backend, model, build::optimizer(config)?, &data.labels, orders, config);
    let plan = maker(context, &loader, &learner)?.reserved_plan();
    let held = plan.held_rows(context.exchange, &loader)?;
    Ok(plan.with_max_hot(held))
}
