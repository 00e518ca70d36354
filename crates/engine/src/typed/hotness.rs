//! Hit rates of caches on several types, by policy, sampler and size, without training: as
//! [`crate::hotness`], with the cached rows and the hits of each type.

use std::fmt;

use graphmill_core::{NodeId, node_order::by_scores, progress::Progress, typed::Schema};
use graphmill_data::typed::TypedDataset;
use graphmill_loader::hotness::{self, Footprint, Visits, similarity};
use serde::Serialize;

use super::{
    batches::RunBatches,
    build,
    shares::{self, Competing},
    task::TypedTask,
    tiers::{Rows, read_rows},
    visits::{self, TypedVisits},
};
use crate::{
    Error, Result, TrainConfig,
    cache_kind::{Kind, follows_ids, kind},
    hotness::{Advice, CachedFootprints, Options, Report, Row, SamplerReads, check, dynamic_rates},
};

/// Feature rows of a type.
#[derive(Clone, Debug, Serialize)]
pub struct TypeRows {
    /// Name of the type.
    pub name: String,
    /// Number of rows.
    pub rows: usize,
    /// Bytes of a row; the mean if rows are sparse.
    pub row_bytes: u64,
}

/// Part of a cache with the rows of a type.
#[derive(Clone, Debug, Serialize)]
pub struct TypeRate {
    /// Name of the type.
    pub name: String,
    /// Cached fraction of the type's rows.
    pub cached: f64,
    /// Fraction of the type's requested rows that the cache serves.
    pub hit_rate: f64,
}

/// Hit rate of a cache over all types, and by type.
#[derive(Clone, Debug, Serialize)]
pub struct TypedRow {
    /// The whole cache. Its ratio is a fraction of the bytes of all rows.
    #[serde(flatten)]
    pub all: Row,
    /// Its parts.
    pub types: Vec<TypeRate>,
}

/// Result of [`run`].
#[derive(Clone, Debug, Serialize)]
pub struct TypedReport {
    /// Name of the dataset.
    pub dataset: String,
    /// Types with features.
    pub types: Vec<TypeRows>,
    /// Hit rates by sampler, policy and ratio.
    pub results: Vec<TypedRow>,
    /// Requested rows by sampler.
    pub samplers: Vec<SamplerReads>,
    /// Policy and size to choose for each sampler, by the rows of all types together.
    pub advice: Vec<Advice>,
}

/// Returns true if the hotness or policy `name` is defined for several types.
pub fn is_defined(name: &str) -> bool {
    let kind = name.split(':').next().unwrap_or(name);
    hotness::TABLE.get(kind).is_none_or(|entry| !entry.make.has_one_fanout)
}

/// Score of every node by the metric `name`, by global id, from the minibatches of a run with these
/// options or from its graph.
///
/// # Errors
/// The dataset has no task to train on, the metric is unknown or is not defined for several types,
/// an option is impossible, or `watch` stops the work.
pub fn scores(
    name: &str,
    config: &TrainConfig,
    data: &TypedDataset,
    watch: &dyn Progress,
) -> Result<Vec<f64>> {
    let task = trainable(data, config)?;
    let sampler = build::sampler(config, &task)?;
    let of = RunBatches::of_nodes(config, &task, &*sampler)?;
    visits::scores(name, &of, &TypedVisits::new(&of, watch), watch)
}

/// The task of a run, which has training nodes.
fn trainable(data: &TypedDataset, config: &TrainConfig) -> Result<TypedTask> {
    let task = TypedTask::new(data, &config.task)?;
    let seeds = [task.node_type];
    let task = task.with_added(config, &seeds)?;
    if task.split.train.is_empty() {
        return Err(Error::dataset(&data.name, "its task has no training nodes; add some to the split"));
    }
    Ok(task)
}

/// Computes hit rates of the rows of all types with features. Draws each epoch once per sampler,
/// and dynamic caches once per policy and type.
///
/// # Errors
/// The dataset has no task to train on; an unknown name or an impossible option; `watch` stops the
/// work.
pub fn run(options: &Options, data: &TypedDataset, watch: &dyn Progress) -> Result<TypedReport> {
    check(options)?;
    let task = trainable(data, &options.train)?;
    let types = task.graph.schema().types().iter().enumerate();
    let types = types.filter_map(|(t, node)| {
        let Rows { count, bytes, .. } = super::tiers::rows(&task, t)?;
        Some(TypeRows { name: node.name.clone(), rows: count, row_bytes: bytes })
    });
    let mut report = TypedReport {
        dataset: data.name.clone(),
        types: types.collect(),
        results: Vec::new(),
        samplers: Vec::new(),
        advice: Vec::new(),
    };
    for sampler in &options.samplers {
        let epochs = usize::try_from(options.epochs).unwrap_or(usize::MAX);
        let config = TrainConfig { sampler: sampler.clone(), epochs, ..options.train.clone() };
        of_sampler(options, &config, &trainable(data, &config)?, watch, &mut report)?;
    }
    report.advice = report.overall().advice;
    Ok(report)
}

