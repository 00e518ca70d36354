//! Memory tiers of the feature rows of several types, within one budget.
//!
//! ```text
//!   cpu:        host caches (--cache, --host-budget, --cache-ratio)  ─►  disk
//!   virtual:N:  device caches (--cache, --device-budget, --cache-ratio)  ─►  host
//!               host: all rows, or caches (--host-cache, --host-budget)  ─►  disk
//! ```
//!
//! Each type has a chain of its own. [`shares`](super::shares) divides a budget among the caches of
//! a level. Types whose rows are sparse or are not stored as f16 or f32 stay in host memory, and
//! their bytes count first.

use std::{path::Path, sync::Arc, time::Instant};

use graphmill_core::{
    features::FeatureData,
    matrix::TableType,
    progress::{Progress, Quiet},
};
use graphmill_data::{
    dataset::StoredTable,
    typed::{FeatureTable, TypedDataset},
};
use graphmill_loader::{
    Feature,
    feature::{
        Link, LinkOptions, Linked,
        cached::{Level, RowFormat, sparse_bytes},
    },
    hotness::Visits,
    typed::{TypedSampler, unreached_types},
};

use super::{
    devices::TypedDevices,
    shares::{self, Competing},
    step,
    tables::{Tables, borrowed},
    task::TypedTask,
    visits::{self, TypedVisits},
};
use crate::{
    Error, Result, TrainConfig, build,
    cache_kind::{AUTO, Kind, counts_training, follows_ids, kind},
    record::PresamplingRecord,
    tiers::{NewCache, map_bytes},
};

/// Cache of `auto`: presampled counts, because expectations need one fanout for all edge types.
const DEFAULT_CACHE: &str = "presc:2";

/// Feature rows in the tiers of a run.
pub(super) struct TypedTiers {
    /// Chain of tiers of each type.
    pub(super) tables: Tables,
    /// Rows of each type in the lowest tier, for inference.
    pub(super) whole: Tables,
    /// Description of the tiers, if there are several.
    pub(super) description: Option<String>,
    /// Cost of the minibatches that were counted for caches.
    pub(super) presampling: Option<PresamplingRecord>,
    /// Number of rows of all types in the caches of a device.
    pub(super) device_rows: usize,
}

/// The lowest tier.
struct Lowest {
    tables: Tables,
    /// Types whose rows are in files.
    in_files: Vec<bool>,
    /// Bytes of the rows that stay in host memory.
    resident: u64,
}

/// Caches of a level to build.
struct CacheLevel<'c> {
    flag: &'static str,
    policy: &'c str,
    /// Bytes of each cache with its maps.
    budget: f64,
    /// Name of the budget in messages.
    memory: String,
    /// Fraction of the bytes of all competing rows, if the size is given so.
    ratio: Option<f64>,
    /// Number of devices that share each cache.
    devices: usize,
    level: Level,
    /// Types that compete for the budget.
    of: &'c dyn Fn(usize) -> bool,
}

/// Size and form of the rows of a type.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// Number of rows.
    pub(super) count: usize,
    /// Bytes of a row; of sparse rows, the mean.
    pub(super) bytes: u64,
    format: RowFormat,
}

/// Rows of a task's type `t`, if it has features.
pub(super) fn rows(task: &TypedTask, t: usize) -> Option<Rows> {
    let features = task.features[t].as_ref()?;
    let count = task.graph.schema().types()[t].count;
    let (bytes, format) = match &features.data {
        FeatureData::Csr(rows) => (sparse_bytes(1, rows.stored().div_ceil(count.max(1))), RowFormat::Sparse),
        FeatureData::F32(_) => ((features.dim * 4) as u64, RowFormat::Dense(TableType::F32)),
        FeatureData::F16(_) => ((features.dim * 2) as u64, RowFormat::Dense(TableType::F16)),
    };
    Some(Rows { count, bytes, format })
}

