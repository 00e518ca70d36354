//! Hit rates of caches of several sizes.

use graphmill_core::NodeId;
use graphmill_loader::{
    hotness::{Footprint, Visits},
    policy::{MISS, Make},
};
use rayon::prelude::*;

use crate::Result;

/// Rows that a cache of this part of `rows` holds.
fn slots(rows: usize, ratio: f64) -> usize {
    ((rows as f64 * ratio).round() as usize).min(rows)
}

/// Served out of asked; 1 where nothing was asked for.
fn rate(served: u64, asked: u64) -> f64 {
    if asked == 0 { 1.0 } else { served as f64 / asked as f64 }
}

/// Of caches that hold the hottest rows.
pub(super) fn pinned(footprint: &Footprint, ranking: &[NodeId], ratios: &[f64]) -> Vec<f64> {
    let hits = footprint.hits(ranking);
    ratios.iter().map(|&ratio| rate(hits[slots(ranking.len(), ratio)], footprint.total())).collect()
}

/// Of caches whose rows come and go, from empty.
///
/// # Errors
/// A batch cannot be drawn.
pub(super) fn dynamic(
    make: Make,
    rows: usize,
    visits: &dyn Visits,
    epochs: u64,
    ratios: &[f64],
) -> Result<Vec<f64>> {
    struct Cache {
        policy: Box<dyn graphmill_loader::policy::CachePolicy>,
        slots: Vec<u32>,
        missing: Vec<NodeId>,
        served: u64,
    }
    let new = |&ratio: &f64| Cache {
        policy: make(rows, slots(rows, ratio)),
        slots: Vec::new(),
        missing: Vec::new(),
        served: 0,
    };
    let mut caches: Vec<Cache> = ratios.iter().map(new).collect();
    let mut asked = 0;
    for epoch in 0..epochs {
        visits.visit(epoch, &mut |ids| {
            asked += ids.len() as u64;
            caches.par_iter_mut().for_each(|Cache { policy, slots, missing, served }| {
                policy.look_up(ids, slots);
                missing.clear();
                missing.extend(ids.iter().zip(&*slots).filter(|(_, slot)| **slot == MISS).map(|(&v, _)| v));
                *served += (ids.len() - missing.len()) as u64;
                policy.admit(missing, slots);
            });
        })?;
    }
    Ok(caches.into_iter().map(|cache| rate(cache.served, asked)).collect())
}
