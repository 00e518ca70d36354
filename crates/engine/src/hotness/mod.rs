//! `graphmill hotness`: hit rates of caches by policy, sampler and size, without training.
//!
//! The minibatches are those of a run with the same options. A static cache holds the hottest rows
//! by a metric of [`graphmill_loader::hotness`]; a dynamic cache starts empty and is simulated
//! batch by batch.

#![forbid(unsafe_code)]

mod advice;
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
    reuse::ReusePlan,
};

pub use advice::Advice;
use scores::setting;
pub use scores::{loader, scores};
pub(crate) use simulate::dynamic as dynamic_rates;
pub(crate) use visits::CachedFootprints;
pub use visits::OrderedVisits;

/// Caches and samplers to compare.
#[derive(Clone, Debug)]
pub struct Options {
    /// Options of the runs. The sampler is taken from `samplers`.
    pub train: TrainConfig,
    /// Names of metrics and policies.
    pub policies: Vec<String>,
    /// Names of samplers.
    pub samplers: Vec<String>,
    /// Cached fractions of the rows, from 0 to 1.
    pub ratios: Vec<f64>,
    /// Number of epochs whose reads are counted.
    pub epochs: u64,
}

/// Hit rate of a cache.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Metric or policy of the cache.
    pub policy: String,
    /// Sampler whose reads are counted.
    pub sampler: String,
    /// Cached fraction of the rows.
    pub ratio: f64,
    /// Fraction of the requested rows that the cache serves.
    pub hit_rate: f64,
}

/// Rows that a sampler requests.
#[derive(Clone, Debug, Serialize)]
pub struct SamplerReads {
    /// Name of the sampler.
    pub sampler: String,
    /// Mean number of rows per epoch.
    pub rows_per_epoch: f64,
    /// Mean similarity of the hottest tenth in consecutive epochs (FGNN, Table 2); `None` for a
    /// single epoch.
    pub similarity: Option<f64>,
}

/// Result of [`run`].
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the dataset.
    pub dataset: String,
    /// Number of rows of the table.
    pub rows: usize,
    /// Bytes of a stored row; the mean if rows are sparse.
    pub row_bytes: u64,
    /// Hit rates by sampler, policy and ratio.
    pub results: Vec<Row>,
    /// Requested rows by sampler.
    pub samplers: Vec<SamplerReads>,
    /// Policy and size to choose for each sampler.
    pub advice: Vec<Advice>,
}

/// Options of a run that [`run`] reads: those that determine the minibatches, except the sampler,
/// which [`Options::samplers`] names.
pub fn options() -> Vec<&'static str> {
    let draws = draws().into_iter().filter(|&name| name != "sampler");
    draws.chain(["seed", "threads"]).collect()
}

impl Options {
    /// Refuses the `given` options that no sampler reads.
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

/// Refuses the `given` options that do not affect the scores of a metric.
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
            "--{}: scores of {name} do not depend on it; use {}, or leave it out",
            key.flag(),
            one_of(&readers)
        )));
    }
    refuse_undrawn_by_all(std::slice::from_ref(config), given)
}

/// Computes hit rates. Draws each epoch once per sampler, and dynamic caches once per policy.
///
/// # Errors
/// An unknown name, an impossible option, or `watch` stops the work.
pub fn run(options: &Options, data: &Dataset, watch: &dyn Progress) -> Result<Report> {
    run_with(options, data, None, watch)
}

/// [`run`] for batches that reuse rows by this plan, if they do.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    options: &Options,
    data: &Dataset,
    reuse: Option<&ReusePlan>,
    watch: &dyn Progress,
) -> Result<Report> {
    check(options)?;
    let feature = Host::new(&data.features);
    let nodes = data.num_nodes();
    let mut report = Report {
        dataset: data.name.clone(),
        rows: nodes,
        row_bytes: graphmill_loader::Feature::row_bytes(&feature),
        results: Vec::new(),
        samplers: Vec::new(),
        advice: Vec::new(),
    };
    for sampler in &options.samplers {
        // the rows do not depend on their weights in the loss
        let train = TrainConfig { sampler: sampler.clone(), ..options.train.clone() }
            .with(|training: &mut SubgraphTraining| training.sample_coverage = 0.0);
        let sampled = build::sampler(&train, data)?;
        let order = build::order(&train, data)?;
        let loader = loader(&train, data, &*sampled, &*order, &feature)?;
        let drawn = OrderedVisits::new(&loader, watch).with_reuse(reuse);
        let visits = CachedFootprints::new(&drawn);
        let epochs: Vec<Footprint> = (0..options.epochs)
            .map(|epoch| visits.footprint(epoch, nodes))
            .collect::<graphmill_core::Result<_>>()?;
        let footprint = Footprint::of(nodes, &visits, 0..options.epochs)?;
        let pairs = epochs.windows(2).map(|pair| similarity(&pair[0], &pair[1]));
        let pairs = pairs.collect::<graphmill_core::Result<Vec<f64>>>()?;
        report.samplers.push(SamplerReads {
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
    Ok(report.advised())
}

impl Report {
    /// The report with advice that follows from its hit rates.
    pub(crate) fn advised(self) -> Self {
        Self { advice: advice::advise(&self), ..self }
    }
}

/// Refuses options that select nothing, or a size that is not a fraction.
pub(crate) fn check(options: &Options) -> Result<()> {
    for (flag, empty) in [
        ("policies", options.policies.is_empty()),
        ("samplers", options.samplers.is_empty()),
        ("ratios", options.ratios.is_empty()),
    ] {
        if empty {
            return Err(Error::usage(format!("--{flag}: the list is empty; name at least one")));
        }
    }
    if let Some(ratio) = options.ratios.iter().find(|ratio| !(0.0..=1.0).contains(*ratio)) {
        return Err(Error::usage(format!(
            "--ratios {ratio}: not a fraction of the rows; give numbers from 0 to 1"
        )));
    }
    if options.epochs == 0 {
        return Err(Error::usage("--epochs 0: no reads to count; give at least 1"));
    }
    options.policies.iter().try_for_each(|name| kind(name).map(|_| ()))
}

#[cfg(test)]
mod tests;
