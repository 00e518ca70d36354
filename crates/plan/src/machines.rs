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
//! machine caches rows of the others, which it requests less often. With `--graph-stores N`, the
//! last `N` machines hold the parts and the others train, as in a run. With `--devices virtual:N`,
//! `N` simulated devices divide the cores of each machine that trains and cache rows. With
//! `--devices cuda:0`, it trains on NVIDIA devices of `--hardware`
//! ([`Accelerators`](crate::Accelerators)).

use graphmill_core::progress;
use std::{fmt, sync::Arc};

use graphmill_data::{
    Dataset, TypedDataset,
    partition::{PartitionDir, TypedPartitionDir},
};
use graphmill_distributed::NodeOwnership;
use graphmill_engine::{
    Error, Result, TrainConfig, build,
    config::Devices,
    options::used::refuse_unused_by_all,
    partition::{RankCache, drawing_seconds, rank_cache, requests_of_ranks},
    strategy::reuse::NONE,
    typed::machines::{self as typed, MachineCosts},
};
use graphmill_loader::feature::LinkOptions;
use serde::Serialize;

use crate::{
    accelerators::{BatchBytes, check_cache, devices_of},
    cores::Cores,
    hardware::Hardware,
    measure::seconds_of_batches,
    memory::gb,
    network::{Epoch, Machines, REPLICATED_BYTES_PER_NODE, Stores, Wire},
    strategies::{Refused, over_machines, rows_over_machines},
    talk::seconds_of_byte,
};

/// Machines to predict for.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Number of machines, graph stores included; one per part if not given.
    pub machines: Option<usize>,
    /// Link of each machine.
    pub network: LinkOptions,
    /// Speed, memory and links of the NVIDIA devices of each machine that trains, if it has some.
    pub hardware: Option<Hardware>,
}

/// Options of a run that only predictions for several machines read.
pub const OPTIONS: [&str; 2] = ["graph_stores", "devices"];

