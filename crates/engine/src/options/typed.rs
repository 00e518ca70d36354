//! Rules that decide if a run on several types reads an option.

use graphmill_core::options::OptionGroup;
use graphmill_loader::time::TimeOptions;
use graphmill_nn::link::loss::LinkLossOptions;

use super::{
    AXES, LINK_GROUPS, at_times,
    keys::Key,
    link::{self, is_typed_link},
    reasons::{Read, Rule, unread, use_or_leave_out},
    rules,
    types::has_types,
};
use crate::{
    TrainConfig,
    config::{Devices, Switch, link_task::is_partitioned},
    strategy::{
        self, Chosen, HotGradient, LayeredOptions, RoundOptions,
        reuse::{AUTO, LAYERED, TABLE as REUSE},
        simulated,
    },
};

/// General options that such a run does not read, with the reason.
const UNREAD: &[(&str, &str)] = &[
    ("max_batches", "an epoch has all training nodes"),
    ("bottom", "feature rows are projected before they are aggregated"),
    ("bottom_dir", "feature rows are projected before they are aggregated"),
    ("fused", "feature rows are projected first, so they are copied"),
    ("sparse", "sparse feature rows stay sparse"),
    ("init", "dense layers start with Glorot's weights"),
    ("residual", "--model hgt and --model simple-hgn have residual connections of their own"),
    ("input_layer", "the features of each type have a linear layer of their own"),
    ("weight_decay_first_layer", "all dense weights decay alike"),
    ("cuda_graphs", "its steps are not captured"),
    ("shuffle_parts", "a rank draws subgraphs of its own parts, which stay with it"),
    ("graph_stores", "each rank holds a part and trains on its nodes"),
    ("inductive", "nodes of other types than the task's do not train"),
];

/// General options that such a run reads under the conditions of a run on one type.
const RULES: &[(&str, Rule)] = &[
    ("model", model),
    ("devices", devices),
    ("order", order),
    ("fanout", fanout),
    ("label_inputs", |config, _| label_columns(config)),
    ("strategy", of_types),
    ("reuse", |config, _| reuse(config)),
    ("heads", rules::hidden_layer),
    ("out_heads", rules::last_layer),
    ("activation", rules::hidden_rows),
    ("norm", rules::hidden_rows),
    ("dropout", rules::hidden_rows),
    ("select_by", rules::several_scores),
    ("patience", rules::several_scores),
];

/// General options with the same conditions as in a run on one type.
const SHARED: &[&str] = &[
    "quantile",
    "huber_delta",
    "target_transform",
    "class_weights",
    "focal",
    "device_budget",
    "cache_ratio",
    "cache",
    "host_cache",
    "placement",
    "link",
    "peer_link",
    "peer_timeout",
];

/// Options that a run on links of several types does not read, with the reason.
const UNREAD_OF_LINKS: &[(&str, &str)] = &[
    ("embedding_dim", "--hidden is the width of the embeddings"),
    ("candidates", "--metric says what edges are compared with"),
    ("head_layers", "the decoder scores the rows of the last layer"),
    ("out_heads", "the last layer has those of --heads"),
    ("positives", WALKS),
    ("walk_nodes", WALKS),
    ("walks_per_node", WALKS),
    ("walk_window", WALKS),
    ("walk_p", WALKS),
    ("walk_q", WALKS),
    ("quantile", NO_TARGETS),
    ("target_transform", NO_TARGETS),
    ("huber_delta", NO_TARGETS),
    ("class_weights", NO_TARGETS),
    ("focal", NO_TARGETS),
    ("label_inputs", NO_TARGETS),
];
const WALKS: &str = "the positives are edges";
const NO_TARGETS: &str = "links have no targets";

/// Reasons why runs on several types compute all rows of a batch.
pub(crate) const NO_REUSE_OF_LINKS: &str = "links of several types compute all rows of a batch";
pub(crate) const NO_REUSE_OVER_RANKS: &str = "on several types ranks do not exchange rows of the first layer";

/// Rule of an option of a run on several types.
pub(super) fn rule(config: &TrainConfig, key: &Key) -> Read {
    let learns_links = is_typed_link(config);
    if learns_links && key.name == "max_batches" {
        return Ok(());
    }
    if let Some((_, reason)) = UNREAD_OF_LINKS.iter().find(|(name, _)| learns_links && *name == key.name) {
        return Err(format!("links of several types do not use it, because {reason}; leave it out"));
    }
    if let Some((_, reason)) = UNREAD.iter().find(|(name, _)| *name == key.name) {
        return Err(format!("training on several types does not use it, because {reason}; leave it out"));
    }
    if let Some(group) = key.group {
        own(config, key, group)?;
    }
    if learns_links && key.name == "loss" {
        return Ok(());
    }
    let own = RULES.iter().find(|(name, _)| *name == key.name);
    let is_shared = SHARED.contains(&key.name);
    let shared = rules::RULES.iter().find(|(name, _)| is_shared && *name == key.name);
    own.or(shared).map_or(Ok(()), |(_, rule)| rule(config, key))
}

