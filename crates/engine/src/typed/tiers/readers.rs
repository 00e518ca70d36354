//! Rows of a type as each device that trains reads them: through a pool of the devices' caches, or
//! through a cache of its own.
//!
//! ```text
//!   pool:      virtual:0 ─► its share ─► shares of peers (--peer-link) ─► --link ─► host
//!              virtual:1 ─► its share ─► shares of peers (--peer-link) ─► --link ─► host
//!   private:   virtual:0 ─► its cache ─► --link ─► host
//! ```

use std::sync::Arc;

use graphmill_loader::{
    Feature,
    feature::{
        Linked,
        cached::{Level, Placement},
    },
};

use crate::{
    Result,
    device::Device,
    tiers::{NewCache, Pool},
};

/// Devices that train, each with links of its own.
#[derive(Clone)]
pub(super) struct Readers {
    devices: Vec<Arc<Device>>,
    /// True if the devices share each cache.
    are_pooled: bool,
}

impl Readers {
    /// Readers on `devices`, whose caches have this placement.
    pub(super) fn new(devices: &[Arc<Device>], placement: Placement) -> Self {
        let are_pooled = devices.len() > 1 && placement != Placement::Private;
        Self { devices: devices.to_vec(), are_pooled }
    }

    /// Number of devices that share each cache.
    pub(super) fn sharing(&self) -> usize {
        if self.are_pooled { self.devices.len() } else { 1 }
    }

    /// Memory of the caches.
    pub(super) fn level(&self) -> Level {
        Level::Device { devices: self.sharing(), reader: 0 }
    }

    /// Free bytes of the device with the least memory; `None` if the memory is unlimited.
    pub(super) fn free(&self) -> Option<u64> {
        self.devices.iter().filter_map(|device| device.free()).min()
    }

    /// The rows of `behind` as each device reads them without a cache.
    pub(super) fn linked(&self, behind: &Arc<dyn Feature>) -> Vec<Arc<dyn Feature>> {
        let linked = |device: &Arc<Device>| -> Arc<dyn Feature> {
            Arc::new(Linked::new(behind.clone(), device.link.clone()))
        };
        self.devices.iter().map(linked).collect()
    }

    /// The rows of `behind` as each device reads them through `cache`, whose `scores` computes the
    /// hotness of its rows by a metric.
    ///
    /// # Errors
    /// As [`NewCache::build`].
    pub(super) fn cached(
        &self,
        cache: NewCache,
        behind: &Arc<dyn Feature>,
        scores: &dyn Fn(&str) -> Result<Vec<f64>>,
    ) -> Result<Vec<Arc<dyn Feature>>> {
        if self.are_pooled {
            let pool = Pool::new(cache, behind.clone(), scores)?;
            let devices = self.devices.iter().enumerate();
            return Ok(devices.map(|(i, device)| pool.reader(i, device)).collect());
        }
        let own = |behind| -> Result<Arc<dyn Feature>> { Ok(cache.build(behind, scores)?.rows) };
        self.linked(behind).into_iter().map(own).collect()
    }
}
