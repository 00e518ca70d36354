//! Memory tiers of a run's feature rows, and the number of rows in each.
//!
//! ```text
//!   cpu:        host cache (--cache, --host-budget, --cache-ratio)  ─►  disk
//!   virtual:N:  device cache (--cache, --device-budget, --cache-ratio)  ─►  host
//!               host: all rows, or a cache (--host-cache, --host-budget)  ─►  disk
//!   cuda:N:     see `gpu`
//! ```

#![forbid(unsafe_code)]

mod all_rows;
mod batches;
mod cache;
mod device_cache;
#[cfg_attr(
    not(feature = "cuda"),
    allow(unreachable_code, unused_variables, reason = "without NVIDIA support no device exists")
)]
mod gpu;
mod gpu_rows;
#[cfg(feature = "tables")]
mod joined;
mod new_cache;
mod plan;
mod presampling;
pub(crate) mod read_counts;
mod rescaled;
mod selected;
mod step;

pub(crate) use all_rows::AllRows;
#[cfg(feature = "tables")]
pub(crate) use all_rows::DenseRows;
pub(crate) use batches::Batches;
pub use cache::CacheBytes;
pub(crate) use cache::{map_bytes, nvidia_map_bytes, rows_within};
pub(crate) use device_cache::{DeviceCache, DeviceCaches, Pool, pooled_rows};
pub(crate) use gpu::{GpuTiers, HostRows};
#[cfg(feature = "tables")]
pub(crate) use joined::Joined;
pub(crate) use new_cache::NewCache;
pub(crate) use plan::{BuiltTiers, LinkedTiers, Plan, in_form, unused_policy};
pub(crate) use presampling::{LateCache, OnlineCounts, Presampling, counted_epochs};
pub(crate) use read_counts::{CountingRanks, ReadCounts, Restart};
pub(crate) use selected::Selected;
pub(crate) use step::{Meter, dense_bytes, on_processor, sparse_bytes};
pub use step::{Step, sampling_bytes, step_of_run};

#[cfg(test)]
mod tests;
