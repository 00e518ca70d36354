//! Which stages run side by side, and how many cores each has; how many devices sample and how many
//! train.
//!
//! [`solve`] places the engine's stages, after BGL; [`samplers`] is FGNN's formula for devices.
//! Both are pure functions of measured seconds.

mod pipeline;
pub mod samplers;

pub use pipeline::{Allocation, Cost, Group, solve, splits};
