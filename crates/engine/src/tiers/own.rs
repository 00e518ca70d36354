//! Caches of devices that read rows for themselves.

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
    plan::{MAPS, Plan},
    step::{self, Step},
};
use crate::{
    Error, Result, TrainConfig,
    cache_kind::{Kind, kind},
    device::{Device, MemoryReservation},
    hotness::scores::scores_of,
    memory,
};

/// What caches of devices are made from: all alike, as large as each device has room for.
pub(crate) struct OwnCaches<'a> {
    plan: Plan,
    config: TrainConfig,
    data: &'a Dataset,
    sampler: &'a dyn MinibatchSampler,
    order: &'a dyn SeedOrder,
    /// All nodes, the hottest first.
    ranking: OnceLock<Vec<NodeId>>,
}

/// A device's cache, over its link.
pub(crate) struct OwnCache {
    /// The rows.
    pub(crate) rows: Arc<dyn Feature>,
    /// How many it holds.
    pub(crate) slots: usize,
    pub(crate) _held: Option<MemoryReservation>,
}

impl<'a> OwnCaches<'a> {
    /// What the options ask for, or `None` where no device is to have a cache.
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

    /// Bytes that a training step takes of a device.
    ///
    /// # Errors
    /// As training itself.
    pub(crate) fn step_bytes(&self, behind: &dyn Feature) -> Result<Step> {
        step::bytes(&self.config, self.data, behind, self.sampler, self.order)
    }

    /// Bytes of the topology.
    pub(crate) fn topology_bytes(&self) -> u64 {
        memory::topology(self.data) as u64
    }

    /// As many rows of `behind` as the options say and the device has room for; where it is `lent`
    /// to its Trainer for the time being, fewer than the options say will do.
    ///
    /// # Errors
    /// There is no room, or the rows cannot be read.
    pub(crate) fn make(
        &self,
        device: &Arc<Device>,
        behind: Arc<dyn Feature>,
        lent: bool,
    ) -> Result<OwnCache> {
        let Some(wanted) = &self.plan.device else {
            return Err(Error::usage("a device without a cache"));
        };
        let wanted_slots = wanted.slots.min(self.plan.rows);
        let room = device.free().map(|free| self.plan.room_beside(0, free).unwrap_or(0));
        let slots = match room {
            Some(room) if lent || wanted.slots == usize::MAX => wanted_slots.min(room),
            // without a budget it is the host's memory that bounds what all devices make up
            // together
            None if wanted.slots == usize::MAX => wanted_slots.min(self.plan.host_room()),
            _ => wanted_slots,
        };
        let bytes = slots as f64 * (self.plan.row_bytes as f64 + MAPS[1]) + MAPS[0] * self.plan.rows as f64;
        let held =
            device.hold(&format!("a cache of {slots} rows"), if slots > 0 { bytes as u64 } else { 0 })?;
        let behind = Linked::new(behind, device.link.clone());
        if slots == 0 {
            return Ok(OwnCache { rows: Arc::new(behind), slots, _held: Some(held) });
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
        Ok(OwnCache { rows, slots, _held: Some(held) })
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
