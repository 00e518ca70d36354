//! Runs on datasets of several types beside those on one type: defaults, and refusal of names for
//! the other kind. A run is by types if its model is a row of [`graphmill_nn::typed::TABLE`] and
//! its task is not a stream of events; its graph may have one type.

use graphmill_data::{partition::TypedPartitionDir, typed::has_several_types};

use super::{
    keys::{Key, suggestion},
    link::{is_link, is_typed_link},
    reasons::{Read, use_or_leave_out},
};
pub(crate) use crate::config::link_task::has_typed_model as is_typed;
use crate::{
    TrainConfig,
    config::{
        embedding::is_table,
        events::is_of_events,
        link_task::{has_node_times, is_partitioned, learns_edge_targets},
    },
};

/// Model of a run that names none.
const DEFAULT_MODEL: &str = "rsage";

/// Returns true if the dataset has several types or tasks, or the model is one of types and the
/// dataset is in memory, or in a directory and not in parts of one type, and the run does not learn
/// links by a model of one type. A run without a dataset, on the demo, is by one type.
pub(super) fn has_types(config: &TrainConfig) -> bool {
    let of_directory = || {
        has_several_types(&config.dataset)
            || TypedPartitionDir::is_in(&config.dataset)
            || has_node_times(config)
            || learns_edge_targets(config)
    };
    !config.dataset.is_empty()
        && (is_typed(config) && !is_partitioned(config) || !config.is_in_memory() && of_directory())
        && !is_link(config)
        && !is_table(config)
        && !is_of_events(config)
}

/// Names of the typed models.
fn models() -> Vec<&'static str> {
    graphmill_nn::typed::TABLE.iter().map(|entry| entry.name).collect()
}

/// Returns true if only runs on several types can choose `name` by `flag`.
pub(super) fn is_typed_row(flag: &str, name: &str) -> bool {
    match flag {
        "sampler" => graphmill_loader::sampler::TABLE.get(name).is_none(),
        "model" => graphmill_nn::layer::TABLE.get(name).is_none(),
        _ => false,
    }
}

/// Fills in the model and its head, unless they were `given`.
pub(super) fn derive_options(config: &mut TrainConfig, given: &[&str]) {
    if !given.contains(&"model") && config.model == TrainConfig::default().model && has_types(config) {
        config.model = DEFAULT_MODEL.into();
    }
    let needs_head = graphmill_nn::typed::TABLE.get(&config.model).is_some_and(|entry| !entry.make.can_score);
    if needs_head
        && is_typed(config)
        && !is_typed_link(config)
        && config.head_layers == 0
        && !given.contains(&"head_layers")
    {
        config.head_layers = 1;
    }
}

/// Rule of `--task` in a run on one type.
pub(super) fn task(config: &TrainConfig, _: &Key) -> Read {
    if is_link(config) {
        return Ok(());
    }
    Err("only datasets of several node types, edge types or tasks have tasks of other names; use --task \
         link, or leave it out"
        .into())
}

/// Rule of `--model` and `--sampler` in a run on one type: the name is not one for several types.
pub(super) fn one_type(config: &TrainConfig, key: &Key) -> Read {
    if key.name == "model" && has_types(config) {
        let remedy = use_or_leave_out("model", &models());
        if graphmill_nn::layer::TABLE.get(&config.model).is_none() {
            let known = models();
            let near = suggestion(&config.model, &known);
            return Err(format!("there is no such model; known: {}{near}", known.join(", ")));
        }
        return Err(format!("{} has several node types, edge types or tasks; {remedy}", config.dataset));
    }
    let is_known = graphmill_loader::typed::TABLE.get(&config.sampler).is_some();
    if key.name == "sampler" && is_known && is_typed_row("sampler", &config.sampler) {
        return Err("it is for datasets of several node types, edge types or tasks, and this dataset has \
                    one; use --sampler neighbor, or leave it out"
            .into());
    }
    Ok(())
}

/// Rule of numbers by name of `--fanout` in a run on one type.
pub(super) fn fanout(config: &TrainConfig) -> Read {
    if config.fanout_by_name.is_empty() {
        return Ok(());
    }
    Err(format!(
        "'{}' is for datasets of several edge types, and this dataset has one; use --fanout {}",
        config.fanout_by_name, config.fanout
    ))
}
