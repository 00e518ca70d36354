//! From a configuration and a dataset to the parts of a run. Training, `eval` and `predict` share it.

use graphmill_graph::{Dataset, dataset::FeatureData, generate, matrix::TableType, table};
use graphmill_loader::{Feature, feature::Host, order, sampler, weights::SymmetricWeights};
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
        heads: config.heads,
        out_heads: config.out_heads,
        aggregator: config.aggregator.clone(),
        dropout: config.dropout as f32,
        input_dropout: config.input_dropout as f32,
        attention_dropout: config.attention_dropout as f32,
        activation: config.activation.clone(),
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
    memory::check(config, data)?;
    Model::new(&model_config(config), data.features.dim, data.labels.classes(), config.seed).map_err(by_flag)
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

/// The feature rows, with the table that layers read in place. A table of another type than the stored one is a copy,
/// wherever rows are to reside.
///
/// # Errors
/// The memory cannot be had, or a value is beyond the range of that type.
pub fn features(config: &TrainConfig, data: &Dataset, residence: Residence) -> Result<(Host, Matrix)> {
    let kind = table_type(config, data);
    let host = if residence == Residence::InPlace && Some(kind) == data.features.data.kind() {
        Host::new(&data.features)?
    } else {
        Host::resident(&data.features, kind)?
    };
    let table = host.table().expect("rows in host memory are a table");
    Ok((host, Matrix::shared(table, data.features.dim)))
}

/// What dense products multiply in.
pub fn precision(config: &TrainConfig) -> Precision {
    if config.precision == "bf16" { Precision::Bf16 } else { Precision::F32 }
}

/// The symmetric weights, where the model wants them.
pub fn symmetric(model: &Model, data: &Dataset) -> Option<SymmetricWeights> {
    model.wants_symmetric_weights().then(|| SymmetricWeights::new(&data.graph))
}

/// The sampler.
///
/// # Errors
/// An unknown name or an impossible fanout.
pub fn sampler(config: &TrainConfig) -> Result<Box<dyn sampler::Sampler>> {
    let entry = usage(table::find("sampler", sampler::TABLE, &config.sampler))?;
    let options = sampler::SamplerOptions { fanout: config.fanout.0.clone() };
    (entry.make)(&options).map_err(|message| Error::usage(format!("--sampler {}: {message}", config.sampler)))
}

/// The ordering of the seeds.
///
/// # Errors
/// An unknown name.
pub fn order(config: &TrainConfig) -> Result<order::Order> {
    usage(table::find("order", order::TABLE, &config.order)).map(|entry| entry.make)
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
    })
}

/// An unknown name came from the command line: wrong usage.
fn usage<T>(found: graphmill_graph::Result<T>) -> Result<T> {
    found.map_err(|error| Error::usage(error.to_string()))
}
