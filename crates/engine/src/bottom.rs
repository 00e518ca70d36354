//! `--bottom exact`: the bottom hop of every batch reads stored aggregates of all neighbours.
//!
//! The feature table then has `2 V` rows, the features and their aggregates
//! ([`graphmill_data::bottom_hop`]), and the sampler reads the second half in the place of its last
//! hop ([`ExactBottom`]). Layers, gradients and strategies are those of sampled runs. Inference
//! over all neighbours reads the second half in the place of the neighbours of the first layer.
//! Both rows of a node are read by the same batches, so caches score them alike; tiers read the
//! file of the aggregates in the place of that of the features. Over ranks the owner of a node has
//! both rows, and stores the aggregates of its parts.
//!
//! Rows that batches reuse (`--reuse`) are computed from the same two rows of each node, without a
//! draw, so they are exact but for the age of the parameters.
//!
//! `--bottom auto` is resolved before a run begins, and the run records the choice.

#![forbid(unsafe_code)]

use std::{borrow::Cow, path::Path};

use graphmill_core::{NodeId, block::Aggregation, features::FeatureData};
use graphmill_data::{Dataset, bottom_hop, dataset::StoredTable};
use graphmill_loader::sampler::{self, ExactBottom, MinibatchSampler};
use graphmill_nn::model::Model;

use crate::{
    Error, Result, RunDir, TrainConfig, build,
    config::{Bottom, Fanout, Switch, link_task::is_link},
    distributed::RankDataset,
    link::structure,
    memory::{self, MemoryPlacement},
    tiers::AllRows,
};

/// Aggregation of the stored bottom hop of a run, in one process or with the rank's `view` of its
/// dataset; `None` without `--bottom exact`.
///
/// # Errors
/// The run cannot read its bottom hop from stored aggregates.
pub(crate) fn aggregation(
    config: &TrainConfig,
    data: &Dataset,
    model: &Model,
    view: Option<&RankDataset>,
) -> Result<Option<Aggregation>> {
    if config.bottom != Bottom::Exact {
        return Ok(None);
    }
    match possible(config, data, model, view) {
        Ok(aggregation) => Ok(Some(aggregation)),
        Err(why) => Err(Error::usage(format!("--bottom exact: {why}, or --bottom sampled"))),
    }
}

/// The configuration of a run with the neighbours of the bottom hop that `--bottom auto` chooses,
/// and a note with the reason. A run that is resumed keeps the choice in its directory. All ranks
/// call this at the same time, with their `view`, and make the same choice.
///
/// # Errors
/// The model or an option is impossible, the options of the run to resume cannot be read, or a rank
/// did not take part.
pub(crate) fn chosen<'c>(
    config: &'c TrainConfig,
    data: &Dataset,
    view: Option<&RankDataset>,
    resumed: Option<&RunDir>,
) -> Result<(Cow<'c, TrainConfig>, Option<String>)> {
    if config.bottom != Bottom::Auto {
        return Ok((Cow::Borrowed(config), None));
    }
    let by = |bottom, note| {
        let config = Cow::Owned(TrainConfig { bottom, ..config.clone() });
        Ok((config, Some(format!("--bottom auto: {note}"))))
    };
    let file = resumed.map(|run| RunDir::config_path(run.path())).filter(|file| file.is_file());
    let mut before = None;
    if let Some(file) = file {
        let mut of_run = TrainConfig::default();
        of_run.read_file(&file)?;
        before = Some(of_run.bottom);
    }
    if let Some(view) = view {
        // rank 0 has the directory
        let texts = view.gather_text(&before.map(|bottom| bottom.to_string()).unwrap_or_default())?;
        before = texts.first().and_then(|text| text.parse().ok());
    }
    if let Some(before) = before {
        return by(before, format!("{before}, as before in this run"));
    }
    config.check()?;
    let mut reason = automatic(config, data, view)?.err();
    if let Some(view) = view {
        let texts = view.gather_text(&reason.unwrap_or_default())?;
        reason = texts.into_iter().find(|text| !text.is_empty());
    }
    match reason {
        None => by(Bottom::Exact, "exact: batches read stored aggregates of all neighbours".into()),
        Some(why) => by(Bottom::Sampled, format!("sampled: {why}")),
    }
}

