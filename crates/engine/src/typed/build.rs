//! Components of a run on several types, built from a configuration and a task. Training, `eval`
//! and `predict` share them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use graphmill_core::{
    Labels, NodeId,
    memory::available,
    options::one_of,
    table,
    typed::{Relation, Schema},
};
use graphmill_loader::{
    order::{self, SeedOrder},
    time::TimeOptions,
    typed::{self as sampling, TypedFanout, TypedOptions, TypedSampler},
};
use graphmill_nn::{
    metric::{self, Metric},
    typed::{Target, TypedModel, TypedModelConfig},
};

use super::{edges, task::TypedTask};
use crate::{Error, Result, TrainConfig, build::by_flag};

/// Copies of learned rows that a run holds: values, two moments, and those of the best epoch.
const COPIES_OF_ROWS: usize = 4;
/// Moments of the optimiser of learned rows.
const MOMENTS: usize = 2;

/// The model part of a configuration.
pub(super) fn model_config(config: &TrainConfig, task: &TypedTask) -> TypedModelConfig {
    TypedModelConfig {
        model: config.model.clone(),
        hidden: config.hidden,
        layers: config.layers,
        dropout: config.dropout as f32,
        input_dropout: config.input_dropout as f32,
        activation: config.activation,
        norm: config.norm.kind(false),
        head_layers: config.head_layers,
        edge_dims: edges::widths(&task.edges),
        own_nodes: None,
        learned_in: task.learned_in.clone(),
        own: config.own.clone(),
        ..TypedModelConfig::default()
    }
}

/// A model with its initial, random weights.
///
/// # Errors
/// An unknown name, inconsistent numbers, or learned rows that exceed the memory of this machine.
pub(super) fn model(config: &TrainConfig, task: &TypedTask) -> Result<TypedModel> {
    model_of(config, task, None)
}

/// The model of a rank, with the learned rows of its own nodes of each type alone; with `None`, as
/// [`model`].
///
/// # Errors
/// As [`model`].
pub(super) fn model_of(
    config: &TrainConfig,
    task: &TypedTask,
    own_nodes: Option<Arc<[Vec<NodeId>]>>,
) -> Result<TypedModel> {
    let (schema, dims) = (task.graph.schema(), task.input_dims());
    check_learned_rows(config, task, own_nodes.as_deref())?;
    let target = Target { node_type: task.node_type, outputs: task.labels.classes() };
    let model = TypedModelConfig { own_nodes, ..model_config(config, task) };
    TypedModel::new(&model, schema, &dims, target, config.seed).map_err(by_flag)
}

/// Number of learned rows: of the types without features or, of a rank, of its own nodes.
fn num_learned(task: &TypedTask, own_nodes: Option<&[Vec<NodeId>]>) -> usize {
    let types = task.graph.schema().types().iter().zip(&task.features).enumerate();
    let learned = types.filter(|(_, (_, features))| features.is_none());
    learned.map(|(t, (node, _))| own_nodes.map_or(node.count, |own| own[t].len())).sum()
}

/// Refuses learned rows that exceed the memory of this machine, unless they are in files.
///
/// # Errors
/// Wrong usage: the rows are too many for their width.
pub(super) fn check_learned_rows(
    config: &TrainConfig,
    task: &TypedTask,
    own_nodes: Option<&[Vec<NodeId>]>,
) -> Result<()> {
    if own_nodes.is_none() && task.learned_in.is_some() {
        return Ok(());
    }
    let learned = num_learned(task, own_nodes);
    let bytes = learned.saturating_mul(config.hidden).saturating_mul(4 * COPIES_OF_ROWS);
    if let Some(free) = available().filter(|&free| bytes as u64 > free) {
        let remedy = match own_nodes {
            None => "lower it, set --host-budget to keep them in files, or add features to those types",
            Some(_) => "lower it, or add features to those types",
        };
        return Err(Error::usage(format!(
            "--hidden {}: learned rows of {learned} nodes of types without features need {bytes} bytes, but \
             {free} are available; {remedy}",
            config.hidden
        )));
    }
    Ok(())
}

