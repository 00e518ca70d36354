//! Which tiers a run's feature rows come from, and how many rows each holds.
//!
//! ```text
//!   cpu:        host cache (--cache, --host-budget, --cache-ratio)  ─►  disk
//!   virtual:N:  device cache (--cache, --device-budget, --cache-ratio)  ─►  host (all rows, or a cache within --host-budget  ─►  disk)
//! ```

mod cache;
mod gpu;
mod own;
mod plan;
mod rescaled;
mod step;
mod whole;

pub(crate) use gpu::OnGpus;
pub(crate) use own::{OwnCache, OwnCaches};
pub(crate) use plan::{Plan, unused_policy};
pub(crate) use step::Step;
pub(crate) use whole::Whole;

#[cfg(test)]
mod tests;
