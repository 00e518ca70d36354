//! Which tiers a run's feature rows come from, and how many rows each holds.
//!
//! ```text
//!   cpu:        host cache (--cache, --host-budget, --cache-ratio)  ─►  disk
//!   virtual:N:  device cache (--cache, --device-budget, --cache-ratio)  ─►  host (all rows, or a cache within --host-budget  ─►  disk)
//! ```

mod gpu;
mod open;
mod own;
mod step;

pub(crate) use gpu::OnGpus;
pub use open::{Tiers, open};
pub(crate) use own::{OwnCache, OwnCaches};
pub(crate) use step::Step;

use std::{fmt, path::Path, sync::Arc};

use graphmill_graph::{
    Dataset, Matrix, dataset::StoredTable, external::Watch, matrix::TableType, reorder::by_scores,
};
use graphmill_loader::{
    Feature, Sampler,
    feature::{
        Disk, DiskOptions, Link, LinkOptions, Linked,
        cached::{Dynamic, Level, Pinned, Placement, placed},
    },
    order::Order,
};

use crate::{
    Error, Result, TrainConfig, build,
    evaluate::Source,
    hotness::{Kind, kind, scores_until},
    memory::{self, Residences},
    strategy,
};

/// Bytes of a cache's maps for each row of the table, and for each row that it holds; of policies that keep rows in order, the most.
const MAPS: [f64; 2] = [8.0, 20.0];

/// All feature rows, for inference: it reads each once, so caches are passed by and keep what training asks for.
#[allow(clippy::large_enum_variant, reason = "a run has one")]
pub(crate) enum Whole {
    /// In memory.
    Table(Matrix),
    /// In the dataset's file.
    Disk(Arc<Disk>),
}

impl Whole {
    /// Where a run's options leave them.
    ///
    /// # Errors
    /// As [`Plan::new`], or the memory cannot be had, or the file cannot be opened.
    pub(crate) fn of(config: &TrainConfig, data: &Dataset) -> Result<Self> {
        let own = match Plan::new(config, data)? {
            Some(Plan { host: Some(_), .. }) => return Ok(Self::Disk(disk(config)?)),
            Some(plan) => plan.as_stored(config),
            None => config.clone(),
        };
        let residence = memory::residence(&own, data).features;
        Ok(Self::Table(build::features(&own, data, residence)?.1))
    }

    /// Whether rows are multiplied sparse.
    pub(crate) fn is_sparse(&self) -> bool {
        matches!(self, Self::Table(table) if table.is_sparse())
    }
}

impl<'w> From<&'w Whole> for Source<'w> {
    fn from(whole: &'w Whole) -> Self {
        match whole {
            Whole::Table(table) => Source::Table(table),
            Whole::Disk(disk) => Source::Feature(&**disk),
        }
    }
}

/// The file of a run's dataset.
fn disk(config: &TrainConfig) -> Result<Arc<Disk>> {
    let stored = StoredTable::features(Path::new(&config.dataset))?;
    Ok(Arc::new(Disk::of(&stored, &DiskOptions::default())?))
}

/// A cache to be.
#[derive(Clone, Debug, PartialEq)]
struct Cache {
    policy: String,
    /// Rows; of each device.
    slots: usize,
}

/// The tiers of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    rows: usize,
    /// Bytes of a row as it is stored.
    row_bytes: u64,
    kind: TableType,
    devices: usize,
    placement: Placement,
    device: Option<Cache>,
    host: Option<Cache>,
}

