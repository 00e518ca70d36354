//! Plan of a run's feature tiers, derived from its options.

use std::{fmt, path::Path, sync::Arc};

use graphmill_core::{features::FeatureData, matrix::TableType};
use graphmill_data::{
    Dataset,
    dataset::{Rescaling, StoredTable},
};
use graphmill_loader::{
    Feature,
    feature::{
        Disk, Host, Link, LinkOptions, Linked, Rounded,
        cached::{Level, Placement, RowFormat, sparse_bytes},
    },
};

use super::{
    all_rows::AllRows,
    batches::Batches,
    cache::{Cache, CacheBytes},
    new_cache::{BuiltCache, NewCache},
    presampling::LateCache,
    rescaled::Rescaled,
    step,
};
use crate::{
    Error, Result, TrainConfig, build,
    cache_kind::{AUTO, OF_LINKS, is_metric, resolve_cache},
    config::link_task::is_link,
    memory::{self, MemoryPlacements},
    reuse::ReusePlan,
};

/// The tiers of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// Number of rows of the table.
    pub(super) rows: usize,
    /// Bytes of a row in a cache; of sparse rows, the mean.
    pub(super) row_bytes: u64,
    /// Form of the rows in every tier but a file.
    pub(super) format: RowFormat,
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
    /// File of the rows, if it is not that of the dataset's features.
    file: Option<StoredTable>,
}

/// Feature rows in the tiers of a plan.
pub(crate) struct BuiltTiers {
    /// The chain of tiers.
    pub(crate) feature: Arc<dyn Feature>,
    /// The rows that inference reads.
    pub(crate) whole: AllRows,
    /// Links of simulated devices in the chain.
    pub(crate) links: Vec<Arc<Link>>,
    /// Caches of the chain that are filled during the run.
    pub(crate) late: Vec<LateCache>,
}

/// A chain of tiers with devices.
pub(crate) struct LinkedTiers {
    pub(crate) feature: Arc<dyn Feature>,
    /// Links of the devices.
    pub(crate) links: Vec<Arc<Link>>,
    /// Caches that are filled during the run.
    pub(crate) late: Vec<LateCache>,
}

/// The options of a run for the tiers behind its NVIDIA devices: those of a run on the processor
/// whose cache is `--host-cache`.
pub(super) fn of_host(config: &TrainConfig) -> TrainConfig {
    if config.cuda_devices().is_empty() {
        return config.clone();
    }
    let TrainConfig { devices, cache_ratio, .. } = TrainConfig::default();
    TrainConfig { devices, cache_ratio, cache: config.host_cache.clone(), ..config.clone() }
}

