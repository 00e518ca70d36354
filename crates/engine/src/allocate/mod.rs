//! Which stages run side by side, and how many cores each has; how many devices sample and how many train.
//!
//! [`solve`] places this engine's stages; [`eight`] is the formula of BGL's paper for its eight, with its [`fit`]; [`samplers`] is
//! FGNN's for devices. All are pure functions of measured seconds.

pub mod eight;
pub mod fit;
mod pipeline;
pub mod samplers;

pub use pipeline::{Allocation, Cost, Group, solve, splits};
