//! Components of a run, built from a configuration and a dataset. Training, `eval` and `predict`
//! share them.

#![forbid(unsafe_code)]

mod draws;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use graphmill_core::{
    Features, Labels, NodeId, SparseRows, features::FeatureData, keyed, matrix::TableType, table,
};
use graphmill_data::{
    Dataset,
    dataset::{StoredSparse, StoredTable},
    generate,
    typed::{self, Task, TaskKind, is_typed},
    verification::{ChunkVerifier, Verify},
};
use graphmill_loader::{
    feature::{Disk, DiskOptions, Host, SparseDisk, cached::RowFormat},
    weights::SymmetricWeights,
};
use graphmill_nn::{
    Matrix,
    layer::{self, NormKind},
    link::{
        decoder::{self, Decoder, DecoderConfig},
        structure::PairStructure,
    },
    metric,
    model::{Model, ModelConfig},
    optim::{self, Optimizer},
    regression::TargetScale,
    schedule::{self, Schedule},
};

#[cfg(feature = "tables")]
pub(crate) use draws::weighs_by_out_degree;
pub use draws::{batch_size, inference_neighbors, order, sampler, sampler_in_parts};
pub(crate) use draws::{
    draws_by_stored_weights, hop_sampler, order_of, sampler_options, sampler_watched, subgraphs,
};

pub use crate::memory::precision;
pub(crate) use crate::memory::processor;
use crate::{
    Error, Result, TrainConfig,
    config::{FeaturePrecision, Switch},
    config::{link::LinkOptions, link_task::is_link},
    label_inputs,
    link::structure,
    memory::{self, MemoryPlacement, keeps_sparse, table_type},
};

/// Part of the key of a decoder's initial values.
const DECODER: u64 = 0x6465_636f_6465_7220;

/// Opens the dataset that a configuration names, or the built-in demo graph if it names none.
///
/// # Errors
/// The dataset cannot be read, or the configuration is of a run on a dataset in memory.
pub fn open_dataset(config: &TrainConfig) -> Result<Dataset> {
    if config.is_in_memory() {
        return Err(Error::usage(
            "the options are of a run on a dataset in memory, which is not on disk; pass the DATASET",
        ));
    }
    if config.dataset.is_empty() {
        return Ok(generate::demo()?);
    }
    let (path, verify) = (Path::new(&config.dataset), config.verify.at_opening());
    if is_link(config) { open_graph(path, verify) } else { Ok(Dataset::open_with(path, verify)?) }
}

/// Normalisation of the model's rows.
pub(crate) fn norm(config: &TrainConfig) -> NormKind {
    let has_inner = layer::TABLE.get(&config.model).is_some_and(|entry| entry.make.has_inner_norm);
    config.norm.kind(has_inner)
}

/// The model part of a configuration.
pub fn model_config(config: &TrainConfig) -> ModelConfig {
    ModelConfig {
        model: config.model.clone(),
        hidden: config.hidden,
        layers: config.layers,
        dropout: config.dropout as f32,
        input_dropout: config.input_dropout as f32,
        activation: config.activation,
        init: config.init,
        norm: norm(config),
        residual: config.residual,
        input_layer: config.input_layer,
        head_layers: config.head_layers,
        own: config.own.clone(),
    }
}

/// A model with its initial, random weights. A decoder that reads structure reads that of the graph
/// of `data`.
///
/// # Errors
/// An unknown name or inconsistent numbers; a dataset without features or classes; a width that
/// exceeds the memory of this machine.
pub fn model(config: &TrainConfig, data: &Dataset) -> Result<Model> {
    model_of(config, data, data.labels.classes(), || structure::of_graph(config, &data.graph))
}

/// [`model`] for its shapes and costs: a decoder that reads structure reads that of a graph without
/// edges, so that none has to be sorted.
///
/// # Errors
/// As [`model`].
pub fn model_of_shapes(config: &TrainConfig, data: &Dataset) -> Result<Model> {
    let structure = || structure::without_edges(config, data.num_nodes());
    model_of(config, data, data.labels.classes(), structure)
}

/// [`model`] with the given number of `classes`, independent of the dataset's labels, and the
/// `structure` that the decoder reads, if the model learns links.
///
/// # Errors
/// As [`model`].
pub(crate) fn model_of(
    config: &TrainConfig,
    data: &Dataset,
    classes: usize,
    structure: impl FnOnce() -> Result<Option<Arc<PairStructure>>>,
) -> Result<Model> {
    if data.features.dim == 0 {
        return Err(Error::without_features(&data.name, &config.model));
    }
    if classes == 0 {
        return Err(Error::without(&data.name, "labels", "labels", "y="));
    }
    check_sparse(config, data)?;
    memory::check(config, data)?;
    let inputs = data.features.dim + label_inputs::width(config, classes);
    let model = Model::new(&model_config(config), inputs, classes, config.seed).map_err(by_flag)?;
    Ok(if is_link(config) {
        model.with_decoder(decoder(config, classes, structure()?.as_ref())?)
    } else {
        model
    })
}

