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
//! others hold rows in its place (FGNN, section 5.1). A Sampler that trains for the rest of an epoch
//! reads the rows of the others, or those of the host if the caches are private or dynamic, or the
//! devices cannot read each other's memory.

use std::{slice, sync::Arc};

use graphmill_core::{Matrix, NodeId, node_order::by_scores, progress::Quiet};
use graphmill_data::Dataset;
use graphmill_loader::{
    Feature,
    feature::cached::{CacheLayout, Placement},
};

use super::{batches::Batches, cache::Cache, step};
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

/// Feature rows as each device reads them, in the order of the devices, and the number of rows that
/// each holds.
type DeviceRows = (Vec<Arc<dyn Feature>>, Vec<usize>);

/// Feature tiers of the run's NVIDIA devices.
pub(crate) struct GpuTiers {
    /// Feature rows as each device reads them, in the order of the devices.
    pub(crate) each: Vec<Arc<dyn Feature>>,
    /// Number of rows that each device caches.
    pub(crate) cached: Vec<usize>,
    /// All rows, in host memory.
    pub(crate) table: Matrix,
    /// Description of the tiers for the user.
    pub(crate) description: String,
}

impl GpuTiers {
    /// Builds the tiers on the devices of the run: on all of them, or on those beside the
    /// `sampling` ones. With `reuse`, devices have memory for the rows that batches reuse.
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
        let (samplers, holders) = devices.split_at(sampling.map_or(0, |of| of.count));
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
        let slots = match config.cache_ratio.0 {
            Some(ratio) => ((ratio * rows as f64).round() as usize).min(rows),
            None => capacity(holders, &batches, &stored, policy, sampling.is_none())?,
        };
        let pinned = |ranking: &[NodeId]| {
            let placed = CacheLayout::new(ranking, slots, holders.len(), *config.placement);
            let reads_peers =
                sampling.is_some_and(|of| of.may_train) && *config.placement != Placement::Private;
            pinned(&stored, samplers, holders, &placed, reads_peers)
        };
        let (each, cached) = match kind(policy)? {
            Kind::Dynamic(_) => dynamic(&stored, samplers, holders, slots, policy)?,
            Kind::Pinned if slots == 0 || slots == rows => pinned(&(0..rows as NodeId).collect::<Vec<_>>())?,
            Kind::Pinned => {
                let scores = batches
                    .scores(policy, &Quiet)
                    .map_err(|e| Error::usage(format!("--cache {policy}: {e}")))?;
                pinned(&by_scores(&scores)?)?
            }
        };
        let held = &cached[samplers.len()..];
        let range = held.iter().copied().min().zip(held.iter().copied().max());
        let cache = Cache { policy: policy.into(), slots, rows_per_device: range };
        let in_place = if stored.is_copy() { "in a page-locked copy" } else { "page-locked in place" };
        let holds = match (samplers.len(), holders.len()) {
            (0, 1) => "a device holds",
            (0, _) => "devices hold",
            (_, 1) => "samplers hold none, a trainer holds",
            _ => "samplers hold none, trainers hold",
        };
        let each_of = if holders.len() == 1 { "" } else { " each" };
        let part = cache.percent(rows);
        let policy = if slots == 0 || slots == rows { String::new() } else { format!(" ({policy})") };
        let description = format!("feature rows: {holds} {part}{each_of}{policy}, the host all, {in_place}");
        Ok(Self { each, cached, table, description })
    }
}

/// Static caches on `holders`. `samplers` hold none; if they read `peers`, they read the rows of
/// `holders`.
fn pinned(
    stored: &StoredRows,
    samplers: &[Gpu],
    holders: &[Gpu],
    placed: &CacheLayout,
    reads_peers: bool,
) -> Result<DeviceRows> {
    let others = if reads_peers { samplers } else { &[] };
    let mut readers = stored.tiered(holders, others, placed)?;
    let mut each = readers.split_off(holders.len());
    if !reads_peers {
        each = in_host(stored, samplers)?;
    }
    each.append(&mut readers);
    let mut cached = vec![0; samplers.len()];
    cached.extend(placed.rows_by_device(holders.len()));
    Ok((each, cached))
}

/// Dynamic caches of `slots` rows each on `holders`; `samplers` read the rows of the host.
fn dynamic(
    stored: &StoredRows,
    samplers: &[Gpu],
    holders: &[Gpu],
    slots: usize,
    policy: &str,
) -> Result<DeviceRows> {
    let mut each = in_host(stored, samplers)?;
    let mut cached = vec![0; samplers.len()];
    for gpu in holders {
        each.push(stored.dynamic(gpu, slots, policy)?);
        cached.push(slots);
    }
    Ok((each, cached))
}

/// The rows as devices read them that hold none: all of them from host memory.
fn in_host(stored: &StoredRows, gpus: &[Gpu]) -> Result<Vec<Arc<dyn Feature>>> {
    let readers = gpus.iter().map(|gpu| stored.tiered(slice::from_ref(gpu), &[], &CacheLayout::default()));
    Ok(readers.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
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