/// Adds the hit rates of a sampler.
fn of_sampler(
    options: &Options,
    config: &TrainConfig,
    task: &TypedTask,
    watch: &dyn Progress,
    report: &mut TypedReport,
) -> Result<()> {
    let (schema, sampler) = (task.graph.schema(), build::sampler(config, task)?);
    let of = RunBatches::of_nodes(config, task, &*sampler)?;
    let drawn = TypedVisits::new(&of, watch);
    let is_read: Vec<bool> = task.features.iter().map(Option::is_some).collect();
    let with_features = OfTypes { visits: &drawn, schema, is_read, local: false };
    let visits = CachedFootprints::new(&with_features);
    let epochs: Vec<Footprint> = (0..options.epochs)
        .map(|epoch| visits.footprint(epoch, schema.num_nodes()))
        .collect::<graphmill_core::Result<_>>()?;
    let pairs = epochs.windows(2).map(|pair| similarity(&pair[0], &pair[1]));
    let pairs = pairs.collect::<graphmill_core::Result<Vec<f64>>>()?;
    let footprint = Footprint::of(schema.num_nodes(), &visits, 0..options.epochs)?;
    report.samplers.push(SamplerReads {
        sampler: config.sampler.clone(),
        rows_per_epoch: footprint.total() as f64 / options.epochs as f64,
        similarity: (!pairs.is_empty()).then(|| pairs.iter().sum::<f64>() / pairs.len() as f64),
    });
    let rows = read_rows(&of);
    let competing: Vec<Option<Competing>> =
        rows.iter().map(|of| of.map(|of| Competing { rows: of.count, bytes: of.bytes as f64 })).collect();
    let bytes: f64 = competing.iter().flatten().map(|of| of.rows as f64 * of.bytes).sum();
    for policy in &options.policies {
        let caches = Caches { of: &of, visits: &visits, footprint: &footprint, competing: &competing };
        let fault = |error: Error| Error::usage(format!("--policies: {error}"));
        let budgets: Vec<f64> = options.ratios.iter().map(|ratio| ratio * bytes).collect();
        let parts = match kind(policy)? {
            Kind::Pinned => caches.pinned(policy, &budgets, watch).map_err(fault)?,
            Kind::Dynamic(make) => caches.dynamic(make, options)?,
        };
        for (&ratio, parts) in options.ratios.iter().zip(parts) {
            let sum = |of: fn(&Part) -> u64| parts.iter().map(of).sum::<u64>();
            let all = Row {
                policy: policy.clone(),
                sampler: config.sampler.clone(),
                ratio,
                hit_rate: rate(sum(|part| part.hits), sum(|part| part.requests)),
            };
            let types = parts.iter().map(|part| TypeRate {
                name: schema.types()[part.node_type].name.clone(),
                cached: part.cached,
                hit_rate: rate(part.hits, part.requests),
            });
            report.results.push(TypedRow { all, types: types.collect() });
        }
    }
    Ok(())
}

/// Part of a cache with the rows of a type.
struct Part {
    node_type: usize,
    cached: f64,
    hits: u64,
    requests: u64,
}

/// Fraction of the requested rows that were served; 1 without requests.
fn rate(hits: u64, requests: u64) -> f64 {
    if requests == 0 { 1.0 } else { hits as f64 / requests as f64 }
}

/// Caches of a run on several types.
struct Caches<'c> {
    of: &'c RunBatches<'c>,
    visits: &'c dyn Visits,
    footprint: &'c Footprint,
    competing: &'c [Option<Competing>],
}

