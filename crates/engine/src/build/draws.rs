//! Samplers and orders of the seeds of a run, with the tables that they precompute.

use std::{path::Path, sync::Arc};

use graphmill_core::{
    NodeId,
    options::{OptionGroup, OptionSet},
    progress::{Progress, Quiet},
    table,
};
use graphmill_data::{Dataset, npy, partition::PartitionDir};
use graphmill_loader::{
    order,
    sampler::{self, WeightOptions, inference::InferenceNeighbors, weighted::EdgeWeights},
    subgraph::cluster::ClusterOptions,
};

use crate::{Error, Result, TrainConfig};

/// The sampler, with its tables of the dataset's graph and training nodes.
///
/// # Errors
/// An unknown name or an impossible option.
pub fn sampler(config: &TrainConfig, data: &Dataset) -> Result<Box<dyn sampler::MinibatchSampler>> {
    sampler_watched(config, data, &Quiet)
}

/// [`sampler()`], whose precomputations `progress` watches.
///
/// # Errors
/// As [`sampler()`], or `progress` stops the work.
pub(crate) fn sampler_watched(
    config: &TrainConfig,
    data: &Dataset,
    progress: &dyn Progress,
) -> Result<Box<dyn sampler::MinibatchSampler>> {
    sampler_by(config, data, progress, sampler::SamplerKind::make)
}

/// [`sampler()`] for batches that reuse rows: one of subgraphs also draws the neighbours of their
/// nodes. `progress` watches the precomputations.
///
/// # Errors
/// As [`sampler()`], or `progress` stops the work.
pub fn sampler_in_parts(
    config: &TrainConfig,
    data: &Dataset,
    progress: &dyn Progress,
) -> Result<Box<dyn sampler::MinibatchSampler>> {
    sampler_by(config, data, progress, sampler::SamplerKind::in_parts)
}

/// Minibatches of the sampler's subgraphs, without neighbours outside of them. An epoch holds
/// `num_nodes` of the graph's nodes once: those that a rank owns.
///
/// # Errors
/// As [`sampler()`], or the sampler draws hops.
pub(crate) fn subgraphs(
    config: &TrainConfig,
    data: &Dataset,
    num_nodes: usize,
) -> Result<sampler::Subgraphs> {
    sampler_by(config, data, &Quiet, |kind, options, source| {
        kind.make_subgraphs(options, &sampler::Source { num_nodes, ..*source })
    })
}

fn sampler_by<T>(
    config: &TrainConfig,
    data: &Dataset,
    progress: &dyn Progress,
    make: impl FnOnce(&sampler::SamplerKind, &sampler::SamplerOptions, &sampler::Source) -> Result<T, String>,
) -> Result<T> {
    let mut options = sampler_options(config, data);
    if reads::<ClusterOptions>(config) {
        options.partition = clusters(&config.own.get::<ClusterOptions>().clusters, data)?;
    }
    by_sampler(config, data, (&options, progress), make)
}

/// Part of every node in the partition at `path`: a partition directory or a `.npy` file; `None` if
/// `path` is empty.
///
/// # Errors
/// The partition cannot be read, has another number of nodes, or is of another dataset.
fn clusters(path: &str, data: &Dataset) -> Result<Option<Arc<[u32]>>> {
    if path.is_empty() {
        return Ok(None);
    }
    let (path, nodes) = (Path::new(path), data.num_nodes());
    let wrong = |message: &str| Error::usage(format!("--clusters {}: {message}", path.display()));
    let parts: Arc<[u32]> = if path.is_dir() {
        let dir = PartitionDir::open(path)?;
        if let (Some(then), Some(now)) = (dir.source_checksum(), &data.checksum)
            && then != now
        {
            return Err(wrong("the partition is of another dataset; partition this dataset"));
        }
        dir.book.of().iter().map(|&part| part.into()).collect()
    } else {
        let file = npy::open(path)?;
        if file.shape.len() != 1 {
            return Err(wrong("the array has several axes; save the part of every node as one axis"));
        }
        file.read_as::<u32>()?.into()
    };
    if parts.len() != nodes {
        let message =
            format!("it has {} nodes and the dataset has {nodes}; partition this dataset", parts.len());
        return Err(wrong(&message));
    }
    Ok(Some(parts))
}

/// The sampler of one hop.
///
/// # Errors
/// An unknown name, an impossible option, or a sampler of subgraphs.
pub(crate) fn hop_sampler(config: &TrainConfig, data: &Dataset) -> Result<Arc<dyn sampler::HopSampler>> {
    by_sampler(config, data, (&sampler_options(config, data), &Quiet), sampler::SamplerKind::hop)
}