/// The directory `dir` if the learned rows of a run in one process are in files in it: they and the
/// state of their optimiser exceed `--host-budget`.
pub(super) fn learned_rows_in(config: &TrainConfig, task: &TypedTask, dir: &Path) -> Option<PathBuf> {
    let of_row = config.hidden.saturating_mul(4 * (1 + MOMENTS));
    let bytes = num_learned(task, None).saturating_mul(of_row) as u64;
    let budget = config.host_budget.0;
    (budget > 0 && bytes > budget).then(|| dir.to_path_buf())
}

/// The order of the seeds.
///
/// # Errors
/// An unknown name, or an order that reads the edges of one type.
pub(super) fn order<'t>(config: &TrainConfig, task: &'t TypedTask) -> Result<Box<dyn SeedOrder + 't>> {
    order_of(config, &task.split.train, &task.labels)
}

/// The order of the seeds `train`, which have these labels.
///
/// # Errors
/// As [`order`].
pub(super) fn order_of<'t>(
    config: &TrainConfig,
    train: &'t [NodeId],
    labels: &'t Labels,
) -> Result<Box<dyn SeedOrder + 't>> {
    let entry = order::TABLE.find(&config.order).map_err(Error::name)?;
    match entry.make.of_labels {
        Some(make) => Ok(make(config.seed, train, labels)),
        None => {
            let usable = order::TABLE.iter().filter(|row| row.make.of_labels.is_some()).map(|row| row.name);
            let usable: Vec<&str> = usable.collect();
            Err(Error::usage(format!(
                "--order {}: it reads the edges of one type; use --order {}",
                config.order,
                one_of(&usable)
            )))
        }
    }
}

/// The sampler, with its tables of the graph.
///
/// # Errors
/// An unknown name or an impossible option.
pub(super) fn sampler(config: &TrainConfig, task: &TypedTask) -> Result<Box<dyn TypedSampler>> {
    if !task.edges.is_empty() {
        edges::check_sampler(config, &config.sampler)?;
    }
    let (fanout, _) = fanout(config, task.graph.schema())?;
    if let Some(times) = &task.times {
        return times.sampler(config, fanout);
    }
    if config.own.get::<TimeOptions>() != TimeOptions::default() {
        let message = "the rows of the task have no times; leave out --time-bound, --time-draw, \
                       --time-window, --time-half-life and --time-carry";
        return Err(Error::dataset(&config.dataset, message));
    }
    make(config, task, &config.sampler, fanout)
        .map_err(|message| Error::usage(format!("--sampler {}: {message}", config.sampler)))
}

/// The fanout of a configuration, and its numbers at each hop: by node type if the sampler counts
/// nodes, else by relation.
fn fanout(config: &TrainConfig, schema: &Schema) -> Result<(TypedFanout, Vec<Vec<usize>>)> {
    let numbers = match &config.fanout_by_name {
        by_name if by_name.is_empty() => config.fanout.to_string(),
        by_name => format!("{};{by_name}", config.fanout),
    };
    let fault = |option: &str, message: String| Error::usage(format!("--{option}: {message}"));
    let fanout: TypedFanout = numbers.parse().map_err(|message| fault("fanout", message))?;
    let entry = sampling::TABLE.find(&config.sampler).map_err(Error::name)?;
    let resolved =
        if entry.make.counts_nodes { fanout.of_types(schema) } else { fanout.of_relations(schema) };
    let resolved = resolved.map_err(|message| fault(&format!("fanout {numbers}"), message))?;
    Ok((fanout, resolved))
}

