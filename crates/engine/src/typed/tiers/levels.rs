//! Caches of a level of memory in front of the rows of all types.

use std::{sync::Arc, time::Instant};

use graphmill_core::progress::Unit;
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    Feature,
    feature::{
        Link, LinkOptions, Linked,
        cached::{Late, Level, RowFormat},
    },
    hotness::Visits,
};

use super::{
    DEFAULT_CACHE, Rows, TypedTiers,
    nvidia::NvidiaCaches,
    online::{LateLevel, LateTable, mask, range_of},
    read_rows,
    readers::Readers,
    resolve, rows,
};
use crate::{
    Error, Result,
    cache_kind::{Kind, counts_training, follows_ids, kind},
    record::{PresamplingCost, PresamplingRecord},
    tiers::{Meter, NewCache, map_bytes, nvidia_map_bytes},
    typed::{
        batches::{HeldRows, RunBatches},
        devices::TypedDevices,
        shares::{self, Competing},
        step,
        tables::{Tables, borrowed},
        visits::{self, TypedVisits},
    },
};

/// Fraction of the device's memory that stays free, for scores and as a reserve.
const SPARE: f64 = 0.1;
/// Memory of training relative to a measured step: later batches may be larger, and the next one is
/// gathered during the step.
const STEPS: f64 = 1.5;

/// Caches of a level to build.
pub(super) struct CacheLevel<'c> {
    pub(super) flag: &'static str,
    pub(super) policy: &'c str,
    /// Bytes of each cache with its maps.
    pub(super) budget: f64,
    /// Name of the budget in messages.
    pub(super) memory: String,
    /// Fraction of the bytes of all competing rows, if the size is given so.
    pub(super) ratio: Option<f64>,
    /// Number of devices that share each cache.
    pub(super) devices: usize,
    pub(super) level: Level,
    /// The caches, if they are in the memory of an NVIDIA device.
    pub(super) nvidia: Option<NvidiaCaches<'c>>,
    /// Devices that read the rows independently, if some do.
    pub(super) readers: Option<&'c Readers>,
    /// Rows of each type that compete for the budget.
    pub(super) of: &'c dyn Fn(usize) -> CachedRows<'c>,
}

/// Rows of a type that a level caches.
#[derive(Clone, Copy)]
pub(super) enum CachedRows<'c> {
    None,
    All,
    /// Those of other ranks, because own ones are as near.
    OfOthers(&'c Arc<NodeOwnership>),
}

impl CachedRows<'_> {
    /// Number of the `count` rows of a type.
    fn count(self, count: usize) -> usize {
        match self {
            Self::None => 0,
            Self::All => count,
            Self::OfOthers(owners) => count - owners.num_own(),
        }
    }

    /// Sets the scores of rows that are not cached to negative infinity.
    fn mask(self, scores: &mut [f64]) {
        if let Self::OfOthers(owners) = self {
            mask(owners, scores);
        }
    }
}

/// Subject and verb of a level in a description.
fn holder(level: &CacheLevel) -> String {
    match (level.level, level.devices) {
        (Level::Host, _) => "the host holds".to_string(),
        (Level::Device { .. }, 1) => "a device holds".to_string(),
        (Level::Device { .. }, n) => format!("{n} devices hold"),
    }
}

/// Error of the work for the policy of a level.
fn of_level(level: &CacheLevel, error: Error) -> Error {
    Error::of_option(&format!("--{}", level.flag), level.policy, error)
}

/// Tiers in the making.
pub(super) struct Levels<'b> {
    /// Batches that read the rows.
    of: &'b RunBatches<'b>,
    visits: &'b TypedVisits<'b>,
    pub(super) tables: Tables,
    /// The same as each further device reads them, if devices read independently.
    others: Vec<Tables>,
    /// Descriptions of levels, the nearest first.
    pub(super) parts: Vec<String>,
    /// Number of rows of all types in the caches of a device.
    device_rows: usize,
    /// Caches that are filled during the run, the farthest level first.
    late: Vec<LateLevel>,
}

impl<'b> Levels<'b> {
    /// Levels in front of `tables`, whose hotness `visits` counts.
    pub(super) fn new(visits: &'b TypedVisits<'b>, tables: Tables) -> Self {
        let (parts, late) = (Vec::new(), Vec::new());
        Self { of: visits.of(), visits, tables, others: Vec::new(), parts, device_rows: 0, late }
    }

