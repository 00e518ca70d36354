//! Allocation of cores to concurrent stages, and of devices to sampling and training.
//!
//! [`solve`] allocates cores, after BGL; [`samplers`] has FGNN's formula for devices. Both are pure
//! functions of measured seconds.

mod pipeline;
pub mod samplers;

pub use pipeline::{Allocation, Cost, Group, solve, splits};
