//! `--bottom exact`: the bottom hop of every batch reads stored aggregates of all neighbours.
//!
//! The feature table then has `2 V` rows, the features and their aggregates
//! ([`graphmill_data::bottom_hop`]), and the sampler reads the second half in the place of its last
//! hop ([`ExactBottom`]). Layers, gradients and strategies are those of sampled runs, and inference
//! reads the features alone. Both rows of a node are read by the same batches, so caches score them
//! alike; tiers read the file of the aggregates in the place of that of the features.

#![forbid(unsafe_code)]

use std::path::Path;

use graphmill_core::{block::Aggregation, features::FeatureData};
use graphmill_data::{Dataset, bottom_hop, dataset::StoredTable};
use graphmill_loader::{
    feature::Host,
    hotness,
    sampler::{self, ExactBottom, MinibatchSampler},
};
use graphmill_nn::{Matrix, model::Model};

use crate::{
    Error, Result, TrainConfig, build,
    config::{Bottom, Switch, link_task::is_link},
    memory::{self, MemoryPlacement},
    strategy,
};

/// Aggregation of the stored bottom hop of a run; `None` with `--bottom sampled`.
///
/// # Errors
/// The run cannot read its bottom hop from stored aggregates.
pub(crate) fn aggregation(
    config: &TrainConfig,
    data: &Dataset,
    model: &Model,
    is_alone: bool,
) -> Result<Option<Aggregation>> {
    if config.bottom == Bottom::Sampled {
        return Ok(None);
    }
    let refuse = |why: String| Err(Error::usage(format!("--bottom exact: {why}, or --bottom sampled")));
    let can_skip = |sampler: &sampler::SamplerKind| sampler.has_exact_bottom;
    if !sampler::TABLE.get(&config.sampler).is_none_or(|entry| can_skip(&entry.make)) {
        let able = sampler::TABLE.iter().filter(|entry| can_skip(&entry.make)).map(|entry| entry.name);
        return refuse(format!(
            "all neighbours with equal weights are not the mean of what --sampler {} draws; use --sampler {}",
            config.sampler,
            able.collect::<Vec<_>>().join(" or ")
        ));
    }
    if !is_alone {
        return refuse("a rank does not hold the rows of all neighbours; train in one process".into());
    }
    if is_link(config) {
        return refuse(
            "stored aggregates include the edges that a batch of links must not read; use --task \
                       with a task of nodes"
                .into(),
        );
    }
    if strategy::draws_in_parts(config) {
        return refuse(
            "reused rows of the bottom layer are made from sampled neighbours; use --reuse none".into(),
        );
    }
    if !config.cuda_devices().is_empty() || strategy::is_by_device(config) {
        return refuse(
            "devices that train do not hold aggregates; use --devices cpu or virtual:N with --strategy \
             sequential or pipelined"
                .into(),
        );
    }
    for (flag, policy) in [("cache", &config.cache), ("host-cache", &config.host_cache)] {
        if hotness::counted_epochs(policy).is_ok_and(|epochs| epochs.is_some()) {
            return refuse(format!("--{flag} {policy} counts nodes, not their aggregates; use presc:2"));
        }
    }
    if matches!(data.features.data, FeatureData::Csr(_)) {
        return refuse("aggregates of sparse features are dense; import the features as dense rows".into());
    }
    if config.fused == Switch::On {
        return refuse(
            "the bottom hop has one row for each destination, which is copied; use --fused auto".into(),
        );
    }
    let Some(aggregation) = model.fixed_bottom() else {
        return refuse(format!(
            "the aggregate of the features in the bottom layer of --model {} depends on parameters or on \
             dropout, or is no row of its own; use --model gcn, gin, or sage with --aggregator mean and \
             --sage-combine add, without --input-layer and --input-dropout",
            config.model
        ));
    };
    Ok(Some(aggregation))
}

/// The sampler of a run whose bottom hop is stored, if `bottom` says so.
///
/// # Errors
/// The graph has too many nodes.
pub(crate) fn sampler(
    bottom: Option<Aggregation>,
    sampler: Box<dyn MinibatchSampler>,
    data: &Dataset,
) -> Result<Box<dyn MinibatchSampler>> {
    Ok(match bottom {
        Some(_) => Box::new(ExactBottom::new(sampler, data.num_nodes())?),
        None => sampler,
    })
}

/// A dataset whose feature rows are followed by their aggregates.
pub(crate) struct Stacked {
    pub(crate) data: Dataset,
    /// The file of these rows, if the dataset is in a directory.
    pub(crate) file: Option<StoredTable>,
}

impl Stacked {
    /// Opens the stored aggregates, which are made if they are missing or of other data.
    ///
    /// # Errors
    /// The aggregates cannot be stored.
    pub(crate) fn new(config: &TrainConfig, data: &Dataset, aggregation: Aggregation) -> Result<Self> {
        let chosen = (!config.bottom_dir.is_empty()).then(|| Path::new(&config.bottom_dir));
        let dir = chosen.or(data.directory.as_deref());
        let made = bottom_hop::stacked(&data.graph, &data.features, aggregation, dir);
        let features = made.map_err(|error| {
            let remedy = "choose another directory with --bottom-dir, or use --bottom sampled";
            match error {
                error @ graphmill_core::Error::Io { .. } => {
                    let message = "--bottom exact: the aggregates cannot be stored";
                    Error::usage(format!("{message}: {error}; {remedy}"))
                }
                error => error.into(),
            }
        })?;
        let file = dir.and_then(|dir| bottom_hop::stored(&features, aggregation, dir));
        Ok(Self { data: Dataset { features, ..data.clone() }, file })
    }

    /// Memory of the rows, for a run that places those of the dataset in this one.
    pub(crate) fn placement(&self, config: &TrainConfig, of_rows: MemoryPlacement) -> MemoryPlacement {
        match of_rows {
            MemoryPlacement::HugePages => memory::placements(config, &self.data).features,
            MemoryPlacement::Mapped => MemoryPlacement::Mapped,
        }
    }
}

/// The stacked rows in host memory, for batches, and the table of the feature rows of `data`, for
/// inference.
///
/// # Errors
/// As [`build::features`].
pub(crate) fn features(
    config: &TrainConfig,
    data: &Dataset,
    stacked: &Stacked,
    placement: MemoryPlacement,
) -> Result<(Host, Matrix)> {
    let rows = build::rows(config, &stacked.data, stacked.placement(config, placement))?;
    // inference reads the rows where the dataset has them
    let (_, table) = build::features(config, data, MemoryPlacement::Mapped)?;
    Ok((rows, table))
}