    /// Adds the description of the lowest tier.
    pub(super) fn describe_lowest(&mut self, text: String) {
        self.parts.push(text);
    }

    /// The tiers, whose construction began at `clock`, over the rows `whole`.
    pub(super) fn finish(self, clock: Instant, whole: Tables) -> TypedTiers {
        let Self { tables, others, parts, device_rows, late, .. } = self;
        let (drawn_batches, seconds) = (self.visits.drawn(), clock.elapsed().as_secs_f64());
        TypedTiers {
            tables,
            others,
            whole,
            device_rows,
            late,
            counted: PresamplingCost::default(),
            description: (!parts.is_empty()).then(|| format!("feature rows: {}", parts.join(", "))),
            presampling: (drawn_batches > 0).then(|| PresamplingRecord {
                drawn_batches,
                seconds,
                ..PresamplingRecord::default()
            }),
        }
    }

    /// Puts the caches of the devices, which share them, in front of all tables; of devices that
    /// work independently, the caches of those that train. A rank trains on its own seeds, of which
    /// `owners` are the owners by type.
    pub(super) fn add_devices(
        &mut self,
        by_device: Option<&TypedDevices>,
        owners: Option<&[Arc<NodeOwnership>]>,
    ) -> Result<()> {
        let (config, limit) = (self.of.config, self.of.config.device_budget.0);
        let readers = by_device.map(|devices| Readers::new(devices.trainers(), *config.placement));
        let devices = readers.as_ref().map_or_else(|| config.devices.simulated(), Readers::sharing);
        let (mut budget, mut memory) = (f64::INFINITY, String::new());
        if let Some(free) = readers.as_ref().and_then(Readers::free) {
            budget = free as f64;
            memory = format!("--device-budget {limit}, of which {free} are free");
        } else if limit > 0 {
            let held = owners.map_or(HeldRows::All, HeldRows::OfRank);
            let step = step::bytes(self.of, held, &borrowed(&self.tables))?.all;
            let Some(free) = limit.checked_sub(step) else {
                return Err(Error::usage(format!(
                    "--device-budget {limit}: a training step takes {step} bytes of a device; raise it, or \
                     lower --batch-size or --fanout"
                )));
            };
            budget = free as f64;
            memory = format!("--device-budget {limit} beside a training step of {step} bytes");
        }
        if readers.is_none() && *config.link != LinkOptions::default() {
            let link = Arc::new(Link::new(*config.link));
            for table in self.tables.iter_mut().flatten() {
                *table = Arc::new(Linked::new(table.clone(), link.clone()));
            }
        }
        let further = by_device.map_or(0, |devices| devices.trainers().len() - 1);
        self.others = vec![self.tables.clone(); further];
        let farther = self.parts.len();
        self.add(&CacheLevel {
            flag: "cache",
            policy: resolve(&config.cache),
            budget,
            memory,
            ratio: config.cache_ratio.0,
            devices,
            level: readers.as_ref().map_or(Level::Device { devices, reader: 0 }, Readers::level),
            nvidia: None,
            readers: readers.as_ref(),
            of: &|_| CachedRows::All,
        })?;
        self.parts.rotate_left(farther);
        Ok(())
    }

    /// Sets the rows of type `t` as each device reads them; one, unless devices read independently.
    fn set(&mut self, t: usize, rows: impl IntoIterator<Item = Arc<dyn Feature>>) {
        let tables = std::iter::once(&mut self.tables).chain(&mut self.others);
        tables.zip(rows).for_each(|(tables, rows)| tables[t] = Some(rows));
    }

