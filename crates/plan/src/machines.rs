//! Plan for several machines with a part of the graph each: duration of an epoch over a network.
//!
//! ```text
//!   seconds of a share, measured here                   ─┐
//!   requests, edges, rows: counted by drawing an epoch  ─┼─►  a batch: own work + hops + rows + sums  ─►  epoch, efficiency, memory
//!   network: bytes a second each way, latency           ─┘
//! ```
//!
//! [`network`](crate::network) and [`Cores`] are the models; this module measures and counts their
//! inputs, for every strategy that runs over machines. With `--cache-ratio` or `--host-budget` each
//! machine caches rows of the others, which it requests less often.

use graphmill_core::progress;
use std::{fmt, sync::Arc};

use graphmill_data::{
    Dataset, TypedDataset,
    partition::{PartitionDir, TypedPartitionDir},
};
use graphmill_distributed::NodeOwnership;
use graphmill_engine::{
    Error, Result, TrainConfig, build,
    options::used::refuse_unused_by_all,
    partition::{RankCache, rank_cache, requests},
    strategy::reuse::NONE,
    typed::machines::{self as typed, MachineCosts},
};
use graphmill_loader::feature::LinkOptions;
use serde::Serialize;

use crate::{
    cores::Cores,
    measure::seconds_of_batches,
    memory::gb,
    network::{Epoch, Machines, REPLICATED_BYTES_PER_NODE, Wire},
    strategies::{Refused, over_machines, rows_over_machines},
    talk::seconds_of_byte,
};

/// Plan for several machines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the dataset.
    pub dataset: String,
    /// Partitioning method.
    pub method: String,
    /// Number of machines, one per part.
    pub machines: usize,
    /// Seconds of a minibatch on one machine, by stage.
    pub alone: [f64; 3],
    /// Seconds of the slowest share.
    pub share: [f64; 3],
    /// Processor seconds of a machine for serving the others, and for sending and receiving.
    pub talk: f64,
    /// Seconds of the network: hops, rows, sums.
    pub network: [f64; 3],
    /// Bytes of a minibatch.
    pub wire: Wire,
    /// Memory of each machine in bytes: graph and features of its part, and the data about all
    /// nodes.
    pub memory_bytes: f64,
    /// Cache of a machine for rows of the others: its share of all rows, and of the requested rows
    /// that it serves, in the mean.
    pub cache: [f64; 2],
    /// Epoch of each strategy.
    pub strategies: Vec<Epoch>,
    /// Strategies that the options do not allow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// Faster strategy.
    pub recommended: Option<&'static str>,
}

/// Measures some shares of a run with these options on this machine, counts the requests between
/// the parts of `dir`, and predicts an epoch over one machine per part, each like this one with
/// `--threads`. `data` is the whole dataset, and `given` names the options that the user set.
///
/// # Errors
/// As for training; `dir` belongs to another dataset, or an option has no effect.
pub fn plan(
    (config, given): (&TrainConfig, &[&str]),
    data: &Dataset,
    dir: &PartitionDir,
    network: LinkOptions,
) -> Result<Report> {
    check(&TrainConfig { dataset: dir.path().display().to_string(), ..config.clone() }, given, false)?;
    if (dir.num_nodes(), dir.num_edges()) != (data.num_nodes(), data.graph.num_edges()) {
        return Err(Error::usage(format!(
            "--partition {}: the partition belongs to another dataset, of {} nodes and {} edges",
            dir.path().display(),
            dir.num_nodes(),
            dir.num_edges()
        )));
    }
    let count = usize::from(dir.parts());
    let mut counted = requests(config, COUNTED, data, &dir.book, &progress::Quiet)?;
    let mean = |batches: &[[f64; 3]]| -> [f64; 3] {
        std::array::from_fn(|stage| {
            batches.iter().map(|batch| batch[stage]).sum::<f64>() / batches.len().max(1) as f64
        })
    };
    let of_batches = |own| seconds_of_batches(config, data, own);
    let alone = of_batches(None)?;
    let mut slowest: Vec<[f64; 3]> = Vec::new();
    let measured = count.min(MEASURED);
    let mut cache = RankCache::default();
    for rank in 0..measured {
        let book = Arc::new(NodeOwnership::new(dir.book.clone(), rank, count)?);
        let own = rank_cache(config, data, &book)?;
        cache.ratio += own.ratio / measured as f64;
        cache.hit_rate += own.hit_rate / measured as f64;
        cache.bytes = cache.bytes.max(own.bytes);
        let batches = of_batches(Some(book))?;
        let sum = |batch: &[f64; 3]| batch.iter().sum::<f64>();
        slowest.resize(batches.len(), [0.0; 3]);
        let pairs = slowest.iter_mut().zip(batches);
        pairs.filter(|(most, batch)| sum(batch) > sum(most)).for_each(|(most, batch)| *most = batch);
    }
    let (alone, share) = (mean(&alone), mean(&slowest));
    // rows that a machine caches are not requested
    counted.remote_rows = ((1.0 - cache.hit_rate) * counted.remote_rows as f64).round() as u64;
    let model = build::model(config, data)?;
    let wire = Wire::new(&counted, count, build::bytes_of_row(config, data), model.num_params());
    // Rows for others are read like own ones; every received row was sent by another machine.
    let read = counted.remote_rows as f64 / counted.rows.max(1) as f64 * share[1];
    let talk = read + 2.0 * wire.total() / count as f64 * seconds_of_byte()?;
    let cores = Cores::new(config, rayon::current_num_threads());
    let (batches, cached) = (counted.batches_per_epoch, cache.ratio);
    let machines = Machines { count, batches, alone, share, talk, wire, network, cores, cached };
    let (nodes, edges) = (data.num_nodes() as f64, data.graph.num_edges() as f64);
    let features = 4.0 * nodes * data.features.dim as f64;
    let memory = REPLICATED_BYTES_PER_NODE * nodes + (4.0 * edges + features) / count as f64;
    Ok(report((&data.name, dir.method()), machines, memory + cache.bytes, Some(cache)))
}

