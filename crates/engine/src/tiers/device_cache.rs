//! Caches of simulated devices, for strategies whose devices read rows independently: one pool over
//! the devices that train together, or a private cache on each.
//!
//! Every device of a pool holds its share of the rows, and maps of all rows. The shares are equally
//! large, so the device with the least free memory bounds them. Each device reads the whole pool,
//! the rows of the others over its link to its peers. A dynamic cache divides its shards among the
//! devices by the number of a row, whatever the placement.

use std::sync::{Arc, OnceLock};

use graphmill_core::{
    NodeId,
    node_order::by_scores,
    progress::{Progress, Quiet},
};
use graphmill_data::Dataset;
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    Feature, MinibatchSampler,
    feature::{
        Linked,
        cached::{CacheLayout, Dynamic, Level, Pinned, Placement},
    },
    link::LinkSource,
    order::SeedOrder,
};

use super::{
    batches::Batches,
    cache::Cache,
    new_cache::NewCache,
    plan::Plan,
    presampling::Presampling,
    step::{self, Step},
};
use crate::{
    Error, Result, TrainConfig,
    cache_kind::{Kind, counts_training, kind},
    device::{Device, MemoryReservation},
    memory,
    reuse::ReusePlan,
};

/// Builder of device caches, which all have the same policy.
pub(crate) struct DeviceCaches<'a> {
    plan: Plan,
    config: TrainConfig,
    data: &'a Dataset,
    sampler: &'a dyn MinibatchSampler,
    order: &'a dyn SeedOrder,
    /// Plan of the rows that batches reuse, if they do.
    reuse: Option<&'a ReusePlan>,
    /// Owners of the nodes, if several ranks share each batch.
    own: Option<Arc<NodeOwnership>>,
    /// Edges to learn, in a run on links.
    pairs: Option<&'a LinkSource>,
    /// Minibatches that the run counts.
    presampling: Option<&'a Presampling>,
    /// Watches the counting of batches, and may stop it.
    progress: &'a dyn Progress,
    /// All nodes, hottest first.
    ranking: OnceLock<Vec<NodeId>>,
}

/// A device's cache, or its share of a pool, in front of its link.
pub(crate) struct DeviceCache {
    /// All rows, read through the cache or the pool.
    pub(crate) rows: Arc<dyn Feature>,
    /// Number of rows that the device itself caches.
    pub(crate) slots: usize,
    pub(crate) _held: Option<MemoryReservation>,
}

/// Cache that several devices share.
pub(crate) struct Pool {
    rows: PooledRows,
    /// Number of devices that hold rows.
    devices: usize,
    behind: Arc<dyn Feature>,
}

/// Rows that several devices cache together.
enum PooledRows {
    Empty,
    Pinned(Pinned),
    Dynamic(Dynamic),
}

impl Pool {
    /// The rows that the devices of `cache` hold together, in front of `behind`. `scores` computes
    /// the hotness of the rows by a metric. The caller accounts for the memory.
    ///
    /// # Errors
    /// As [`NewCache::build`].
    pub(crate) fn new(
        cache: NewCache,
        behind: Arc<dyn Feature>,
        scores: &dyn Fn(&str) -> Result<Vec<f64>>,
    ) -> Result<Self> {
        let NewCache { policy, slots, devices, placement, format, level, .. } = cache;
        let rows = match kind(policy)? {
            Kind::Dynamic(make) => {
                let slots = slots.saturating_mul(devices).min(behind.num_rows());
                PooledRows::Dynamic(Dynamic::new(make, slots, format, behind.clone(), level)?)
            }
            Kind::Pinned => {
                let scores = scores(policy).map_err(|e| Error::of_option("--cache", policy, e))?;
                let layout = CacheLayout::new(&by_scores(&scores)?, slots, devices, placement);
                PooledRows::Pinned(Pinned::new(layout, format, behind.clone(), level)?)
            }
        };
        Ok(Self { rows, devices, behind })
    }

    /// Rows as number `reader` of the devices reads them.
    pub(crate) fn reader(&self, reader: usize, device: &Device) -> Arc<dyn Feature> {
        let link = device.peer_link.clone();
        let behind = Arc::new(Linked::new(self.behind.clone(), device.link.clone()));
        match &self.rows {
            PooledRows::Empty => behind,
            PooledRows::Pinned(pool) => Arc::new(pool.reader(reader, behind).with_peer_link(link)),
            PooledRows::Dynamic(pool) => Arc::new(pool.reader(reader, behind).with_peer_link(link)),
        }
    }
}

