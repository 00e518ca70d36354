//! Rules that decide if a run reads a general option, or an option of an algorithm whose effect
//! depends on general options. Each rule's comment states its condition.

use graphmill_loader::{feature::cached::Placement, order, sampler};
use graphmill_nn::layer::{self, NormKind};

use super::{
    keys::Key,
    link,
    reasons::{Read, Rule, unread, use_or_leave_out},
    targets, types,
};
use crate::{
    TrainConfig,
    cache_kind::{AUTO, Kind, kind},
    config::{Bottom, Devices, Fanout, Switch, link_task::is_partitioned},
    strategy::{self, Chosen},
};

/// Rules by option name. Every run reads the general options without a rule.
pub(super) const RULES: &[(&str, Rule)] = &[
    ("task", types::task),
    ("quantile", targets::of_loss),
    ("huber_delta", targets::of_loss),
    ("target_transform", targets::of_values),
    ("class_weights", targets::of_classes),
    ("focal", targets::of_classes),
    ("label_inputs", |config, _| label_columns(config)),
    ("margin", link::of_loss),
    ("temperature", link::of_loss),
    ("adversarial", link::of_loss),
    ("valid_fraction", link::of_stored_task),
    ("link_times", link::at_times),
    ("eval_negatives", link::at_times),
    ("model", types::one_type),
    ("sampler", types::one_type),
    ("fanout", fanout),
    ("batch_size", sampler),
    ("order", seed_order),
    ("bottom", bottom),
    ("bottom_dir", exact_bottom),
    ("fused", sampler),
    ("hidden", hidden_rows),
    ("heads", hidden_layer),
    ("out_heads", last_layer),
    ("activation", activation),
    ("norm", norm),
    ("dropout", hidden_rows),
    ("weight_decay_first_layer", weight_decay),
    ("select_by", several_scores),
    ("patience", several_scores),
    ("device_budget", devices),
    ("cache_ratio", cache_ratio),
    ("cache", cache),
    ("host_cache", host_cache),
    ("placement", placement),
    ("reuse", reuse),
    ("link", virtual_devices),
    ("peer_link", peer_link),
    ("cuda_graphs", cuda),
    ("shuffle_parts", shuffled_parts),
    ("graph_stores", ranks),
    ("peer_timeout", ranks),
];

/// The chosen sampler reads the option.
pub(super) fn sampler(config: &TrainConfig, key: &Key) -> Read {
    by_sampler(config, |kind| kind.reads(key.name))
}

/// The chosen sampler satisfies `reads`. An unknown name passes, because its lookup reports it.
fn by_sampler(config: &TrainConfig, reads: impl Fn(&sampler::SamplerKind) -> bool) -> Read {
    let Some(entry) = sampler::TABLE.get(&config.sampler) else { return Ok(()) };
    if reads(&entry.make) {
        return Ok(());
    }
    let readers = sampler::TABLE.iter().filter(|entry| reads(&entry.make)).map(|entry| entry.name);
    Err(unread("sampler", &config.sampler, &readers.collect::<Vec<_>>()))
}

/// Input rows can have label columns: the run learns targets of nodes, each batch has seeds whose
/// labels it hides, and the processor copies rows for one batch.
pub(crate) fn label_columns(config: &TrainConfig) -> Read {
    targets::learns_nodes(config)?;
    by_sampler(config, |kind| !kind.draws_subgraphs())?;
    let refuse = |why: String, remedy: &str| Err(format!("{why}; use {remedy}, or leave it out"));
    if Chosen::of(config).is_some_and(|chosen| chosen.draws_in_parts()) {
        let why = "batches share rows of the bottom layer, but each hides the labels of its own seeds";
        return refuse(why.into(), "--strategy sequential or pipelined with --reuse none");
    }
    if config.bottom == Bottom::Exact {
        return refuse("--bottom exact stores aggregates of features alone".into(), "--bottom sampled");
    }
    if config.fused == Switch::On {
        return refuse("--fused on reads the features in place, without columns".into(), "--fused auto");
    }
    if config.sparse == Switch::On {
        return refuse("--sparse on keeps the features alone".into(), "--sparse auto");
    }
    if *config.devices != Devices::Cpu {
        let why = format!("--devices {}: the processor appends labels to the rows", config.devices);
        return refuse(why, "--devices cpu");
    }
    if is_partitioned(config) {
        let why = "a rank has the labels of its own nodes only".into();
        return refuse(why, "the dataset before graphmill partition");
    }
    Ok(())
}

