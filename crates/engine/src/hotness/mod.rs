//! `graphmill hotness`: how many rows a cache would serve, by policy, sampler and size, without
//! training.
//!
//! The minibatches are those that a run with the same options would draw. A cache that stays as it
//! is holds the hottest rows by a metric of [`graphmill_loader::hotness`]; one whose rows come and
//! go is simulated batch by batch from empty.

pub mod plot;
pub(crate) mod scores;
mod simulate;
mod text;
mod visits;

use graphmill_core::{node_order::by_scores, options::one_of, progress::Progress};
use graphmill_data::Dataset;
use graphmill_loader::{
    feature::Host,
    hotness::{self, Footprint, Visits, similarity},
    sampler::{SubgraphTraining, draws},
};
use serde::Serialize;

pub use crate::cache_kind::{is_metric, known, metrics};
use crate::{
    Error, Result, TrainConfig, build,
    cache_kind::{Kind, kind},
    options::used::refuse_undrawn_by_all,
};

use scores::setting;
pub use scores::{loader, scores};
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
    /// How alike two epochs that follow each other are in their hottest tenth, in the mean (FGNN,
    /// Table 2), where there are two.
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

/// Options of a run that [`run`] reads: those that decide which minibatches are drawn, except the
/// sampler, which [`Options::samplers`] names.
pub fn options() -> Vec<&'static str> {
    let draws = draws().into_iter().filter(|&name| name != "sampler");
    draws.chain(["seed", "threads"]).collect()
}

impl Options {
    /// Refuses the `given` options that none of the samplers reads.
    ///
    /// # Errors
    /// Wrong usage, with the reason and the nearest alternative.
    pub fn refuse_unused(&self, given: &[&str]) -> Result<()> {
        let of = |sampler: &String| TrainConfig { sampler: sampler.clone(), ..self.train.clone() };
        let runs: Vec<TrainConfig> = self.samplers.iter().map(of).collect();
        refuse_undrawn_by_all(&runs, given)
    }
}

/// Options of a run that [`scores`] reads.
pub fn options_of_scores() -> Vec<&'static str> {
    draws().into_iter().chain(["epochs", "seed", "threads"]).collect()
}

/// Refuses the `given` options that the scores by a metric do not depend on.
///
/// # Errors
/// Wrong usage, with the reason and the nearest alternative.
pub fn refuse_unused(metric: &str, config: &TrainConfig, given: &[&str]) -> Result<()> {
    let name = metric.split(':').next().unwrap_or(metric);
    let Some(entry) = hotness::TABLE.get(name) else { return Ok(()) };
    let read_by_some = |option: &&str| hotness::TABLE.iter().any(|entry| entry.make.basis.reads(option));
    let unread =
        given.iter().filter(|option| read_by_some(option)).find(|option| !entry.make.basis.reads(option));
    if let Some(key) = unread.and_then(|option| crate::options::key(option)) {
        let readers = hotness::TABLE.iter().filter(|entry| entry.make.basis.reads(key.name));
        let readers: Vec<&str> = readers.map(|entry| entry.name).collect();
        return Err(Error::usage(format!(
            "--{}: scores by {name} do not depend on it; use {}, or leave it out",
            key.flag(),
            one_of(&readers)
        )));
    }
    refuse_undrawn_by_all(std::slice::from_ref(config), given)
}

/// Finds the hit rates.
///
/// # Errors
/// An unknown name, or an impossible option; `watch` ends the work.
pub fn run(options: &Options, data: &Dataset, watch: &dyn Progress) -> Result<Report> {
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
        // which rows are read does not depend on how the loss weighs them
        let train = TrainConfig { sampler: sampler.clone(), ..options.train.clone() }
            .with(|training: &mut SubgraphTraining| training.coverage = 0.0);
        let sampled = build::sampler(&train, data)?;
        let order = build::order(&train, data)?;
        let loader = loader(&train, data, &*sampled, &*order, &feature)?;
        let drawn = InOrder::new(&loader, watch);
        let visits = Remembered::new(&drawn);
        let epochs: Vec<Footprint> = (0..options.epochs)
            .map(|epoch| visits.footprint(epoch, nodes))
            .collect::<graphmill_core::Result<_>>()?;
        let footprint = Footprint::of(nodes, &visits, 0..options.epochs)?;
        let pairs = epochs.windows(2).map(|pair| similarity(&pair[0], &pair[1]));
        let pairs = pairs.collect::<graphmill_core::Result<Vec<f64>>>()?;
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

#[cfg(test)]
mod tests;
