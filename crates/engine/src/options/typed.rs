//! Options of runs on datasets of several types: their defaults, and the options that such a run
//! reads. A run is one of these if its model is a row of [`graphmill_nn::typed::TABLE`].

use graphmill_core::options::OptionGroup;
use graphmill_data::typed::has_several_types;

use super::{
    AXES,
    keys::Key,
    reasons::{Read, Rule, unread, use_or_leave_out},
    rules,
};
use crate::TrainConfig;

/// Model of a run that names none.
const DEFAULT_MODEL: &str = "rsage";

/// General options that such a run does not read, with the reason.
const UNREAD: &[(&str, &str)] = &[
    ("order", "an epoch has the seeds in random order"),
    ("max_batches", "an epoch has all training nodes"),
    ("fused", "feature rows are projected first, so they are copied"),
    ("sparse", "sparse feature rows stay sparse"),
    ("init", "dense layers start with Glorot's weights"),
    ("residual", "--model hgt and --model simple-hgn have residual connections of their own"),
    ("input_layer", "the features of each type have a linear layer of their own"),
    ("clip", "its limit would leave out the gradients of learned rows"),
    ("weight_decay_first_layer", "all dense weights decay alike"),
    ("host_budget", IN_MEMORY),
    ("device_budget", IN_MEMORY),
    ("cache_ratio", IN_MEMORY),
    ("cache", IN_MEMORY),
    ("host_cache", IN_MEMORY),
    ("placement", IN_MEMORY),
    ("strategy", "the stages of a batch run one after the other"),
    ("reuse", "the stages of a batch run one after the other"),
    ("link", ON_PROCESSOR),
    ("peer_link", ON_PROCESSOR),
    ("cuda_graphs", ON_PROCESSOR),
    ("devices", ON_PROCESSOR),
    ("precision", "products are in f32"),
    ("feature_precision", "feature rows have their stored type"),
    ("shuffle_parts", ONE_PROCESS),
    ("graph_stores", ONE_PROCESS),
    ("peer_timeout", ONE_PROCESS),
];
const IN_MEMORY: &str = "feature rows are in host memory, or mapped";
const ON_PROCESSOR: &str = "it runs on the processor";
const ONE_PROCESS: &str = "it runs in one process";

/// General options that such a run reads under the conditions of a run on one type.
const RULES: &[(&str, Rule)] = &[
    ("model", model),
    ("heads", rules::hidden_layer),
    ("out_heads", rules::last_layer),
    ("activation", rules::hidden_rows),
    ("norm", rules::hidden_rows),
    ("dropout", rules::hidden_rows),
    ("select_by", rules::several_scores),
    ("patience", rules::several_scores),
];

/// Returns true if the run trains on several types.
pub(crate) fn is_typed(config: &TrainConfig) -> bool {
    graphmill_nn::typed::TABLE.get(&config.model).is_some()
}

/// Returns true if the dataset has several types or tasks.
pub(super) fn has_types(config: &TrainConfig) -> bool {
    !config.dataset.is_empty() && !config.is_in_memory() && has_several_types(&config.dataset)
}

/// Names of the typed models.
pub(super) fn models() -> Vec<&'static str> {
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
    let needs_head = |entry: &graphmill_core::table::Entry<graphmill_nn::typed::TypedLayerKind>| {
        !entry.make.can_score && config.head_layers == 0
    };
    if !given.contains(&"head_layers")
        && graphmill_nn::typed::TABLE.get(&config.model).is_some_and(needs_head)
    {
        config.head_layers = 1;
    }
}

/// Rule of an option of a run on several types.
pub(super) fn rule(config: &TrainConfig, key: &Key) -> Read {
    if let Some((_, reason)) = UNREAD.iter().find(|(name, _)| *name == key.name) {
        return Err(format!("training on several types does not use it, because {reason}; leave it out"));
    }
    if let Some(group) = key.group {
        own(config, key, group)?;
    }
    RULES.iter().find(|(name, _)| *name == key.name).map_or(Ok(()), |(_, rule)| rule(config, key))
}

/// The dataset has several types.
fn model(config: &TrainConfig, _: &Key) -> Read {
    if has_types(config) {
        return Ok(());
    }
    Err("it is for datasets of several node types, edge types or tasks, and this dataset has one; use \
         --model sage, or leave it out"
        .into())
}

/// Names and options of the rows among which such a run chooses by `flag`.
fn rows(flag: &str) -> Vec<(&'static str, &'static [OptionGroup])> {
    match flag {
        "sampler" => graphmill_loader::typed::TABLE.groups(),
        "model" => graphmill_nn::typed::TABLE.groups(),
        "optimizer" => graphmill_nn::optim::TABLE.groups(),
        "schedule" => graphmill_nn::schedule::TABLE.groups(),
        _ => Vec::new(),
    }
}

/// Checks that a chosen row has the option's group, and that the option has an effect.
fn own(config: &TrainConfig, key: &Key, group: OptionGroup) -> Read {
    let mut reason = None;
    for axis in &AXES {
        let (rows, chosen) = (rows(axis.flag), (axis.chosen)(config));
        let readers: Vec<&str> =
            rows.iter().filter(|(_, groups)| groups.contains(&group)).map(|(name, _)| *name).collect();
        // an unknown row passes, because its lookup reports it
        let is_unknown = rows.iter().all(|(name, _)| *name != chosen);
        if readers.contains(&chosen) || is_unknown && !readers.is_empty() {
            return config.own.unused(group, key.name).map_or(Ok(()), Err);
        }
        if reason.is_none() && !readers.is_empty() {
            reason = Some(unread(axis.flag, chosen, &readers));
        }
    }
    Err(reason.unwrap_or_else(|| "training on several types does not use it; leave it out".into()))
}

/// Rule of `--task` in a run on one type.
pub(super) fn task(_: &TrainConfig, _: &Key) -> Read {
    Err("only datasets of several node types, edge types or tasks use it; leave it out".into())
}

/// Rule of `--model` and `--sampler` in a run on one type: the name is not one for several types.
pub(super) fn one_type(config: &TrainConfig, key: &Key) -> Read {
    if key.name == "model" && has_types(config) {
        let remedy = use_or_leave_out("model", &models());
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
