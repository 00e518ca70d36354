//! Plan of a run's feature tiers, derived from its options.

use std::{fmt, path::Path, sync::Arc};

#[cfg(feature = "tables")]
use graphmill_core::Features;
use graphmill_core::{matrix::TableType, node_order::by_scores, progress::Progress};
use graphmill_data::{
    Dataset,
    dataset::{Rescaling, StoredTable},
};
use graphmill_loader::{
    Feature,
    feature::{
        Disk, DiskOptions, Host, Link, LinkOptions, Linked,
        cached::{CacheLayout, Dynamic, Level, Pinned, Placement},
    },
};

#[cfg(feature = "tables")]
use super::joined::Joined;
use super::{all_rows::AllRows, batches::Batches, cache::Cache, rescaled::Rescaled, step};
use crate::{
    Error, Result, TrainConfig, build,
    cache_kind::{AUTO, Kind, kind, resolve_cache},
    config::FeaturePrecision,
    memory::{self, MemoryPlacements},
    reuse::ReusePlan,
};

/// The tiers of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// Number of rows of the table.
    pub(super) rows: usize,
    /// Bytes of a stored row.
    pub(super) row_bytes: u64,
    pub(super) kind: TableType,
    pub(super) devices: usize,
    pub(super) placement: Placement,
    /// Link of a device to its peers.
    peer_link: LinkOptions,
    pub(super) device: Option<Cache>,
    pub(super) host: Option<Cache>,
    /// Bytes of host memory for rows and maps; 0 for no limit.
    host_budget: u64,
    /// True if each device reads for itself; the strategy then determines the sizes of the caches.
    by_device: bool,
}

/// Feature rows in the tiers of a plan.
pub(crate) struct BuiltTiers {
    /// The chain of tiers.
    pub(crate) feature: Arc<dyn Feature>,
    /// The rows that inference reads.
    pub(crate) whole: AllRows,
    /// Links of simulated devices in the chain.
    pub(crate) links: Vec<Arc<Link>>,
}

/// A chain of tiers, and the links of its devices.
pub(crate) type LinkedTiers = (Arc<dyn Feature>, Vec<Arc<Link>>);

impl Plan {
    /// Plans the tiers that the options request, or returns `None` if host memory holds all rows
    /// without a cache in front.
    ///
    /// # Errors
    /// Sparse rows, which tiers do not support, or inconsistent options.
    pub(crate) fn new(config: &TrainConfig, data: &Dataset) -> Result<Option<Self>> {
        if !config.cuda_devices().is_empty() {
            return Ok(None); // their tiers are in `gpu`
        }
        let devices = config.num_devices();
        let rows = data.num_nodes();
        let table = data.features.bytes() as u64;
        let budget = config.host_budget.0;
        let beyond = budget > 0 && table > budget;
        if devices == 0 && config.cache_ratio.0.is_none() && !beyond {
            return Ok(None);
        }
        let Some(kind) = data.features.data.kind() else {
            return Err(Error::usage(
                "--cache-ratio, --host-budget and virtual devices need dense rows, but this dataset's are \
                 sparse; import it again with dense features",
            ));
        };
        let row_bytes = (data.features.dim * kind.width()) as u64;
        let slots = |ratio: f64| ((ratio * rows as f64).round() as usize).min(rows);
        let policy = |name: &String| resolve_cache(name, &config.order, "lru").to_string();
        let host = |name: &String, ratio: Option<f64>| Cache {
            policy: policy(name),
            slots: ratio.map_or(rows, slots),
            rows_per_device: None,
        };
        let mut plan = Self {
            rows,
            row_bytes,
            kind,
            devices,
            placement: *config.placement,
            peer_link: *config.peer_link,
            device: (devices > 0).then(|| Cache {
                policy: policy(&config.cache),
                slots: config.cache_ratio.0.map_or(usize::MAX, slots),
                rows_per_device: None,
            }),
            host: match devices {
                0 => Some(host(&config.cache, config.cache_ratio.0)),
                _ => beyond.then(|| host(&config.host_cache, None)),
            },
            host_budget: budget,
            by_device: false,
        };
        if budget > 0 {
            let max = plan.host.as_ref().and_then(|cache| plan.capacity(cache, 0, budget)).unwrap_or(0);
            // `build` checks a ratio, because inference of an earlier run has no cache
            let by_ratio = devices == 0 && config.cache_ratio.0.is_some();
            plan.host.iter_mut().filter(|_| !by_ratio).for_each(|cache| cache.slots = cache.slots.min(max));
        }
        if let (Some(cache), budget @ 1..) = (&plan.device, config.device_budget.0) {
            let max = plan.capacity(cache, 0, budget).unwrap_or(0);
            plan.check_ratio(config, cache, max, &format!("--device-budget {budget}"))?;
        }
        if plan.host.is_some() && config.dataset.is_empty() {
            return Err(Error::usage(
                "--host-budget and --cache-ratio read feature rows from disk, but this dataset is in \
                 memory only; write it to a directory with graphmill generate",
            ));
        }
        if ![FeaturePrecision::Auto, FeaturePrecision::of(kind)].contains(&config.feature_precision) {
            return Err(Error::usage(format!(
                "--feature-precision {}: rows of several tiers keep their stored type, {}; use \
                 --feature-precision auto",
                config.feature_precision,
                kind.name()
            )));
        }
        Ok(Some(plan))
    }

