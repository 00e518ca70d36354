//! Rules by which a run reads general options, and options of algorithms whose effect depends on
//! general ones.

use std::path::Path;

use graphmill_loader::{order, sampler};
use graphmill_nn::layer::{self, NormKind};

use super::{
    keys::Key,
    reasons::{Read, Rule, unread, use_or_leave_out},
};
use crate::{
    TrainConfig,
    cache_kind::{AUTO, Kind, kind},
    config::Devices,
    strategy,
};

/// The rules; every run reads the other general options.
pub(super) const RULES: &[(&str, Rule)] = &[
    ("fanout", fanout),
    ("batch_size", sampler),
    ("order", seed_order),
    ("fused", sampler),
    ("hidden", hidden_rows),
    ("heads", hidden_layer),
    ("out_heads", last_layer),
    ("activation", activation),
    ("norm", norm),
    ("dropout", hidden_rows),
    ("decay_first", weight_decay),
    ("select", several_scores),
    ("patience", several_scores),
    ("device_budget", devices),
    ("cache_ratio", cache_ratio),
    ("cache", cache),
    ("host_cache", host_cache),
    ("placement", placement),
    ("link", virtual_devices),
    ("cuda_graphs", cuda),
    ("shuffle_parts", shuffled_parts),
    ("peer_timeout", ranks),
];

/// The kind of sampler that was chosen reads it.
pub(super) fn sampler(config: &TrainConfig, key: &Key) -> Read {
    by_sampler(config, |kind| kind.reads(key.name))
}

/// The chosen sampler does as `reads` asks. An unknown name is reported where it is looked up.
fn by_sampler(config: &TrainConfig, reads: impl Fn(&sampler::SamplerKind) -> bool) -> Read {
    let Some(entry) = sampler::TABLE.get(&config.sampler) else { return Ok(()) };
    if reads(&entry.make) {
        return Ok(());
    }
    let readers = sampler::TABLE.iter().filter(|entry| reads(&entry.make)).map(|entry| entry.name);
    Err(unread("sampler", &config.sampler, &readers.collect::<Vec<_>>()))
}

/// The sampler reads it; else only their number counts, which has an option of its own.
fn fanout(config: &TrainConfig, key: &Key) -> Read {
    sampler(config, key).map_err(|reason| format!("{reason}; --layers sets the number of layers"))
}

/// The kind of layer that was chosen.
fn model(config: &TrainConfig) -> Option<&'static layer::LayerKind> {
    layer::TABLE.get(&config.model).map(|entry| &entry.make)
}

/// Whether a layer gives rows to another layer or to a head.
fn has_hidden_layer(config: &TrainConfig) -> bool {
    config.layers > 1 || config.head_layers > 0
}

/// Some rows are hidden, or the chosen layer applies the activation itself.
fn activation(config: &TrainConfig, key: &Key) -> Read {
    if model(config).is_some_and(|kind| kind.has_inner_activation) {
        return Ok(());
    }
    hidden_rows(config, key)
}

/// Some rows are hidden.
fn hidden_rows(config: &TrainConfig, _: &Key) -> Read {
    if has_hidden_layer(config) || config.input_layer {
        return Ok(());
    }
    Err("--layers 1 gives the classes, so that there are no hidden rows; use --layers 2, --head-layers 1 or \
         --input-layer, or leave it out"
        .into())
}

/// Some layer is hidden, or the layer has a norm of its own.
fn norm(config: &TrainConfig, _: &Key) -> Read {
    let own = model(config).is_some_and(|kind| kind.has_inner_norm);
    if has_hidden_layer(config) || own && config.norm == NormKind::Batch {
        return Ok(());
    }
    let alternative = if own { "--norm batch, --layers 2" } else { "--layers 2" };
    Err(format!(
        "--layers 1 gives the classes, so that no layer is followed by a norm; use {alternative} or \
         --head-layers 1, or leave it out"
    ))
}

/// Some layer is hidden.
fn hidden_layer(config: &TrainConfig, _: &Key) -> Read {
    if has_hidden_layer(config) {
        return Ok(());
    }
    Err("--layers 1 gives the classes, so that there is no hidden layer; use --out-heads, --layers 2 or \
         --head-layers 1, or leave it out"
        .into())
}

/// The last layer gives the classes.
fn last_layer(config: &TrainConfig, _: &Key) -> Read {
    if config.head_layers == 0 {
        return Ok(());
    }
    Err(format!(
        "with --head-layers {} a classifier gives the classes, so that every graph layer is hidden; use --heads or \
         --head-layers 0, or leave it out",
        config.head_layers
    ))
}

/// The sampler starts from seeds, of which an epoch has several batches.
pub(super) fn seed_order(config: &TrainConfig, _: &Key) -> Read {
    by_sampler(config, |kind| kind.reads("order"))?;
    if config.batch_size == 0 {
        return Err("--batch-size 0 puts all training nodes into one batch; give the size of a batch, \
                    or leave it out"
            .into());
    }
    Ok(())
}

/// Several epochs are scored, so that there is a best one and training may stop before the last.
fn several_scores(config: &TrainConfig, _: &Key) -> Read {
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
fn weight_decay(config: &TrainConfig, _: &Key) -> Read {
    if config.weight_decay > 0.0 {
        return Ok(());
    }
    Err("--weight-decay is 0; give a weight decay, or leave it out".into())
}

/// Runs on devices with a memory of their own.
fn devices(config: &TrainConfig, _: &Key) -> Read {
    match &*config.devices {
        Devices::Cpu => Err("--devices cpu has no device memory; use --devices virtual:N or \
                                 cuda:N, or --host-budget to bound the host's"
            .into()),
        _ => Ok(()),
    }
}

/// Runs on simulated devices.
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

/// Runs on NVIDIA devices.
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

/// Whether the dataset is the directory of a partitioned one.
fn is_partitioned(config: &TrainConfig) -> bool {
    !config.dataset.is_empty() && Path::new(&config.dataset).join("partition.json").is_file()
}

/// Trains over ranks.
fn ranks(config: &TrainConfig, _: &Key) -> Read {
    if is_partitioned(config) {
        return Ok(());
    }
    Err("only training over ranks uses it, and this dataset is not partitioned; train on what graphmill \
         partition writes, or leave it out"
        .into())
}

/// Draws subgraphs from the parts of a partitioned dataset.
fn shuffled_parts(config: &TrainConfig, key: &Key) -> Read {
    ranks(config, key)?;
    by_sampler(config, sampler::SamplerKind::draws_subgraphs)
}

/// Whether the sampler draws whole subgraphs.
fn draws_subgraphs(config: &TrainConfig) -> bool {
    let entry = sampler::TABLE.get(&config.sampler);
    entry.is_some_and(|entry| entry.make.draws_subgraphs())
}

/// Rows are read through a cache whose size is a part of all.
fn cache_ratio(config: &TrainConfig, _: &Key) -> Read {
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
fn cache(config: &TrainConfig, key: &Key) -> Read {
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
fn host_cache(config: &TrainConfig, _: &Key) -> Read {
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
fn placement(config: &TrainConfig, key: &Key) -> Read {
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
    let comes_and_goes = match config.cache.as_str() {
        AUTO => order::TABLE.get(&config.order).is_some_and(|entry| entry.make.is_local),
        name => matches!(kind(name), Ok(Kind::Dynamic(_))),
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
