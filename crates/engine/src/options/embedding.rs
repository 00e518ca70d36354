//! Rules that decide if a run of a table of embeddings reads an option, and its derived options.

use graphmill_core::options::{OptionGroup, one_of};
use graphmill_nn::link::decoder;

use super::{keys::Key, link, reasons::Read, rules};
use crate::{
    TrainConfig,
    config::{
        embedding::{EmbeddingOptions, OPTIONS, has_link_task, kind},
        link::LinkOptions,
    },
};

/// General options that such a run reads.
const READ: &[&str] = &[
    "dataset",
    "start_from",
    "metric",
    "task",
    "batch_size",
    "max_batches",
    "model",
    "hidden",
    "epochs",
    "lr",
    "schedule",
    "warmup",
    "seed",
    "threads",
    "eval_every",
    "eval_nodes",
    "checkpoint_batches",
    "checkpoint_seconds",
    "trace",
    "tensorboard",
];

/// Options of links that such a run does not read, with the reason.
const NO_MESSAGES: &str = "tables read no messages over edges";
const UNREAD_OF_LINKS: &[(&str, &str)] = &[
    ("decoder_hidden", "no decoder of tables has a hidden layer"),
    ("embedding_dim", "--hidden is the width of the rows"),
    ("exclude", NO_MESSAGES),
    ("disjoint", NO_MESSAGES),
    ("candidates", "--metric says what edges are compared with"),
    ("link_times", NO_MESSAGES),
    ("eval_negatives", "edges are ranked among all candidates"),
];

/// Rule of an option of such a run.
pub(super) fn rule(config: &TrainConfig, key: &Key) -> Read {
    let options: EmbeddingOptions = config.own.get();
    let refuse = |why: &str| Err(format!("--model {} does not use it: {why}; leave it out", config.model));
    match (key.group, key.name) {
        (None, "layers") => match kind(config) {
            Some(kind) if !kind.propagates => refuse("its rows are not propagated"),
            _ => Ok(()),
        },
        (None, "loss") if options.one_vs_all => {
            Err("--one-vs-all compares each edge with all candidates; use --one-vs-all=false, \
                 or leave it out"
                .into())
        }
        (None, "loss") => Ok(()),
        (None, "patience") => rules::several_scores(config, key),
        (None, "host_budget") => {
            uses_all_rows(config).map_or(Ok(()), |why| Err(format!("{why}, or leave it out")))
        }
        (None, name) if READ.contains(&name) => Ok(()),
        (None, _) => refuse("its parameters are a row for each node"),
        (Some(group), name) => own(config, key, group, name, &options),
    }
}

fn own(config: &TrainConfig, key: &Key, group: OptionGroup, name: &str, options: &EmbeddingOptions) -> Read {
    let refuse = |why: String| Err(format!("{why}, or leave it out"));
    if let Some((_, why)) = UNREAD_OF_LINKS.iter().find(|(of, _)| *of == name) {
        return Err(format!("--model {} does not use it: {why}; leave it out", config.model));
    }
    let is_of_schedule = || {
        let chosen = graphmill_nn::schedule::TABLE.get(&config.schedule);
        chosen.is_some_and(|entry| entry.options.contains(&group))
    };
    if !OPTIONS.contains(&group) && !is_of_schedule() {
        return Err(format!("--model {} does not use it; leave it out", config.model));
    }
    let links: LinkOptions = config.own.get();
    let readers = || one_of(&decoder::decoders_that(|kind| kind.options.contains(&name)));
    match name {
        "gamma" if !links.decoder_reads(name) => {
            refuse(format!("--decoder {} is no distance; use --decoder {}", links.decoder, readers()))
        }
        "distance_norm" if !links.decoder_reads(name) => {
            refuse(format!("--decoder {} has no such norm; use --decoder {}", links.decoder, readers()))
        }
        "split_edges" if has_link_task(config) => refuse("the dataset's link tasks have a split".into()),
        "valid_fraction" => link::of_stored_task(config, key),
        "buckets" => uses_all_rows(config).map_or(Ok(()), refuse),
        "negatives" | "num_negatives" if options.one_vs_all => {
            refuse("--one-vs-all compares each edge with all candidates; use --one-vs-all=false".into())
        }
        "margin" | "temperature" | "adversarial" if options.one_vs_all => {
            refuse("--one-vs-all has a loss of its own; use --one-vs-all=false".into())
        }
        "margin" | "temperature" | "adversarial" => link::of_loss(config, key),
        _ => config.own.unused(group, name).map_or(Ok(()), Err),
    }
}

/// Reason why updates use all rows, or rows of all buckets, with the remedy.
fn uses_all_rows(config: &TrainConfig) -> Option<String> {
    let (options, links): (EmbeddingOptions, LinkOptions) = (config.own.get(), config.own.get());
    if kind(config).is_some_and(|kind| kind.propagates) {
        let model = &config.model;
        return Some(format!("--model {model} propagates all rows at every update; use --model embedding"));
    }
    if options.one_vs_all {
        return Some("--one-vs-all uses all rows at every update; use --one-vs-all=false".into());
    }
    if links.walk_rule().is_some() {
        return Some("walks visit rows of all buckets; use --positives edges".into());
    }
    let lists = links.negative_kind().is_some_and(|kind| kind.lists.is_some());
    lists.then(|| {
        let negatives = &links.negatives;
        format!("--negatives {negatives} lists rows of all buckets; use --negatives uniform")
    })
}

/// Fills in the values of the papers, unless they were `given`.
pub(super) fn derive_options(config: &mut TrainConfig, given: &[&str]) {
    let Some(kind) = kind(config) else { return };
    if kind.propagates && !given.contains(&"layers") && config.layers == TrainConfig::default().layers {
        config.layers = 3;
    }
    let known = decoder::TABLE.get(&config.own.get::<LinkOptions>().decoder);
    let of_pairs = known.is_some_and(|entry| !entry.make.knows_relations);
    if of_pairs && !given.contains(&"loss") && config.loss == TrainConfig::default().loss {
        config.loss = "bpr".into();
    }
}
