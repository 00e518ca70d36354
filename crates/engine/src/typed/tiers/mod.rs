//! Memory tiers of the feature rows of several types, within one budget.
//!
//! ```text
//!   cpu:                host caches (--cache, --host-budget, --cache-ratio)  ─►  disk
//!   cuda:0, virtual:N:  device caches (--cache, --device-budget, --cache-ratio)  ─►  host
//!                       host: all rows, or caches (--host-cache, --host-budget)  ─►  disk
//! ```
//!
//! Each type has a chain of its own. [`shares`](super::shares) divides a budget among the caches of
//! a level. Types whose rows are sparse or are not stored as f16 or f32 stay in host memory, and
//! their bytes count first.

mod levels;
#[cfg_attr(
    not(feature = "cuda"),
    allow(unreachable_code, unused_variables, reason = "without NVIDIA support no device exists")
)]
mod nvidia;
pub(super) mod of_rank;
mod online;
pub(super) mod opened;
mod over_ranks;
mod readers;

use std::{sync::Arc, time::Instant};

use graphmill_core::{Features, features::FeatureData, matrix::TableType, progress::Progress};
use graphmill_data::typed::TypedDataset;
use graphmill_loader::{
    Feature,
    feature::{
        Host, Rounded,
        cached::{Level, RowFormat, sparse_bytes},
    },
    hotness,
    typed::unreached_types,
};

use super::{
    batches::{HeldRows, RunBatches},
    devices::TypedDevices,
    step,
    tables::{Tables, borrowed, num_stored, on_disk},
    task::TypedTask,
    visits::TypedVisits,
};
use crate::{
    Error, Result, TrainConfig,
    accelerator::{ComputeDevices, Gpu},
    cache_kind::AUTO,
    record::{PresamplingCost, PresamplingRecord},
    tiers::{ReadCounts, Restart},
};
use levels::{CacheLevel, CachedRows, Levels};
use nvidia::{Built, NvidiaCaches};
use online::LateLevel;

/// Cache of `auto`: presampled counts, because expectations need one fanout for all edge types.
const DEFAULT_CACHE: &str = "presc:2";

/// Feature rows in the tiers of a run.
pub(super) struct TypedTiers {
    /// Chain of tiers of each type.
    pub(super) tables: Tables,
    /// The same as each further device that trains reads them.
    others: Vec<Tables>,
    /// Rows of each type in the lowest tier, for inference.
    pub(super) whole: Tables,
    /// Description of the tiers, if there are several.
    pub(super) description: Option<String>,
    /// Cost of the minibatches that were counted for caches.
    presampling: Option<PresamplingRecord>,
    /// Number of rows of all types in the caches of a device.
    pub(super) device_rows: usize,
    /// Caches that are filled during the run.
    late: Vec<LateLevel>,
    /// Cost of the minibatches that these caches count.
    pub(super) counted: PresamplingCost,
}

/// The lowest tier.
struct Lowest {
    tables: Tables,
    /// Types whose rows are in files.
    in_files: Vec<bool>,
    /// Bytes of the rows that stay in host memory.
    resident: u64,
}

/// Size and form of the rows of a type.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// Number of rows of the table.
    pub(super) count: usize,
    /// Bytes of a row; of sparse rows, the mean.
    pub(super) bytes: u64,
    pub(super) format: RowFormat,
}

/// Rows of a task's type `t`, if it has features.
pub(super) fn rows(task: &TypedTask, t: usize) -> Option<Rows> {
    let features = task.features[t].as_ref()?;
    let count = task.graph.schema().types()[t].count;
    let (bytes, format) = match &features.data {
        FeatureData::Csr(rows) => (sparse_bytes(1, rows.stored().div_ceil(count.max(1))), RowFormat::Sparse),
        FeatureData::F32(_) | FeatureData::F16(_) => {
            let kind = task.kind(t)?;
            ((features.dim * kind.width()) as u64, RowFormat::Dense(kind))
        }
    };
    Some(Rows { count, bytes, format })
}