/// The devices can train.
fn devices(config: &TrainConfig, _: &Key) -> Read {
    match config.cuda_devices().len() {
        0 | 1 => Ok(()),
        _ => Err("on several types one NVIDIA device trains; use cuda:0, or leave it out".into()),
    }
}

/// The sampler draws the neighbours of seeds. An unknown name passes, because its lookup reports
/// it.
fn from_seeds(config: &TrainConfig) -> Read {
    let table = &graphmill_loader::typed::TABLE;
    match table.get(&config.sampler) {
        Some(entry) if entry.make.draws_subgraphs => {}
        _ => return Ok(()),
    }
    let readers = table.iter().filter(|entry| !entry.make.draws_subgraphs).map(|entry| entry.name);
    Err(unread("sampler", &config.sampler, &readers.collect::<Vec<_>>()))
}

/// Input rows of the task's type can have label columns: each batch has seeds whose labels it
/// hides, and the processor makes the rows of one process.
pub(crate) fn label_columns(config: &TrainConfig) -> Read {
    from_seeds(config)?;
    if *config.devices != Devices::Cpu {
        let devices = &config.devices;
        return Err(format!(
            "--devices {devices}: the processor appends labels to the rows; use --devices cpu, or leave it \
             out"
        ));
    }
    if is_partitioned(config) {
        return Err(
            "a rank has the labels of its own nodes only; use the dataset before graphmill partition, \
                    or leave it out"
                .into(),
        );
    }
    Ok(())
}

/// Batches of nodes in one process reuse rows of the first layer, which the processor makes between
/// super-batches, as constants.
pub(crate) fn reuse(config: &TrainConfig) -> Read {
    let refuse = |why: String, fix: &str| Err(format!("{why}; use {fix}, or leave it out"));
    let options = config.own.get::<LayeredOptions>();
    match &*config.reuse {
        LAYERED => {}
        AUTO => return refuse("it counts the work of layers of one type".into(), "layered or none"),
        _ => return Ok(()),
    }
    from_seeds(config)?;
    if is_typed_link(config) {
        return refuse(NO_REUSE_OF_LINKS.into(), "none");
    }
    if is_partitioned(config) {
        return refuse(NO_REUSE_OVER_RANKS.into(), "none, or the dataset before graphmill partition");
    }
    if *config.devices != Devices::Cpu {
        let why = format!("--devices {}: on several types the processor reads reused rows", config.devices);
        return refuse(why, "--devices cpu");
    }
    if config.layers < 2 {
        let why = "a model with one layer has no layer above the first one that could reuse its rows";
        return refuse(why.into(), "--layers 2 or more");
    }
    if config.label_inputs > 0.0 {
        let why = "batches share rows of the first layer, but with --label-inputs each hides the labels of \
                   its own seeds";
        return refuse(why.into(), "none");
    }
    if options.hot_prefetch == Switch::On {
        let why = "--hot-prefetch on: on several types rows are made between super-batches, because a \
                   learned row has no earlier versions";
        return refuse(why.into(), "--hot-prefetch off");
    }
    match options.hot_gradient {
        HotGradient::Auto | HotGradient::None => Ok(()),
        HotGradient::Projected | HotGradient::Kept => {
            let why = format!(
                "--hot-gradient {}: on several types reused rows are constants",
                options.hot_gradient
            );
            refuse(why, "--hot-gradient none")
        }
    }
}

/// Checks an option of reused rows.
fn of_reuse(config: &TrainConfig, key: &Key, group: OptionGroup) -> Read {
    if group != OptionGroup::of::<LayeredOptions>() || config.reuse != LAYERED {
        return Ok(());
    }
    if key.name == "hot_rank" {
        return Err("on several types reused rows are constants without directions; leave it out".into());
    }
    Chosen::of(config).and_then(|chosen| chosen.unused(config, key.name)).map_or(Ok(()), Err)
}

/// The sampler reads the fanout. Otherwise only its length matters, which `--layers` sets.
fn fanout(config: &TrainConfig, _: &Key) -> Read {
    from_seeds(config).map_err(|reason| format!("{reason}; --layers sets the number of layers"))
}

