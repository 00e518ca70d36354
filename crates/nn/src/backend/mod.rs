//! The operations layers are written against ([`Backend`]), and their implementations: the
//! processor ([`Cpu`]), and plain formulas to test against ([`Reference`]).
//!
//! An operation is a struct of [`ops`] with its formula and shapes; its `run` checks the shapes and
//! calls the backend's method. Every operation is deterministic: the same bits for any number of
//! threads.
//!
//! Sparse rows ([`crate::View::sparse`]) are read by the products, as their first factor, by
//! [`ops::Add`], and by [`ops::Gather`], also from a table. Their products stay in f32 whatever the
//! backend's precision: they are bound by memory.
//!
//! To add an operation, write its struct in [`ops`] with its check, give its group ([`DenseOps`],
//! [`AggregationOps`], [`AttentionOps`], [`ElementOps`], [`NormOps`], [`LossOps`], [`UpdateOps`]) a
//! method that takes it and its row in `run`, and write its formula in `reference` and its kernels
//! in `cpu` and in the crate of the NVIDIA backend.

mod arg_max;
pub mod cpu;
mod interface;
pub mod ops;
pub mod reference;
mod run;
mod types;

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