/// Plan for several machines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the dataset.
    pub dataset: String,
    /// Partitioning method.
    pub method: String,
    /// Number of machines, graph stores included.
    pub machines: usize,
    /// Number of parts.
    pub parts: usize,
    /// Graph stores among the machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stores: Option<Stores>,
    /// Devices of each machine that trains in strategies by device: its cores, or those of
    /// `--devices`.
    pub devices: usize,
    /// Name of the machine whose NVIDIA devices train, if some do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Seconds of a minibatch on one machine, by stage.
    pub alone: [f64; 3],
    /// Seconds of the slowest share.
    pub share: [f64; 3],
    /// Processor seconds of a machine that trains for serving the others, and for sending and
    /// receiving.
    pub talk: f64,
    /// Seconds of the network: hops, rows, sums.
    pub network: [f64; 3],
    /// Bytes of a minibatch.
    pub wire: Wire,
    /// Memory of each machine that trains in bytes: graph and features of its parts, its cache, and
    /// the data about all nodes.
    pub memory_bytes: f64,
    /// The same of a graph store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_memory_bytes: Option<f64>,
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
/// the machines that share the parts of `dir`, and predicts an epoch over them, each like this one
/// with `--threads`. `data` is the whole dataset, and `given` names the options that the user set.
///
/// # Errors
/// As for training; `dir` belongs to another dataset, there are fewer parts than machines that hold
/// some, or an option has no effect.
pub fn plan(
    (config, given): (&TrainConfig, &[&str]),
    data: &Dataset,
    dir: &PartitionDir,
    cluster: Cluster,
) -> Result<Report> {
    check(&TrainConfig { dataset: dir.path().display().to_string(), ..config.clone() }, given, false)?;
    let devices = devices_of(config, cluster.hardware)?;
    if (dir.num_nodes(), dir.num_edges()) != (data.num_nodes(), data.graph.num_edges()) {
        return Err(Error::usage(format!(
            "--partition {}: the partition belongs to another dataset, of {} nodes and {} edges",
            dir.path().display(),
            dir.num_nodes(),
            dir.num_edges()
        )));
    }
    let parts = usize::from(dir.parts());
    let count = cluster.machines.unwrap_or(parts);
    let owners = |rank: usize| owners(config, dir, rank, count);
    let of_rank_0 = owners(0)?;
    let trainers = of_rank_0.num_trainers();
    let mut counted = requests_of_ranks(config, COUNTED, data, &of_rank_0, &progress::Quiet)?;
    drop(of_rank_0);
    let alone = mean(&seconds_of_batches(config, data, None)?);
    let Shares { seconds: share, cache } = Shares::measure(config, data, trainers, &owners)?;
    devices.as_ref().map_or(Ok(()), |(hardware, _)| check_cache(hardware, &cache))?;
    // rows that a machine caches are not requested
    counted.remote_rows = ((1.0 - cache.hit_rate) * counted.remote_rows as f64).round() as u64;
    // Rows for others are read like own ones.
    let read = counted.remote_rows as f64 / counted.rows.max(1) as f64 * share[1];
    let parameters = build::model_of_shapes(config, data)?.num_params();
    let of_row = build::bytes_of_row(config, data);
    let threads = rayon::current_num_threads();
    let machines = Machines {
        count,
        stores: None,
        batches: counted.batches_per_epoch,
        alone,
        share,
        talk: 0.0,
        wire: Wire::default(),
        network: cluster.network,
        cores: Cores::new(config, threads),
        cached: cache.ratio,
        // NVIDIA devices do not share their rows
        caches_on_devices: devices.is_none() && config.num_devices() > 0 && cache.ratio > 0.0,
        accelerators: None,
    };
    let machines = match config.graph_stores {
        0 => {
            let wire = Wire::new(&counted, count, of_row, parameters);
            // every received row was sent by another machine
            let talk = read + 2.0 * wire.total() / count as f64 * seconds_of_byte()?;
            Machines { wire, talk, ..machines }
        }
        stores => {
            let wire = Wire::of_stores(&counted, [trainers, stores], of_row, parameters);
            let draws = drawing_seconds(config, data, &Arc::new(owners(0)?))?;
            machines.apart(stores, wire, (&draws, read), (threads, seconds_of_byte()?))
        }
    };
    let rows = counted.rows as f64 / counted.batches.max(1) as f64 * of_row as f64;
    let batch = BatchBytes { rows, gradients: 4.0 * parameters as f64 };
    let machines = machines.with_devices(devices.clone(), cache.on_device, batch)?;
    // rows that NVIDIA devices cache take no memory of the machine
    let cached = if devices.is_none() { cache.bytes } else { 0.0 };
    let (nodes, edges) = (data.num_nodes() as f64, data.graph.num_edges() as f64);
    let held = 4.0 * edges + 4.0 * nodes * data.features.dim as f64;
    let of_all = REPLICATED_BYTES_PER_NODE * nodes;
    let memory = match config.graph_stores {
        0 => [of_all + held / count as f64 + cached, 0.0],
        stores => [of_all + cached, of_all + held / stores as f64],
    };
    Ok(report((&data.name, dir.method(), parts), machines, memory, (cache, false)))
}

/// Owners of the nodes, as rank `rank` of `count` knows them in a run with these options.
fn owners(config: &TrainConfig, dir: &PartitionDir, rank: usize, count: usize) -> Result<NodeOwnership> {
    let stores = config.graph_stores;
    if count == 0 {
        return Err(Error::usage("--machines 0: a run has at least one machine; use one or more"));
    }
    NodeOwnership::with_stores(dir.book.clone(), rank, count, stores).map_err(|error| {
        Error::usage(match stores {
            0 => format!("--machines {count}: {error}"),
            _ => format!("--machines {count} --graph-stores {stores}: {error}"),
        })
    })
}

/// Means over some batches.
fn mean(batches: &[[f64; 3]]) -> [f64; 3] {
    std::array::from_fn(|stage| {
        batches.iter().map(|batch| batch[stage]).sum::<f64>() / batches.len().max(1) as f64
    })
}

/// Shares of minibatches, measured on this machine.
struct Shares {
    /// Seconds of the slowest share of a batch by stage, in the mean.
    seconds: [f64; 3],
    /// Cache of a machine: means over the shares, and the largest number of bytes.
    cache: RankCache,
}