/// Rows of each type with features that batches can reach.
pub(super) fn read_rows(of: &RunBatches) -> Vec<Option<Rows>> {
    let (task, schema) = (of.task, of.task.graph.schema());
    let unreached = unreached_types(of.sampler, schema, &of.source.types());
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

/// The rows of each type for measurements in host memory. If a run with these options does not hold
/// all of them there, they are mapped and converted as they are read.
///
/// # Errors
/// Those of [`TypedTask::host_tables`].
pub(super) fn measured(config: &TrainConfig, task: &TypedTask) -> Result<Tables> {
    if !is_beyond(config, task) {
        return task.host_tables();
    }
    let table = |features: &Features| -> Arc<dyn Feature> {
        let (mapped, stored) = (Arc::new(Host::new(features)), features.data.kind());
        match task.row_type.filter(|kind| stored.is_some_and(|stored| stored != *kind)) {
            Some(kind) if kind != TableType::F32 => Arc::new(Rounded::new(mapped, kind)),
            _ => mapped,
        }
    };
    Ok(task.features.iter().map(|features| features.as_ref().map(table)).collect())
}

impl Lowest {
    fn new(config: &TrainConfig, data: &TypedDataset, task: &TypedTask) -> Result<Self> {
        let types = task.features.len();
        if !is_beyond(config, task) {
            return Ok(Self { tables: task.host_tables()?, in_files: vec![false; types], resident: 0 });
        }
        let mut lowest = Self { tables: vec![None; types], in_files: vec![false; types], resident: 0 };
        let Some(dir) = data.directory.as_deref() else {
            return Err(Error::usage(
                "--host-budget and --cache-ratio read feature rows from disk, but this dataset is in \
                 memory only; write it to a directory with graphmill generate or graphmill import",
            ));
        };
        let (mut kept, stored) = (Vec::new(), num_stored(dir, types));
        for t in 0..types {
            let Some(of) = rows(task, t) else { continue };
            if t < stored && task.is_stored[t] && matches!(of.format, RowFormat::Dense(_)) {
                lowest.tables[t] = Some(on_disk(dir, t, data, task.row_type)?);
                lowest.in_files[t] = true;
            } else {
                lowest.tables[t] = task.host_table(t)?;
                lowest.resident += of.count as u64 * of.bytes;
                kept.push(task.graph.schema().types()[t].name.clone());
            }
        }
        let budget = config.host_budget.0;
        if budget > 0 && lowest.resident > budget {
            return Err(Error::usage(format!(
                "--host-budget {budget}: rows of type {} are sparse, not stored as f16 or f32, or those of \
                 the task, so they stay in host memory and take {} bytes; raise it, or import them as dense \
                 f16 or f32",
                kept.join(", "),
                lowest.resident
            )));
        }
        Ok(lowest)
    }
}

impl TypedTiers {
    /// Counts of the reads of the first `epochs` epochs, if they fill caches.
    pub(super) fn reads(
        &self,
        epochs: Option<u64>,
        task: &TypedTask,
        restart: Restart,
    ) -> Option<ReadCounts> {
        let epochs = epochs.filter(|_| !self.late.is_empty())?;
        Some(ReadCounts::new(epochs, task.graph.schema().num_nodes(), restart))
    }

    /// Fills the caches by these counts of the first epochs (`V`, by global id). Returns the number
    /// of rows of all types that a device then holds.
    ///
    /// # Errors
    /// The rows cannot be read, or an allocation fails.
    pub(super) fn fill(&self, task: &TypedTask, counts: &[u32]) -> Result<usize> {
        let clock = Instant::now();
        let scores = hotness::by_counts(&task.graph.union()?, counts);
        let mut on_device = 0;
        for level in &self.late {
            on_device += level.fill(task.graph.schema(), &scores)?;
        }
        let seconds = clock.elapsed().as_secs_f64();
        self.counted.add(PresamplingRecord { seconds, ..PresamplingRecord::default() });
        Ok(self.device_rows + on_device)
    }

    /// Cost of the minibatches that were counted for caches, if some were.
    pub(super) fn presampling(&self) -> Option<PresamplingRecord> {
        let (before, during) = (self.presampling, self.counted.total());
        (before.is_some() || during.is_some()).then(|| {
            let mut sum = before.unwrap_or_default();
            sum += during.unwrap_or_default();
            sum
        })
    }

    /// Builds the tiers that the options request for the batches of a run in one process, and the
    /// simulated devices of its stages, if its strategy has some.
    ///
    /// # Errors
    /// Those of [`whole`] and [`TypedDevices::new`]; a policy is unknown or not defined for several
    /// types; the rows of a cache ratio or a training step exceed a budget; an allocation fails;
    /// `progress` stops the work.
    pub(super) fn with_devices(
        data: &TypedDataset,
        of: &RunBatches,
        compute: &ComputeDevices,
        progress: &dyn Progress,
    ) -> Result<(Self, Option<TypedDevices>)> {
        let whole = whole(of.config, data, of.task)?;
        let step = |held: HeldRows<'_>| step::bytes(of, held, &borrowed(&whole));
        let devices = TypedDevices::new(of.config, of.task, None, &step)?;
        let tiers = Self::new(data, of, (devices.as_ref(), compute.gpus().first()), progress)?;
        progress.check()?;
        Ok(tiers.equip(devices))
    }

    /// Gives the devices of the stages, if there are some, their rows.
    fn equip(mut self, mut devices: Option<TypedDevices>) -> (Self, Option<TypedDevices>) {
        if let Some(devices) = &mut devices {
            devices.set_cache_rows(self.device_rows);
            devices.tables = std::mem::take(&mut self.others);
        }
        (self, devices)
    }

    /// Builds the tiers that the options request.
    fn new(
        data: &TypedDataset,
        of: &RunBatches,
        (by_device, gpu): (Option<&TypedDevices>, Option<&Gpu>),
        progress: &dyn Progress,
    ) -> Result<Self> {
        let (config, task) = (of.config, of.task);
        let lowest = Lowest::new(config, data, task)?;
        let whole = lowest.tables.clone();
        let (devices, beyond) = (config.num_devices(), is_beyond(config, task));
        let visits = TypedVisits::new(of, progress);
        let clock = Instant::now();
        let mut levels = Levels::new(&visits, lowest.tables);
        if beyond {
            let budget = config.host_budget.0;
            levels.add(&CacheLevel {
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
                nvidia: None,
                readers: None,
                of: &|t| if lowest.in_files[t] { CachedRows::All } else { CachedRows::None },
            })?;
        }
        match gpu {
            Some(gpu) => levels.add_nvidia(NvidiaCaches::new(gpu, &lowest.in_files, &Built::default()))?,
            None if devices > 0 => levels.add_devices(by_device, None)?,
            None => {}
        }
        if beyond {
            levels.describe_lowest("the disk all".into());
        }
        Ok(levels.finish(clock, whole))
    }
}

/// Name of the cache that a name stands for.
pub(super) fn resolve(name: &str) -> &str {
    if name == AUTO { DEFAULT_CACHE } else { name }
}
