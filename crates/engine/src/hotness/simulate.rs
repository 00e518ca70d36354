//! Simulation of caches of several sizes.

use graphmill_core::NodeId;
use graphmill_loader::{
    hotness::{Footprint, Visits},
    policy::{MISS, Make},
};
use rayon::prelude::*;

use crate::Result;

/// Number of rows in a cache of the fraction `ratio` of `rows`.
fn slots(rows: usize, ratio: f64) -> usize {
    ((rows as f64 * ratio).round() as usize).min(rows)
}

/// Fraction of the requested rows that were served; 1 without requests.
fn rate(served: u64, requested: u64) -> f64 {
    if requested == 0 { 1.0 } else { served as f64 / requested as f64 }
}

/// Hit rates of static caches of the hottest rows.
pub(super) fn pinned(footprint: &Footprint, ranking: &[NodeId], ratios: &[f64]) -> Vec<f64> {
    let hits = footprint.hits(ranking);
    ratios.iter().map(|&ratio| rate(hits[slots(ranking.len(), ratio)], footprint.total())).collect()
}

/// Hit rates of dynamic caches that start empty.
///
/// # Errors
/// A batch cannot be drawn.
pub(crate) fn dynamic(
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
    let mut requested = 0;
    for epoch in 0..epochs {
        visits.visit(epoch, &mut |ids| {
            requested += ids.len() as u64;
            caches.par_iter_mut().for_each(|Cache { policy, slots, missing, served }| {
                policy.look_up(ids, slots);
                missing.clear();
                missing.extend(ids.iter().zip(&*slots).filter(|(_, slot)| **slot == MISS).map(|(&v, _)| v));
                *served += (ids.len() - missing.len()) as u64;
                policy.admit(missing, slots);
            });
        })?;
    }
    Ok(caches.into_iter().map(|cache| rate(cache.served, requested)).collect())
}
