//! Rows for NVIDIA devices.
//!
//! ```text
//!   cuda:N:  device (--cache, --cache-ratio, --device-budget)  ─►  its peers (--placement)  ─►  host, page-locked: kernels read it in place
//! ```
//!
//! All rows are in host memory; nothing is gathered there. One kernel finds where each row is and
//! copies it from there.

use std::sync::Arc;

use graphmill_core::{Matrix, NodeId, node_order::by_scores};
use graphmill_data::Dataset;
use graphmill_loader::{
    Feature, MinibatchSampler,
    feature::cached::{Placement, placed},
    order::Order,
};

use super::{cache::Cache, step};
use crate::{
    Error, Result, TrainConfig,
    accelerator::{ComputeDevices, StoredRows, TOPOLOGY_SHARE},
    build,
    cache_kind::{Kind, chosen, kind},
    config::Switch,
    hotness::scores::scores_of,
    memory::{self, MemoryPlacement},
};

/// Part of a device's memory that is left to what was not foreseen.
const SPARE: f64 = 0.05;
/// What sampling keeps of a device's memory for its batches.
const SAMPLING: f64 = 0.05;
/// Later batches, and the one that is gathered meanwhile, beside a measured step.
const STEPS: f64 = 1.5;

/// The rows as each device reads them, and the fewest and the most that one of them holds.
type Each = (Vec<Arc<dyn Feature>>, (usize, usize));

/// The rows as each device reads them.
pub(crate) struct OnGpus {
    /// In the order of the devices.
    pub(crate) each: Vec<Arc<dyn Feature>>,
    /// Rows that each holds.
    pub(crate) slots: usize,
    /// All rows, in host memory.
    pub(crate) table: Matrix,
    /// Which tiers there are, in words.
    pub(crate) description: String,
}

impl OnGpus {
    /// What the options say, on the devices of the run.
    ///
    /// # Errors
    /// Options that devices cannot follow, or memory that cannot be had.
    pub(crate) fn new(
        computers: &ComputeDevices,
        config: &TrainConfig,
        data: &Dataset,
        residence: MemoryPlacement,
        sampler: &dyn MinibatchSampler,
        order: &dyn Order,
    ) -> Result<Self> {
        let config = &dense(config, data)?;
        let devices = computers.gpus();
        let (host, table) = build::features(config, data, residence)?;
        let (rows, dim) = (data.num_nodes(), data.features.dim);
        let Some(values) = host.table() else {
            return Err(Error::dataset(
                &data.name,
                "its features are sparse in memory, and devices hold dense rows",
            ));
        };
        let stored = StoredRows::new(&devices[0], &values, dim)?;
        let policy = chosen(&config.cache, &config.order, "fifo");
        let slots = match config.cache_ratio.0 {
            Some(ratio) => ((ratio * rows as f64).round() as usize).min(rows),
            None => room(computers, config, data, &stored, sampler, order)?,
        };
        let one_by_one = |policy: &str| -> Result<Each> {
            let rows = devices.iter().map(|gpu| stored.dynamic(gpu, slots, policy));
            Ok((rows.collect::<Result<_>>()?, (slots, slots)))
        };
        let tiered = |ranking: &[NodeId]| -> Result<Each> {
            let placed = placed(ranking, slots, devices.len(), *config.placement);
            Ok((stored.tiered(devices, &placed)?, placed.held(devices.len())))
        };
        let (each, held) = match kind(policy)? {
            Kind::Dynamic(_) => one_by_one(policy)?,
            Kind::Pinned if slots == 0 || slots == rows => tiered(&(0..rows as NodeId).collect::<Vec<_>>())?,
            Kind::Pinned => {
                let scores = scores_of(policy, config, data, sampler, order)
                    .map_err(|e| Error::usage(format!("--cache {policy}: {e}")))?;
                tiered(&by_scores(&scores)?)?
            }
        };
        let cache = Cache { policy: policy.into(), slots, held: Some(held) };
        let in_place = if stored.is_copy() { "in a page-locked copy" } else { "page-locked in place" };
        let (holds, each_of) =
            if devices.len() == 1 { ("a device holds", "") } else { ("devices hold", " each") };
        let part = cache.percent(rows);
        let policy = if slots == 0 || slots == rows { String::new() } else { format!(" ({policy})") };
        let description = format!("feature rows: {holds} {part}{each_of}{policy}, the host all, {in_place}");
        Ok(Self { each, slots, table, description })
    }
}

/// The options with dense rows.
fn dense(config: &TrainConfig, data: &Dataset) -> Result<TrainConfig> {
    if config.sparse == Switch::On {
        return Err(Error::usage("--sparse on: NVIDIA devices hold dense rows; use --sparse auto"));
    }
    if config.host_budget.0 > 0 && data.features.bytes() as u64 > config.host_budget.0 {
        return Err(Error::usage(format!(
            "--host-budget {}: NVIDIA devices read rows from host memory, which has to hold all {} bytes of them; leave it out",
            config.host_budget.0,
            data.features.bytes()
        )));
    }
    Ok(TrainConfig { sparse: Switch::Off, ..config.clone() })
}

/// Rows that a device has room for beside the graph, sampling and training, which is tried.
fn room(
    computers: &ComputeDevices,
    config: &TrainConfig,
    data: &Dataset,
    stored: &StoredRows,
    sampler: &dyn MinibatchSampler,
    order: &dyn Order,
) -> Result<usize> {
    let gpu = &computers.gpus()[0];
    let rows = data.num_nodes();
    let none = placed(&[], 0, 1, Placement::Interleave);
    let cold = stored.tiered(std::slice::from_ref(gpu), &none)?.remove(0);
    let before = gpu.taken().0;
    let taken = || Some(gpu.taken().1.saturating_sub(before));
    let step = step::measured(config, data, &*cold, sampler, order, gpu.backend(), &taken)?;
    drop(cold);
    gpu.check()?;
    let budget = gpu.budget() as f64;
    let topology = memory::topology(data).min(TOPOLOGY_SHARE * budget);
    let free = budget * (1.0 - SPARE - SAMPLING) - topology - STEPS * step.bytes as f64;
    // a row, and its place
    let each = stored.row_bytes() as f64 + 4.0;
    Ok((free.max(0.0) / each) as usize).map(|room| room.min(rows))
}