/// Refuses options that do not work with sparse rows.
fn check_sparse(config: &TrainConfig, data: &Dataset) -> Result<()> {
    let stored = data.features.stored();
    if config.sparse == Switch::On && !matches!(data.features.data, FeatureData::Csr(_)) {
        return Err(Error::usage(
            "--sparse on: the dataset's features are dense; leave it out, or import the features in a sparse \
             format",
        ));
    }
    if config.sparse != Switch::On || !keeps_sparse(config, data) {
        return Ok(());
    }
    if !matches!(config.feature_precision, FeaturePrecision::Auto | FeaturePrecision::F32) {
        return Err(Error::usage(format!(
            "--feature-precision {}: sparse rows are stored in f32; use --feature-precision auto, or \
             --sparse off",
            config.feature_precision
        )));
    }
    if config.fused == Switch::On {
        return Err(Error::usage(
            "--fused on: the bottom layer multiplies sparse rows before it aggregates them, so it cannot \
             read them in place; use --fused auto, or --sparse off",
        ));
    }
    if stored > u32::MAX as usize {
        let message = format!(
            "its {stored} stored feature values exceed 2^32 - 1, the limit of sparse products; use \
             --sparse off"
        );
        return Err(Error::dataset(&data.name, message));
    }
    Ok(())
}

/// The decoder of embeddings of width `dim`, with its initial values.
fn decoder(config: &TrainConfig, dim: usize, graph: Option<&Arc<PairStructure>>) -> Result<Box<dyn Decoder>> {
    let options: LinkOptions = config.own.get();
    let (hidden, key) = (options.decoder_hidden, keyed::key(&[config.seed, DECODER]));
    let settings = DecoderConfig { dim, hidden, key, graph, ..DecoderConfig::default() };
    (usage(decoder::TABLE.find(&options.decoder))?.make.make)(&settings).map_err(by_flag)
}

/// Opens a dataset of one node type and one edge type, whatever its tasks.
///
/// # Errors
/// The dataset cannot be read, or has several types.
pub(crate) fn open_graph(path: &Path, verify: Verify) -> Result<Dataset> {
    if !is_typed(path) {
        return Ok(Dataset::open_with(path, verify)?);
    }
    let mut typed = typed::open(path, verify)?;
    let is_of_nodes =
        |task: &Task| matches!(task.kind(), Some(TaskKind::NodeClassification | TaskKind::NodeRegression));
    if typed.tasks.is_empty() || typed.tasks.len() == 1 && is_of_nodes(&typed.tasks[0]) {
        return Ok(Dataset::open_with(path, verify)?);
    }
    typed.tasks.clear();
    typed.to_dataset().map_err(|error| Error::dataset(path.display().to_string(), error.to_string()))
}

/// Names of the classes of the dataset in `dir`; empty if it has none.
///
/// # Errors
/// The dataset cannot be read.
pub(crate) fn class_names(dir: Option<&Path>) -> Result<Vec<String>> {
    let Some(dir) = dir.filter(|dir| dir.join("nodes").is_dir()) else { return Ok(Vec::new()) };
    let data = typed::open(dir, Verify::Once)?;
    Ok(data.tasks.first().map(|task| task.names.clone()).unwrap_or_default())
}

/// Scale of the values of a dataset over its training nodes; `None` if it has classes.
pub(crate) fn target_scale(config: &TrainConfig, data: &Dataset) -> Option<TargetScale> {
    target_scale_of(config, &data.labels, &data.split.train)
}

/// Scale of values over the nodes `train`; `None` if the labels are classes.
pub(crate) fn target_scale_of(
    config: &TrainConfig,
    labels: &Labels,
    train: &[NodeId],
) -> Option<TargetScale> {
    match labels {
        Labels::Values { values, width } => {
            Some(TargetScale::fit(config.target_transform, values, *width, train))
        }
        _ => None,
    }
}

/// Opens the rows of a feature file, which `verifier` verifies if no opening did.
///
/// # Errors
/// The file cannot be opened.
pub(crate) fn disk(table: &StoredTable, verifier: Option<&ChunkVerifier>) -> Result<Disk> {
    let &StoredTable { ref path, offset, rows, dim, kind } = table;
    let disk = Disk::open(path, offset, dim, kind, rows, &DiskOptions::default())?;
    Ok(disk.verified_by(verifier))
}

/// Opens the files of the sparse rows `rows`, those of the dataset in `dir`. Verifies them before.
///
/// # Errors
/// The rows are damaged, or a file cannot be opened.
pub(crate) fn sparse_disk(dir: &Path, rows: &SparseRows, features: &Features) -> Result<SparseDisk> {
    features.verify()?;
    let StoredSparse { columns, values, stored } = StoredSparse::features(dir)?;
    let open = |(path, offset): (PathBuf, u64)| {
        Disk::open(path, offset, 1, TableType::F32, stored, &DiskOptions::default())
    };
    Ok(SparseDisk::new(rows.num_cols(), rows.indptr().clone(), open(columns)?, open(values)?)?)
}