/// Refuses stored aggregates in a run that reads none, for the reason `why`. The command line
/// refuses the options itself; callers in Rust do not pass it.
///
/// # Errors
/// Wrong usage: the option that was set.
pub(crate) fn refuse(config: &TrainConfig, why: &str) -> Result<()> {
    let option = match config.bottom {
        Bottom::Sampled if config.bottom_dir.is_empty() => return Ok(()),
        Bottom::Sampled => format!("--bottom-dir {}", config.bottom_dir),
        chosen => format!("--bottom {chosen}"),
    };
    Err(Error::usage(format!("{option}: {why}; leave it out")))
}

/// Success if `--bottom auto` is `exact`, or the reason why not.
fn automatic(
    config: &TrainConfig,
    data: &Dataset,
    view: Option<&RankDataset>,
) -> Result<std::result::Result<(), String>> {
    let reads_fanout = sampler::TABLE.get(&config.sampler).is_some_and(|entry| entry.make.reads("fanout"));
    if reads_fanout && config.fanout.0.last() != Some(&Fanout::ALL) {
        let why =
            format!("the last number of --fanout {} is not -1; use -1 for all neighbours", config.fanout);
        return Ok(Err(why));
    }
    if config.label_inputs > 0.0 {
        return Ok(Err(
            "--label-inputs appends columns to the features, of which no aggregate is stored".into()
        ));
    }
    let model = build::model_of_shapes(config, data)?;
    let aggregation = match possible(config, data, &model, view) {
        Ok(aggregation) => aggregation,
        Err(why) => return Ok(Err(why)),
    };
    let can_store = match (view, directory(config, data)) {
        (Some(view), _) => view.can_store_aggregates(config, aggregation),
        (None, Some(dir)) => bottom_hop::can_store(&data.features, aggregation, dir),
        (None, None) => Ok(()),
    };
    Ok(can_store.map_err(|why| format!("{why}; choose another directory with --bottom-dir")))
}

/// Directory of the aggregates; `None` if they stay in memory, as the dataset does.
fn directory<'d>(config: &'d TrainConfig, data: &'d Dataset) -> Option<&'d Path> {
    let chosen = (!config.bottom_dir.is_empty()).then(|| Path::new(&config.bottom_dir));
    chosen.or(data.directory.as_deref())
}