    /// The same plan for devices that read for themselves, or for a single reader of all devices.
    #[must_use]
    pub(crate) fn by_device(self, by_device: bool) -> Self {
        Self { by_device, ..self }
    }

    /// Returns true if devices hold rows.
    pub(crate) fn has_devices(&self) -> bool {
        self.devices > 0
    }

    /// Builds the chain of tiers, and the rows that inference reads. Devices have memory for the
    /// rows that `batches` reuse.
    ///
    /// # Errors
    /// The rows cannot be read, the allocation of a cache fails, or a training step exceeds a
    /// device's memory.
    pub(crate) fn build(
        &mut self,
        batches: Batches,
        placements: MemoryPlacements,
        watch: &dyn Progress,
    ) -> Result<BuiltTiers> {
        let Batches { config, data, .. } = batches;
        let own = self.as_stored(config);
        let batches = Batches { config: &own, ..batches };
        let scores = |policy: &str| batches.scores(policy, watch);
        let (chain, all_rows): (Arc<dyn Feature>, AllRows) = if let Some(cache) = self.host.clone() {
            if self.devices == 0 && self.host_budget > 0 {
                let capacity = self.capacity(&cache, 0, self.host_budget).unwrap_or(0);
                self.check_ratio(config, &cache, capacity, &format!("--host-budget {}", self.host_budget))?;
            }
            let disk = disk(config)?;
            let behind = disk.clone();
            let chain = match cache.slots {
                // an empty cache would still allocate its maps
                0 => behind,
                _ => self.cached(&cache, 1, Level::Host, behind, &scores)?.0,
            };
            (chain, AllRows::Rows(disk))
        } else {
            let (host, table) = build::features(&own, data, placements.features)?;
            (Arc::new(host), AllRows::Table(table))
        };
        let (feature, links) = self.add_devices(&batches, chain, watch)?;
        Ok(BuiltTiers { feature, whole: all_rows, links })
    }

    /// Puts the caches of devices in front of `chain`, unless each device reads for itself: then
    /// the strategy builds them. Also returns the links of the devices.
    ///
    /// # Errors
    /// As [`Plan::build`].
    pub(crate) fn add_devices(
        &mut self,
        batches: &Batches,
        mut chain: Arc<dyn Feature>,
        watch: &dyn Progress,
    ) -> Result<LinkedTiers> {
        let (config, mut links) = (batches.config, Vec::new());
        let shared = self.device.clone().filter(|_| !self.by_device);
        let Some(Cache { policy, slots, .. }) = shared else { return Ok((chain, links)) };
        let mut cache = Cache { policy, slots: slots.min(self.rows), rows_per_device: None };
        if config.device_budget.0 > 0 {
            let budget = config.device_budget.0;
            let step = step::bytes(batches, &*chain)?.bytes;
            let rows = batches.reuse.map_or(0, ReusePlan::table_bytes);
            let also = if rows > 0 { format!(", reused rows {rows}") } else { String::new() };
            let capacity = self.capacity(&cache, step.saturating_add(rows), budget).ok_or_else(|| {
                Error::usage(format!(
                    "--device-budget {budget}: a training step takes {step} bytes of a device{also}, and \
                     the maps of a cache {} more; raise it, or lower --batch-size or --fanout",
                    self.table_map_bytes(&cache)
                ))
            })?;
            let beside = format!("--device-budget {budget} beside a training step of {step} bytes{also}");
            self.check_ratio(config, &cache, capacity, &beside)?;
            cache.slots = cache.slots.min(capacity);
        }
        let level = Level::Device { devices: self.devices, reader: 0 };
        let link = *config.link;
        if link != LinkOptions::default() {
            let link = Arc::new(Link::new(link));
            links.push(link.clone());
            chain = Arc::new(Linked::new(chain, link));
        }
        let scores = |policy: &str| batches.scores(policy, watch);
        let (chain, held) = self.cached(&cache, self.devices, level, chain, &scores)?;
        cache.rows_per_device = Some(held);
        self.device = Some(cache);
        Ok((chain, links))
    }

