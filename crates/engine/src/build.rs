//! From a configuration and a dataset to the parts of a run. Training, `eval` and `predict` share it.

use std::sync::Arc;

use graphmill_graph::{Dataset, dataset::FeatureData, generate, matrix::TableType, table};
use graphmill_loader::{
    feature::Host,
    order,
    sampler::{
        self,
        exact::Exact,
        weighted::{DrawBy, EdgeWeights},
    },
    subgraph::{PopBy, SubgraphOptions},
    weights::SymmetricWeights,
};
use graphmill_nn::{
    Matrix,
    backend::Precision,
    metric,
    model::{Model, ModelConfig},
    optim::{self, Optimizer},
    schedule::{self, Schedule},
};

use crate::{
    Error, Result, TrainConfig,
    memory::{self, Residence},
};

/// The largest share of values that are not zero at which sparse rows are multiplied as they are.
///
/// Both costs grow with the rows; that of sparse ones with the stored values too, some 25 times as much for each. Measured:
/// processor time of an epoch of GCN with dense rows, in that with sparse ones, full batch and sampled, is 3.8 and 2.8 on
/// Cora (1.3 % of 1,433), 12 and 4.1 on CiteSeer (0.9 % of 3,703), 6.7 and 3.8 on Coauthor CS (0.9 % of 6,805), and 0.3 and
/// 0.4 on PubMed (10 % of 500), 0.3 and 0.1 on Amazon Computers (35 % of 767), where dense rows take the fast path.
const SPARSE_SHARE: f64 = 0.04;

/// The dataset that a configuration names, or the built-in demo graph where it names none.
///
/// # Errors
/// It cannot be read.
pub fn open_dataset(config: &TrainConfig) -> Result<Dataset> {
    Ok(if config.dataset.is_empty() { generate::demo()? } else { Dataset::open(&config.dataset)? })
}

/// The model part of a configuration.
pub fn model_config(config: &TrainConfig) -> ModelConfig {
    ModelConfig {
        model: config.model.clone(),
        hidden: config.hidden,
        layers: config.layers,
        hops: config.hops,
        heads: config.heads,
        out_heads: config.out_heads,
        aggregator: config.aggregator.clone(),
        dropout: config.dropout as f32,
        input_dropout: config.input_dropout as f32,
        attention_dropout: config.attention_dropout as f32,
        activation: config.activation.clone(),
        init: config.init.clone(),
        norm: config.norm.clone(),
        residual: config.residual.clone(),
        input_layer: config.input_layer,
        head_layers: config.head_layers,
    }
}

/// A model with its first, random weights.
///
/// # Errors
/// An unknown name or numbers that do not fit together; a dataset without features or classes; a width that this
/// machine has not the memory for.
pub fn model(config: &TrainConfig, data: &Dataset) -> Result<Model> {
    if data.features.dim == 0 {
        return Err(Error::dataset(&data.name, "it has no features: import it with features"));
    }
    if data.labels.classes() == 0 {
        return Err(Error::dataset(&data.name, "it has no labels: import it with labels"));
    }
    check_sparse(config, data)?;
    memory::check(config, data)?;
    Model::new(&model_config(config), data.features.dim, data.labels.classes(), config.seed).map_err(by_flag)
}

/// Whether the first layer multiplies feature rows as they are stored, sparse: where they are, and `--sparse` says so or
/// leaves it to their density.
pub(crate) fn keeps_sparse(config: &TrainConfig, data: &Dataset) -> bool {
    let FeatureData::Csr(rows) = &data.features.data else { return false };
    match config.sparse.as_str() {
        "on" => true,
        "off" => false,
        _ => {
            let values = rows.num_rows() as f64 * rows.num_cols() as f64;
            let wide = ["auto", "f32"].contains(&config.feature_precision.as_str()) && config.fused != "on";
            wide && rows.stored() as f64 <= SPARSE_SHARE * values && rows.stored() <= u32::MAX as usize
        }
    }
}

/// Refuses what sparse rows cannot be.
fn check_sparse(config: &TrainConfig, data: &Dataset) -> Result<()> {
    let stored = data.features.stored();
    if config.sparse != "on" || !keeps_sparse(config, data) {
        return Ok(());
    }
    if !["auto", "f32"].contains(&config.feature_precision.as_str()) {
        return Err(Error::usage(format!(
            "--feature-precision {}: sparse rows are held in f32; use --feature-precision auto, or --sparse off",
            config.feature_precision
        )));
    }
    if config.fused == "on" {
        return Err(Error::usage(
            "--fused on: the bottom layer multiplies sparse rows before it aggregates them, so it cannot read them in \
             place; use --fused auto, or --sparse off",
        ));
    }
    if stored > u32::MAX as usize {
        let message = format!(
            "{stored} stored feature values: at most 2^32 - 1 are multiplied sparse; use --sparse off"
        );
        return Err(Error::dataset(&data.name, message));
    }
    Ok(())
}