/// Aggregation of the bottom hop, or the reason why aggregates cannot be stored, with a remedy.
fn possible(
    config: &TrainConfig,
    data: &Dataset,
    model: &Model,
    view: Option<&RankDataset>,
) -> std::result::Result<Aggregation, String> {
    let can_skip = |sampler: &sampler::SamplerKind| sampler.has_exact_bottom;
    if !sampler::TABLE.get(&config.sampler).is_none_or(|entry| can_skip(&entry.make)) {
        let able = sampler::TABLE.iter().filter(|entry| can_skip(&entry.make)).map(|entry| entry.name);
        return Err(format!(
            "all neighbours with equal weights are not the mean of what --sampler {} draws; use --sampler {}",
            config.sampler,
            able.collect::<Vec<_>>().join(" or ")
        ));
    }
    if is_link(config) {
        return Err("stored aggregates include the edges that a batch of links must not read; use --task \
                       with a task of nodes"
            .into());
    }
    if !config.cuda_devices().is_empty() {
        return Err("NVIDIA devices do not hold aggregates; use --devices cpu or virtual:N".into());
    }
    // a rank has the layout of the rows, which may be that of dense ones that are stored sparse
    if matches!(data.features.data, FeatureData::Csr(_)) || view.is_some_and(RankDataset::is_stored_sparse) {
        return Err("aggregates of sparse features are dense; import the features as dense rows".into());
    }
    if config.fused == Switch::On {
        return Err(
            "the bottom hop has one row for each destination, which is copied; use --fused auto".into()
        );
    }
    let Some(aggregation) = model.fixed_bottom() else {
        return Err(format!(
            "the aggregate of the features in the bottom layer of --model {} depends on parameters or on \
             dropout, or is no row of its own; use --model gcn, gin, or sage with --aggregator mean and \
             --sage-combine add, without --input-layer and --input-dropout",
            config.model
        ));
    };
    Ok(aggregation)
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
        let (dir, verify) = (directory(config, data), config.verify.at_opening());
        let made = bottom_hop::stacked(&data.graph, &data.features, aggregation, dir, verify);
        let features = made.map_err(|error| not_stored(error.into()))?;
        let file = dir.and_then(|dir| bottom_hop::stored(&features, aggregation, dir));
        Ok(Self { data: Dataset { features, ..data.clone() }, file })
    }

    /// Opens the aggregates of a run with `--bottom exact`, if they are stored for this dataset.
    fn opened(config: &TrainConfig, data: &Dataset) -> Option<(Self, Aggregation)> {
        let dir = directory(config, data).filter(|_| config.bottom == Bottom::Exact)?;
        // ids number both rows of a node
        NodeId::try_from(data.num_nodes().checked_mul(2)?).ok()?;
        // who reads the rows reports a model that does not fit
        let structure = || structure::without_edges(config, data.num_nodes());
        let model = build::model_of(config, data, data.labels.classes().max(1), structure).ok()?;
        let aggregation = model.fixed_bottom()?;
        let verify = config.verify.at_opening();
        let features = bottom_hop::opened(&data.graph, &data.features, aggregation, dir, verify)?;
        let file = bottom_hop::stored(&features, aggregation, dir);
        Some((Self { data: Dataset { features, ..data.clone() }, file }, aggregation))
    }

    /// Memory of the rows, for a run that places those of the dataset in this one.
    pub(crate) fn placement(&self, config: &TrainConfig, of_rows: MemoryPlacement) -> MemoryPlacement {
        match of_rows {
            MemoryPlacement::HugePages => memory::placements(config, &self.data).features,
            MemoryPlacement::Mapped => MemoryPlacement::Mapped,
        }
    }
}

/// Stores the aggregates of a rank's nodes, unless they are stored, and puts those of all nodes
/// behind their features. All ranks call this at the same time.
///
/// # Errors
/// The aggregates cannot be stored, or a rank did not take part.
pub(crate) fn add_over_ranks(
    config: &TrainConfig,
    view: &RankDataset,
    aggregation: Aggregation,
) -> Result<()> {
    view.add_aggregates(config, aggregation).map_err(not_stored)
}

/// Error of aggregates that cannot be stored, with a remedy if a file cannot be written.
fn not_stored(error: Error) -> Error {
    let remedy = "choose another directory with --bottom-dir, or use --bottom sampled";
    match error {
        Error::Graph(error @ graphmill_core::Error::Io { .. }) => {
            let message = "--bottom exact: the aggregates cannot be stored";
            Error::usage(format!("{message}: {error}; {remedy}"))
        }
        error => error,
    }
}

/// All feature rows of `data` for inference of a run, followed by the aggregates that the run
/// stored if they are there and of this dataset.
///
/// # Errors
/// As [`AllRows::new`].
pub(crate) fn all_rows(config: &TrainConfig, data: &Dataset) -> Result<AllRows> {
    match Stacked::opened(config, data) {
        Some((Stacked { data, file }, aggregation)) => {
            Ok(AllRows::of_file(config, &data, file)?.with_aggregates(aggregation))
        }
        None => AllRows::new(config, data),
    }
}