/// The sampler reads the fanout, and the bottom hop its last number. Otherwise only its length
/// matters, which `--layers` sets.
fn fanout(config: &TrainConfig, key: &Key) -> Read {
    types::fanout(config)?;
    let mut hops = config.fanout.0.clone();
    if config.bottom == Bottom::Exact
        && let Some(last) = hops.last_mut()
        && *last != Fanout::ALL
    {
        *last = Fanout::ALL;
        let exact = Fanout(hops);
        return Err(format!(
            "--bottom exact reads all neighbours at the last hop; use --fanout {exact}, or --bottom sampled"
        ));
    }
    sampler(config, key).map_err(|reason| format!("{reason}; --layers sets the number of layers"))
}

/// The sampler can leave out the bottom hop. `auto` fits every sampler.
fn bottom(config: &TrainConfig, key: &Key) -> Read {
    if config.bottom == Bottom::Auto { Ok(()) } else { sampler(config, key) }
}

/// The run may store the aggregates of the bottom hop.
fn exact_bottom(config: &TrainConfig, _: &Key) -> Read {
    if config.bottom != Bottom::Sampled {
        return Ok(());
    }
    Err("--bottom sampled stores no aggregates; use --bottom exact, or leave it out".into())
}

/// Chosen kind of layer.
fn model(config: &TrainConfig) -> Option<&'static layer::LayerKind> {
    layer::TABLE.get(&config.model).map(|entry| &entry.make)
}

/// Returns true if a layer's rows feed another layer or a head.
fn has_hidden_layer(config: &TrainConfig) -> bool {
    config.layers > 1 || config.head_layers > 0
}

/// The model has hidden rows, or the chosen layer applies the activation itself.
fn activation(config: &TrainConfig, key: &Key) -> Read {
    if model(config).is_some_and(|kind| kind.has_inner_activation) {
        return Ok(());
    }
    hidden_rows(config, key)
}

/// The model has hidden rows.
pub(super) fn hidden_rows(config: &TrainConfig, _: &Key) -> Read {
    if has_hidden_layer(config) || config.input_layer {
        return Ok(());
    }
    Err("the only layer of --layers 1 outputs the classes, so the model has no hidden rows; use --layers 2, \
         --head-layers 1 or --input-layer, or leave it out"
        .into())
}

/// The model has a hidden layer, or the layer has an inner norm.
fn norm(config: &TrainConfig, _: &Key) -> Read {
    let own = model(config).is_some_and(|kind| kind.has_inner_norm);
    if has_hidden_layer(config) || own && config.norm.kind(own) == NormKind::Batch {
        return Ok(());
    }
    let alternative = if own { "--norm batch, --layers 2" } else { "--layers 2" };
    Err(format!(
        "the only layer of --layers 1 outputs the classes, which are not normalised; use {alternative} or \
         --head-layers 1, or leave it out"
    ))
}

/// The model has a hidden layer.
pub(super) fn hidden_layer(config: &TrainConfig, _: &Key) -> Read {
    if has_hidden_layer(config) {
        return Ok(());
    }
    Err("the only layer of --layers 1 outputs the classes, so the model has no hidden layer; use \
         --out-heads, --layers 2 or --head-layers 1, or leave it out"
        .into())
}

/// The last graph layer outputs the classes.
pub(super) fn last_layer(config: &TrainConfig, _: &Key) -> Read {
    if config.head_layers == 0 {
        return Ok(());
    }
    Err(format!(
        "with --head-layers {} an MLP outputs the classes, so every graph layer is hidden; use --heads or \
         --head-layers 0, or leave it out",
        config.head_layers
    ))
}

/// The sampler starts from seeds, and an epoch has several batches of them.
pub(super) fn seed_order(config: &TrainConfig, _: &Key) -> Read {
    by_sampler(config, |kind| kind.reads("order"))?;
    if config.batch_size == 0 {
        return Err(
            "--batch-size 0 puts all training nodes into one batch; set --batch-size, or leave it out".into(),
        );
    }
    Ok(())
}