impl Caches<'_> {
    /// Types with features that batches can read, and the counts of their rows.
    fn types(&self) -> impl Iterator<Item = (usize, Competing, &[u32])> {
        let counts = |t: usize| {
            let range = self.of.task.graph.schema().range(t);
            &self.footprint.counts[range.start as usize..range.end as usize]
        };
        self.competing.iter().enumerate().filter_map(move |(t, of)| Some((t, (*of)?, counts(t))))
    }

    /// Parts of static caches of the hottest rows within each budget.
    fn pinned(&self, policy: &str, budgets: &[f64], watch: &dyn Progress) -> Result<Vec<Vec<Part>>> {
        let schema = self.of.task.graph.schema();
        let scores = visits::scores(policy, self.of, self.visits, watch)?;
        let mut hits = Vec::new();
        for (t, _, counts) in self.types() {
            let range = schema.range(t).start as usize..schema.range(t).end as usize;
            hits.push(Footprint { counts: counts.to_vec() }.hits(&by_scores(&scores[range])?));
        }
        let of_budget = |&budget: &f64| {
            let shares = match follows_ids(policy) {
                true => shares::in_proportion(self.competing, budget),
                false => shares::by_score(self.competing, schema, &scores, budget)?,
            };
            let part = |((t, of, _), hits): ((usize, Competing, _), &Vec<u64>)| Part {
                node_type: t,
                cached: shares[t] as f64 / of.rows.max(1) as f64,
                hits: hits[shares[t]],
                requests: hits[of.rows],
            };
            Ok(self.types().zip(&hits).map(part).collect())
        };
        budgets.iter().map(of_budget).collect()
    }

    /// Parts of dynamic caches of each ratio, which start empty.
    fn dynamic(&self, make: graphmill_loader::policy::Make, options: &Options) -> Result<Vec<Vec<Part>>> {
        let mut parts: Vec<Vec<Part>> = options.ratios.iter().map(|_| Vec::new()).collect();
        for (t, of, counts) in self.types() {
            let mut is_read = vec![false; self.competing.len()];
            is_read[t] = true;
            let schema = self.of.task.graph.schema();
            let visits = OfTypes { visits: self.visits, schema, is_read, local: true };
            let rates = dynamic_rates(make, of.rows, &visits, options.epochs, &options.ratios)?;
            let requests: u64 = counts.iter().map(|&count| u64::from(count)).sum();
            for ((parts, rate), ratio) in parts.iter_mut().zip(rates).zip(&options.ratios) {
                let hits = (rate * requests as f64).round() as u64;
                parts.push(Part { node_type: t, cached: *ratio, hits, requests });
            }
        }
        Ok(parts)
    }
}

/// Visits of some types.
struct OfTypes<'v> {
    visits: &'v dyn Visits,
    schema: &'v Schema,
    is_read: Vec<bool>,
    /// True to pass ids local to the types.
    local: bool,
}

impl Visits for OfTypes<'_> {
    fn visit(&self, epoch: u64, see: &mut dyn FnMut(&[NodeId])) -> graphmill_core::Result<()> {
        let mut read = Vec::new();
        self.visits.visit(epoch, &mut |nodes| {
            read.clear();
            read.extend(nodes.iter().filter_map(|&v| {
                let (t, local) = self.schema.local(v).filter(|&(t, _)| self.is_read[t])?;
                Some(if self.local { local } else { self.schema.global(t, local) })
            }));
            see(&read);
        })
    }
}

impl TypedReport {
    /// The hit rates over all types, without those of each type.
    pub fn overall(&self) -> Report {
        let rows = self.types.iter().map(|of| of.rows).sum::<usize>();
        let bytes: u64 = self.types.iter().map(|of| of.rows as u64 * of.row_bytes).sum();
        Report {
            dataset: self.dataset.clone(),
            rows,
            row_bytes: bytes / rows.max(1) as u64,
            results: self.results.iter().map(|row| row.all.clone()).collect(),
            samplers: self.samplers.clone(),
            advice: Vec::new(),
        }
        .advised()
    }
}

impl fmt::Display for TypedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: rows of {} types", self.dataset, self.types.len())?;
        for TypeRows { name, rows, row_bytes } in &self.types {
            write!(f, "\n  {name}: {rows} rows of {row_bytes} bytes")?;
        }
        let names = self.types.iter().map(|of| of.name.len() + 2);
        let policies = self.results.iter().map(|row| row.all.policy.len());
        let widest = names.chain(policies).max().unwrap_or(0).max("hit rate (cached), %".len());
        writeln!(f)?;
        for reads in &self.samplers {
            let rows: Vec<_> = self.results.iter().filter(|row| row.all.sampler == reads.sampler).collect();
            write!(f, "\n{}: {:.0} rows per epoch", reads.sampler, reads.rows_per_epoch)?;
            if let Some(similarity) = reads.similarity {
                write!(f, ", consecutive epochs are {:.1} % similar", 100.0 * similarity)?;
            }
            write!(f, "\n{:widest$}", "hit rate (cached), %")?;
            let of_one: Vec<Vec<&&TypedRow>> = rows
                .chunk_by(|one, two| one.all.policy == two.all.policy)
                .map(|of| of.iter().collect())
                .collect();
            for row in of_one.iter().take(1).flatten() {
                write!(f, " {:>14}", format!("{}%", 100.0 * row.all.ratio))?;
            }
            for of in &of_one {
                write!(f, "\n{:widest$}", of[0].all.policy)?;
                for row in of {
                    write!(f, " {:>14.1}", 100.0 * row.all.hit_rate)?;
                }
                for (i, part) in of[0].types.iter().enumerate() {
                    write!(f, "\n{:widest$}", format!("  {}", part.name))?;
                    for TypeRate { hit_rate, cached, .. } in of.iter().map(|row| &row.types[i]) {
                        write!(f, " {:>14}", format!("{:.1} ({:.1})", 100.0 * hit_rate, 100.0 * cached))?;
                    }
                }
            }
            writeln!(f)?;
        }
        self.overall().write_advice(f)
    }
}
