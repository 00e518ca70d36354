//! Options that a run would ignore: each option names the rule by which a run reads it, and an option
//! that was given and is not read is refused with the reason and the nearest alternative.
//!
//! Most rules ask the row of a table: [`Entry::options`] of the chosen sampler, order, model, optimizer
//! or schedule, and [`strategy::Kind`]. A test tries every option with every sampler, strategy and
//! device kind (`tests/options.rs`).

use std::path::Path;

use graphmill_core::{options::Spelled, table::Table};
use graphmill_loader::{order, sampler, subgraph::PopBy};
use graphmill_nn::{layer, optim, schedule};

use super::{
    Devices, HotGradient, TrainConfig, Updates,
    keys::{KEYS, Key, key as key_named, shown},
    options::spelled,
};
use crate::{
    Error, Result,
    cache_kind::{Kind, kind},
    strategy,
};

/// Decides whether a run reads an option; an error holds the reason and the remedy.
pub type Rule = fn(&TrainConfig, &Key) -> std::result::Result<(), String>;

type Read = std::result::Result<(), String>;

/// The rules by which a run reads an option; every run reads the others.
const RULES: &[(&str, Rule)] = &[
    ("fanout", fanout),
    ("batch_size", sampler),
    ("order", seed_order),
    ("order_sequences", order),
    ("inductive", sampler),
    ("coverage", sampler),
    ("estimator", estimator),
    ("replace", sampler),
    ("edge_weights", sampler),
    ("draw_by", sampler),
    ("labor_iterations", sampler),
    ("walks", sampler),
    ("restart", sampler),
    ("walk_length", sampler),
    ("frontier_size", sampler),
    ("pop_by", sampler),
    ("eta", dashboard),
    ("degree_cap", sampler),
    ("burning", sampler),
    ("parts", sampler),
    ("parts_per_batch", sampler),
    ("fused", sampler),
    ("aggregator", model),
    ("hops", model),
    ("hidden", hidden_rows),
    ("heads", hidden_layer),
    ("out_heads", last_layer),
    ("activation", hidden_rows),
    ("norm", norm),
    ("dropout", hidden_rows),
    ("attention_dropout", model),
    ("momentum", optimizer),
    ("decay_first", weight_decay),
    ("schedule_epochs", schedule),
    ("schedule_factor", schedule),
    ("min_lr", schedule),
    ("select", several_scores),
    ("patience", several_scores),
    ("device_budget", devices),
    ("cache_ratio", cache_ratio),
    ("cache", cache),
    ("host_cache", host_cache),
    ("placement", placement),
    ("allocation", strategy),
    ("queue", strategy),
    ("num_samplers", strategy),
    ("switching", strategy),
    ("updates", strategy),
    ("all_reduce", summed_gradients),
    ("batches_per_update", synchronous),
    ("hot_ratio", strategy),
    ("super_batch", strategy),
    ("hot_by", hot_by),
    ("hot_rank", directions),
    ("hot_gradient", strategy),
    ("hot_ahead", strategy),
    ("hot_split", hot_split),
    ("max_variation", strategy),
    ("staleness", asynchronous),
    ("link", virtual_devices),
    ("cuda_graphs", cuda),
    ("shuffle_parts", shuffled_parts),
    ("peer_timeout", ranks),
];

impl TrainConfig {
    /// Refuses the `given` options that a run with this configuration would ignore.
    ///
    /// # Errors
    /// Wrong usage: every ignored option with the reason and the nearest alternative.
    pub fn refuse_unused(&self, given: &[&str]) -> Result<()> {
        refuse_unused_by_all(std::slice::from_ref(self), given)
    }