impl Plan {
    /// What the options ask for, or `None` where all rows are to be in host memory and nothing is before it.
    ///
    /// # Errors
    /// Rows that tiers cannot hold, or options that contradict each other.
    pub(crate) fn new(config: &TrainConfig, data: &Dataset) -> Result<Option<Self>> {
        if !config.cuda_devices()?.is_empty() {
            return Ok(None); // they have tiers of their own
        }
        let devices = config.num_devices()?;
        let rows = data.num_nodes();
        let table = data.features.bytes() as u64;
        let budget = config.host_budget.0;
        let beyond = budget > 0 && table > budget;
        if devices == 0 && config.cache_ratio.0.is_none() && !beyond {
            return Ok(None);
        }
        let Some(kind) = data.features.data.kind() else {
            return Err(Error::usage(
                "--cache-ratio, --host-budget and virtual devices hold dense rows, but this dataset's are sparse; import it \
                 again with dense features",
            ));
        };
        let row_bytes = (data.features.dim * kind.width()) as u64;
        let slots = |ratio: f64| ((ratio * rows as f64).round() as usize).min(rows);
        let policy = |name: &String| match (name.as_str(), config.order.as_str()) {
            ("auto", "proximity") => "lru".to_string(),
            ("auto", _) => "posterior:2".to_string(),
            _ => name.clone(),
        };
        let host = |name: &String, ratio: Option<f64>| Cache {
            policy: policy(name),
            slots: ratio.map_or(rows, slots),
        };
        let mut plan = Self {
            rows,
            row_bytes,
            kind,
            devices,
            placement: Placement::parse(&config.placement).map_err(Error::usage)?,
            device: (devices > 0).then(|| Cache {
                policy: policy(&config.cache),
                slots: config.cache_ratio.0.map_or(usize::MAX, slots),
            }),
            host: match devices {
                0 => Some(host(&config.cache, config.cache_ratio.0)),
                _ => beyond.then(|| host(&config.host_cache, None)),
            },
        };
        if budget > 0 {
            let most = plan.room_beside(0, budget).unwrap_or(0);
            plan.host.iter_mut().for_each(|cache| cache.slots = cache.slots.min(most));
        }
        if let (Some(ratio), Some(cache), budget @ 1..) =
            (config.cache_ratio.0, &plan.device, config.device_budget.0)
            && plan.room_beside(0, budget).is_none_or(|room| room < cache.slots)
        {
            return Err(Error::usage(format!(
                "--cache-ratio {ratio}: {} rows of {row_bytes} bytes and their maps do not fit in --device-budget {budget}; use \
                 --cache-ratio auto",
                cache.slots
            )));
        }
        if plan.host.is_some() && config.dataset.is_empty() {
            return Err(Error::usage(
                "--host-budget and --cache-ratio leave feature rows on the disk, but this dataset is in memory only; write it to a \
                 directory by graphmill generate",
            ));
        }
        if !["auto", kind.name()].contains(&config.feature_precision.as_str()) {
            return Err(Error::usage(format!(
                "--feature-precision {}: rows of several tiers stay as they are stored, {}; use --feature-precision auto",
                config.feature_precision,
                kind.name()
            )));
        }
        Ok(Some(plan))
    }

    /// The chain of tiers, and the rows that inference reads.
    ///
    /// # Errors
    /// The rows cannot be read, a cache's memory cannot be had, or a device has no room for a training step.
    pub(crate) fn build(
        &mut self,
        config: &TrainConfig,
        data: &Dataset,
        residence: Residences,
        sampler: &dyn Sampler,
        order: &dyn Order,
        watch: &dyn Watch,
    ) -> Result<(Box<dyn Feature>, Whole)> {
        let own = self.as_stored(config);
        let (mut chain, whole): (Box<dyn Feature>, Whole) = if let Some(cache) = self.host.clone() {
            let disk = disk(config)?;
            let behind = Box::new(disk.clone());
            let chain = self.cached(&cache, 1, Level::Host, behind, &own, data, sampler, order, watch)?;
            (chain, Whole::Disk(disk))
        } else {
            let (host, table) = build::features(&own, data, residence.features)?;
            (Box::new(host), Whole::Table(table))
        };
        // Trainers that are devices of their own have caches of their own
        let shared = self.device.clone().filter(|_| !strategy::is_by_device(config));
        if let Some(Cache { policy, slots }) = shared {
            let slots = match (slots, config.device_budget.0) {
                (usize::MAX, 0) => self.rows,
                (usize::MAX, budget) => {
                    let step = step::bytes(&own, data, &*chain, sampler, order)?.bytes;
                    self.room_beside(step, budget).ok_or_else(|| {
                        Error::usage(format!(
                            "--device-budget {budget}: a training step takes {step} bytes of a device, and the maps of a cache some \
                             more; give it more, or take a smaller --batch-size or --fanout"
                        ))
                    })?
                }
                (slots, _) => slots,
            };
            let cache = Cache { policy, slots };
            self.device = Some(cache.clone());
            let level = Level::Device { devices: self.devices, reader: 0 };
            let link = LinkOptions::parse(&config.link).map_err(Error::usage)?;
            if link != LinkOptions::default() {
                chain = Box::new(Linked::new(chain.into(), Arc::new(Link::new(link))));
            }
            chain = self.cached(&cache, self.devices, level, chain, &own, data, sampler, order, watch)?;
        }
        Ok((chain, whole))
    }

