//! Which stages run side by side, and how many cores each has.
//!
//! [`solve`] places this engine's stages; [`eight`] is the formula of BGL's paper for its eight.

pub mod eight;
mod pipeline;
pub mod samplers;

pub use pipeline::{Allocation, Cost, Group, solve};
