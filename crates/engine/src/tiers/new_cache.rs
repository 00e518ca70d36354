//! A cache in front of a tier, by the name of its hotness or policy.

use std::sync::Arc;

use graphmill_core::node_order::by_scores;
use graphmill_loader::{
    Feature,
    feature::{
        Link, LinkOptions,
        cached::{CacheLayout, Dynamic, Late, Level, Pinned, Placement, RowFormat},
    },
};

use super::presampling::LateCache;
use crate::{
    Error, Result,
    cache_kind::{Kind, counts_training, kind},
};

/// A cache to build.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewCache<'c> {
    /// Name of the hotness or policy.
    pub(crate) policy: &'c str,
    /// Number of rows on each device.
    pub(crate) slots: usize,
    /// Number of devices that share the cache; 1 for a cache in host memory.
    pub(crate) devices: usize,
    pub(crate) placement: Placement,
    /// Form of the rows.
    pub(crate) format: RowFormat,
    /// Memory that holds the cache.
    pub(crate) level: Level,
    /// Link of a device to its peers.
    pub(crate) peer_link: LinkOptions,
}

/// A cache in front of a tier.
pub(crate) struct BuiltCache {
    pub(crate) rows: Arc<dyn Feature>,
    /// Minimum and maximum number of rows on a device.
    pub(crate) held: (usize, usize),
    /// The cache, if it is filled during the run.
    pub(crate) late: Option<LateCache>,
}

impl NewCache<'_> {
    /// Builds the cache in front of `behind`. `scores` computes the hotness of its rows by a
    /// metric.
    ///
    /// # Errors
    /// Those of `scores`; the policy is unknown; the rows cannot be read; an allocation fails.
    pub(crate) fn build(
        self,
        behind: Arc<dyn Feature>,
        scores: &dyn Fn(&str) -> Result<Vec<f64>>,
    ) -> Result<BuiltCache> {
        let Self { policy, slots, devices, placement, format, level, peer_link } = self;
        let peer_link = Arc::new(Link::new(peer_link));
        if counts_training(policy) {
            let late = Arc::new(Late::new(behind));
            let rows: Arc<dyn Feature> = late.clone();
            let cache = LateCache::new(move |ranking| {
                let layout = CacheLayout::new(ranking, slots, devices, placement);
                let cache = Pinned::new(layout, format, late.behind().clone(), level)?;
                late.fill(Arc::new(cache.with_peer_link(peer_link.clone())));
                Ok(())
            });
            return Ok(BuiltCache { rows, held: (slots, slots), late: Some(cache) });
        }
        Ok(match kind(policy)? {
            Kind::Dynamic(make) => {
                let slots = slots.saturating_mul(devices).min(behind.num_rows());
                let held = (slots / devices, slots.div_ceil(devices));
                let cache = Dynamic::new(make, slots, format, behind, level)?;
                BuiltCache { rows: Arc::new(cache.with_peer_link(peer_link)), held, late: None }
            }
            Kind::Pinned => {
                let scores = scores(policy).map_err(|e| Error::of_option("--cache", policy, e))?;
                let placed = CacheLayout::new(&by_scores(&scores)?, slots, devices, placement);
                let held = placed.rows_per_device(devices);
                let cache = Pinned::new(placed, format, behind, level)?;
                BuiltCache { rows: Arc::new(cache.with_peer_link(peer_link)), held, late: None }
            }
        })
    }
}