/// Neighbours that inference aggregates: all, weighted as the sampler's draws are on average.
///
/// # Errors
/// An unknown name or an impossible option.
pub fn inference_neighbors(config: &TrainConfig, data: &Dataset) -> Result<InferenceNeighbors> {
    by_sampler(config, data, (&sampler_options(config, data), &Quiet), sampler::SamplerKind::inference)
}

/// Calls `make` of the configured sampler's row of the table.
fn by_sampler<T>(
    config: &TrainConfig,
    data: &Dataset,
    (options, progress): (&sampler::SamplerOptions, &dyn Progress),
    make: impl FnOnce(&sampler::SamplerKind, &sampler::SamplerOptions, &sampler::Source) -> Result<T, String>,
) -> Result<T> {
    let entry = sampler::TABLE.find(&config.sampler).map_err(Error::name)?;
    let source = sampler::Source { progress, ..sampler::Source::new(&data.graph, &data.split.train) };
    let made = make(&entry.make, options, &source);
    made.map_err(|message| unless_stopped(progress, format!("--sampler {}: {message}", config.sampler)))
}

/// Error of a constructor that `progress` watched: that of a stop, or `message` about an option.
fn unless_stopped(progress: &dyn Progress, message: String) -> Error {
    progress.check().err().map_or_else(|| Error::usage(message), Error::from)
}

/// Returns true if inference weights edges by the out-degrees of their sources.
#[cfg(feature = "tables")]
pub(crate) fn weighs_by_out_degree(config: &TrainConfig) -> bool {
    let WeightOptions { edge_weights } = config.own.get();
    let is_out_degree = matches!(edge_weights, EdgeWeights::OutDegree | EdgeWeights::InverseOutDegree);
    is_out_degree && reads::<WeightOptions>(config)
}

/// Returns true if the sampler uses the edge weights that the graph may store.
pub(crate) fn draws_by_stored_weights(config: &TrainConfig) -> bool {
    let WeightOptions { edge_weights } = config.own.get();
    edge_weights == EdgeWeights::Stored && reads::<WeightOptions>(config)
}

/// Returns true if the sampler has the options `T`.
fn reads<T: OptionSet>(config: &TrainConfig) -> bool {
    let reads = |entry: &table::Entry<_>| entry.options.contains(&OptionGroup::of::<T>());
    sampler::TABLE.get(&config.sampler).is_some_and(reads)
}

/// The options that samplers are built from.
pub(crate) fn sampler_options(config: &TrainConfig, data: &Dataset) -> sampler::SamplerOptions {
    sampler::SamplerOptions {
        fanout: config.fanout.clone(),
        seed: config.seed,
        budget: if config.batch_size == 0 { data.num_nodes() } else { config.batch_size },
        own: config.own.clone(),
        partition: None,
    }
}

/// Number of seeds of a batch; all training nodes if `batch_size` is 0.
pub fn batch_size(config: &TrainConfig, data: &Dataset) -> usize {
    if config.batch_size == 0 { data.split.train.len() } else { config.batch_size }
}

/// The order of the seeds, with its precomputed tables.
///
/// # Errors
/// An unknown name or an impossible option.
pub fn order<'d>(config: &TrainConfig, data: &'d Dataset) -> Result<Box<dyn order::SeedOrder + 'd>> {
    order_of(config, data, None, &Quiet)
}

/// [`order`] with `searches` over the whole graph, if `data` is a rank's part of it. `progress`
/// watches the precomputations.
///
/// # Errors
/// As [`order`], or `progress` stops the work.
pub(crate) fn order_of<'d>(
    config: &TrainConfig,
    data: &'d Dataset,
    searches: Option<&'d [Vec<NodeId>]>,
    progress: &'d dyn Progress,
) -> Result<Box<dyn order::SeedOrder + 'd>> {
    let make = order::TABLE.find(&config.order).map_err(Error::name)?.make.make;
    let options = order::OrderOptions {
        seed: config.seed,
        batch_size: batch_size(config, data),
        own: config.own.clone(),
    };
    let source = order::OrderSource {
        graph: &data.graph,
        labels: &data.labels,
        train: &data.split.train,
        searches,
        progress,
    };
    make(&options, &source)
        .map_err(|message| unless_stopped(progress, format!("--order {}: {message}", config.order)))
}