/// The type of the resident feature table's values: as `--feature-precision` says.
pub(crate) fn table_type(config: &TrainConfig, data: &Dataset) -> TableType {
    let given = TableType::ALL.into_iter().find(|(name, _)| *name == config.feature_precision);
    match (given, &data.features.data) {
        (Some((_, kind)), _) => kind,
        _ if precision(config) == Precision::Bf16 => TableType::Bf16,
        (None, FeatureData::F32(_) | FeatureData::Csr(_)) => TableType::F32,
        (None, FeatureData::F16(_)) => TableType::F16,
    }
}

/// The feature rows, with the table that layers read in place: sparse where `keeps_sparse`. A table of another type than
/// the stored one is a copy, wherever rows are to reside.
///
/// # Errors
/// The memory cannot be had, or a value is beyond the range of that type.
pub fn features(config: &TrainConfig, data: &Dataset, residence: Residence) -> Result<(Host, Matrix)> {
    let kind = table_type(config, data);
    let host = if let (FeatureData::Csr(rows), true) = (&data.features.data, keeps_sparse(config, data)) {
        match residence {
            Residence::InPlace => Host::new(&data.features),
            Residence::HugePages => Host::resident_sparse(rows)?,
        }
    } else if residence == Residence::InPlace && Some(kind) == data.features.data.kind() {
        // there is no copy because there is no room for one: the system's cache will not hold them either
        match &data.features.data {
            FeatureData::F32(rows) => rows.expect_random_reads(),
            FeatureData::F16(rows) => rows.expect_random_reads(),
            FeatureData::Csr(_) => {}
        }
        Host::new(&data.features)
    } else {
        Host::resident(&data.features, kind)?
    };
    let table = host.matrix();
    Ok((host, table))
}

/// What dense products multiply in.
pub fn precision(config: &TrainConfig) -> Precision {
    if config.precision == "bf16" { Precision::Bf16 } else { Precision::F32 }
}

/// The symmetric weights, where the model wants them.
pub fn symmetric(model: &Model, data: &Dataset) -> Option<Arc<SymmetricWeights>> {
    model.wants_symmetric_weights().then(|| Arc::new(SymmetricWeights::new(&data.graph)))
}

/// The sampler, with what it makes beforehand of the dataset's graph and training nodes.
///
/// # Errors
/// An unknown name or an impossible option.
pub fn sampler(config: &TrainConfig, data: &Dataset) -> Result<Box<dyn sampler::Sampler>> {
    by_sampler(config, data, sampler::Make::make)
}

/// How inference takes neighbours: as the sampler's draws come to on average.
///
/// # Errors
/// An unknown name or an impossible option.
pub fn exact(config: &TrainConfig, data: &Dataset) -> Result<Exact> {
    by_sampler(config, data, sampler::Make::exact)
}

/// What the sampler's row of the table makes.
fn by_sampler<T>(
    config: &TrainConfig,
    data: &Dataset,
    make: fn(&sampler::Make, &sampler::SamplerOptions, &sampler::Source) -> Result<T, String>,
) -> Result<T> {
    let entry = usage(table::find("sampler", sampler::TABLE, &config.sampler))?;
    let options = sampler_options(config, data)?;
    let source = sampler::Source { graph: &data.graph, train: &data.split.train };
    let made = make(&entry.make, &options, &source);
    made.map_err(|message| Error::usage(format!("--sampler {}: {message}", config.sampler)))
}

/// What samplers are made from.
pub(crate) fn sampler_options(config: &TrainConfig, data: &Dataset) -> Result<sampler::SamplerOptions> {
    Ok(sampler::SamplerOptions {
        fanout: config.fanout.0.clone(),
        seed: config.seed,
        subgraph: subgraph_options(config, data)?,
        training: sampler::SubgraphTraining {
            inductive: config.inductive,
            coverage: config.coverage,
            estimator: choice("estimator", &sampler::Estimator::ALL, &config.estimator)?,
        },
        weighted: sampler::WeightedOptions {
            replace: config.replace,
            weights: choice("edge-weights", &EdgeWeights::ALL, &config.edge_weights)?,
            draw_by: choice("draw-by", &DrawBy::ALL, &config.draw_by)?,
        },
        labor_iterations: labor_iterations(config)?,
        walks: sampler::WalkOptions {
            walks: config.walks,
            length: walk_length(config, sampler::WalkOptions::default().length),
            restart: config.restart,
        },
    })
}

