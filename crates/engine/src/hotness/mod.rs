//! `graphmill hotness`: how many rows a cache would serve, by policy, sampler and size, without training.
//!
//! The minibatches are those that a run with the same options would draw. A cache that stays as it is holds the hottest rows by a metric
//! of [`graphmill_loader::hotness`]; one whose rows come and go is simulated batch by batch from empty.

mod plot;
mod simulate;
mod text;
mod visits;

use std::sync::Arc;

use graphmill_distributed::Book;
use graphmill_graph::{
    Dataset,
    external::{Quiet, Watch},
    reorder::by_scores,
    table::names,
};
use graphmill_loader::{
    Sampler,
    feature::Host,
    hotness::{self, Footprint, Setting, Visits, similarity},
    order::Order,
    policy,
};
use serde::Serialize;

use crate::{Error, Result, TrainConfig, build, stage::Loader};

pub use plot::svg;
pub use visits::InOrder;
use visits::Remembered;

/// What to compare.
#[derive(Clone, Debug)]
pub struct Options {
    /// Of the runs; the sampler is one of `samplers`, one after the other.
    pub train: TrainConfig,
    /// Names of metrics and of policies whose rows come and go.
    pub policies: Vec<String>,
    /// Names of samplers.
    pub samplers: Vec<String>,
    /// Parts of the rows that are held, from 0 to 1.
    pub ratios: Vec<f64>,
    /// Epochs whose reads are counted.
    pub epochs: u64,
}

/// A hit rate.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What is held.
    pub policy: String,
    /// What asks.
    pub sampler: String,
    /// How much is held.
    pub ratio: f64,
    /// Rows served out of rows asked for.
    pub hit_rate: f64,
}

/// What a sampler asks for.
#[derive(Clone, Debug, Serialize)]
pub struct Asked {
    /// Its name.
    pub sampler: String,
    /// Rows of an epoch, in the mean.
    pub rows_per_epoch: f64,
    /// How alike two epochs that follow each other are in their hottest tenth, in the mean (FGNN, Table 2), where there are two.
    pub similarity: Option<f64>,
}

/// What [`run`] finds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The dataset's name.
    pub dataset: String,
    /// Rows of the table.
    pub rows: usize,
    /// Bytes of a row as it is stored; of sparse ones in the mean.
    pub row_bytes: u64,
    /// Hit rates by sampler, policy and ratio.
    pub results: Vec<Row>,
    /// By sampler.
    pub samplers: Vec<Asked>,
}

/// The names that [`Options::policies`] may have.
pub fn known() -> String {
    format!("{}, {}", names(hotness::TABLE), names(policy::TABLE))
}

/// The names of the metrics among them.
pub fn metrics() -> String {
    names(hotness::TABLE)
}

/// Whether that is a metric, with an argument behind a colon or without.
pub fn is_metric(name: &str) -> bool {
    let name = name.split(':').next().unwrap_or(name);
    hotness::TABLE.iter().any(|entry| entry.name == name)
}

/// Either kind of cache.
pub(crate) enum Kind {
    /// The hottest rows by a metric, for good.
    Pinned,
    /// Rows that come and go.
    Dynamic(policy::Make),
}

/// Finds the hit rates.
///
/// # Errors
/// An unknown name, or an impossible option; `watch` ends the work.
pub fn run(options: &Options, data: &Dataset, watch: &dyn Watch) -> Result<Report> {
    check(options)?;
    let feature = Host::new(&data.features);
    let nodes = data.num_nodes();
    let mut report = Report {
        dataset: data.name.clone(),
        rows: nodes,
        row_bytes: graphmill_loader::Feature::row_bytes(&feature),
        results: Vec::new(),
        samplers: Vec::new(),
    };
    for sampler in &options.samplers {
        let train = TrainConfig { sampler: sampler.clone(), ..options.train.clone() };
        let sampled = build::sampler(&train, data)?;
        let order = build::order(&train, data)?;
        let loader = loader(&train, data, &*sampled, &*order, &feature)?;
        let drawn = InOrder::new(&loader, watch);
        let visits = Remembered::new(&drawn);
        let epochs: Vec<Footprint> = (0..options.epochs)
            .map(|epoch| visits.footprint(epoch, nodes))
            .collect::<graphmill_graph::Result<_>>()?;
        let footprint = Footprint::of(nodes, &visits, 0..options.epochs)?;
        let pairs = epochs.windows(2).map(|pair| similarity(&pair[0], &pair[1]));
        let pairs = pairs.collect::<graphmill_graph::Result<Vec<f64>>>()?;
        report.samplers.push(Asked {
            sampler: sampler.clone(),
            rows_per_epoch: footprint.total() as f64 / options.epochs as f64,
            similarity: (!pairs.is_empty()).then(|| pairs.iter().sum::<f64>() / pairs.len() as f64),
        });
        drop(epochs);
        let setting = setting(&train, data, &loader, &visits, options.epochs);
        for name in &options.policies {
            let rates = match kind(name)? {
                Kind::Pinned => {
                    let scores = hotness::score(name, &setting)
                        .map_err(|e| Error::usage(format!("--policies: {e}")))?;
                    simulate::pinned(&footprint, &by_scores(&scores)?, &options.ratios)
                }
                Kind::Dynamic(make) => {
                    simulate::dynamic(make, nodes, &visits, options.epochs, &options.ratios)?
                }
            };
            report.results.extend(options.ratios.iter().zip(rates).map(|(&ratio, hit_rate)| Row {
                policy: name.clone(),
                sampler: sampler.clone(),
                ratio,
                hit_rate,
            }));
        }
    }
    Ok(report)
}