/// Number of rows that `devices` devices with `slots` rows each hold together, by their placement.
pub(crate) fn pooled_rows(placement: Placement, slots: usize, devices: usize) -> usize {
    match placement {
        Placement::Private => slots,
        Placement::Replicate(share) => {
            let replicas = (share * slots as f64) as usize;
            replicas + (slots - replicas) * devices
        }
        _ => slots.saturating_mul(devices),
    }
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
        reuse: Option<&'a ReusePlan>,
    ) -> Result<Option<Self>> {
        if config.num_devices() == 0 {
            return Ok(None);
        }
        let plan = Plan::new(config, data)?.filter(|plan| plan.device.is_some());
        Ok(plan.map(|plan| {
            let config = config.clone();
            let (own, pairs, presampling, ranking) = (None, None, None, OnceLock::new());
            let progress = &Quiet;
            Self { plan, config, data, sampler, order, reuse, own, pairs, presampling, progress, ranking }
        }))
    }

    /// The same builder in a run whose batches learn `pairs`, if it is one on links.
    #[must_use]
    pub(crate) fn learning(self, pairs: Option<&'a LinkSource>) -> Self {
        Self { pairs, ..self }
    }

    /// The same builder for a rank, if there are owners: its devices train on its shares of the
    /// batches, with rows of `behind`.
    #[must_use]
    pub(crate) fn for_rank(self, own: Option<Arc<NodeOwnership>>, behind: &dyn Feature) -> Self {
        let plan = if own.is_some() { self.plan.with_sizes_of(behind) } else { self.plan };
        Self { own, plan, ..self }
    }

    /// The same builder in a run that counts minibatches, which `progress` watches.
    #[must_use]
    pub(crate) fn counted_by(self, presampling: Option<&'a Presampling>, progress: &'a dyn Progress) -> Self {
        Self { presampling, progress, ..self }
    }

    fn batches(&self) -> Batches<'_> {
        let Self { config, data, sampler, order, reuse, own, pairs: links, progress, .. } = self;
        let (own, cost) = (own.as_ref(), self.presampling.map(|presampling| &presampling.cost));
        let (sampler, order, reuse, links, progress) = (*sampler, *order, *reuse, *links, *progress);
        Batches { config, data, sampler, order, reuse, own, links, cost, progress }
    }

    /// Bytes of a device's memory that a training step takes, measured by a few steps, which reuse
    /// rows if those of the run do.
    ///
    /// # Errors
    /// Those of training.
    pub(crate) fn step_bytes(&self, behind: &dyn Feature) -> Result<Step> {
        step::bytes(&self.batches(), behind)
    }

    /// Number of rows on a device of which `taken` bytes are in use; `None` if not even the maps of
    /// a cache fit.
    pub(crate) fn rows_beside(&self, taken: u64) -> Option<usize> {
        let wanted = self.wanted().ok()?;
        let rows = self.plan.capacity(wanted, taken, self.config.device_budget.0)?;
        Some(rows.min(wanted.slots))
    }

    /// Number of rows that `devices` devices with `slots` rows each hold together.
    pub(crate) fn pooled_rows(&self, slots: usize, devices: usize) -> usize {
        pooled_rows(self.plan.placement, slots, devices)
    }

    /// Bytes of the topology.
    pub(crate) fn topology_bytes(&self) -> u64 {
        memory::topology(self.data) as u64
    }

    /// Builds the private cache of `device` in front of `behind`. It holds as many rows as the
    /// options request. If `may_shrink` (for Trainers that use the device only at times) or without
    /// `--cache-ratio`, it holds as many of them as fit.
    ///
    /// # Errors
    /// The device's free memory is too small, or the rows cannot be read.
    pub(crate) fn private(
        &self,
        device: &Arc<Device>,
        behind: Arc<dyn Feature>,
        may_shrink: bool,
    ) -> Result<DeviceCache> {
        let wanted = self.wanted()?;
        let slots = self.slots(wanted, std::slice::from_ref(device), may_shrink);
        let held = self.hold(device, slots)?;
        let behind = Linked::new(behind, device.link.clone());
        if slots == 0 {
            return Ok(DeviceCache { rows: Arc::new(behind), slots, _held: Some(held) });
        }
        let behind = Arc::new(behind);
        let level = Level::Device { devices: 1, reader: 0 };
        let rows: Arc<dyn Feature> = match kind(&wanted.policy)? {
            Kind::Dynamic(make) => Arc::new(Dynamic::new(make, slots, self.plan.format, behind, level)?),
            Kind::Pinned => {
                let nodes = CacheLayout::new(self.ranking(&wanted.policy)?, slots, 1, self.plan.placement);
                Arc::new(Pinned::new(nodes, self.plan.format, behind, level)?)
            }
        };
        Ok(DeviceCache { rows, slots, _held: Some(held) })
    }

    /// Builds the caches of `devices` in front of `behind`: one pool, unless there is a single
    /// device or the placement is private. They hold as many rows as the options request, or
    /// without `--cache-ratio` as many as fit. Also returns the pool, for devices that read it
    /// without a share of their own.
    ///
    /// # Errors
    /// The free memory of a device is too small, or the rows cannot be read.
    pub(crate) fn pool(
        &self,
        devices: &[Arc<Device>],
        behind: &Arc<dyn Feature>,
    ) -> Result<(Vec<DeviceCache>, Option<Pool>)> {
        if devices.len() == 1 || self.plan.placement == Placement::Private {
            let caches = devices.iter().map(|device| self.private(device, behind.clone(), false));
            return Ok((caches.collect::<Result<_>>()?, None));
        }
        let wanted = self.wanted()?;
        let slots = self.slots(wanted, devices, false);
        let (count, kind) = (devices.len(), kind(&wanted.policy)?);
        let total = slots.saturating_mul(count).min(self.plan.rows);
        let layout = match kind {
            Kind::Pinned if slots > 0 => {
                CacheLayout::new(self.ranking(&wanted.policy)?, slots, count, self.plan.placement)
            }
            _ => CacheLayout::default(),
        };
        let shares: Vec<usize> = match kind {
            Kind::Pinned => layout.rows_by_device(count),
            Kind::Dynamic(_) => (0..count).map(|i| total / count + usize::from(i < total % count)).collect(),
        };
        let mut held = Vec::with_capacity(count);
        for (device, &share) in devices.iter().zip(&shares) {
            held.push(self.hold(device, share)?);
        }
        let level = Level::Device { devices: count, reader: 0 };
        let rows = match kind {
            _ if slots == 0 => PooledRows::Empty,
            Kind::Dynamic(make) => {
                PooledRows::Dynamic(Dynamic::new(make, total, self.plan.format, behind.clone(), level)?)
            }
            Kind::Pinned => PooledRows::Pinned(Pinned::new(layout, self.plan.format, behind.clone(), level)?),
        };
        let pool = Pool { rows, devices: count, behind: behind.clone() };
        let caches = devices.iter().zip(shares).zip(held).enumerate();
        let caches = caches.map(|(i, ((device, slots), held))| DeviceCache {
            rows: pool.reader(i, device),
            slots,
            _held: Some(held),
        });
        let caches = caches.collect();
        Ok((caches, Some(pool)))
    }

    /// The rows of `pool` as a device without a share reads them: those of all shares are peer
    /// rows. The device holds the maps.
    ///
    /// # Errors
    /// The free memory of the device is too small.
    pub(crate) fn without_share(&self, pool: &Pool, device: &Arc<Device>) -> Result<DeviceCache> {
        let maps = match pool.rows {
            PooledRows::Empty => 0,
            _ => self.plan.cache_bytes(self.wanted()?, 0),
        };
        let held = device.hold("the maps of a shared cache", maps)?;
        Ok(DeviceCache { rows: pool.reader(pool.devices, device), slots: 0, _held: Some(held) })
    }

    /// Cache that the options request for each device.
    fn wanted(&self) -> Result<&Cache> {
        self.plan.device.as_ref().ok_or_else(|| Error::usage("a device without a cache"))
    }

    /// Number of rows on each of `devices`: all that are `wanted`, or as many of them as fit if it
    /// may shrink.
    fn slots(&self, wanted: &Cache, devices: &[Arc<Device>], may_shrink: bool) -> usize {
        let is_counted = || self.presampling.is_some_and(|of| of.ranking.get().is_some());
        if counts_training(&wanted.policy) && !is_counted() {
            return 0; // the run fills the caches later
        }
        let rows = wanted.slots.min(self.plan.rows);
        let fit = |device: &Arc<Device>| Some(self.plan.capacity(wanted, 0, device.free()?).unwrap_or(0));
        match devices.iter().filter_map(fit).min() {
            Some(capacity) if may_shrink || wanted.slots == usize::MAX => rows.min(capacity),
            // without a budget, host memory bounds the sum of all simulated devices
            None if wanted.slots == usize::MAX => rows.min(self.plan.host_capacity(wanted)),
            _ => rows,
        }
    }

    /// Reserves the memory of `slots` rows and of the maps.
    fn hold(&self, device: &Arc<Device>, slots: usize) -> Result<MemoryReservation> {
        let bytes = if slots > 0 { self.plan.cache_bytes(self.wanted()?, slots) } else { 0 };
        device.hold(&format!("a cache of {slots} rows"), bytes)
    }

    fn ranking(&self, policy: &str) -> Result<&[NodeId]> {
        if let Some(ranking) = self.ranking.get() {
            return Ok(ranking);
        }
        if let Some(ranking) = self.presampling.and_then(|of| of.ranking.get())
            && counts_training(policy)
        {
            return Ok(ranking);
        }
        let scores = self.batches().scores(policy).map_err(|e| Error::of_option("--cache", policy, e))?;
        let ranking = by_scores(&scores)?;
        Ok(self.ranking.get_or_init(|| ranking))
    }
}