    /// The options of a run whose table is as it is stored.
    fn as_stored(&self, config: &TrainConfig) -> TrainConfig {
        TrainConfig { feature_precision: self.kind.name().into(), ..config.clone() }
    }

    /// Rows that each device may hold of what is free of the host's memory, half of it to be shared among all.
    fn host_room(&self) -> usize {
        let each = graphmill_graph::memory::available().map(|bytes| bytes / 2 / self.devices.max(1) as u64);
        each.map_or(self.rows, |each| self.room_beside(0, each).unwrap_or(0))
    }

    /// Rows that a memory of so many bytes holds beside what takes `taken`, with their maps.
    fn room_beside(&self, taken: u64, budget: u64) -> Option<usize> {
        let maps = (MAPS[0] * self.rows as f64) as u64;
        let room = budget.checked_sub(taken.saturating_add(maps))?;
        Some(((room as f64 / (self.row_bytes as f64 + MAPS[1])) as usize).min(self.rows))
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "a cache, what is behind it, and what its hotness is computed of"
    )]
    fn cached(
        &self,
        cache: &Cache,
        devices: usize,
        level: Level,
        behind: Box<dyn Feature>,
        config: &TrainConfig,
        data: &Dataset,
        sampler: &dyn Sampler,
        order: &dyn Order,
        watch: &dyn Watch,
    ) -> Result<Box<dyn Feature>> {
        Ok(match kind(&cache.policy)? {
            Kind::Dynamic(make) => Box::new(Dynamic::new(
                make,
                cache.slots.saturating_mul(devices).min(self.rows),
                self.kind,
                behind,
                level,
            )?),
            Kind::Pinned => {
                let scores = scores_until(&cache.policy, config, data, sampler, order, watch).map_err(
                    |e| match e {
                        Error::Graph(graphmill_graph::Error::Stopped) => e,
                        e => Error::usage(format!("--cache {}: {e}", cache.policy)),
                    },
                )?;
                let held = placed(&by_scores(&scores)?, cache.slots, devices, self.placement);
                Box::new(Pinned::new(held, self.kind, behind, level)?)
            }
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "feature rows: ")?;
        let part = |cache: &Cache| 100.0 * cache.slots as f64 / self.rows.max(1) as f64;
        if let Some(cache) = &self.device {
            let each = if self.devices > 1 {
                format!("{} devices hold {:.1} % each", self.devices, part(cache))
            } else {
                format!("a device holds {:.1} %", part(cache))
            };
            write!(f, "{each} ({})", cache.policy)?;
        }
        match (&self.device, &self.host) {
            (Some(_), None) => write!(f, ", the host all"),
            (before, Some(cache)) => {
                let comma = if before.is_some() { ", " } else { "" };
                write!(f, "{comma}the host holds {:.1} % ({}), the disk all", part(cache), cache.policy)
            }
            (None, None) => write!(f, "the host holds all"),
        }
    }
}

#[cfg(test)]
mod tests;