/// The feature rows, with the table that layers read in place. The table is sparse if
/// `keeps_sparse`. A table of another type than the stored one is a copy, also if the placement is
/// [`MemoryPlacement::Mapped`]. Rows that were not verified when the dataset was opened are
/// verified here, all of them: nothing checks the rows that layers and inference read in place.
///
/// # Errors
/// Damaged features, a failed allocation, or a value beyond the range of the table's type.
pub fn features(config: &TrainConfig, data: &Dataset, placement: MemoryPlacement) -> Result<(Host, Matrix)> {
    data.features.verify()?;
    let host = rows(config, data, placement)?;
    let table = host.matrix();
    Ok((host, table))
}

/// The rows of [`features`] without the table: those of a mapped file are verified as they are
/// read.
///
/// # Errors
/// As [`features`].
pub(crate) fn rows(config: &TrainConfig, data: &Dataset, placement: MemoryPlacement) -> Result<Host> {
    let kind = table_type(config, data);
    if let (FeatureData::Csr(rows), true) = (&data.features.data, keeps_sparse(config, data)) {
        return Ok(match placement {
            MemoryPlacement::Mapped => Host::new(&data.features),
            MemoryPlacement::HugePages => Host::resident_sparse(rows)?,
        });
    }
    if placement == MemoryPlacement::Mapped && Some(kind) == data.features.data.kind() {
        // rows stay mapped because a copy does not fit; they do not fit into the page cache either
        match &data.features.data {
            FeatureData::F32(rows) => rows.expect_random_reads(),
            FeatureData::F16(rows) => rows.expect_random_reads(),
            FeatureData::Csr(_) => {}
        }
        return Ok(Host::new(&data.features));
    }
    Ok(Host::resident(&data.features, kind)?)
}

/// Bytes of a feature row in a message between ranks: its values in the type in which their owner
/// holds them or, if rows stay sparse, its end and the mean of its columns and values.
pub fn bytes_of_row(config: &TrainConfig, data: &Dataset) -> usize {
    match memory::row_format(config, data) {
        RowFormat::Dense(kind) => kind.width() * data.features.dim,
        RowFormat::Sparse => 4 + 8 * data.features.stored().div_ceil(data.num_nodes().max(1)),
    }
}

/// The symmetric weights, if the model uses them: by the degrees in the whole graph, if that of
/// `data` is a part.
pub fn symmetric(model: &Model, data: &Dataset) -> Option<Arc<SymmetricWeights>> {
    let weights = || match data.graph.whole_degrees() {
        Some(whole) => SymmetricWeights::of_degrees(whole.of_in.clone()),
        None => SymmetricWeights::new(&data.graph),
    };
    model.needs_symmetric_weights().then(|| Arc::new(weights()))
}

/// The optimiser.
///
/// # Errors
/// An unknown name or an impossible number.
pub fn optimizer(config: &TrainConfig) -> Result<Box<dyn Optimizer>> {
    optim::by_name(&config.optimizer, &config.own).map_err(by_flag)
}

/// The learning-rate schedule.
///
/// # Errors
/// An unknown name or an impossible number.
pub fn schedule(config: &TrainConfig) -> Result<Schedule> {
    let basis = schedule::Basis { lr: config.lr, warmup: config.warmup, epochs: config.epochs as f64 };
    Schedule::new(&config.schedule, &basis, &config.own).map_err(by_flag)
}

/// The metric of the run: that of the configuration, else of the dataset, else the default of the
/// kind of labels.
///
/// # Errors
/// An unknown name, or a metric that does not fit the labels.
pub fn metric(config: &TrainConfig, data: &Dataset) -> Result<&'static table::Entry<metric::Metric>> {
    const AUTO: &str = "auto";
    let name = match (config.metric.as_str(), &data.metric) {
        (AUTO, Some(own)) => own,
        (AUTO, None) if data.labels.is_values() => metric::values::DEFAULT,
        (AUTO, None) => metric::default_name(data.labels.is_multi()),
        (given, _) => given,
    };
    usage(metric::table(data.labels.is_values()).find(name))
}

/// Converts an error of a model description to one that names the flag: fields and options share
/// their names.
pub(crate) fn by_flag(error: graphmill_nn::Error) -> Error {
    use graphmill_nn::Error as Nn;
    Error::Usage(match error {
        Nn::Config { field, value, message } => format!("--{} {value}: {message}", field.replace('_', "-")),
        Nn::Graph(error) => error.to_string(),
        Nn::Device(message) => return Error::Gpu(message),
    })
}

/// Converts an unknown name to wrong usage, because the name came from the command line.
fn usage<T>(found: graphmill_core::Result<T>) -> Result<T> {
    found.map_err(|error| Error::usage(error.to_string()))
}