impl Shares {
    /// Measures the shares of some of the first `trainers` ranks, whose owners are `owners`.
    fn measure(
        config: &TrainConfig,
        data: &Dataset,
        trainers: usize,
        owners: &dyn Fn(usize) -> Result<NodeOwnership>,
    ) -> Result<Self> {
        let mut slowest: Vec<[f64; 3]> = Vec::new();
        let measured = trainers.min(MEASURED);
        let mut cache = RankCache::default();
        for rank in 0..measured {
            let book = Arc::new(owners(rank)?);
            let own = rank_cache(config, data, &book)?;
            cache.ratio += own.ratio / measured as f64;
            cache.hit_rate += own.hit_rate / measured as f64;
            cache.on_device += own.on_device / measured as f64;
            cache.bytes = cache.bytes.max(own.bytes);
            let batches = seconds_of_batches(config, data, Some(book))?;
            let sum = |batch: &[f64; 3]| batch.iter().sum::<f64>();
            slowest.resize(batches.len(), [0.0; 3]);
            let pairs = slowest.iter_mut().zip(batches);
            pairs.filter(|(most, batch)| sum(batch) > sum(most)).for_each(|(most, batch)| *most = batch);
        }
        Ok(Self { seconds: mean(&slowest), cache })
    }
}

impl Machines {
    /// The same machines of which the last `stores` are graph stores, with traffic `wire`. A share
    /// of a batch takes one thread the seconds `draws` to draw, hop by hop, and a store the seconds
    /// `read` to read its rows. Machines have `threads` threads, and a byte takes `of_byte` seconds
    /// to send or to receive.
    ///
    /// Sampling loses the draws, which all cores shared. The requests of all training machines
    /// arrive at the same time. A store draws each on one of its threads, and reads rows on all.
    fn apart(
        self,
        stores: usize,
        wire: Wire,
        (draws, read): (&[f64], f64),
        (threads, of_byte): (usize, f64),
    ) -> Self {
        let trainers = self.count - stores;
        let turns = trainers.div_ceil(threads.max(1)) as f64;
        let [per_trainer, per_store, threads] = [trainers, stores, threads.max(1)].map(|n| n as f64);
        let drawn: f64 = draws.iter().sum();
        let messages = wire.hops.iter().sum::<f64>() + wire.rows;
        let reads = per_trainer * read / per_store;
        let work = per_trainer * drawn / threads / per_store + reads + messages / per_store * of_byte;
        let [sample, gather, train] = self.share;
        Self {
            stores: Some(Stores { count: stores, draws: turns * drawn / per_store, reads, work }),
            share: [(sample - drawn / threads).max(0.0), gather, train],
            talk: (messages + 2.0 * wire.sums) / per_trainer * of_byte,
            wire,
            ..self
        }
    }
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
    cluster: Cluster,
) -> Result<Report> {
    check(&TrainConfig { dataset: dir.path().display().to_string(), ..config.clone() }, given, true)?;
    devices_of(config, cluster.hardware)?;
    let count = usize::from(dir.parts());
    if let Some(machines) = cluster.machines.filter(|&machines| machines != count) {
        return Err(Error::usage(format!(
            "--machines {machines}: predictions on several types have one machine per part; partition with \
             --parts {machines}, or leave the option out"
        )));
    }
    let costs = typed::measure(config, data, dir, COUNTED)?;
    let MachineCosts { requests: counted, words, types, alone, share, parameters, memory_bytes, cache } =
        costs;
    let mut wire = Wire::new(&counted, count, 0, parameters);
    wire.add_rows(words / counted.batches.max(1) as f64, types, count);
    let read = counted.remote_rows as f64 / counted.rows.max(1) as f64 * share[1];
    let talk = read + 2.0 * wire.total() / count as f64 * seconds_of_byte()?;
    let cores = Cores::new(config, rayon::current_num_threads());
    let (batches, cached) = (counted.batches_per_epoch, cache.ratio);
    let (stores, network) = (None, cluster.network);
    let (caches_on_devices, accelerators) = (config.num_devices() > 0 && cached > 0.0, None);
    let machines = Machines {
        count,
        stores,
        batches,
        alone,
        share,
        talk,
        wire,
        network,
        cores,
        cached,
        caches_on_devices,
        accelerators,
    };
    Ok(report((&data.name, dir.method(), count), machines, [memory_bytes, 0.0], (cache, true)))
}