    /// Names among `set`, the options that a file sets, whose values are neither the defaults nor what
    /// [`TrainConfig::settle`] derives. The file of an earlier run sets all options, also those that the
    /// run did not read.
    pub fn beyond_defaults(&self, set: &[&'static str]) -> Vec<&'static str> {
        let default = Self::default();
        let mut derived = self.clone();
        derived.fanout = default.fanout.clone();
        derived.hot_ahead = default.hot_ahead;
        derived.batches_per_update = default.batches_per_update;
        // a depth that does not fit is reported by `settle` itself
        let _ = derived.settle(&["layers"]);
        let differs = |key: &&Key| {
            let value = key.write(self);
            let is_derived = ["fanout", "hot_ahead", "batches_per_update"].contains(&key.name);
            value != key.write(&default) && !(is_derived && value == key.write(&derived))
        };
        KEYS.iter().filter(differs).map(|key| key.name).filter(|name| set.contains(name)).collect()
    }
}

/// Refuses the `given` options that none of several runs reads.
///
/// # Errors
/// As [`TrainConfig::refuse_unused`], with the reason of the first run.
pub fn refuse_unused_by_all(runs: &[TrainConfig], given: &[&str]) -> Result<()> {
    refuse_all(runs, given, whole)
}

/// Refuses the `given` options by which none of several runs draws its minibatches.
///
/// # Errors
/// As [`refuse_unused_by_all`].
pub fn refuse_undrawn_by_all(runs: &[TrainConfig], given: &[&str]) -> Result<()> {
    refuse_all(runs, given, drawn)
}

/// Refuses the `given` options that `rule` refuses for all of several runs.
pub(crate) fn refuse_all(runs: &[TrainConfig], given: &[&str], rule: Rule) -> Result<()> {
    let reason = |key: &Key| {
        let mut reasons = runs.iter().map(|run| rule(run, key).err());
        let first = reasons.next()??;
        reasons.all(|reason| reason.is_some()).then_some(first)
    };
    let fault = |key: &Key| {
        let value = shown(&key.write(&runs[0]));
        Some(format!("--{} {value}: {}", key.flag(), reason(key)?))
    };
    let keys = KEYS.iter().filter(|key| given.contains(&key.name));
    let faults: Vec<String> = keys.filter_map(fault).collect();
    if faults.is_empty() { Ok(()) } else { Err(Error::usage(faults.join("\n"))) }
}

/// Every run reads it.
pub(crate) fn always(_: &TrainConfig, _: &Key) -> Read {
    Ok(())
}

/// A whole run reads it.
pub(crate) fn whole(config: &TrainConfig, key: &Key) -> Read {
    let rule = RULES.iter().find(|(of, _)| *of == key.name);
    rule.map_or(Ok(()), |(_, rule)| rule(config, key))
}

/// The minibatches of a run depend on it: options that some samplers list, such as the number of layers,
/// are then read by those alone.
pub(crate) fn drawn(config: &TrainConfig, key: &Key) -> Read {
    whole(config, key)?;
    if sampler::TABLE.iter().any(|entry| entry.options.contains(&key.name)) {
        return sampler(config, key);
    }
    Ok(())
}

/// The row of the chosen sampler lists it.
pub(super) fn sampler(config: &TrainConfig, key: &Key) -> Read {
    row(&sampler::TABLE, &config.sampler, key)
}

/// The row of the chosen sampler lists it; else only their number counts, which has an option of its own.
pub(super) fn fanout(config: &TrainConfig, key: &Key) -> Read {
    sampler(config, key).map_err(|reason| format!("{reason}; --layers sets the number of layers"))
}

/// The row of the chosen layer lists it.
pub(super) fn model(config: &TrainConfig, key: &Key) -> Read {
    row(&layer::TABLE, &config.model, key)
}

/// Whether a layer gives rows to another layer or to a head.
fn has_hidden_layer(config: &TrainConfig) -> bool {
    config.layers > 1 || config.head_layers > 0
}

/// Some rows are hidden, or the row of the chosen layer lists it.
pub(super) fn hidden_rows(config: &TrainConfig, key: &Key) -> Read {
    if has_hidden_layer(config) || config.input_layer || model(config, key).is_ok() {
        return Ok(());
    }
    Err("--layers 1 gives the classes, so that there are no hidden rows; use --layers 2, --head-layers 1 or \
         --input-layer, or leave it out"
        .into())
}

/// Some layer is hidden, or the layer has a norm of its own.
pub(super) fn norm(config: &TrainConfig, key: &Key) -> Read {
    let own = model(config, key).is_ok();
    if has_hidden_layer(config) || own && config.norm == "batch" {
        return Ok(());
    }
    let alternative = if own { "--norm batch, --layers 2" } else { "--layers 2" };
    Err(format!(
        "--layers 1 gives the classes, so that no layer is followed by a norm; use {alternative} or \
         --head-layers 1, or leave it out"
    ))
}

/// Some layer is hidden, and the row of the chosen layer lists it.
pub(super) fn hidden_layer(config: &TrainConfig, key: &Key) -> Read {
    model(config, key)?;
    if has_hidden_layer(config) {
        return Ok(());
    }
    Err("--layers 1 gives the classes, so that there is no hidden layer; use --out-heads, --layers 2 or \
         --head-layers 1, or leave it out"
        .into())
}

/// The last layer gives the classes, and the row of the chosen layer lists it.
pub(super) fn last_layer(config: &TrainConfig, key: &Key) -> Read {
    model(config, key)?;
    if config.head_layers == 0 {
        return Ok(());
    }
    Err(format!(
        "with --head-layers {} a classifier gives the classes, so that every graph layer is hidden; use --heads or \
         --head-layers 0, or leave it out",
        config.head_layers
    ))
}

/// The row of the chosen optimizer lists it.
pub(super) fn optimizer(config: &TrainConfig, key: &Key) -> Read {
    row(&optim::TABLE, &config.optimizer, key)
}

/// The row of the chosen schedule lists it.
pub(super) fn schedule(config: &TrainConfig, key: &Key) -> Read {
    row(&schedule::TABLE, &config.schedule, key)
}

/// The row of the chosen entry of a table lists it. An unknown name is reported where it is looked up.
fn row<C>(table: &Table<C>, chosen: &str, key: &Key) -> Read {
    let (flag, Some(entry)) = (table.axis(), table.get(chosen)) else { return Ok(()) };
    if entry.options.contains(&key.name) {
        return Ok(());
    }
    let readers: Vec<&str> =
        table.iter().filter(|entry| entry.options.contains(&key.name)).map(|entry| entry.name).collect();
    Err(format!("--{flag} {chosen} does not use it; {}", use_or_leave_out(flag, &readers)))
}

/// Names the values of `flag` with which an option is read.
fn use_or_leave_out(flag: &str, values: &[&str]) -> String {
    format!("use --{flag} {}, or leave it out", one_of(values))
}

/// `a`, `a or b`, `a, b or c`.
pub(crate) fn one_of(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_string(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// The sampler starts from seeds, of which an epoch has several batches.
pub(super) fn seed_order(config: &TrainConfig, key: &Key) -> Read {
    sampler(config, key)?;
    if config.batch_size == 0 {
        return Err("--batch-size 0 puts all training nodes into one batch; give the size of a batch, \
                    or leave it out"
            .into());
    }
    Ok(())
}

/// The chosen order of seeds lists it.
pub(super) fn order(config: &TrainConfig, key: &Key) -> Read {
    let order = key_named("order").expect("there is an option of that name");
    seed_order(config, order)?;
    row(&order::TABLE, &config.order, key)
}

/// Subgraphs are weighed by counts.
pub(super) fn estimator(config: &TrainConfig, key: &Key) -> Read {
    sampler(config, key)?;
    if config.coverage == 0.0 {
        return Err("--coverage 0 counts nothing to estimate from; give a coverage, or leave it out".into());
    }
    Ok(())
}

/// The frontier is a dashboard.
pub(super) fn dashboard(config: &TrainConfig, key: &Key) -> Read {
    sampler(config, key)?;
    if config.pop_by == PopBy::Dashboard {
        return Ok(());
    }
    Err(format!("--pop-by {} does not use it; {}", config.pop_by, use_or_leave_out("pop-by", &["dashboard"])))
}

/// Several epochs are scored, so that there is a best one and training may stop before the last.
pub(super) fn several_scores(config: &TrainConfig, _: &Key) -> Read {
    if config.epochs.div_ceil(config.eval_every.max(1)) > 1 {
        return Ok(());
    }
    Err(match config.epochs {
        1 => "--epochs 1 has a single epoch to score; give more epochs, or leave it out".into(),
        epochs => format!(
            "--eval-every {} scores the last of {epochs} epochs alone; use --eval-every {} or less, or leave it out",
            config.eval_every,
            epochs / 2
        ),
    })
}

/// There is a weight decay to restrict.
pub(super) fn weight_decay(config: &TrainConfig, _: &Key) -> Read {
    if config.weight_decay > 0.0 {
        return Ok(());
    }
    Err("--weight-decay is 0; give a weight decay, or leave it out".into())
}

/// Runs on devices with a memory of their own.
pub(super) fn devices(config: &TrainConfig, _: &Key) -> Read {
    match &*config.devices {
        Devices::Cpu => Err("--devices cpu has no device memory; use --devices virtual:N or \
                                 cuda:N, or --host-budget to bound the host's"
            .into()),
        _ => Ok(()),
    }
}

/// Runs on simulated devices.
pub(super) fn virtual_devices(config: &TrainConfig, _: &Key) -> Read {
    match &*config.devices {
        Devices::Cpu | Devices::Cuda(_) => Err(format!(
            "--devices {} has no simulated link; {}",
            config.devices,
            use_or_leave_out("devices", &["virtual:N"])
        )),
        _ => Ok(()),
    }
}

/// Runs on NVIDIA devices.
pub(super) fn cuda(config: &TrainConfig, _: &Key) -> Read {
    match &*config.devices {
        Devices::Cpu | Devices::Virtual(_) => Err(format!(
            "--devices {} has no CUDA graphs; {}",
            config.devices,
            use_or_leave_out("devices", &["cuda:N"])
        )),
        _ => Ok(()),
    }
}

/// Whether the dataset is the directory of a partitioned one.
fn is_partitioned(config: &TrainConfig) -> bool {
    !config.dataset.is_empty() && Path::new(&config.dataset).join("partition.json").is_file()
}

/// Trains over ranks.
pub(super) fn ranks(config: &TrainConfig, _: &Key) -> Read {
    if is_partitioned(config) {
        return Ok(());
    }
    Err("only training over ranks uses it, and this dataset is not partitioned; train on what graphmill \
         partition writes, or leave it out"
        .into())
}

/// Draws subgraphs from the parts of a partitioned dataset.
pub(super) fn shuffled_parts(config: &TrainConfig, key: &Key) -> Read {
    ranks(config, key)?;
    sampler(config, key_named("inductive").expect("there is an option of that name"))
}

/// Whether the sampler draws whole subgraphs.
fn draws_subgraphs(config: &TrainConfig) -> bool {
    let entry = sampler::TABLE.get(&config.sampler);
    entry.is_some_and(|entry| matches!(entry.make, sampler::Make::Subgraphs(_)))
}

/// Rows are read through a cache whose size is a part of all.
pub(super) fn cache_ratio(config: &TrainConfig, _: &Key) -> Read {
    if is_partitioned(config) && draws_subgraphs(config) {
        return Err(format!(
            "over ranks, --sampler {} reads the rows of its own parts alone; use a sampler that starts from \
             seeds, or leave it out",
            config.sampler
        ));
    }
    Ok(())
}

/// Some rows are beyond the nearest cache.
pub(super) fn cache(config: &TrainConfig, key: &Key) -> Read {
    cache_ratio(config, key)?;
    match config.cache_ratio.0 {
        None => {}
        Some(0.0) => {
            return Err("--cache-ratio 0 caches no rows; give a larger one, or leave this out".into());
        }
        Some(_) => return Ok(()),
    }
    match &*config.devices {
        _ if is_partitioned(config) => {
            Err("a rank caches no rows of others without --cache-ratio; give it, or leave this out".into())
        }
        Devices::Cpu if config.host_budget.0 == 0 => Err("host memory holds all rows, so there is no \
                                                              cache; give --host-budget or --cache-ratio, \
                                                              or leave it out"
            .into()),
        Devices::Virtual(_) if config.device_budget.0 == 0 => Err(
            "devices without a budget hold all rows; give --device-budget or --cache-ratio, or leave it out"
                .into(),
        ),
        _ => Ok(()),
    }
}

/// A cache in host memory stands between devices and the disk.
pub(super) fn host_cache(config: &TrainConfig, _: &Key) -> Read {
    match &*config.devices {
        Devices::Cpu => Err("the cache of --devices cpu is --cache; use it instead".into()),
        Devices::Virtual(_) if config.host_budget.0 == 0 => {
            Err("host memory without a budget holds all rows; give --host-budget, or leave it out".into())
        }
        Devices::Cuda(_) => {
            Err("NVIDIA devices read all rows from host memory, which needs no cache; leave it out".into())
        }
        _ => Ok(()),
    }
}

/// Several devices share a cache that stays as it is.
pub(super) fn placement(config: &TrainConfig, key: &Key) -> Read {
    let shares = match &*config.devices {
        Devices::Cpu => {
            return Err(
                "--devices cpu has no devices to place rows on; use --devices virtual:N or cuda:0,1, \
                        or leave it out"
                    .into(),
            );
        }
        Devices::Virtual(count) => (*count, !strategy::is_by_device(config)),
        Devices::Cuda(numbers) => (numbers.len(), true),
    };
    if shares.0 < 2 {
        return Err(format!(
            "--devices {} is a single device, which holds all cached rows; name several, or leave it out",
            config.devices
        ));
    }
    if !shares.1 {
        return Err(format!(
            "with --strategy {} each simulated device has a cache of its own; use --strategy sequential or \
             pipelined, whose devices share one, or leave it out",
            config.strategy
        ));
    }
    // without a ratio simulated devices share all rows, or those that their budgets have room for
    if is_partitioned(config) || config.cache_ratio.0.is_some() {
        cache(config, key)?;
    }
    let comes_and_goes = match (config.cache.as_str(), config.order.as_str()) {
        ("auto", order) => order == "proximity",
        (name, _) => matches!(kind(name), Ok(Kind::Dynamic(_))),
    };
    if comes_and_goes {
        return Err(format!(
            "rows of --cache {} come and go where they are read; use a hotness such as --cache posterior:2, \
             or leave it out",
            config.cache
        ));
    }
    Ok(())
}

/// The chosen strategy lists it.
pub(super) fn strategy(config: &TrainConfig, key: &Key) -> Read {
    let reads = |strategy: &str, devices: &Spelled<Devices>| {
        let config = TrainConfig { strategy: strategy.into(), devices: devices.clone(), ..config.clone() };
        strategy::reads(&config, key.name)
    };
    let known = strategy::TABLE.get(&config.strategy).is_some();
    if !known || reads(&config.strategy, &config.devices) {
        return Ok(());
    }
    if *config.devices == Devices::Cpu && reads(&config.strategy, &spelled("virtual:2")) {
        return Err(format!(
            "--strategy {} uses it on devices alone; {}",
            config.strategy,
            use_or_leave_out("devices", &["virtual:N", "cuda:N"])
        ));
    }
    let names = strategy::TABLE.iter().map(|entry| entry.name);
    let readers: Vec<&str> = names.filter(|name| reads(name, &config.devices)).collect();
    Err(format!("--strategy {} does not use it; {}", config.strategy, use_or_leave_out("strategy", &readers)))
}

/// The chosen strategy lists it, and some of the nodes that could be hot are not.
pub(super) fn hot_by(config: &TrainConfig, key: &Key) -> Read {
    strategy(config, key)?;
    match config.hot_ratio.0 {
        _ if config.hot_by == "asked" => Ok(()),
        Some(ratio) if ratio < 1.0 => Ok(()),
        ratio => Err(format!(
            "--hot-ratio {} reuses the rows of every node that can be hot; give a smaller part such as \
             --hot-ratio 0.3, or leave it out",
            ratio.map_or("auto".into(), |ratio| ratio.to_string())
        )),
    }
}

/// Updates wait for each other.
pub(super) fn synchronous(config: &TrainConfig, key: &Key) -> Read {
    strategy(config, key)?;
    if config.updates == Updates::Synchronous {
        return Ok(());
    }
    Err("an asynchronous update is of one batch; use --updates synchronous, or leave it out".into())
}

/// Updates do not wait for each other.
pub(super) fn asynchronous(config: &TrainConfig, key: &Key) -> Read {
    strategy(config, key)?;
    if config.updates == Updates::Asynchronous {
        return Ok(());
    }
    Err("synchronous updates are never late; use --updates asynchronous, or leave it out".into())
}

/// Gradients of several NVIDIA devices are summed.
pub(super) fn summed_gradients(config: &TrainConfig, key: &Key) -> Read {
    match &*config.devices {
        Devices::Cuda(numbers) if numbers.len() > 1 => strategy(config, key),
        _ => Err(format!(
            "--devices {} has no gradients of several NVIDIA devices to sum; {}",
            config.devices,
            use_or_leave_out("devices", &["cuda:0,1"])
        )),
    }
}

/// Reused rows follow the parameters in some directions.
pub(super) fn directions(config: &TrainConfig, key: &Key) -> Read {
    strategy(config, key)?;
    if config.hot_gradient != HotGradient::Kept || config.hot_rank == 0 {
        return Ok(());
    }
    Err("--hot-gradient kept works without directions; use projected or none, or leave it out".into())
}

/// Something can be shared between reused rows and caches.
pub(super) fn hot_split(config: &TrainConfig, key: &Key) -> Read {
    strategy(config, key)?;
    if config.hot_split.0.is_some() || *config.devices != Devices::Cpu {
        return Ok(());
    }
    Err("auto adapts to how long devices wait, and --devices cpu has none; give a part from 0 to 1, or use \
         --devices virtual:N"
        .into())
}