/// Predicts an epoch on several types over one machine per part of `dir`, as [`plan`] does on one
/// type.
///
/// # Errors
/// As for [`plan`].
pub fn plan_types(
    (config, given): (&TrainConfig, &[&str]),
    data: &TypedDataset,
    dir: &TypedPartitionDir,
    network: LinkOptions,
) -> Result<Report> {
    check(config, given, true)?;
    let count = usize::from(dir.parts());
    let costs = typed::measure(config, data, dir, COUNTED)?;
    let MachineCosts { requests: counted, words, types, alone, share, parameters, memory_bytes } = costs;
    let mut wire = Wire::new(&counted, count, 0, parameters);
    wire.add_rows(words / counted.batches.max(1) as f64, types, count);
    let read = counted.remote_rows as f64 / counted.rows.max(1) as f64 * share[1];
    let talk = read + 2.0 * wire.total() / count as f64 * seconds_of_byte()?;
    let cores = Cores::new(config, rayon::current_num_threads());
    let (batches, cached) = (counted.batches_per_epoch, 0.0);
    let machines = Machines { count, batches, alone, share, talk, wire, network, cores, cached };
    Ok(report((&data.name, dir.method()), machines, memory_bytes, None))
}

/// Refuses options that predictions for several machines do not follow, on several types if
/// `of_types`.
fn check(config: &TrainConfig, given: &[&str], of_types: bool) -> Result<()> {
    let caches = ["cache", "cache_ratio", "host_budget"];
    if let Some(name) = given.iter().find(|name| of_types && caches.contains(name)) {
        return Err(Error::usage(format!(
            "--{}: predictions for several machines assume no cache of rows of several types; leave the \
             option out",
            name.replace('_', "-")
        )));
    }
    let run = |name: &str| TrainConfig { strategy: name.into(), ..config.clone() };
    let runs: Vec<TrainConfig> = rows_over_machines(of_types).map(|entry| run(entry.name)).collect();
    refuse_unused_by_all(&runs, given)?;
    if config.reuse != NONE {
        let reason = "predictions for several machines do not count the rows that machines exchange for \
                      reuse; use --reuse none here, and compare short runs";
        return Err(Error::usage(format!("--reuse {}: {reason}", config.reuse)));
    }
    Ok(())
}

/// Report of the strategies over `machines`, which have this cache; without one the run is on
/// several types.
fn report(
    (dataset, method): (&str, &str),
    machines: Machines,
    memory_bytes: f64,
    cache: Option<RankCache>,
) -> Report {
    let (strategies, refused) = over_machines(&machines, cache.is_none());
    let RankCache { ratio, hit_rate, .. } = cache.unwrap_or_default();
    let quickest = strategies.iter().min_by(|a, b| a.epoch_seconds.total_cmp(&b.epoch_seconds));
    Report {
        dataset: dataset.to_string(),
        method: method.to_string(),
        machines: machines.count,
        alone: machines.alone,
        share: machines.share,
        talk: machines.talk,
        network: machines.network_seconds(),
        memory_bytes,
        recommended: quickest.map(|epoch| epoch.name),
        wire: machines.wire,
        cache: [ratio, hit_rate],
        strategies,
        refused,
    }
}

/// Number of minibatches whose requests are counted.
const COUNTED: u64 = 32;
/// Number of shares that are measured; the slowest counts.
const MEASURED: usize = 4;
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |seconds: f64| format!("{:.2} ms", 1e3 * seconds);
        let stages =
            |of: &[f64; 3]| format!("sample {}, gather {}, train {}", ms(of[0]), ms(of[1]), ms(of[2]));
        let [hops, rows, sums] = self.network;
        writeln!(f, "{} in {} parts by {}", self.dataset, self.machines, self.method)?;
        writeln!(f, "a batch on one machine: {}", stages(&self.alone))?;
        writeln!(f, "its slowest share:      {}", stages(&self.share))?;
        writeln!(f, "messages on its cores:  {}", ms(self.talk))?;
        writeln!(f, "the network: hops {}, rows {}, sums {}", ms(hops), ms(rows), ms(sums))?;
        let [asked, read, summed] = [self.wire.hops.iter().sum(), self.wire.rows, self.wire.sums]
            .map(|b: f64| gb(b / self.machines as f64));
        writeln!(f, "out of each machine: {asked} for neighbours, {read} for rows, {summed} for sums")?;
        let [ratio, served] = self.cache.map(|share| 100.0 * share);
        if ratio > 0.0 {
            writeln!(f, "its cache: {ratio:.1} % of all rows, {served:.1} % of the requests for others")?;
        }
        writeln!(f, "memory of each machine: {}\n", gb(self.memory_bytes))?;
        writeln!(f, "{:<12} {:>9} {:>12}  bottleneck", "strategy", "epoch, s", "efficiency")?;
        for row in &self.strategies {
            let (seconds, efficiency) = (row.epoch_seconds, row.efficiency);
            writeln!(f, "{:<12} {seconds:>9.3} {efficiency:>12.2}  {}", row.name, row.bottleneck)?;
        }
        for Refused { name, reason } in &self.refused {
            writeln!(f, "{name:<12} not possible: {reason}")?;
        }
        if let Some(name) = self.recommended {
            writeln!(f, "recommended: --strategy {name}")?;
        }
        Ok(())
    }
}
