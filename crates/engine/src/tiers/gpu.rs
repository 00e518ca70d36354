//! Feature tiers of NVIDIA devices.
//!
//! ```text
//!   cuda:N:  device (--cache, --cache-ratio, --device-budget)
//!            ─►  its peers (--placement)
//!            ─►  host, page-locked: kernels read it in place
//! ```
//!
//! Host memory holds all rows, but the host gathers none: one kernel looks up the tier of each row
//! and copies the row from there.
//!
//! If some devices only sample ([`SamplingDevices`]), they hold the graph and no rows, and the
//! others hold rows in its place (FGNN, section 4). A Sampler that trains for the rest of an epoch
//! reads the rows of the others, or those of the host if the caches are private or dynamic, or the
//! devices cannot read each other's memory.

use std::{
    slice,
    sync::{Arc, PoisonError, RwLock},
};

use graphmill_core::{Matrix, NodeId, node_order::by_scores, progress::Quiet};
use graphmill_data::Dataset;
use graphmill_loader::Feature;

use super::{
    batches::Batches,
    cache::Cache,
    gpu_rows::{CachedRows, DeviceRows, GpuCaches, in_host},
    step,
};
use crate::{
    Error, Result, TrainConfig,
    accelerator::{ComputeDevices, Gpu, SamplingDevices, StoredRows, TOPOLOGY_SHARE},
    build,
    cache_kind::{Kind, follows_ids, kind, resolve_cache},
    config::Switch,
    memory::{self, MemoryPlacement},
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
    placed: RwLock<DeviceRows>,
    /// The caches, if [`GpuTiers::place`] places them again.
    caches: Option<GpuCaches>,
    /// Feature rows as the first device reads them, wherever the caches are.
    pub(crate) feature: Arc<dyn Feature>,
    /// All rows, in host memory.
    pub(crate) table: Matrix,
    /// Description of the tiers for the user.
    pub(crate) description: String,
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
        let data = batches.data;
        let config = &dense(batches.config, data)?;
        let batches = Batches { config, ..batches };
        let devices = computers.gpus();
        let (host, table) = build::features(config, data, placement)?;
        let (rows, dim) = (data.num_nodes(), data.features.dim);
        let Some(values) = host.table() else {
            return Err(Error::dataset(
                &data.name,
                "its features are sparse in memory, but NVIDIA devices store dense rows; use --devices cpu",
            ));
        };
        let stored = StoredRows::new(&devices[0], &values, dim)?;
        let policy = resolve_cache(&config.cache, &config.order, "fifo");
        // the first device always samples, and the last one never
        let balanced = sampling.is_some_and(|of| of.count.is_none());
        let trainers = &devices[sampling.map_or(0, |of| of.count.unwrap_or(1))..];
        let slots = match config.cache_ratio.0 {
            Some(ratio) => ((ratio * rows as f64).round() as usize).min(rows),
            None => capacity(trainers, &batches, &stored, policy, sampling.is_none())?,
        };
        let cached = match kind(policy)? {
            Kind::Dynamic(_) => CachedRows::Dynamic,
            Kind::Pinned if slots == 0 || slots == rows => CachedRows::Pinned((0..rows as NodeId).collect()),
            Kind::Pinned => {
                let scores = batches
                    .scores(policy, &Quiet)
                    .map_err(|e| Error::usage(format!("--cache {policy}: {e}")))?;
                CachedRows::Pinned(by_scores(&scores)?)
            }
        };
        let (placement, may_train) = (*config.placement, sampling.is_some_and(|of| of.may_train));
        let caches = GpuCaches { stored, policy: policy.into(), slots, rows: cached, placement, may_train };
        let samplers = if balanced { devices.len() - 1 } else { devices.len() - trainers.len() };
        let placed = caches.place(devices, samplers)?;
        let description = describe(&caches, &placed.cached[samplers..], rows, sampling);
        let feature = if balanced {
            in_host(&caches.stored, &devices[..1])?.remove(0)
        } else {
            placed.readers[0].clone()
        };
        let caches = balanced.then_some(caches);
        Ok(Self { placed: RwLock::new(placed), caches, feature, table, description })
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

/// Description of the tiers: `held` rows on each device that holds some, of `rows` rows.
fn describe(caches: &GpuCaches, held: &[usize], rows: usize, sampling: Option<SamplingDevices>) -> String {
    let GpuCaches { stored, policy, slots, .. } = caches;
    let range = held.iter().copied().min().zip(held.iter().copied().max());
    let cache = Cache { policy: policy.clone(), slots: *slots, rows_per_device: range };
    let in_place = if stored.is_copy() { "in a page-locked copy" } else { "page-locked in place" };
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
    format!("feature rows: {holds} {part}{each}{policy}, the host all, {in_place}")
}

/// Checks the options of sparse rows and of the host's budget, and returns them with dense rows.
fn dense(config: &TrainConfig, data: &Dataset) -> Result<TrainConfig> {
    if config.sparse == Switch::On {
        return Err(Error::usage("--sparse on: NVIDIA devices store dense rows; use --sparse auto"));
    }
    if config.host_budget.0 > 0 && data.features.bytes() as u64 > config.host_budget.0 {
        return Err(Error::usage(format!(
            "--host-budget {}: NVIDIA devices read rows from host memory, which must hold all {} bytes of \
             them; leave it out",
            config.host_budget.0,
            data.features.bytes()
        )));
    }
    Ok(TrainConfig { sparse: Switch::Off, ..config.clone() })
}

/// Number of rows of a cache by `policy` that fit on each of `gpus` beside sampling and training,
/// and beside the graph if the devices hold it: the device with the least free memory decides. Runs
/// a few training steps on the first of them to measure their memory.
fn capacity(
    gpus: &[Gpu],
    batches: &Batches,
    stored: &StoredRows,
    policy: &str,
    with_graph: bool,
) -> Result<usize> {
    let Batches { data, reuse, .. } = *batches;
    let Some(gpu) = gpus.first() else { return Ok(0) };
    let rows = data.num_nodes();
    let cold = in_host(stored, slice::from_ref(gpu))?.remove(0);
    let meter =
        step::Meter { backend: gpu.backend(), now: &|| Some(gpu.taken().0), most: &|| Some(gpu.taken().1) };
    let step = step::measured(batches, &*cold, &meter)?;
    drop(cold);
    gpu.check()?;
    let reused = reuse.map_or(0, ReusePlan::table_bytes) as f64;
    // the location of every row, unless a boundary locates it
    let map = if follows_ids(policy) { 0.0 } else { 4.0 * rows as f64 };
    let free = |gpu: &Gpu| {
        let budget = gpu.budget() as f64;
        let topology = if with_graph { memory::topology(data).min(TOPOLOGY_SHARE * budget) } else { 0.0 };
        budget * (1.0 - SPARE - SAMPLING) - topology - map - STEPS * step.bytes as f64 - reused
    };
    let free = gpus.iter().map(free).fold(f64::INFINITY, f64::min);
    // a dynamic policy has the holder of each row and a mark of its use
    let of_row = if matches!(kind(policy)?, Kind::Dynamic(_)) { 8.0 } else { 0.0 };
    let each = stored.row_bytes() as f64 + of_row;
    Ok(((free.max(0.0) / each) as usize).min(rows))
}