/// The score of every node by the metric of that name, for a run with these options.
///
/// # Errors
/// No such metric, or an impossible option; `watch` ends the work.
pub fn scores(name: &str, config: &TrainConfig, data: &Dataset, watch: &dyn Watch) -> Result<Vec<f64>> {
    let (sampler, order) = (build::sampler(config, data)?, build::order(config, data)?);
    scores_until(name, config, data, &*sampler, &*order, watch)
}

/// [`scores`] of a run whose sampler and order have been made.
pub(crate) fn scores_of(
    name: &str,
    config: &TrainConfig,
    data: &Dataset,
    sampler: &dyn Sampler,
    order: &dyn Order,
) -> Result<Vec<f64>> {
    scores_until(name, config, data, sampler, order, &Quiet)
}

/// [`scores_of`], as long as `watch` does not end it.
pub(crate) fn scores_until(
    name: &str,
    config: &TrainConfig,
    data: &Dataset,
    sampler: &dyn Sampler,
    order: &dyn Order,
    watch: &dyn Watch,
) -> Result<Vec<f64>> {
    let unread = Host::new(&data.features);
    let loader = loader(config, data, sampler, order, &unread)?;
    let visits = InOrder::new(&loader, watch);
    let setting = setting(config, data, &loader, &visits, config.epochs as u64);
    scored(name, &setting, watch)
}

/// [`scores_of`] of one rank's share of a run's batches.
pub(crate) fn scores_of_rank(
    name: &str,
    config: &TrainConfig,
    data: &Dataset,
    sampler: &dyn Sampler,
    order: &dyn Order,
    own: &Arc<Book>,
) -> Result<Vec<f64>> {
    let unread = Host::new(&data.features);
    let loader = Loader { own: Some(own.clone()), ..loader(config, data, sampler, order, &unread)? };
    let visits = InOrder::new(&loader, &Quiet);
    let setting = setting(config, data, &loader, &visits, config.epochs as u64);
    hotness::score(name, &setting).map_err(Error::usage)
}

/// The scores of a setting whose batches are drawn as long as `watch` does not end that.
fn scored(name: &str, setting: &Setting, watch: &dyn Watch) -> Result<Vec<f64>> {
    let scores = hotness::score(name, setting);
    // its message may stand for the batches that were not drawn
    watch.check()?;
    scores.map_err(Error::usage)
}

/// What hotness is computed for.
fn setting<'s>(
    config: &'s TrainConfig,
    data: &'s Dataset,
    loader: &Loader,
    visits: &'s dyn Visits,
    epochs: u64,
) -> Setting<'s> {
    Setting {
        graph: &data.graph,
        train: &data.split.train,
        fanout: &config.fanout.0,
        batch_size: loader.batch_size,
        seed: config.seed,
        epochs,
        visits,
    }
}

/// What kind of cache a name stands for.
pub(crate) fn kind(name: &str) -> Result<Kind> {
    if is_metric(name) {
        return Ok(Kind::Pinned);
    }
    let dynamic = policy::TABLE.iter().find(|entry| entry.name == name);
    dynamic
        .map(|entry| Kind::Dynamic(entry.make))
        .ok_or_else(|| Error::usage(format!("unknown policy '{name}'; known: {}", known())))
}

fn check(options: &Options) -> Result<()> {
    for (flag, empty) in [
        ("policies", options.policies.is_empty()),
        ("samplers", options.samplers.is_empty()),
        ("ratios", options.ratios.is_empty()),
    ] {
        if empty {
            return Err(Error::usage(format!("--{flag}: name at least one")));
        }
    }
    if let Some(ratio) = options.ratios.iter().find(|ratio| !(0.0..=1.0).contains(*ratio)) {
        return Err(Error::usage(format!("--ratios {ratio}: parts of the rows, from 0 to 1")));
    }
    if options.epochs == 0 {
        return Err(Error::usage("--epochs 0: at least 1"));
    }
    options.policies.iter().try_for_each(|name| kind(name).map(|_| ()))
}

/// The stages of a run, whose layers are left out: every input node is asked for once a batch.
pub(crate) fn loader<'a>(
    config: &TrainConfig,
    data: &'a Dataset,
    sampler: &'a dyn Sampler,
    order: &'a dyn Order,
    feature: &'a Host,
) -> Result<Loader<'a>> {
    if data.split.train.is_empty() {
        return Err(Error::dataset(&data.name, "it has no training nodes: import it with --split"));
    }
    let batch_size = if config.batch_size == 0 { data.split.train.len() } else { config.batch_size };
    Ok(Loader {
        graph: &data.graph,
        train: &data.split.train,
        seed: config.seed,
        batch_size,
        max_batches: config.max_batches,
        order,
        sampler,
        feature,
        fused: false,
        transposed: 0,
        symmetric: None,
        aggregation: graphmill_graph::block::Aggregation::Mean,
        own: None,
        ahead: None,
    })
}

#[cfg(test)]
mod tests;