/// Rows of each type with features that a sampler can reach.
pub(super) fn read_rows(task: &TypedTask, sampler: &dyn TypedSampler) -> Vec<Option<Rows>> {
    let schema = task.graph.schema();
    let unreached = unreached_types(sampler, schema, &[task.node_type]);
    let is_read = |t: usize| !unreached.contains(&&schema.types()[t].name[..]);
    (0..schema.num_types()).map(|t| rows(task, t).filter(|of| of.bytes > 0 && is_read(t))).collect()
}

/// Bytes of the rows of all types.
fn total_bytes(task: &TypedTask) -> u64 {
    (0..task.features.len()).filter_map(|t| rows(task, t)).map(|of| of.count as u64 * of.bytes).sum()
}

/// Returns true if host memory does not hold all rows.
fn is_beyond(config: &TrainConfig, task: &TypedTask) -> bool {
    let budget = config.host_budget.0;
    config.num_devices() == 0 && config.cache_ratio.0.is_some() || budget > 0 && total_bytes(task) > budget
}

/// The rows of each type in the lowest tier of a run with these options: host memory or disk.
///
/// # Errors
/// A file cannot be opened; rows that no file holds exceed the host's budget; the dataset is in
/// memory only.
pub(super) fn whole(config: &TrainConfig, data: &TypedDataset, task: &TypedTask) -> Result<Tables> {
    Ok(Lowest::new(config, data, task)?.tables)
}

impl Lowest {
    fn new(config: &TrainConfig, data: &TypedDataset, task: &TypedTask) -> Result<Self> {
        let types = task.features.len();
        let mut lowest = Self { tables: task.host_tables(), in_files: vec![false; types], resident: 0 };
        if !is_beyond(config, task) {
            return Ok(lowest);
        }
        let Some(dir) = data.directory.as_deref() else {
            return Err(Error::usage(
                "--host-budget and --cache-ratio read feature rows from disk, but this dataset is in \
                 memory only; write it to a directory with graphmill generate or graphmill import",
            ));
        };
        let mut kept = Vec::new();
        for t in 0..types {
            let Some(of) = rows(task, t) else { continue };
            if task.is_stored[t] && matches!(of.format, RowFormat::Dense(_)) {
                lowest.tables[t] = Some(disk(dir, t, data)?);
                lowest.in_files[t] = true;
            } else {
                lowest.resident += of.count as u64 * of.bytes;
                kept.push(task.graph.schema().types()[t].name.clone());
            }
        }
        let budget = config.host_budget.0;
        if budget > 0 && lowest.resident > budget {
            return Err(Error::usage(format!(
                "--host-budget {budget}: rows of type {} are sparse, or not stored as f16 or f32, so they \
                 stay in host memory and take {} bytes; raise it, or import them as dense f16 or f32",
                kept.join(", "),
                lowest.resident
            )));
        }
        Ok(lowest)
    }
}

/// Opens the feature file of type `t`.
fn disk(dir: &Path, t: usize, data: &TypedDataset) -> Result<Arc<dyn Feature>> {
    let table = StoredTable::features_of_type(dir, t)?;
    let verifier = data.nodes[t].features.as_ref().and_then(FeatureTable::verifier);
    Ok(Arc::new(build::disk(&table, verifier)?))
}