/// Relations of a graph with `schema` that each layer follows in training, from the bottom up.
///
/// # Errors
/// An unknown name, or a fanout that does not fit the schema.
pub(super) fn followed(config: &TrainConfig, schema: &Schema) -> Result<Vec<Vec<bool>>> {
    let entry = sampling::TABLE.find(&config.sampler).map_err(Error::name)?;
    let (_, numbers) = fanout(config, schema)?;
    let follows = |hop: usize, (r, relation): (usize, &Relation)| {
        let of = if entry.make.counts_nodes { relation.src } else { r };
        entry.make.draws_subgraphs || numbers[of][hop] > 0
    };
    let of_hop = |hop| schema.relations().iter().enumerate().map(|at| follows(hop, at)).collect();
    Ok((0..config.layers).rev().map(of_hop).collect())
}

/// The sampler of inference after training: that of the configuration or, if it draws subgraphs,
/// all neighbours by every relation.
///
/// # Errors
/// As [`sampler`].
pub(super) fn inference_sampler(config: &TrainConfig, task: &TypedTask) -> Result<Box<dyn TypedSampler>> {
    match draws_subgraphs(config) {
        true => make(config, task, "full", TypedFanout::new(config.fanout.0.clone())).map_err(Error::usage),
        false => sampler(config, task),
    }
}

/// Returns true if the sampler draws subgraphs.
pub(crate) fn draws_subgraphs(config: &TrainConfig) -> bool {
    sampling::TABLE.get(&config.sampler).is_some_and(|entry| entry.make.draws_subgraphs)
}

/// Returns true if inference draws as training does, because no stored edges are those that the
/// sampler draws.
pub(super) fn draws_in_inference(config: &TrainConfig) -> bool {
    sampling::TABLE.get(&config.sampler).is_some_and(|entry| entry.make.added.is_some())
}

/// The samplers of inference, from the bottom layer up: each draws for one layer all neighbours by
/// the relations that `sampler` follows there.
///
/// # Errors
/// None in practice, because `sampler` was made for the same graph.
pub(super) fn full_samplers(
    config: &TrainConfig,
    task: &TypedTask,
    sampler: &dyn TypedSampler,
) -> Result<Vec<Box<dyn TypedSampler>>> {
    const ALL: i64 = -1;
    let schema = task.graph.schema();
    let of_hop = |hop| {
        let fanout = (0..schema.num_relations()).fold(TypedFanout::new(vec![ALL]), |fanout, r| {
            let number = if sampler.follows(schema, hop, r) { ALL } else { 0 };
            fanout.with(schema.relation_name(r), vec![number])
        });
        make(config, task, "full", fanout).map_err(Error::usage)
    };
    (0..sampler.num_hops()).rev().map(of_hop).collect()
}

/// Makes the sampler `name`.
fn make(
    config: &TrainConfig,
    task: &TypedTask,
    name: &str,
    fanout: TypedFanout,
) -> Result<Box<dyn TypedSampler>, String> {
    let entry = sampling::TABLE.find(name).map_err(|error| error.to_string())?;
    let train = if entry.make.draws_subgraphs { task.split.train.to_vec() } else { Vec::new() };
    let options = TypedOptions {
        fanout,
        seed: config.seed,
        own: config.own.clone(),
        train: (task.node_type, train),
        budget: if config.batch_size == 0 { task.graph.num_nodes() } else { config.batch_size },
    };
    (entry.make.make)(&options, &task.graph)
}

/// The metric of the run: that of the configuration, else of the task if it is known, else the
/// default of the kind of labels.
///
/// # Errors
/// An unknown name.
pub(super) fn metric(config: &TrainConfig, task: &TypedTask) -> Result<&'static table::Entry<Metric>> {
    let table = metric::table(task.labels.is_values());
    let own = task.metric.as_deref().filter(|name| table.get(name).is_some());
    let name = match config.metric.as_str() {
        "auto" if task.labels.is_values() => own.unwrap_or(metric::values::DEFAULT),
        "auto" => own.unwrap_or_else(|| metric::default_name(task.labels.is_multi())),
        given => given,
    };
    table.find(name).map_err(Error::name)
}