/// The sampler takes seeds in an order, the seeds are in several batches, and the order reads no
/// edges of one type.
fn order(config: &TrainConfig, _: &Key) -> Read {
    from_seeds(config)?;
    if config.batch_size == 0 {
        return Err(
            "--batch-size 0 puts all training nodes into one batch; set --batch-size, or leave it out".into(),
        );
    }
    match graphmill_loader::order::TABLE.get(&config.order) {
        Some(entry) if entry.make.of_labels.is_none() => {
            let readers: Vec<&str> = orders().map(|(name, _)| name).collect();
            Err(format!("it reads the edges of one type; {}", use_or_leave_out("order", &readers)))
        }
        _ => Ok(()),
    }
}

/// Orders of the seeds on several types, with their options.
fn orders() -> impl Iterator<Item = (&'static str, &'static [OptionGroup])> {
    let table = &graphmill_loader::order::TABLE;
    let is_of_labels =
        |(name, _): &(&str, _)| table.get(name).is_some_and(|entry| entry.make.of_labels.is_some());
    table.groups().into_iter().filter(is_of_labels)
}

/// The strategy trains on several types, on devices if it needs some.
fn of_types(config: &TrainConfig, _: &Key) -> Read {
    let Some(entry) = strategy::of(config) else { return Ok(()) };
    match entry.make.over_types {
        None => {
            let readers = strategies().map(|(name, _)| name).collect::<Vec<_>>();
            let fix = use_or_leave_out("strategy", &readers);
            Err(format!("it trains on batches of one graph; {fix}"))
        }
        Some(order) if order.is_on_devices() => {
            let numbers = simulated(config);
            numbers.map(drop).map_err(|why| format!("on several types {why}, or leave it out"))
        }
        Some(_) => Ok(()),
    }
}

/// Strategies that train on several types, with their options.
fn strategies() -> impl Iterator<Item = (&'static str, &'static [OptionGroup])> {
    let has_order = |(name, _): &(&str, _)| {
        strategy::TABLE.get(name).is_some_and(|entry| entry.make.over_types.is_some())
    };
    strategy::TABLE.groups().into_iter().filter(has_order)
}

/// The dataset is in a directory, or in parts of several types.
fn model(config: &TrainConfig, _: &Key) -> Read {
    if has_types(config) {
        return Ok(());
    }
    Err("it is for datasets of several node types, edge types or tasks, or of one type in a directory that \
         is not partitioned; name such a DATASET, use --model sage, or leave it out"
        .into())
}

/// Names and options of the rows among which such a run chooses by `flag`.
fn rows(flag: &str) -> Vec<(&'static str, &'static [OptionGroup])> {
    match flag {
        "sampler" => graphmill_loader::typed::TABLE.groups(),
        "model" => graphmill_nn::typed::TABLE.groups(),
        "optimizer" => graphmill_nn::optim::TABLE.groups(),
        "schedule" => graphmill_nn::schedule::TABLE.groups(),
        "strategy" => strategies().collect(),
        "reuse" => REUSE.groups().into_iter().filter(|(name, _)| *name != AUTO).collect(),
        "order" => orders().collect(),
        _ => Vec::new(),
    }
}

/// Checks an option of devices that train together: devices that sample do nothing else.
fn of_rounds(config: &TrainConfig, key: &Key, group: OptionGroup) -> Read {
    if key.name == "switching" {
        return Err("on several types a device that samples does not train; leave it out".into());
    }
    if group != OptionGroup::of::<RoundOptions>() {
        return Ok(());
    }
    Chosen::of(config).and_then(|chosen| chosen.unused(config, key.name)).map_or(Ok(()), Err)
}

/// Checks that a chosen row has the option's group, and that the option has an effect.
fn own(config: &TrainConfig, key: &Key, group: OptionGroup) -> Read {
    if group == OptionGroup::of::<TimeOptions>() {
        return at_times::own(config, key, group);
    }
    if LINK_GROUPS.contains(&group) {
        return match is_typed_link(config) {
            true if group == OptionGroup::of::<LinkLossOptions>() => link::of_loss(config, key),
            true if key.name == "valid_fraction" => link::of_stored_task(config, key),
            true => config.own.unused(group, key.name).map_or(Ok(()), Err),
            false => Err("the task is on nodes; use --task link, or leave it out".into()),
        };
    }
    of_rounds(config, key, group)?;
    of_reuse(config, key, group)?;
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
