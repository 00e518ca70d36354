//! Rules that decide if a run on a stream of events reads an option, and its derived options.

use graphmill_loader::time::{TimeBound, TimeDraw, TimeOptions};

use super::{keys::Key, reasons::Read, rules};
use crate::{
    TrainConfig,
    config::{
        events::{EventNeighbors, EventRows, TABLE, is_of_events, kind, learns_targets},
        link::{EdgeShares, LinkOptions},
    },
};

/// General options that such a run reads.
const READ: &[&str] = &[
    "dataset",
    "start_from",
    "verify",
    "metric",
    "task",
    "fanout",
    "layers",
    "batch_size",
    "model",
    "hidden",
    "dropout",
    "epochs",
    "optimizer",
    "lr",
    "weight_decay",
    "clip",
    "schedule",
    "warmup",
    "seed",
    "host_budget",
    "threads",
    "precision",
    "eval_every",
    "eval_nodes",
    "checkpoint_batches",
    "checkpoint_seconds",
    "trace",
    "tensorboard",
];

/// General options of runs on a class or value of each event.
const OF_TARGETS: &[&str] =
    &["loss", "quantile", "huber_delta", "target_transform", "class_weights", "focal", "select_by"];

/// Rule of an option of such a run.
pub(super) fn rule(config: &TrainConfig, key: &Key) -> Read {
    let refuse = |why: &str| Err(format!("--model {} does not use it: {why}; leave it out", config.model));
    let rows = kind(config).map(|kind| kind.rows);
    let has_neighbors = kind(config).is_some_and(|kind| kind.neighbors.is_some());
    let Some(group) = key.group else {
        return match key.name {
            "patience" => rules::several_scores(config, key),
            name if OF_TARGETS.contains(&name) => of_targets(config, key),
            "fanout" | "layers" if !has_neighbors => refuse("it reads no neighbours"),
            "layers" if rows == Some(EventRows::Pairs) && config.layers != 1 => {
                refuse("its histories are of one hop, and --transformer-layers is its depth")
            }
            "fanout" if !config.fanout_by_name.is_empty() => refuse("its events are of one edge type"),
            name if READ.contains(&name) => Ok(()),
            "max_batches" => refuse("an epoch has all training events, in their order"),
            "order" => refuse("events are learned in the order of their times"),
            "sampler" if !has_neighbors => refuse("it reads no neighbours"),
            "sampler" => refuse("--time-draw chooses its neighbours"),
            _ => refuse("it learns a stream of events"),
        };
    };
    if key.name == "split_edges" {
        return by_time(config);
    }
    let is_of = |options: Option<&'static [graphmill_core::options::OptionGroup]>| {
        options.is_some_and(|options| options.contains(&group))
    };
    let is_read = is_of(TABLE.get(&config.model).map(|entry| entry.options))
        || is_of(graphmill_nn::schedule::TABLE.get(&config.schedule).map(|entry| entry.options))
        || is_of(graphmill_nn::optim::TABLE.get(&config.optimizer).map(|entry| entry.options));
    if !is_read {
        return Err(format!("--model {} does not use it; leave it out", config.model));
    }
    let options: TimeOptions = config.own.get();
    match key.name {
        "time_bound" if options.time_bound == TimeBound::Inclusive => {
            Err("an event would be read by its own prediction; use --time-bound strict, or leave it out"
                .into())
        }
        "out_heads" => refuse("all its layers join their heads"),
        "event_heads" if !matches!(rows, Some(EventRows::Attention | EventRows::Pairs)) => {
            refuse("it is for the attention of tgn, tgat and dygformer")
        }
        "learn_frequencies" if matches!(rows, Some(EventRows::Edges(_))) => {
            refuse("it is for the attention of tgn, tgat and dygformer, and for memory")
        }
        "time_carry" if config.layers == 1 => {
            Err("it bounds the hops after the first, and --layers is 1; leave it out".into())
        }
        _ => config.own.unused(group, key.name).map_or(Ok(()), Err),
    }
}

/// Edges are divided by time.
fn by_time(config: &TrainConfig) -> Read {
    let option = config.own.get::<LinkOptions>().split_edges;
    if option.by_time {
        return Ok(());
    }
    let timed = EdgeShares { by_time: true, ..option };
    Err(format!(
        "--model {} learns earlier events to predict later ones, so edges are not split at random; use \
         --split-edges {timed}, or leave it out",
        config.model
    ))
}

/// The task has a class or value for each event, and its loss reads the option.
fn of_targets(config: &TrainConfig, key: &Key) -> Read {
    if !learns_targets(config) {
        return Err(format!(
            "--model {} learns links here, which have neither classes nor values; use --task NAME of a task \
             that has, or leave it out",
            config.model
        ));
    }
    let of_key = rules::RULES.iter().find(|(name, _)| *name == key.name);
    of_key.map_or(Ok(()), |(_, rule)| rule(config, key))
}

/// Fills in the values of the papers, unless they were `given`.
pub(super) fn derive_options(config: &mut TrainConfig, given: &[&str]) {
    let Some(kind) = kind(config).filter(|_| is_of_events(config)) else { return };
    let default = TrainConfig::default();
    let is_free = |name: &str| !given.contains(&name);
    if let Some(EventNeighbors { fanout, draw, carry }) = kind.neighbors {
        if is_free("fanout")
            && is_free("layers")
            && config.fanout == default.fanout
            && config.layers == default.layers
        {
            config.fanout.0 = fanout.to_vec();
            config.layers = fanout.len();
        } else if is_free("fanout") && config.fanout == default.fanout {
            config.fanout.0 = vec![fanout[0]; config.layers];
        }
        let options: &mut TimeOptions = config.own.get_mut();
        if is_free("time_draw") && options.time_draw == TimeDraw::default() {
            options.time_draw = draw;
        }
        if is_free("time_carry") && options.time_carry == TimeOptions::default().time_carry {
            options.time_carry = carry;
        }
    }
    if is_free("batch_size") && config.batch_size == default.batch_size {
        config.batch_size = 200;
    }
    if is_free("dropout") && config.dropout == default.dropout {
        config.dropout = 0.1;
    }
    if is_free("lr") && config.lr == default.lr {
        config.lr = 1e-4;
    }
    if is_free("hidden") && config.hidden == default.hidden {
        config.hidden = match kind.rows {
            EventRows::Edges(_) => 128,
            EventRows::Pairs => 172,
            EventRows::Attention | EventRows::Projection => 100,
        };
    }
}