/// What samplers of subgraphs are made from.
pub(crate) fn subgraph_options(config: &TrainConfig, data: &Dataset) -> Result<SubgraphOptions> {
    Ok(SubgraphOptions {
        budget: if config.batch_size == 0 { data.num_nodes() } else { config.batch_size },
        frontier: config.frontier_size,
        pop_by: choice("pop-by", &PopBy::ALL, &config.pop_by)?,
        eta: config.eta,
        degree_cap: u32::try_from(config.degree_cap).unwrap_or(u32::MAX),
        walk_length: walk_length(config, SubgraphOptions::default().walk_length),
        burning: config.burning,
        parts: config.parts,
        parts_per_batch: config.parts_per_batch,
        partition: None,
    })
}

/// Iterations of layer-neighbour sampling.
fn labor_iterations(config: &TrainConfig) -> Result<usize> {
    let word = config.labor_iterations.as_str();
    let count = if word == "*" { Some(usize::MAX) } else { word.parse().ok() };
    count
        .ok_or_else(|| Error::usage(format!("--labor-iterations {word}: a number, or * for as many as help")))
}

/// The length of a walk: the sampler's `own` where none is given.
fn walk_length(config: &TrainConfig, own: usize) -> usize {
    if config.walk_length == 0 { own } else { config.walk_length }
}

/// The value of that name.
fn choice<T: Copy>(flag: &str, all: &[(&str, T)], given: &str) -> Result<T> {
    let found = all.iter().find(|(name, _)| *name == given).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        Error::usage(format!("--{flag} {given}: {}", known.join(", ")))
    })
}

/// Seeds of a batch, all training nodes where the configuration says 0.
pub fn batch_size(config: &TrainConfig, data: &Dataset) -> usize {
    if config.batch_size == 0 { data.split.train.len() } else { config.batch_size }
}

/// The ordering of the seeds. What it reads often is made now.
///
/// # Errors
/// An unknown name or an impossible option.
pub fn order<'d>(config: &TrainConfig, data: &'d Dataset) -> Result<Box<dyn order::Order + 'd>> {
    let make = usage(table::find("order", order::TABLE, &config.order))?.make;
    let options = order::OrderOptions {
        seed: config.seed,
        batch_size: batch_size(config, data),
        sequences: config.order_sequences,
    };
    let source = order::OrderSource { graph: &data.graph, labels: &data.labels, train: &data.split.train };
    make(&options, &source).map_err(|message| Error::usage(format!("--order {}: {message}", config.order)))
}

/// The optimiser.
///
/// # Errors
/// An unknown name or an impossible number.
pub fn optimizer(config: &TrainConfig) -> Result<Box<dyn Optimizer>> {
    let options = optim::Options { momentum: config.momentum as f32, ..optim::Options::default() };
    optim::by_name(&config.optimizer, &options).map_err(by_flag)
}

/// The learning-rate schedule.
///
/// # Errors
/// An unknown name or an impossible number.
pub fn schedule(config: &TrainConfig) -> Result<Schedule> {
    let every =
        |otherwise: usize| if config.schedule_epochs == 0 { otherwise } else { config.schedule_epochs };
    let count = u32::try_from(every(10)).unwrap_or(u32::MAX);
    let options = schedule::Options {
        every: count,
        factor: config.schedule_factor,
        epochs: every(config.epochs) as f64,
        min_lr: config.min_lr,
        patience: count,
        warmup: config.warmup,
    };
    Schedule::new(&config.schedule, config.lr, &options).map_err(by_flag)
}

/// The score to judge by: the configuration's, or the dataset's, or the kind of labels' own.
///
/// # Errors
/// An unknown name, or one that does not fit the labels.
pub fn metric(config: &TrainConfig, data: &Dataset) -> Result<&'static table::Entry<metric::Metric>> {
    let name = match (config.metric.as_str(), &data.metric) {
        ("auto", Some(own)) => own,
        ("auto", None) => metric::default_name(data.labels.is_multi()),
        (given, _) => given,
    };
    usage(table::find("metric", metric::TABLE, name))
}

/// A fault of a part's own description, under the flag that set it: fields are called as options are.
fn by_flag(error: graphmill_nn::Error) -> Error {
    use graphmill_nn::Error as Nn;
    Error::Usage(match error {
        Nn::Config { field, value, message } => format!("--{} {value}: {message}", field.replace('_', "-")),
        Nn::Graph(error) => error.to_string(),
        Nn::Device(message) => return Error::Gpu(message),
    })
}

/// An unknown name came from the command line: wrong usage.
fn usage<T>(found: graphmill_graph::Result<T>) -> Result<T> {
    found.map_err(|error| Error::usage(error.to_string()))
}
