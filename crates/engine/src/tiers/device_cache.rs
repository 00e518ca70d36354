//! Separate caches of simulated devices, for strategies whose devices read rows independently.

use std::sync::{Arc, OnceLock};

use graphmill_core::{NodeId, node_order::by_scores};
use graphmill_data::Dataset;
use graphmill_loader::{
    Feature, MinibatchSampler,
    feature::{
        Linked,
        cached::{CacheLayout, Dynamic, Level, Pinned},
    },
    order::SeedOrder,
};

use super::{
    plan::{MAP_BYTES, Plan},
    step::{self, Step},
};
use crate::{
    Error, Result, TrainConfig,
    cache_kind::{Kind, kind},
    device::{Device, MemoryReservation},
    hotness::scores::scores_of,
    memory,
};

/// Builder of device caches: all have the same policy, and each is as large as its device's free
/// memory allows.
pub(crate) struct DeviceCaches<'a> {
    plan: Plan,
    config: TrainConfig,
    data: &'a Dataset,
    sampler: &'a dyn MinibatchSampler,
    order: &'a dyn SeedOrder,
    /// All nodes, hottest first.
    ranking: OnceLock<Vec<NodeId>>,
}

/// A device's cache in front of its link.
pub(crate) struct DeviceCache {
    /// All rows, read through the cache.
    pub(crate) rows: Arc<dyn Feature>,
    /// Number of cached rows.
    pub(crate) slots: usize,
    pub(crate) _held: Option<MemoryReservation>,
}

impl<'a> DeviceCaches<'a> {
    /// Builder of the caches that the options request, or `None` if devices have no caches.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub(crate) fn new(
        config: &TrainConfig,
        data: &'a Dataset,
        sampler: &'a dyn MinibatchSampler,
        order: &'a dyn SeedOrder,
    ) -> Result<Option<Self>> {
        let plan = Plan::new(config, data)?.filter(|plan| plan.device.is_some());
        Ok(plan.map(|plan| {
            let config = plan.as_stored(config);
            Self { plan, config, data, sampler, order, ranking: OnceLock::new() }
        }))
    }

    /// Bytes of a device's memory that a training step takes, measured by a few steps.
    ///
    /// # Errors
    /// Those of training.
    pub(crate) fn step_bytes(&self, behind: &dyn Feature) -> Result<Step> {
        step::bytes(&self.config, self.data, behind, self.sampler, self.order)
    }

    /// Bytes of the topology.
    pub(crate) fn topology_bytes(&self) -> u64 {
        memory::topology(self.data) as u64
    }

    /// Builds the cache of `device` in front of `behind`. It holds as many rows as the options
    /// request. If `may_shrink` (for Trainers that use the device only at times) or without
    /// `--cache-ratio`, it holds as many of them as fit.
    ///
    /// # Errors
    /// The device's free memory is too small, or the rows cannot be read.
    pub(crate) fn make(
        &self,
        device: &Arc<Device>,
        behind: Arc<dyn Feature>,
        may_shrink: bool,
    ) -> Result<DeviceCache> {
        let Some(wanted) = &self.plan.device else {
            return Err(Error::usage("a device without a cache"));
        };
        let wanted_slots = wanted.slots.min(self.plan.rows);
        let capacity = device.free().map(|free| self.plan.capacity(0, free).unwrap_or(0));
        let slots = match capacity {
            Some(capacity) if may_shrink || wanted.slots == usize::MAX => wanted_slots.min(capacity),
            // without a budget, host memory bounds the sum of all simulated devices
            None if wanted.slots == usize::MAX => wanted_slots.min(self.plan.host_capacity()),
            _ => wanted_slots,
        };
        let bytes =
            slots as f64 * (self.plan.row_bytes as f64 + MAP_BYTES[1]) + MAP_BYTES[0] * self.plan.rows as f64;
        let held =
            device.hold(&format!("a cache of {slots} rows"), if slots > 0 { bytes as u64 } else { 0 })?;
        let behind = Linked::new(behind, device.link.clone());
        if slots == 0 {
            return Ok(DeviceCache { rows: Arc::new(behind), slots, _held: Some(held) });
        }
        let behind = Arc::new(behind);
        let level = Level::Device { devices: 1, reader: 0 };
        let rows: Arc<dyn Feature> = match kind(&wanted.policy)? {
            Kind::Dynamic(make) => Arc::new(Dynamic::new(make, slots, self.plan.kind, behind, level)?),
            Kind::Pinned => {
                let nodes = CacheLayout::new(self.ranking(&wanted.policy)?, slots, 1, self.plan.placement);
                Arc::new(Pinned::new(nodes, self.plan.kind, behind, level)?)
            }
        };
        Ok(DeviceCache { rows, slots, _held: Some(held) })
    }

    fn ranking(&self, policy: &str) -> Result<&[NodeId]> {
        if let Some(ranking) = self.ranking.get() {
            return Ok(ranking);
        }
        let scores = scores_of(policy, &self.config, self.data, self.sampler, self.order)
            .map_err(|e| Error::usage(format!("--cache {policy}: {e}")))?;
        let ranking = by_scores(&scores)?;
        Ok(self.ranking.get_or_init(|| ranking))
    }
}