impl TypedTiers {
    /// Builds the tiers that the options request.
    ///
    /// # Errors
    /// Those of [`whole`]; a policy is unknown or not defined for several types; the rows of a
    /// cache ratio or a training step exceed a budget; an allocation fails.
    pub(super) fn new(
        config: &TrainConfig,
        data: &TypedDataset,
        task: &TypedTask,
        (sampler, by_device): (&dyn TypedSampler, Option<&TypedDevices>),
    ) -> Result<Self> {
        let lowest = Lowest::new(config, data, task)?;
        let whole = lowest.tables.clone();
        let (devices, beyond) = (config.num_devices(), is_beyond(config, task));
        let visits = TypedVisits::new(config, task, sampler, &Quiet)?;
        let mut build = Build {
            config,
            task,
            sampler,
            visits: &visits,
            tables: lowest.tables,
            parts: Vec::new(),
            device_rows: 0,
        };
        let clock = Instant::now();
        if beyond {
            let budget = config.host_budget.0;
            build.add(&CacheLevel {
                flag: if devices == 0 { "cache" } else { "host-cache" },
                policy: resolve(if devices == 0 { &config.cache } else { &config.host_cache }),
                budget: match budget {
                    0 => f64::INFINITY,
                    _ => (budget - lowest.resident) as f64,
                },
                memory: format!("--host-budget {budget}"),
                ratio: config.cache_ratio.0.filter(|_| devices == 0),
                devices: 1,
                level: Level::Host,
                of: &|t| lowest.in_files[t],
            })?;
        }
        if devices > 0 {
            build.add_devices(by_device)?;
        }
        let seconds = clock.elapsed().as_secs_f64();
        let Build { tables, mut parts, device_rows, .. } = build;
        if beyond {
            parts.push("the disk all".into());
        }
        let drawn_batches = visits.drawn();
        Ok(Self {
            tables,
            whole,
            device_rows,
            description: (!parts.is_empty()).then(|| format!("feature rows: {}", parts.join(", "))),
            presampling: (drawn_batches > 0).then(|| PresamplingRecord {
                drawn_batches,
                seconds,
                ..PresamplingRecord::default()
            }),
        })
    }

    /// Tiers of rows that `tables` read, without caches.
    pub(super) fn of_tables(tables: &Tables) -> Self {
        Self {
            tables: tables.clone(),
            whole: tables.clone(),
            description: None,
            presampling: None,
            device_rows: 0,
        }
    }
}

/// Name of the cache that a name stands for.
pub(super) fn resolve(name: &str) -> &str {
    if name == AUTO { DEFAULT_CACHE } else { name }
}

/// Tiers in the making.
struct Build<'b> {
    config: &'b TrainConfig,
    task: &'b TypedTask,
    sampler: &'b dyn TypedSampler,
    visits: &'b TypedVisits<'b>,
    tables: Tables,
    /// Descriptions of levels, the nearest first.
    parts: Vec<String>,
    /// Number of rows of all types in the caches of a device.
    device_rows: usize,
}