/// Several epochs are scored, so training can select the best one and stop early.
pub(super) fn several_scores(config: &TrainConfig, _: &Key) -> Read {
    let every = config.eval_every.fixed().unwrap_or(1);
    if config.epochs.div_ceil(every) > 1 {
        return Ok(());
    }
    Err(match config.epochs {
        1 => "--epochs 1 scores a single epoch; raise --epochs, or leave it out".into(),
        epochs => format!(
            "--eval-every {every} scores only the last of {epochs} epochs; use --eval-every {} or less, or \
             leave it out",
            epochs / 2
        ),
    })
}

/// The weight decay is above 0.
fn weight_decay(config: &TrainConfig, _: &Key) -> Read {
    if config.weight_decay > 0.0 {
        return Ok(());
    }
    Err("--weight-decay is 0; set --weight-decay, or leave it out".into())
}

/// The name of the strategy does not already stand for a reuse.
fn reuse(config: &TrainConfig, _: &Key) -> Read {
    let Some(alias) = strategy::of(config).and_then(|entry| entry.make.alias) else { return Ok(()) };
    let Some(reuse) = alias.reuse else { return Ok(()) };
    let strategy = (alias.strategy)(config);
    Err(format!(
        "--strategy {} stands for --strategy {strategy} --reuse {reuse}; use --strategy {strategy}, or leave \
         it out",
        config.strategy
    ))
}

/// The run uses devices with their own memory.
fn devices(config: &TrainConfig, _: &Key) -> Read {
    match &*config.devices {
        Devices::Cpu => Err("--devices cpu has no device memory; use --devices virtual:N or \
                                 cuda:N, or --host-budget to limit host memory"
            .into()),
        _ => Ok(()),
    }
}

/// The run uses simulated devices.
fn virtual_devices(config: &TrainConfig, _: &Key) -> Read {
    match &*config.devices {
        Devices::Cpu | Devices::Cuda(_) => Err(format!(
            "--devices {} has no simulated link; {}",
            config.devices,
            use_or_leave_out("devices", &["virtual:N"])
        )),
        _ => Ok(()),
    }
}

/// The run uses NVIDIA devices.
fn cuda(config: &TrainConfig, _: &Key) -> Read {
    match &*config.devices {
        Devices::Cpu | Devices::Virtual(_) => Err(format!(
            "--devices {} has no CUDA graphs; {}",
            config.devices,
            use_or_leave_out("devices", &["cuda:N"])
        )),
        _ => Ok(()),
    }
}

/// The run trains over ranks.
fn ranks(config: &TrainConfig, _: &Key) -> Read {
    if is_partitioned(config) {
        return Ok(());
    }
    Err("only training over ranks uses it, but this dataset is not partitioned; train on the output of \
         graphmill partition, or leave it out"
        .into())
}

/// The sampler draws subgraphs from the parts of a partitioned dataset.
fn shuffled_parts(config: &TrainConfig, key: &Key) -> Read {
    ranks(config, key)?;
    by_sampler(config, sampler::SamplerKind::draws_subgraphs)
}

/// Returns true if the sampler draws whole subgraphs.
fn draws_subgraphs(config: &TrainConfig) -> bool {
    let entry = sampler::TABLE.get(&config.sampler);
    entry.is_some_and(|entry| entry.make.draws_subgraphs())
}

/// The run reads rows through a cache whose size is a fraction of all rows.
fn cache_ratio(config: &TrainConfig, _: &Key) -> Read {
    if is_partitioned(config) && draws_subgraphs(config) && *config.devices == Devices::Cpu {
        return Err(format!(
            "over ranks, --sampler {} reads only the rows of the rank's own parts; use a sampler that starts \
             from seeds, or leave it out",
            config.sampler
        ));
    }
    Ok(())
}

