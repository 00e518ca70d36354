//! Operations that layers are written against ([`Backend`]), and their implementations: the CPU
//! ([`Cpu`]), and plain formulas for tests ([`Reference`]).
//!
//! An operation is a struct of [`ops`] with its formula and shapes; its `run` checks the shapes and
//! calls the backend's method. Every operation is deterministic: its bits do not depend on the
//! number of threads.
//!
//! Sparse rows ([`crate::View::sparse`]) are supported as the first factor of products, in
//! [`ops::Add`], and in [`ops::Gather`], also from a table. Their products stay in f32 at every
//! precision of the backend, because they are bound by memory.
//!
//! To add an operation, write its struct with its check in [`ops`], add a method that takes it to
//! its group ([`DenseOps`], [`AggregationOps`], [`AttentionOps`], [`ElementOps`], [`NormOps`],
//! [`LossOps`], [`UpdateOps`]) and a row to `run`, and write its formula in `reference` and its
//! kernels in `cpu` and in the crate of the NVIDIA backend.

mod arg_max;
pub mod cpu;
mod interface;
pub mod ops;
pub mod reference;
mod run;
mod types;

use std::ops::RangeInclusive;

pub use arg_max::ArgMax;
pub use cpu::{Cpu, Precision};
pub use interface::{
    AggregationOps, AttentionOps, Backend, DenseOps, ElementOps, LossOps, Matrices, NormOps, UpdateOps,
};
pub use reference::Reference;
pub use types::{
    Activation, AdamStep, AggregationWeights, Dropout, EdgeWeight, OwnWeight, SgdStep, Side, dropped,
    mask_hash,
};

/// Inner dimensions of a product that has the same bits whether [`Cpu`] adds it to a result while
/// it multiplies, or computes it first and adds it later: its kernels sum such a product in one
/// piece and then add it. They add one or two terms to the result one after the other, and longer
/// sums piece by piece.
pub(crate) const ONE_PIECE: RangeInclusive<usize> = 3..=512;