impl Plan {
    /// Plans the tiers that the options request, or returns `None` if host memory holds all rows
    /// without a cache in front.
    ///
    /// # Errors
    /// Inconsistent options.
    pub(crate) fn new(config: &TrainConfig, data: &Dataset) -> Result<Option<Self>> {
        if !config.cuda_devices().is_empty() {
            return Ok(None); // their tiers are in `gpu`
        }
        let devices = config.num_devices();
        // aggregates may follow the rows of the nodes, and the dataset of a rank holds no rows
        let stored = data.features.len().checked_div(data.features.dim).unwrap_or(0);
        let rows = match stored {
            0 => data.num_nodes().saturating_mul(config.bottom.rows_per_node()),
            _ => stored.max(data.num_nodes()),
        };
        let (format, table) = (memory::row_format(config, data), memory::table_bytes(config, data));
        let budget = config.host_budget.0;
        let beyond = budget > 0 && table > budget;
        if devices == 0 && config.cache_ratio.0.is_none() && !beyond {
            return Ok(None);
        }
        let row_bytes = match format {
            RowFormat::Dense(kind) => (data.features.dim * kind.width()) as u64,
            RowFormat::Sparse => sparse_bytes(1, data.features.stored().div_ceil(rows.max(1))),
        };
        let slots = |ratio: f64| ((ratio * rows as f64).round() as usize).min(rows);
        let policy = |name: &String| match &**name {
            AUTO if is_link(config) => OF_LINKS.to_string(),
            name => resolve_cache(name, &config.order, "lru").to_string(),
        };
        let host = |name: &String, ratio: Option<f64>| Cache {
            policy: policy(name),
            slots: ratio.map_or(rows, slots),
            rows_per_device: None,
        };
        let mut plan = Self {
            rows,
            row_bytes,
            format,
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
            file: None,
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
        Ok(Some(plan))
    }

    /// The same plan for a rank, which has all rows only in `behind`: sparse rows are as large as
    /// theirs on average.
    #[must_use]
    pub(crate) fn with_sizes_of(self, behind: &dyn Feature) -> Self {
        match self.format {
            RowFormat::Sparse => Self { row_bytes: behind.row_bytes(), ..self },
            RowFormat::Dense(_) => self,
        }
    }

    /// The same plan for devices that read for themselves, or for a single reader of all devices.
    #[must_use]
    pub(crate) fn by_device(self, by_device: bool) -> Self {
        Self { by_device, ..self }
    }

    /// The same plan over the rows of `file`, or over those of the dataset.
    #[must_use]
    pub(crate) fn of_file(self, file: Option<StoredTable>) -> Self {
        Self { file, ..self }
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
    pub(crate) fn build(&mut self, batches: Batches, placements: MemoryPlacements) -> Result<BuiltTiers> {
        let Batches { config, data, .. } = batches;
        let scores = |policy: &str| batches.scores(policy);
        let mut filled_later = Vec::new();
        let (chain, all_rows): (Arc<dyn Feature>, AllRows) = if let Some(cache) = self.host.clone() {
            if self.devices == 0 && self.host_budget > 0 {
                let capacity = self.capacity(&cache, 0, self.host_budget).unwrap_or(0);
                self.check_ratio(config, &cache, capacity, &format!("--host-budget {}", self.host_budget))?;
            }
            let stored = match &self.file {
                Some(file) => in_form(Arc::new(build::disk(file, None)?), self.format),
                None => stored_rows(config, data, self.format)?,
            };
            let behind = stored.clone();
            let chain = match cache.slots {
                // an empty cache would still allocate its maps
                0 => behind,
                _ => {
                    let built = self.cached(&cache, 1, Level::Host, behind, &scores)?;
                    filled_later.extend(built.late);
                    built.rows
                }
            };
            (chain, AllRows::Rows(stored))
        } else {
            let (host, table) = build::features(config, data, placements.features)?;
            (Arc::new(host), AllRows::Table(table))
        };
        let LinkedTiers { feature, links, late } = self.add_devices(&batches, chain)?;
        filled_later.extend(late);
        Ok(BuiltTiers { feature, whole: all_rows, links, late: filled_later })
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
    ) -> Result<LinkedTiers> {
        let (config, mut links) = (batches.config, Vec::new());
        let shared = self.device.clone().filter(|_| !self.by_device);
        let Some(Cache { policy, slots, .. }) = shared else {
            return Ok(LinkedTiers { feature: chain, links, late: Vec::new() });
        };
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
        let scores = |policy: &str| batches.scores(policy);
        let BuiltCache { rows, held, late } = self.cached(&cache, self.devices, level, chain, &scores)?;
        cache.rows_per_device = Some(held);
        self.device = Some(cache);
        Ok(LinkedTiers { feature: rows, links, late: late.into_iter().collect() })
    }

    /// Why layers cannot read rows where the nearest cache holds them; `None` if they can.
    pub(crate) fn not_in_place(&self) -> Option<&'static str> {
        if self.format != RowFormat::Dense(TableType::F32) {
            return Some(
                "rows of 16 bits and sparse rows are read in place from a table that holds all of them, not \
                 from a cache and rows of f32 behind it",
            );
        }
        let nearest = self.device.as_ref().or(self.host.as_ref());
        nearest.filter(|cache| !is_metric(&cache.policy)).map(|_| {
            "a dynamic cache may evict a row while a layer reads it; name a static cache, such as --cache \
             posterior:2"
        })
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

    /// Maximum number of rows in `cache` of each simulated device without a budget: together, the
    /// devices take at most half of the free host memory.
    pub(super) fn host_capacity(&self, cache: &Cache) -> usize {
        let each = graphmill_core::memory::available().map(|bytes| bytes / 2 / self.devices.max(1) as u64);
        each.map_or(self.rows, |each| self.capacity(cache, 0, each).unwrap_or(0))
    }

    /// Bytes of a cache's maps over the rows of the table, independent of the cached rows.
    fn table_map_bytes(&self, cache: &Cache) -> u64 {
        self.cache_memory(cache).of_table as u64
    }

    /// Memory of `cache` by its number of rows.
    fn cache_memory(&self, cache: &Cache) -> CacheBytes {
        cache.memory(self.rows, self.row_bytes)
    }

    /// Bytes of `slots` rows in `cache`, with their maps.
    pub(super) fn cache_bytes(&self, cache: &Cache, slots: usize) -> u64 {
        self.cache_memory(cache).bytes(slots as f64) as u64
    }

    /// Number of rows in `cache`, with their maps, that fit into `budget` bytes of which `taken`
    /// are in use; `None` if not even the maps of the table fit.
    pub(super) fn capacity(&self, cache: &Cache, taken: u64, budget: u64) -> Option<usize> {
        let free = budget.checked_sub(taken)?;
        let rows = self.cache_memory(cache).rows_within(free as f64)?;
        Some((rows as usize).min(self.rows))
    }

    /// A cache that `devices` share. `scores` computes the hotness of rows by a metric.
    fn cached(
        &self,
        cache: &Cache,
        devices: usize,
        level: Level,
        behind: Arc<dyn Feature>,
        scores: &dyn Fn(&str) -> Result<Vec<f64>>,
    ) -> Result<BuiltCache> {
        let new = NewCache {
            policy: &cache.policy,
            slots: cache.slots,
            devices,
            placement: self.placement,
            format: self.format,
            level,
            peer_link: self.peer_link,
        };
        new.build(behind, scores)
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
    let (budget, table) = (config.host_budget.0, memory::table_bytes(config, data));
    if budget == 0 || table > budget {
        return None;
    }
    let (flag, policy) = match config.num_devices() {
        0 if config.cache_ratio.0.is_none() => ("cache", &config.cache),
        1.. => ("host-cache", &config.host_cache),
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
pub(super) fn disk(config: &TrainConfig, data: &Dataset) -> Result<Arc<Disk>> {
    let table = StoredTable::features(Path::new(&config.dataset))?;
    Ok(Arc::new(build::disk(&table, data.features.verifier())?))
}

/// Rows of that file in this form.
pub(super) fn stored_rows(
    config: &TrainConfig,
    data: &Dataset,
    format: RowFormat,
) -> Result<Arc<dyn Feature>> {
    if let FeatureData::Csr(rows) = &data.features.data {
        let file = Arc::new(build::sparse_disk(Path::new(&config.dataset), rows, &data.features)?);
        return Ok(match format {
            RowFormat::Sparse => file,
            // dense rows
            RowFormat::Dense(kind) => Arc::new(Rounded::new(file, kind)),
        });
    }
    Ok(in_form(disk(config, data)?, format))
}

/// Dense rows of a file in this form.
pub(crate) fn in_form(file: Arc<Disk>, format: RowFormat) -> Arc<dyn Feature> {
    match format {
        RowFormat::Dense(kind) if kind != TableType::F32 && kind != file.kind() => {
            Arc::new(Rounded::new(file, kind))
        }
        _ => file,
    }
}

impl AllRows {
    /// The rows of `data` in the lowest tier of a run with these options: host memory or disk.
    ///
    /// # Errors
    /// Those of [`Plan::new`], a failed allocation, or a file that cannot be opened.
    pub(crate) fn new(config: &TrainConfig, data: &Dataset) -> Result<Self> {
        Self::of_file(config, data, None)
    }

    /// [`AllRows::new`] over the rows of `file`, which `data` maps, or of those of the dataset.
    ///
    /// # Errors
    /// As [`AllRows::new`].
    pub(crate) fn of_file(config: &TrainConfig, data: &Dataset, file: Option<StoredTable>) -> Result<Self> {
        let config = &of_host(config);
        if let Some(Plan { host: Some(_), format, .. }) = Plan::new(config, data)? {
            return Ok(Self::Rows(match file {
                Some(file) => in_form(Arc::new(build::disk(&file, None)?), format),
                None => stored_rows(config, data, format)?,
            }));
        }
        let placement = memory::placements(config, data).features;
        Ok(Self::Table(build::features(config, data, placement)?.1))
    }

    /// [`AllRows::new`] with `rescaling` applied to every row on reads.
    ///
    /// # Errors
    /// As [`AllRows::new`].
    pub(crate) fn rescaled(config: &TrainConfig, data: &Dataset, rescaling: Rescaling) -> Result<Self> {
        let rows: Arc<dyn Feature> = match Plan::new(&of_host(config), data)? {
            Some(Plan { host: Some(_), .. }) if data.features.data.kind().is_none() => {
                stored_rows(config, data, RowFormat::Sparse)?
            }
            Some(Plan { host: Some(_), .. }) => disk(config, data)?,
            // unrounded values: rounding happens once, after the conversion
            _ => Arc::new(Host::new(&data.features)),
        };
        Ok(Self::Rows(Arc::new(Rescaled::new(rows, rescaling))))
    }
}