/// The nearest cache holds some of the rows but not all.
fn cache(config: &TrainConfig, key: &Key) -> Read {
    cache_ratio(config, key)?;
    match config.cache_ratio.0 {
        None => {}
        Some(0.0) => {
            return Err("--cache-ratio 0 caches no rows; raise it, or leave this option out".into());
        }
        Some(_) => return Ok(()),
    }
    match &*config.devices {
        Devices::Cpu if is_partitioned(config) && config.host_budget.0 == 0 => Err(
            "without --cache-ratio or --host-budget a rank caches no remote rows; set one, or leave this \
             option out"
                .into(),
        ),
        Devices::Cpu if config.host_budget.0 == 0 => Err(
            "host memory holds all rows, so the run needs no cache; set --host-budget or --cache-ratio, or \
             leave it out"
                .into(),
        ),
        Devices::Virtual(_) if config.device_budget.0 == 0 => Err(
            "devices without a budget hold all rows; set --device-budget or --cache-ratio, or leave it out"
                .into(),
        ),
        _ => Ok(()),
    }
}

/// The run has a cache in host memory between devices and the disk.
fn host_cache(config: &TrainConfig, _: &Key) -> Read {
    match &*config.devices {
        Devices::Cpu => Err("the cache of --devices cpu is --cache; use it instead".into()),
        _ if config.host_budget.0 == 0 => {
            let has = if is_partitioned(config) { "caches none of other ranks" } else { "holds all rows" };
            Err(format!("host memory without a budget {has}; set --host-budget, or leave it out"))
        }
        _ => Ok(()),
    }
}

/// Number of devices that hold rows which batches of any of them read; `None` for the processor.
fn pooled_devices(config: &TrainConfig) -> Option<usize> {
    match &*config.devices {
        Devices::Cpu => None,
        Devices::Cuda(numbers) => {
            let samplers = strategy::sampling_devices(config).and_then(|of| of.count).unwrap_or(0);
            Some(numbers.len().saturating_sub(samplers))
        }
        Devices::Virtual(count) => {
            let samplers = Chosen::of(config).map_or(0, |chosen| chosen.non_trainers(config));
            Some(count.saturating_sub(samplers).max(1))
        }
    }
}

/// Several devices hold rows that a run reads.
fn several_devices(config: &TrainConfig) -> Read {
    match pooled_devices(config) {
        None => Err("--devices cpu has no device caches to spread rows over; use --devices virtual:N or \
                     cuda:0,1, or leave it out"
            .into()),
        Some(1) if config.num_devices() > 1 => Err(format!(
            "with --strategy {} and --devices {} one device trains and holds all cached rows; use more \
             devices or --strategy time-sharing, or leave it out",
            config.strategy, config.devices
        )),
        Some(1) => Err(format!(
            "--devices {} is a single device, which holds all cached rows; list several devices, or leave \
             it out",
            config.devices
        )),
        Some(_) => Ok(()),
    }
}

/// Several devices share a static cache, or have dynamic caches of their own.
fn placement(config: &TrainConfig, key: &Key) -> Read {
    several_devices(config)?;
    if is_partitioned(config) && !config.cuda_devices().is_empty() {
        return Err("over ranks each NVIDIA device caches rows of its own; leave it out".into());
    }
    // without a ratio, simulated devices share all rows, or as many as fit into their budgets
    if is_partitioned(config) || config.cache_ratio.0.is_some() {
        cache(config, key)?;
    }
    let is_dynamic = match config.cache.as_str() {
        AUTO => order::TABLE.get(&config.order).is_some_and(|entry| entry.make.is_local),
        name => matches!(kind(name), Ok(Kind::Dynamic(_))),
    };
    let is_virtual = matches!(&*config.devices, Devices::Virtual(_));
    let pools = is_virtual && strategy::is_by_device(config);
    if is_dynamic && !(pools && *config.placement == Placement::Private) {
        let alternative = if pools { " or --placement private" } else { "" };
        return Err(format!(
            "--cache {} is a policy, whose rows change during the run; use a hotness such as \
             --cache posterior:2{alternative}, or leave it out",
            config.cache
        ));
    }
    Ok(())
}

/// Simulated devices read rows that others cache.
fn peer_link(config: &TrainConfig, key: &Key) -> Read {
    virtual_devices(config, key)?;
    several_devices(config)?;
    if config.cache_ratio.0.is_some() {
        cache(config, key)?;
    }
    if config.placement.has_peer_rows() {
        return Ok(());
    }
    Err(format!(
        "with --placement {} no device reads the rows of another; use --placement interleave, or leave it \
         out",
        config.placement
    ))
}