    /// Puts the caches of a level in front of the tables.
    pub(super) fn add(&mut self, level: &CacheLevel) -> Result<()> {
        let (task, policy) = (self.of.task, level.policy);
        let schema = task.graph.schema();
        // also if no row has to be chosen
        visits::check_metric(policy).map_err(|error| of_level(level, error))?;
        let mut all = read_rows(self.of);
        for (t, of) in all.iter_mut().enumerate() {
            *of = of.filter(|of| (level.of)(t).count(of.count) > 0);
        }
        if counts_training(policy) {
            return self.add_late(level, &all);
        }
        let (shares, scores) = self.shares(level, &all)?;
        let mut held = Vec::new();
        for (t, of) in all.iter().enumerate() {
            let (Some(of), Some(behind)) = (of, self.tables[t].clone()) else { continue };
            let slots = shares[t] / level.devices;
            if matches!(level.level, Level::Device { .. }) {
                self.device_rows += slots;
            }
            held.push((t, (slots * level.devices) as f64 / of.count.max(1) as f64));
            let range = range_of(schema, t);
            let of_type = |_: &str| match scores.get(range.clone()) {
                Some(scores) => Ok(scores.to_vec()),
                None => {
                    let mut stored: Vec<f64> = (0..of.count).rev().map(|v| v as f64).collect();
                    (level.of)(t).mask(&mut stored);
                    Ok(stored)
                }
            };
            if let Some(caches) = level.nvidia {
                self.tables[t] = Some(caches.build(task, (t, &behind), (policy, slots), &of_type)?);
                continue;
            }
            if slots == 0 {
                // an empty cache would still allocate its maps
                self.set(t, level.readers.map_or(Vec::new(), |readers| readers.linked(&behind)));
                continue;
            }
            let cache = NewCache {
                policy,
                slots,
                devices: level.devices,
                placement: *self.of.config.placement,
                format: of.format,
                level: level.level,
                peer_link: *self.of.config.peer_link,
            };
            let rows = match level.readers {
                Some(readers) => readers.cached(cache, &behind, &of_type)?,
                None => vec![cache.build(behind, &of_type)?.rows],
            };
            self.set(t, rows);
        }
        self.parts.push(self.describe(level, &held));
        Ok(())
    }

    /// Puts caches that the first epochs of training fill in front of the tables of a level, whose
    /// rows are `all`.
    fn add_late(&mut self, level: &CacheLevel, all: &[Option<Rows>]) -> Result<()> {
        let policy = level.policy;
        if level.nvidia.is_some() {
            return Err(Error::usage(format!(
                "--{} {policy}: on several types an NVIDIA device fills its cache before the first epoch; \
                 use presc:2, which counts before training",
                level.flag
            )));
        }
        let (budget, competing) = self.competing(level, all)?;
        let mut late: Vec<Option<LateTable>> = Vec::with_capacity(all.len());
        for (t, of) in all.iter().enumerate() {
            let (Some(of), Some(behind)) = (of, self.tables[t].clone()) else {
                late.push(None);
                continue;
            };
            let owners = match (level.of)(t) {
                CachedRows::OfOthers(owners) => Some(owners.clone()),
                CachedRows::All | CachedRows::None => None,
            };
            let behinds = level.readers.map_or_else(|| vec![behind.clone()], |of| of.linked(&behind));
            let rows: Vec<Arc<Late>> = behinds.into_iter().map(|of| Arc::new(Late::new(of))).collect();
            self.set(t, rows.iter().map(|late| late.clone() as Arc<dyn Feature>));
            late.push(Some(LateTable { behind, rows, format: of.format, owners }));
        }
        self.late.push(LateLevel {
            competing,
            tables: late,
            budget,
            readers: level.readers.cloned(),
            devices: level.devices,
            placement: *self.of.config.placement,
            level: level.level,
            peer_link: *self.of.config.peer_link,
        });
        let holder = holder(level);
        self.parts.push(format!("{holder} what the first epochs of training read most ({policy})"));
        Ok(())
    }

    /// Bytes for the rows of a level on all its devices, and the rows of each type that compete for
    /// them, of which `all` are those of the tables.
    fn competing(&self, level: &CacheLevel, all: &[Option<Rows>]) -> Result<(f64, Vec<Option<Competing>>)> {
        let (budget, of_row) = self.budget(level, all.iter().flatten())?;
        let competing = |(t, of): (usize, &Option<Rows>)| {
            of.map(|of| Competing { rows: (level.of)(t).count(of.count), bytes: of.bytes as f64 + of_row })
        };
        Ok((budget, all.iter().enumerate().map(competing).collect()))
    }

