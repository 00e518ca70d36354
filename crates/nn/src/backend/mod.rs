//! The operations layers are written against ([`Backend`]), and their implementations: the processor
//! ([`Cpu`]), and plain formulas to test against ([`Reference`]).
//!
//! Shapes are given in every comment; `S`, `D` and `E` are a block's sources, destinations and
//! edges. A gradient of the sources, an operation's result, has rows for those alone that want one, the first `W`
//! ([`graphmill_core::Block::num_grad_src`]; all where the block does not say otherwise). Operations check shapes with
//! assertions: a mismatch is a bug in a layer, not an input error. Every operation is deterministic: the same bits for
//! any number of threads.
//!
//! Sparse rows ([`crate::View::sparse`]) are read by the products, as their first factor, by [`ElementOps::add`], and by
//! [`ElementOps::gather`], also from a table. Their products stay in f32 whatever the backend's precision: they are bound by
//! memory.
//!
//! To add an operation, give its group ([`DenseOps`], [`AggregationOps`], [`AttentionOps`], [`ElementOps`],
//! [`NormOps`], [`LossOps`], [`UpdateOps`]) a method that takes a struct of [`ops`], and write its formula in
//! `reference` and its kernels in `cpu` and in the crate of the NVIDIA backend.

mod arg_max;
pub mod cpu;
mod interface;
pub mod ops;
pub mod reference;
mod shape;
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