    /// Describes the rows that devices hold; empty without devices.
    pub(crate) fn describe_devices(&self) -> String {
        let Some(cache) = &self.device else { return String::new() };
        let percent = cache.percent(self.rows);
        match self.devices {
            // the strategy reports the number of rows, once it has planned each device's memory
            _ if self.by_device => format!("each device holds what fits beside its work ({})", cache.policy),
            1 => format!("a device holds {percent} ({})", cache.policy),
            n => format!("{n} devices hold {percent} each ({})", cache.policy),
        }
    }

    /// Refuses a cache ratio whose rows exceed the `capacity` (in rows) of a `memory`.
    pub(super) fn check_ratio(
        &self,
        config: &TrainConfig,
        cache: &Cache,
        capacity: usize,
        memory: &str,
    ) -> Result<()> {
        match config.cache_ratio.0 {
            Some(ratio) if capacity < cache.slots => Err(Error::usage(format!(
                "--cache-ratio {ratio}: {} rows of {} bytes and their maps do not fit in {memory}; use \
                 --cache-ratio auto",
                cache.slots, self.row_bytes
            ))),
            _ => Ok(()),
        }
    }

    /// The options with the stored type as the table's type.
    pub(super) fn as_stored(&self, config: &TrainConfig) -> TrainConfig {
        TrainConfig { feature_precision: FeaturePrecision::of(self.kind), ..config.clone() }
    }

    /// Maximum number of rows in `cache` of each simulated device without a budget: together, the
    /// devices take at most half of the free host memory.
    pub(super) fn host_capacity(&self, cache: &Cache) -> usize {
        let each = graphmill_core::memory::available().map(|bytes| bytes / 2 / self.devices.max(1) as u64);
        each.map_or(self.rows, |each| self.capacity(cache, 0, each).unwrap_or(0))
    }

    /// Bytes of a cache's maps over the rows of the table, independent of the cached rows.
    fn table_map_bytes(&self, cache: &Cache) -> u64 {
        (cache.map_bytes()[0] * self.rows as f64) as u64
    }

    /// Bytes of `slots` rows in `cache`, with their maps.
    pub(super) fn cache_bytes(&self, cache: &Cache, slots: usize) -> u64 {
        (slots as f64 * (self.row_bytes as f64 + cache.map_bytes()[1])) as u64 + self.table_map_bytes(cache)
    }

    /// Number of rows in `cache`, with their maps, that fit into `budget` bytes of which `taken`
    /// are in use; `None` if not even the maps of the table fit.
    pub(super) fn capacity(&self, cache: &Cache, taken: u64, budget: u64) -> Option<usize> {
        let free = budget.checked_sub(taken.saturating_add(self.table_map_bytes(cache)))?;
        Some(((free as f64 / (self.row_bytes as f64 + cache.map_bytes()[1])) as usize).min(self.rows))
    }

