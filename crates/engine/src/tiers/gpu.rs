//! Feature tiers of NVIDIA devices.
//!
//! ```text
//!   cuda:N:  device (--cache, --cache-ratio, --device-budget)
//!            ─►  its peers (--placement)
//!            ─►  host, page-locked: kernels read it in place; or tiers that the host reads
//! ```
//!
//! If host memory holds all rows, the host gathers none: one kernel looks up the tier of each row
//! and copies the row from there. Otherwise the host reads the rows that a device misses, from a
//! cache and the disk (`--host-budget`), from sparse rows (`--sparse on`), or from other ranks;
//! each device then reads its own rows only.
//!
//! If some devices only sample ([`SamplingDevices`]), they hold the graph and no rows, and the
//! others hold rows in its place (FGNN, section 4). A Sampler that trains for the rest of an epoch
//! reads the rows of the others, or those of the host if the caches are private or dynamic, or the
//! devices cannot read each other's memory.

use std::{
    slice,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use graphmill_core::{NodeId, features::FeatureData, matrix::TableType, node_order::by_scores};
use graphmill_loader::Feature;

use super::{
    all_rows::AllRows,
    batches::Batches,
    cache::{Cache, CacheBytes},
    gpu_rows::{CachedRows, DeviceRows, GpuCaches, in_host},
    plan::{BuiltTiers, Plan, of_host},
    presampling::LateCache,
    step,
};
use crate::{
    Error, Result, TrainConfig,
    accelerator::{ComputeDevices, Gpu, RowsBehind, SamplingDevices, TOPOLOGY_SHARE},
    build,
    cache_kind::{Kind, counts_training, kind, resolve_cache},
    config::Switch,
    memory::{self, MemoryPlacement, MemoryPlacements},
    reuse::ReusePlan,
};

/// Fraction of a device's memory that stays free as a reserve.
const SPARE: f64 = 0.05;
/// Fraction of a device's memory for sampled batches.
const SAMPLING: f64 = 0.05;
/// Memory of training relative to a measured step: later batches may be larger, and the next one is
/// gathered during the step.
const STEPS: f64 = 1.5;

/// Feature tiers of the run's NVIDIA devices.
pub(crate) struct GpuTiers {
    /// Feature rows of the devices.
    placed: Arc<RwLock<DeviceRows>>,
    /// The caches, if [`GpuTiers::place`] places them again.
    caches: Option<GpuCaches>,
    /// Feature rows as the first device reads them, wherever the caches are.
    pub(crate) feature: Arc<dyn Feature>,
    /// All rows, in the lowest tier.
    pub(crate) whole: AllRows,
    /// Caches that are filled during the run.
    pub(crate) late: Vec<LateCache>,
    /// Description of the tiers for the user.
    pub(crate) description: String,
}

/// The rows behind the caches of devices.
pub(crate) struct HostRows {
    behind: RowsBehind,
    whole: AllRows,
    /// Caches of the host that are filled during the run.
    late: Vec<LateCache>,
    /// Description for the user, such as "the host all".
    text: String,
}

impl HostRows {
    /// The rows of a run: in page-locked memory, or sparse, or in a cache of the host and on disk.
    ///
    /// # Errors
    /// Options that the rows do not support, or a failed allocation.
    fn new(gpu: &Gpu, batches: &Batches, placement: MemoryPlacement) -> Result<Self> {
        let data = batches.data;
        let config = of_host(batches.config);
        let dense = TrainConfig { sparse: Switch::Off, ..config.clone() };
        let budget = config.host_budget.0;
        let is_beyond = budget > 0 && memory::table_bytes(&dense, data) > budget;
        let stays_sparse = match config.sparse {
            Switch::On => true,
            Switch::Auto => is_beyond && matches!(data.features.data, FeatureData::Csr(_)),
            Switch::Off => false,
        };
        let config = &if stays_sparse { TrainConfig { sparse: Switch::On, ..dense } } else { dense };
        if let Some(mut plan) = Plan::new(config, data)? {
            let batches = Batches { config, ..*batches };
            let BuiltTiers { feature, whole, late, .. } =
                plan.build(batches, MemoryPlacements::both(placement))?;
            let text = plan.to_string();
            let text = text.split_once(": ").map_or(text.as_str(), |(_, tiers)| tiers).to_string();
            let behind = RowsBehind::tier(gpu, feature, memory::table_type(config, data));
            return Ok(Self { behind, whole, late, text });
        }
        let (rows, table) = build::features(config, data, placement)?;
        let Some(values) = rows.table() else {
            let rows: Arc<dyn Feature> = Arc::new(rows);
            let whole = AllRows::Rows(rows.clone());
            return Ok(Self::of_tier(gpu, rows, whole, "the host all, sparse".into()));
        };
        let behind = RowsBehind::table(gpu, &values, data.features.dim)?;
        let in_place = if behind.is_copy() { "in a page-locked copy" } else { "page-locked in place" };
        let text = format!("the host all, {in_place}");
        Ok(Self { behind, whole: AllRows::Table(table), late: Vec::new(), text })
    }

    /// Rows of a tier that the host reads, which `text` describes; `whole` are all rows.
    pub(crate) fn of_tier(gpu: &Gpu, rows: Arc<dyn Feature>, whole: AllRows, text: String) -> Self {
        let behind = RowsBehind::tier(gpu, rows, TableType::F32);
        Self { behind, whole, late: Vec::new(), text }
    }
}

impl GpuTiers {
    /// Builds the tiers on the devices of the run: on all of them, or on those beside the
    /// `sampling` ones. If their number is balanced later, the last device alone holds rows until
    /// [`GpuTiers::place`]. With `reuse`, devices have memory for the rows that batches reuse.
    ///
    /// # Errors
    /// Options that devices do not support, or a failed allocation.
    pub(crate) fn new(
        computers: &ComputeDevices,
        batches: Batches,
        placement: MemoryPlacement,
        sampling: Option<SamplingDevices>,
    ) -> Result<Self> {
        let host = HostRows::new(&computers.gpus()[0], &batches, placement)?;
        Self::in_front_of(host, computers, batches, sampling)
    }

    /// [`GpuTiers::new`] in front of these rows.
    ///
    /// # Errors
    /// As [`GpuTiers::new`].
    pub(crate) fn in_front_of(
        host: HostRows,
        computers: &ComputeDevices,
        batches: Batches,
        sampling: Option<SamplingDevices>,
    ) -> Result<Self> {
        let (data, devices) = (batches.data, computers.gpus());
        // rows on devices are dense
        let config = &TrainConfig { sparse: Switch::Off, ..batches.config.clone() };
        let batches = Batches { config, ..batches };
        let HostRows { behind, whole, mut late, text } = host;
        let rows = data.num_nodes();
        let policy = resolve_cache(&config.cache, &config.order, "fifo");
        // the first device always samples, and the last one never
        let balanced = sampling.is_some_and(|of| of.count.is_none());
        let trainers = &devices[sampling.map_or(0, |of| of.count.unwrap_or(1))..];
        // the processor draws from the graph of a rank
        let has_graph = sampling.is_none() && batches.own.is_none();
        let slots = match config.cache_ratio.0 {
            Some(ratio) => ((ratio * rows as f64).round() as usize).min(rows),
            None => capacity(trainers, &batches, &behind, policy, has_graph)?,
        };
        let counted = Arc::new(OnceLock::new());
        let cached = match kind(policy)? {
            Kind::Dynamic(_) => CachedRows::Dynamic,
            Kind::Pinned if counts_training(policy) => CachedRows::Counted(counted.clone()),
            Kind::Pinned if slots == 0 || slots == rows => CachedRows::Pinned((0..rows as NodeId).collect()),
            Kind::Pinned => {
                let scores = batches.scores(policy).map_err(|e| Error::of_option("--cache", policy, e))?;
                CachedRows::Pinned(by_scores(&scores)?)
            }
        };
        let (placement, may_train) = (*config.placement, sampling.is_some_and(|of| of.may_train));
        let caches = GpuCaches { behind, policy: policy.into(), slots, rows: cached, placement, may_train };
        let samplers = if balanced { devices.len() - 1 } else { devices.len() - trainers.len() };
        let placed = caches.place(devices, samplers)?;
        let held = describe(&caches, &placed.cached[samplers..], rows, sampling);
        let description = format!("feature rows: {held}, {text}");
        let feature = if balanced {
            in_host(&caches.behind, &devices[..1])?.remove(0)
        } else {
            placed.readers[0].clone()
        };
        let (caches, placed) = (balanced.then_some(caches), Arc::new(RwLock::new(placed)));
        if counts_training(policy) {
            late.push(late_cache(counted, placed.clone()));
        }
        Ok(Self { placed, caches, feature, whole, late, description })
    }

    /// Devices that only sample, if their number follows from times and [`GpuTiers::place`] then
    /// places the rows.
    pub(crate) fn balanced_later(&self) -> Option<SamplingDevices> {
        self.caches.as_ref().map(|caches| SamplingDevices { count: None, may_train: caches.may_train })
    }

    /// Places the rows on all devices but the first `samplers`, if their number was balanced. The
    /// readers of the old place must be dropped before, because they hold its memory.
    ///
    /// # Errors
    /// An allocation fails.
    pub(crate) fn place(&self, computers: &ComputeDevices, samplers: usize) -> Result<()> {
        let Some(caches) = &self.caches else { return Ok(()) };
        let mut placed = self.placed.write().unwrap_or_else(PoisonError::into_inner);
        *placed = DeviceRows::default();
        *placed = caches.place(computers.gpus(), samplers)?;
        Ok(())
    }

    /// Feature rows as device `gpu` of the run reads them, and the number of rows that it caches.
    pub(crate) fn of(&self, gpu: usize) -> Option<(Arc<dyn Feature>, usize)> {
        let placed = self.placed.read().unwrap_or_else(PoisonError::into_inner);
        placed.readers.get(gpu).cloned().zip(placed.cached.get(gpu).copied())
    }
}

/// The caches of devices wherever they are placed, which a ranking fills.
fn late_cache(known: Arc<OnceLock<Vec<NodeId>>>, placed: Arc<RwLock<DeviceRows>>) -> LateCache {
    LateCache::new(move |ranking| {
        // for caches that are placed later
        let _ = known.set(ranking.to_vec());
        let placed = placed.read().unwrap_or_else(PoisonError::into_inner);
        placed.fills.iter().try_for_each(|fill| fill(ranking))
    })
}

/// Describes the rows of devices: `held` rows on each that holds some, of `rows` rows.
fn describe(caches: &GpuCaches, held: &[usize], rows: usize, sampling: Option<SamplingDevices>) -> String {
    let GpuCaches { behind, policy, slots, .. } = caches;
    let range = held.iter().copied().min().zip(held.iter().copied().max());
    let cache = Cache { policy: policy.clone(), slots: *slots, rows_per_device: range };
    let (holds, each) = match (sampling, held.len()) {
        (None, 1) => ("a device holds", ""),
        (None, _) => ("devices hold", " each"),
        (Some(SamplingDevices { count: None, .. }), _) => {
            ("samplers hold none, trainers hold up to", " each")
        }
        (Some(_), 1) => ("samplers hold none, a trainer holds", ""),
        (Some(_), _) => ("samplers hold none, trainers hold", " each"),
    };
    let part = cache.percent(rows);
    let policy = if *slots == 0 || *slots == rows { String::new() } else { format!(" ({policy})") };
    let alone = if behind.is_tier() && held.len() > 1 { ", none those of others" } else { "" };
    format!("{holds} {part}{each}{policy}{alone}")
}

/// Number of rows of a cache by `policy` that fit on each of `gpus` beside sampling and training,
/// and beside the graph if the devices hold it: the device with the least free memory decides. Runs
/// a few training steps on the first of them to measure their memory.
fn capacity(
    gpus: &[Gpu],
    batches: &Batches,
    behind: &RowsBehind,
    policy: &str,
    with_graph: bool,
) -> Result<usize> {
    let Batches { data, reuse, .. } = *batches;
    let Some(gpu) = gpus.first() else { return Ok(0) };
    let rows = data.num_nodes();
    let cold = in_host(behind, slice::from_ref(gpu))?.remove(0);
    let (now, most) = (|| gpu.taken().0, || gpu.taken().1);
    let meter = step::Meter { backend: gpu.backend(), now: &now, most: &most, has_blocks: true };
    let step = step::measured(batches, &*cold, &meter)?;
    drop(cold);
    gpu.check()?;
    let reused = reuse.map_or(0, ReusePlan::table_bytes) as f64;
    let row_bytes = behind.row_bytes() as u64;
    let cache = match behind.maps_on_device(policy) {
        true => CacheBytes::on_nvidia(policy, rows, row_bytes)?,
        false => CacheBytes::with_maps([0.0; 2], rows, row_bytes),
    };
    let free = |gpu: &Gpu| {
        let budget = gpu.budget() as f64;
        let topology = if with_graph { memory::topology(data).min(TOPOLOGY_SHARE * budget) } else { 0.0 };
        budget * (1.0 - SPARE - SAMPLING) - topology - STEPS * step.bytes as f64 - reused
    };
    let free = gpus.iter().map(free).fold(f64::INFINITY, f64::min);
    Ok((cache.rows_within(free).unwrap_or(0.0) as usize).min(rows))
}