/// Refuses options that predictions for several machines do not follow, on several types if
/// `of_types`.
fn check(config: &TrainConfig, given: &[&str], of_types: bool) -> Result<()> {
    check_devices(config, of_types)?;
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

/// Refuses devices whose work or caches predictions for several machines do not follow.
fn check_devices(config: &TrainConfig, of_types: bool) -> Result<()> {
    let refuse = |why: &str| Err(Error::usage(format!("--devices {}: {why}", config.devices)));
    match *config.devices {
        Devices::Cpu => Ok(()),
        Devices::Cuda(_) if of_types => {
            refuse("over ranks NVIDIA devices do not train on several types; use virtual:N, or leave it out")
        }
        _ if config.cache_ratio.0.is_none() => refuse(
            "without --cache-ratio a run caches as many rows as the memory of its machine holds, which a \
             prediction does not know; add --cache-ratio, 0 for no cache",
        ),
        _ if config.host_budget.0 > 0 => refuse(
            "predictions for several machines do not follow a cache in host memory behind those of devices; \
             leave out --host-budget",
        ),
        Devices::Virtual(_) | Devices::Cuda(_) => Ok(()),
    }
}

/// Report of the strategies over `machines`, which have this cache, of a run on several types if
/// `of_types`. `memory` is that of a machine that trains, and of a graph store.
fn report(
    (dataset, method, parts): (&str, &str, usize),
    machines: Machines,
    memory: [f64; 2],
    (cache, of_types): (RankCache, bool),
) -> Report {
    let (strategies, refused) = over_machines(&machines, of_types);
    let RankCache { ratio, hit_rate, .. } = cache;
    let quickest = strategies.iter().min_by(|a, b| a.epoch_seconds.total_cmp(&b.epoch_seconds));
    Report {
        dataset: dataset.to_string(),
        method: method.to_string(),
        machines: machines.count,
        parts,
        stores: machines.stores,
        devices: machines.cores.count,
        hardware: machines.accelerators.as_ref().map(|on| on.hardware.name.clone()),
        alone: machines.alone,
        share: machines.share,
        talk: machines.talk,
        network: machines.network_seconds(),
        memory_bytes: memory[0],
        store_memory_bytes: machines.stores.map(|_| memory[1]),
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
        writeln!(f, "{} in {} parts by {}", self.dataset, self.parts, self.method)?;
        if let Some(stores) = &self.stores {
            let trainers = self.machines - stores.count;
            writeln!(f, "{} machines: {trainers} train, {} graph stores", self.machines, stores.count)?;
        } else if self.machines != self.parts {
            writeln!(f, "{} machines", self.machines)?;
        }
        writeln!(f, "a batch on one machine: {}", stages(&self.alone))?;
        writeln!(f, "its slowest share:      {}", stages(&self.share))?;
        if let Some(name) = &self.hardware {
            writeln!(f, "it trains on devices of {name}, which its rows reach over their link")?;
        }
        writeln!(f, "messages on its cores:  {}", ms(self.talk))?;
        if let Some(Stores { draws, reads, work, .. }) = self.stores {
            writeln!(f, "it waits for stores:    draws {}, reads {}", ms(draws), ms(reads))?;
            writeln!(f, "work of each store:     {}", ms(work))?;
        }
        writeln!(f, "the network: hops {}, rows {}, sums {}", ms(hops), ms(rows), ms(sums))?;
        let [asked, read, summed] = [self.wire.hops.iter().sum(), self.wire.rows, self.wire.sums]
            .map(|b: f64| gb(b / self.machines as f64));
        let whose = if self.stores.is_some() { "a machine, in the mean" } else { "each machine" };
        writeln!(f, "out of {whose}: {asked} for neighbours, {read} for rows, {summed} for sums")?;
        let [ratio, served] = self.cache.map(|share| 100.0 * share);
        if ratio > 0.0 {
            writeln!(f, "its cache: {ratio:.1} % of all rows, {served:.1} % of the requests for others")?;
        }
        match self.store_memory_bytes {
            None => writeln!(f, "memory of each machine: {}\n", gb(self.memory_bytes))?,
            Some(of_store) => {
                let trains = gb(self.memory_bytes);
                writeln!(
                    f,
                    "memory of a machine that trains: {trains}, of a graph store: {}\n",
                    gb(of_store)
                )?;
            }
        }
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