    /// A cache that `devices` share, and the minimum and maximum number of rows on a device.
    /// `scores` computes the hotness of rows by a metric.
    fn cached(
        &self,
        cache: &Cache,
        devices: usize,
        level: Level,
        behind: Arc<dyn Feature>,
        scores: &dyn Fn(&str) -> Result<Vec<f64>>,
    ) -> Result<(Arc<dyn Feature>, (usize, usize))> {
        let peer_link = Arc::new(Link::new(self.peer_link));
        Ok(match kind(&cache.policy)? {
            Kind::Dynamic(make) => {
                let slots = cache.slots.saturating_mul(devices).min(self.rows);
                let held = (slots / devices, slots.div_ceil(devices));
                let cache = Dynamic::new(make, slots, self.kind, behind, level)?;
                (Arc::new(cache.with_peer_link(peer_link)), held)
            }
            Kind::Pinned => {
                let scores = scores(&cache.policy).map_err(|e| match e {
                    Error::Graph(graphmill_core::Error::Stopped) => e,
                    e => Error::usage(format!("--cache {}: {e}", cache.policy)),
                })?;
                let placed = CacheLayout::new(&by_scores(&scores)?, cache.slots, devices, self.placement);
                let held = placed.rows_per_device(devices);
                let cache = Pinned::new(placed, self.kind, behind, level)?;
                (Arc::new(cache.with_peer_link(peer_link)), held)
            }
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |cache: &Cache| cache.percent(self.rows);
        let mut parts = Vec::new();
        if self.device.is_some() {
            parts.push(self.describe_devices());
        }
        match &self.host {
            None if parts.is_empty() => parts.push("the host holds all".into()),
            None => parts.push("the host all".into()),
            Some(cache) => {
                parts.push(match self.host_budget {
                    budget @ 1.. if self.capacity(cache, 0, budget).unwrap_or(0) == 0 => format!(
                        "the host holds none (--host-budget {budget} is less than the maps of a cache, {} \
                         bytes, and a row; raise it to cache rows)",
                        self.table_map_bytes(cache)
                    ),
                    _ => format!("the host holds {} ({})", percent(cache), cache.policy),
                });
                parts.push("the disk all".into());
            }
        }
        write!(f, "feature rows: {}", parts.join(", "))
    }
}

/// Notice of a policy that is not used because all rows fit in the host's budget; `None` if the
/// options name no such policy.
pub(crate) fn unused_policy(config: &TrainConfig, data: &Dataset) -> Option<String> {
    let (budget, table) = (config.host_budget.0, data.features.bytes());
    if budget == 0 || table as u64 > budget {
        return None;
    }
    let (flag, policy) = match config.num_devices() {
        0 if config.cache_ratio.0.is_none() => ("cache", &config.cache),
        1.. if config.cuda_devices().is_empty() => ("host-cache", &config.host_cache),
        _ => return None,
    };
    (policy != AUTO).then(|| {
        format!(
            "--{flag} {policy} is not used: the {table} bytes of all feature rows fit in \
             --host-budget {budget}"
        )
    })
}

/// Opens the feature file of a run's dataset.
pub(super) fn disk(config: &TrainConfig) -> Result<Arc<Disk>> {
    let StoredTable { path, offset, rows, dim, kind } = StoredTable::features(Path::new(&config.dataset))?;
    Ok(Arc::new(Disk::open(path, offset, dim, kind, rows, &DiskOptions::default())?))
}

impl AllRows {
    /// The rows of `data` in the lowest tier of a run with these options: host memory or disk.
    ///
    /// # Errors
    /// Those of [`Plan::new`], a failed allocation, or a file that cannot be opened.
    pub(crate) fn new(config: &TrainConfig, data: &Dataset) -> Result<Self> {
        let own = match Plan::new(config, data)? {
            Some(Plan { host: Some(_), .. }) => return Ok(Self::Rows(disk(config)?)),
            Some(plan) => plan.as_stored(config),
            None => config.clone(),
        };
        let placement = memory::placements(&own, data).features;
        Ok(Self::Table(build::features(&own, data, placement)?.1))
    }

    /// [`AllRows::new`] with `rescaling` applied to every row on reads.
    ///
    /// # Errors
    /// As [`AllRows::new`].
    pub(crate) fn rescaled(config: &TrainConfig, data: &Dataset, rescaling: Rescaling) -> Result<Self> {
        let rows: Arc<dyn Feature> = match Plan::new(config, data)? {
            Some(Plan { host: Some(_), .. }) => disk(config)?,
            // unrounded values: rounding happens once, after the conversion
            _ => Arc::new(Host::new(&data.features)),
        };
        Ok(Self::Rows(Arc::new(Rescaled::new(rows, rescaling))))
    }
    /// The rows of `data`, followed by `new` rows at the same precision, with `rescaling` applied
    /// on reads.
    ///
    /// # Errors
    /// As [`AllRows::new`].
    #[cfg(feature = "tables")]
    pub(crate) fn followed_by(
        config: &TrainConfig,
        data: &Dataset,
        new: &Features,
        rescaling: Option<&Rescaling>,
    ) -> Result<Arc<dyn Feature>> {
        let (known, kind): (Arc<dyn Feature>, _) = match Plan::new(config, data)? {
            Some(Plan { host: Some(_), .. }) => (disk(config)?, TableType::F32),
            plan => {
                let own = plan.map_or_else(|| config.clone(), |plan| plan.as_stored(config));
                let rows = build::features(&own, data, memory::MemoryPlacement::Mapped)?.0;
                (Arc::new(rows), memory::table_type(&own, data))
            }
        };
        let rows = Arc::new(Joined::new(known, Host::resident(new, kind)?));
        Ok(match rescaling {
            Some(rescaling) => Arc::new(Rescaled::new(rows, rescaling.clone())),
            None => rows,
        })
    }
}
