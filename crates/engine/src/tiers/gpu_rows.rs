//! Feature rows on NVIDIA devices: the devices that hold cached rows, and a reader for each device.

use std::{
    slice,
    sync::{Arc, OnceLock},
};

use graphmill_core::NodeId;
use graphmill_loader::{
    Feature,
    feature::cached::{CacheLayout, Placement},
};

use crate::{
    Result,
    accelerator::{Gpu, RowsBehind},
    cache_kind::Fill,
};

/// Rows on each device, by policy.
pub(super) enum CachedRows {
    /// The policy admits and evicts rows.
    Dynamic,
    /// The first of these rows, hottest first.
    Pinned(Vec<NodeId>),
    /// The first rows of a ranking that the run sets once it has counted its first minibatches.
    Counted(Arc<OnceLock<Vec<NodeId>>>),
}

/// Caches of devices, all of the same size, ready to be placed.
pub(super) struct GpuCaches {
    pub(super) behind: RowsBehind,
    pub(super) policy: String,
    /// Number of rows of each cache.
    pub(super) slots: usize,
    pub(super) rows: CachedRows,
    pub(super) placement: Placement,
    /// True if devices that only sample may train later.
    pub(super) may_train: bool,
}

/// Feature rows as each device reads them, in the order of the devices.
#[derive(Default)]
pub(super) struct DeviceRows {
    pub(super) readers: Vec<Arc<dyn Feature>>,
    /// Number of rows that each device holds.
    pub(super) cached: Vec<usize>,
    /// Fills the caches whose rows the run chooses.
    pub(super) fills: Vec<Fill>,
}

impl GpuCaches {
    /// Places the caches on all of `gpus` but the first `samplers`. These hold no rows. If they may
    /// train, they read the rows of the others.
    ///
    /// # Errors
    /// The rows cannot be read, or an allocation fails.
    pub(super) fn place(&self, gpus: &[Gpu], samplers: usize) -> Result<DeviceRows> {
        let (samplers, holders) = gpus.split_at(samplers);
        let (mut cached, mut fills) = (vec![0; samplers.len()], Vec::new());
        let readers = match &self.rows {
            CachedRows::Dynamic => {
                let mut readers = in_host(&self.behind, samplers)?;
                for gpu in holders {
                    readers.push(self.behind.dynamic(gpu, self.slots, &self.policy)?);
                    cached.push(self.slots);
                }
                readers
            }
            CachedRows::Counted(ranking) => {
                let mut readers = in_host(&self.behind, samplers)?;
                for gpu in holders {
                    let (reader, fill) = self.behind.late(gpu, self.slots)?;
                    if let Some(ranking) = ranking.get() {
                        fill(ranking)?;
                    }
                    readers.push(reader);
                    fills.push(fill);
                    cached.push(self.slots);
                }
                readers
            }
            CachedRows::Pinned(ranking) => {
                // a device reads rows of others in place of those in host memory, not of a tier
                let placement = if self.behind.is_tier() { Placement::Private } else { self.placement };
                let layout = CacheLayout::new(ranking, self.slots, holders.len(), placement);
                cached.extend(layout.rows_by_device(holders.len()));
                let reads_others = self.may_train && placement != Placement::Private;
                let others = if reads_others { samplers } else { &[] };
                let mut of_holders = self.behind.tiered(holders, others, &layout)?;
                let of_others = of_holders.split_off(holders.len());
                let mut readers = if reads_others { of_others } else { in_host(&self.behind, samplers)? };
                readers.append(&mut of_holders);
                readers
            }
        };
        Ok(DeviceRows { readers, cached, fills })
    }
}

/// The rows as devices read them that hold none: all of them from host memory.
///
/// # Errors
/// An allocation fails.
pub(super) fn in_host(behind: &RowsBehind, gpus: &[Gpu]) -> Result<Vec<Arc<dyn Feature>>> {
    let readers = gpus.iter().map(|gpu| behind.tiered(slice::from_ref(gpu), &[], &CacheLayout::default()));
    Ok(readers.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}
