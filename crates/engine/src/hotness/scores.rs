//! Scores of nodes by a hotness metric, from the graph or from the minibatches of a run.

use std::sync::Arc;

use graphmill_core::{NodeId, progress::Progress};
use graphmill_data::Dataset;
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    MinibatchSampler,
    feature::Host,
    hotness::{self, Setting, Visits},
    link::LinkSource,
    order::SeedOrder,
};

use super::visits::OrderedVisits;
use crate::{
    Error, Result, TrainConfig, build,
    config::{Bottom, Fanout},
    label_inputs::LabelColumns,
    reuse::ReusePlan,
    stage::{Loader, RowAccess},
};

/// Score of every node by the metric `name`, for a run with these options.
///
/// # Errors
/// An unknown metric, an impossible option, or `watch` stops the work.
pub fn scores(name: &str, config: &TrainConfig, data: &Dataset, watch: &dyn Progress) -> Result<Vec<f64>> {
    let (sampler, order) = (build::sampler(config, data)?, build::order(config, data)?);
    scores_with(name, config, data, &*sampler, &*order, None, watch)
}

/// [`scores`] of a run with a given sampler and order, whose batches reuse rows by this plan, if
/// they do, unless `watch` stops the work. Rows that only reused rows are made from are not
/// requested.
pub(crate) fn scores_with(
    name: &str,
    config: &TrainConfig,
    data: &Dataset,
    sampler: &dyn MinibatchSampler,
    order: &dyn SeedOrder,
    reuse: Option<&ReusePlan>,
    watch: &dyn Progress,
) -> Result<Vec<f64>> {
    Ok(counted(name, config, data, sampler, order, (reuse, None, None), watch)?.0)
}

/// [`scores_with`] for a rank's shares of the batches, if `own` has their owners, or for batches of
/// `links`, whose ends take the place of the training nodes. Also returns the number of batches
/// that were drawn.
pub(crate) fn counted(
    name: &str,
    config: &TrainConfig,
    data: &Dataset,
    sampler: &dyn MinibatchSampler,
    order: &dyn SeedOrder,
    (reuse, own, links): (Option<&ReusePlan>, Option<&Arc<NodeOwnership>>, Option<&LinkSource>),
    watch: &dyn Progress,
) -> Result<(Vec<f64>, u64)> {
    let upper;
    let config = match config.fanout.0.split_last() {
        // expectations of the nodes that read stored aggregates in the place of the bottom hop
        Some((_, hops @ [_, ..])) if config.bottom == Bottom::Exact => {
            upper = TrainConfig { fanout: Fanout(hops.to_vec()), ..config.clone() };
            &upper
        }
        _ => config,
    };
    let unread = Host::new(&data.features);
    let loader = Loader { own: own.cloned(), links, ..loader(config, data, sampler, order, &unread)? };
    let visits = OrderedVisits::new(&loader, watch).with_reuse(reuse);
    let ends = links.map(ends);
    let mut setting = setting(config, data, &loader, &visits, config.epochs as u64);
    if let Some(ends) = &ends {
        setting.train = ends;
    }
    Ok((scored(name, &setting, watch)?, visits.drawn()))
}

/// Distinct ends of the edges to learn, in ascending order.
fn ends(links: &LinkSource) -> Vec<NodeId> {
    let mut ends: Vec<NodeId> = links.edges.iter().flat_map(|&(u, v)| [u, v]).collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// Scores of a setting, unless `watch` stops the drawing of batches.
fn scored(name: &str, setting: &Setting, watch: &dyn Progress) -> Result<Vec<f64>> {
    let scores = hotness::score(name, setting);
    // an error may stem from batches that were not drawn
    watch.check()?;
    scores.map_err(Error::usage)
}

/// Input of hotness metrics.
pub(super) fn setting<'s>(
    config: &'s TrainConfig,
    data: &'s Dataset,
    loader: &Loader,
    visits: &'s dyn Visits,
    epochs: u64,
) -> Setting<'s> {
    Setting {
        graph: &data.graph,
        train: &data.split.train,
        fanout: &config.fanout,
        draws_subgraphs: loader.sampler.properties().subgraphs.is_some(),
        batch_size: loader.batch_size,
        seed: config.seed,
        epochs,
        visits,
    }
}

/// Loader of a run without its model. Every input node is requested once per batch.
///
/// # Errors
/// The dataset has no training nodes.
pub fn loader<'a>(
    config: &TrainConfig,
    data: &'a Dataset,
    sampler: &'a dyn MinibatchSampler,
    order: &'a dyn SeedOrder,
    feature: &'a Host,
) -> Result<Loader<'a>> {
    if data.split.train.is_empty() {
        return Err(Error::without(
            &data.name,
            "training nodes",
            "--split random:0.6,0.2,0.2",
            "train_mask=",
        ));
    }
    let batch_size = if config.batch_size == 0 { data.split.train.len() } else { config.batch_size };
    Ok(Loader {
        graph: &data.graph,
        train: &data.split.train,
        links: None,
        seed: config.seed,
        batch_size,
        max_batches: config.max_batches,
        order,
        sampler,
        feature,
        rows: RowAccess::Gathered,
        transposed: 0,
        symmetric: None,
        aggregation: graphmill_core::block::Aggregation::Mean,
        own: None,
        labels: LabelColumns::for_training(config, data, batch_size)?,
        ahead: None,
    })
}