impl Build<'_> {
    /// Puts the caches of the devices, which share them, in front of all tables; of devices that
    /// work independently, the caches of the one that trains.
    fn add_devices(&mut self, by_device: Option<&TypedDevices>) -> Result<()> {
        let (config, limit) = (self.config, self.config.device_budget.0);
        let devices = if by_device.is_some() { 1 } else { config.num_devices() };
        let (mut budget, mut memory) = (f64::INFINITY, String::new());
        if let Some(free) = by_device.and_then(|devices| devices.trainer().free()) {
            budget = free as f64;
            memory = format!("--device-budget {limit}, of which {free} are free");
        } else if limit > 0 {
            let step = step::bytes(config, self.task, self.sampler, &borrowed(&self.tables))?.all;
            let Some(free) = limit.checked_sub(step) else {
                return Err(Error::usage(format!(
                    "--device-budget {limit}: a training step takes {step} bytes of a device; raise it, or \
                     lower --batch-size or --fanout"
                )));
            };
            budget = free as f64;
            memory = format!("--device-budget {limit} beside a training step of {step} bytes");
        }
        let own = by_device.map(|devices| devices.trainer().link.clone());
        let shared = || (*config.link != LinkOptions::default()).then(|| Arc::new(Link::new(*config.link)));
        if let Some(link) = own.or_else(shared) {
            for table in self.tables.iter_mut().flatten() {
                *table = Arc::new(Linked::new(table.clone(), link.clone()));
            }
        }
        let farther = self.parts.len();
        self.add(&CacheLevel {
            flag: "cache",
            policy: resolve(&config.cache),
            budget,
            memory,
            ratio: config.cache_ratio.0,
            devices,
            level: Level::Device { devices, reader: 0 },
            of: &|_| true,
        })?;
        self.parts.rotate_left(farther);
        Ok(())
    }

    /// Puts the caches of a level in front of the tables.
    fn add(&mut self, level: &CacheLevel) -> Result<()> {
        let (task, schema, policy) = (self.task, self.task.graph.schema(), level.policy);
        if counts_training(policy) {
            return Err(Error::usage(format!(
                "--{} {policy}: runs on several types fill their caches before the first epoch; use \
                 presc:2, which counts before training",
                level.flag
            )));
        }
        let mut all = read_rows(task, self.sampler);
        all.iter_mut().enumerate().filter(|(t, _)| !(level.of)(*t)).for_each(|(_, of)| *of = None);
        let (budget, of_row) = self.budget(level, all.iter().flatten())?;
        let competing: Vec<Option<Competing>> = all
            .iter()
            .map(|of| of.map(|of| Competing { rows: of.count, bytes: of.bytes as f64 + of_row }))
            .collect();
        let is_static = matches!(kind(policy)?, Kind::Pinned);
        let mut scores = Vec::new();
        let shares = if is_static && !follows_ids(policy) {
            scores = self.scores(level)?;
            shares::by_score(&competing, schema, &scores, budget)?
        } else {
            shares::in_proportion(&competing, budget)
        };
        let mut held = Vec::new();
        for (t, of) in all.iter().enumerate() {
            let (Some(of), Some(behind)) = (of, &self.tables[t]) else { continue };
            let slots = shares[t] / level.devices;
            if matches!(level.level, Level::Device { .. }) {
                self.device_rows += slots;
            }
            held.push((t, (slots * level.devices) as f64 / of.count.max(1) as f64));
            if slots == 0 {
                continue; // an empty cache would still allocate its maps
            }
            let cache = NewCache {
                policy,
                slots,
                devices: level.devices,
                placement: *self.config.placement,
                format: of.format,
                level: level.level,
                peer_link: *self.config.peer_link,
            };
            let range = schema.range(t).start as usize..schema.range(t).end as usize;
            let of_type = |_: &str| match scores.get(range.clone()) {
                Some(scores) => Ok(scores.to_vec()),
                None => Ok((0..of.count).rev().map(|v| v as f64).collect()), // the stored order
            };
            self.tables[t] = Some(cache.build(behind.clone(), &of_type)?.rows);
        }
        self.parts.push(self.describe(level, &held));
        Ok(())
    }

    /// Bytes for the rows of a level on all its devices, and those of a row's entry in the maps.
    fn budget<'r>(&self, level: &CacheLevel, all: impl Iterator<Item = &'r Rows>) -> Result<(f64, f64)> {
        let [of_table, of_row] = map_bytes(level.policy);
        let (mut rows, mut bytes) = (0.0, 0.0);
        for of in all {
            rows += of.count as f64;
            bytes += of.count as f64 * of.bytes as f64;
        }
        let free = (level.budget - of_table * rows).max(0.0);
        let Some(ratio) = level.ratio else { return Ok((free * level.devices as f64, of_row)) };
        if ratio * (bytes + of_row * rows) > free {
            return Err(Error::usage(format!(
                "--cache-ratio {ratio}: {:.0} bytes of rows and their maps do not fit in {}; use \
                 --cache-ratio auto",
                ratio * bytes,
                level.memory
            )));
        }
        Ok((ratio * bytes * level.devices as f64, 0.0))
    }

    /// Score of every node by the policy of a level.
    fn scores(&self, level: &CacheLevel) -> Result<Vec<f64>> {
        let visits: &dyn Visits = self.visits;
        visits::scores(level.policy, self.config, self.task, visits, &Quiet as &dyn Progress)
            .map_err(|error| Error::usage(format!("--{} {}: {error}", level.flag, level.policy)))
    }

    /// Describes the held fraction of the rows of each type.
    fn describe(&self, level: &CacheLevel, held: &[(usize, f64)]) -> String {
        let types = self.task.graph.schema().types();
        let part = |&(t, fraction): &(usize, f64)| format!("{:.1} % of {}", 100.0 * fraction, types[t].name);
        let parts: Vec<String> = held.iter().map(part).collect();
        let holder = match (level.level, level.devices) {
            (Level::Host, _) => "the host holds".to_string(),
            (Level::Device { .. }, 1) => "a device holds".to_string(),
            (Level::Device { .. }, n) => format!("{n} devices hold"),
        };
        format!("{holder} {} ({})", parts.join(", "), level.policy)
    }
}
