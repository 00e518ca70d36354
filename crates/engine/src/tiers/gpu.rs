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

use std::sync::Arc;

use graphmill_core::{Matrix, NodeId, node_order::by_scores, progress::Quiet};
use graphmill_data::Dataset;
use graphmill_loader::{
    Feature,
    feature::cached::{CacheLayout, Placement},
};

use super::{batches::Batches, cache::Cache, step};
use crate::{
    Error, Result, TrainConfig,
    accelerator::{ComputeDevices, StoredRows, TOPOLOGY_SHARE},
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

/// Feature rows as each device reads them, and the minimum and maximum number of rows on a device.
type DeviceRows = (Vec<Arc<dyn Feature>>, (usize, usize));

/// Feature tiers of the run's NVIDIA devices.
pub(crate) struct GpuTiers {
    /// Feature rows as each device reads them, in the order of the devices.
    pub(crate) each: Vec<Arc<dyn Feature>>,
    /// Number of rows that each device caches.
    pub(crate) slots: usize,
    /// All rows, in host memory.
    pub(crate) table: Matrix,
    /// Description of the tiers for the user.
    pub(crate) description: String,
}

impl GpuTiers {
    /// Builds the tiers on the devices of the run. With `reuse`, devices have memory for the rows
    /// that batches reuse.
    ///
    /// # Errors
    /// Options that devices do not support, or a failed allocation.
    pub(crate) fn new(
        computers: &ComputeDevices,
        batches: Batches,
        placement: MemoryPlacement,
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
        let slots = match config.cache_ratio.0 {
            Some(ratio) => ((ratio * rows as f64).round() as usize).min(rows),
            None => capacity(computers, &batches, &stored, policy)?,
        };
        let dynamic = |policy: &str| -> Result<DeviceRows> {
            let rows = devices.iter().map(|gpu| stored.dynamic(gpu, slots, policy));
            Ok((rows.collect::<Result<_>>()?, (slots, slots)))
        };
        let pinned = |ranking: &[NodeId]| -> Result<DeviceRows> {
            let placed = CacheLayout::new(ranking, slots, devices.len(), *config.placement);
            Ok((stored.tiered(devices, &placed)?, placed.rows_per_device(devices.len())))
        };
        let (each, held) = match kind(policy)? {
            Kind::Dynamic(_) => dynamic(policy)?,
            Kind::Pinned if slots == 0 || slots == rows => pinned(&(0..rows as NodeId).collect::<Vec<_>>())?,
            Kind::Pinned => {
                let scores = batches
                    .scores(policy, &Quiet)
                    .map_err(|e| Error::usage(format!("--cache {policy}: {e}")))?;
                pinned(&by_scores(&scores)?)?
            }
        };
        let cache = Cache { policy: policy.into(), slots, rows_per_device: Some(held) };
        let in_place = if stored.is_copy() { "in a page-locked copy" } else { "page-locked in place" };
        let (holds, each_of) =
            if devices.len() == 1 { ("a device holds", "") } else { ("devices hold", " each") };
        let part = cache.percent(rows);
        let policy = if slots == 0 || slots == rows { String::new() } else { format!(" ({policy})") };
        let description = format!("feature rows: {holds} {part}{each_of}{policy}, the host all, {in_place}");
        Ok(Self { each, slots, table, description })
    }
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

/// Number of rows of a cache by `policy` that fit on a device beside the graph, sampling and
/// training. Runs a few training steps to measure their memory.
fn capacity(
    computers: &ComputeDevices,
    batches: &Batches,
    stored: &StoredRows,
    policy: &str,
) -> Result<usize> {
    let Batches { data, reuse, .. } = *batches;
    let gpu = &computers.gpus()[0];
    let rows = data.num_nodes();
    let none = CacheLayout::new(&[], 0, 1, Placement::Interleave);
    let cold = stored.tiered(std::slice::from_ref(gpu), &none)?.remove(0);
    let meter =
        step::Meter { backend: gpu.backend(), now: &|| Some(gpu.taken().0), most: &|| Some(gpu.taken().1) };
    let step = step::measured(batches, &*cold, &meter)?;
    drop(cold);
    gpu.check()?;
    let budget = gpu.budget() as f64;
    let topology = memory::topology(data).min(TOPOLOGY_SHARE * budget);
    let reused = reuse.map_or(0, ReusePlan::table_bytes) as f64;
    // the location of every row, unless a boundary locates it
    let map = if follows_ids(policy) { 0.0 } else { 4.0 * rows as f64 };
    let free = budget * (1.0 - SPARE - SAMPLING) - topology - map - STEPS * step.bytes as f64 - reused;
    // a dynamic policy has the holder of each row and a mark of its use
    let of_row = if matches!(kind(policy)?, Kind::Dynamic(_)) { 8.0 } else { 0.0 };
    let each = stored.row_bytes() as f64 + of_row;
    Ok(((free.max(0.0) / each) as usize).min(rows))
}