    /// Number of rows of each type in a level, and the scores of all nodes if they decide which.
    pub(super) fn shares(&self, level: &CacheLevel, all: &[Option<Rows>]) -> Result<(Vec<usize>, Vec<f64>)> {
        let (schema, policy) = (self.of.task.graph.schema(), level.policy);
        let (budget, competing) = self.competing(level, all)?;
        let is_static = matches!(kind(policy)?, Kind::Pinned);
        // ranks count their batches together, so only a run of one process can leave it out
        let bytes: f64 = competing.iter().flatten().map(|of| of.all()).sum();
        let holds_all_or_none = level.nvidia.is_some() && (budget <= 0.0 || bytes <= budget);
        if !is_static || follows_ids(policy) || holds_all_or_none {
            return Ok((shares::in_proportion(&competing, budget), Vec::new()));
        }
        let mut scores = self.scores(level)?;
        for t in 0..all.len() {
            (level.of)(t).mask(&mut scores[range_of(schema, t)]);
        }
        Ok((shares::by_score(&competing, schema, &scores, budget)?, scores))
    }

    /// Bytes for the rows of a level on all its devices, and those of a row's entry in the maps.
    fn budget<'r>(&self, level: &CacheLevel, all: impl Iterator<Item = &'r Rows>) -> Result<(f64, f64)> {
        let is_partial = (0..self.tables.len()).any(|t| matches!((level.of)(t), CachedRows::OfOthers(_)));
        // a cache of some of the first rows has the maps of any other
        let [of_table, of_row] = match level.nvidia {
            Some(_) => nvidia_map_bytes(level.policy)?,
            None => map_bytes(if is_partial { DEFAULT_CACHE } else { level.policy }),
        };
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
        let watch = self.visits.watch();
        watch.stage(&format!("ranking the nodes by {}", level.policy), None, Unit::Rows);
        visits::scores(level.policy, self.of, visits, watch).map_err(|error| of_level(level, error))
    }

    /// Describes the held fraction of the rows of each type.
    fn describe(&self, level: &CacheLevel, held: &[(usize, f64)]) -> String {
        let types = self.of.task.graph.schema().types();
        let part = |&(t, fraction): &(usize, f64)| format!("{:.1} % of {}", 100.0 * fraction, types[t].name);
        let parts: Vec<String> = held.iter().map(part).collect();
        let holder = holder(level);
        let is_chosen = level.nvidia.is_none() || held.iter().any(|(_, held)| *held > 0.0 && *held < 1.0);
        let policy = if is_chosen { format!(" ({})", level.policy) } else { String::new() };
        format!("{holder} {}{policy}", parts.join(", "))
    }
}

impl Levels<'_> {
    /// Puts the caches of the device in front of all tables with dense rows.
    ///
    /// # Errors
    /// Those of training, of which a few steps are measured; the rows of a cache ratio exceed the
    /// device's budget; the rows cannot be read; an allocation fails.
    pub(super) fn add_nvidia(&mut self, caches: NvidiaCaches) -> Result<()> {
        let (config, task, gpu) = (self.of.config, self.of.task, caches.gpu);
        let (limit, ratio) = (config.device_budget.0, config.cache_ratio.0);
        let (mut budget, mut memory) = (f64::INFINITY, String::new());
        // without a limit, the device reports that the rows of a ratio exceed its memory
        if ratio.is_none() || limit > 0 {
            let (now, most) = (|| gpu.taken().0, || gpu.taken().1);
            let meter = Meter { backend: gpu.backend(), now: &now, most: &most, has_blocks: true };
            let tables = borrowed(&self.tables);
            let step = step::measured(self.of, HeldRows::All, &tables, &meter)?.all;
            gpu.check()?;
            budget = ((1.0 - SPARE) * gpu.budget() as f64 - STEPS * step as f64).max(0.0);
            memory = format!("--device-budget {limit} beside a training step of {step} bytes");
        }
        let is_dense = |t| rows(task, t).is_some_and(|of| matches!(of.format, RowFormat::Dense(_)));
        let farther = self.parts.len();
        self.add(&CacheLevel {
            flag: "cache",
            policy: resolve(&config.cache),
            budget,
            memory,
            ratio,
            devices: 1,
            level: Level::Device { devices: 1, reader: 0 },
            nvidia: Some(caches),
            readers: None,
            of: &|t| if is_dense(t) { CachedRows::All } else { CachedRows::None },
        })?;
        gpu.set_cache_bytes(caches.built.bytes.get());
        self.parts.rotate_left(farther);
        if farther == 0 {
            self.parts.extend(caches.describe_host().map(String::from));
        }
        Ok(())
    }
}
