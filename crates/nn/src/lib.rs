//! Graph neural network layers over message-flow blocks, with their gradients.
//!
//! A layer is a value with an explicit forward and backward pass, written once against [`Backend`]
//! (operations on row-major f32 matrices). No tape is recorded, because strategies place single
//! layers on devices and choose the order `(A X) W` or `A (X W)` per layer by cost. This crate does
//! not depend on how a minibatch was made.
//!
//! ```
//! use graphmill_core::Block;
//! use graphmill_nn::{Activations, Matrix, Model, ModelConfig, Pass, backend::Cpu, cost::BlockShape};
//!
//! let config = ModelConfig { model: "sage".into(), layers: 1, ..ModelConfig::default() };
//! let model = Model::new(&config, 4, 3, 1)?; // 4 features, 3 classes
//! // two destinations, both with node 2 as an in-neighbour
//! let block = Block { num_dst: 2, num_src: 3, indptr: vec![0, 1, 2], indices: vec![2, 2], ..Block::default() };
//! let orders = model.orders(&[BlockShape::from(&block)]);
//! let (backend, mut acts) = (Cpu::default(), Activations::default());
//! let pass = Pass { backend: &backend, training: false, key: 0 };
//! model.forward(&pass, &orders, &[block], Matrix::zeros(3, 4).view(), &mut acts);
//! assert_eq!((acts.logits().num_rows(), acts.logits().num_cols()), (2, 3));
//! # Ok::<(), graphmill_nn::Error>(())
//! ```
//!
//! - [`layer`]: layers of one edge type, some with edge features; [`typed`]: layers of several
//!   relations; [`model`]: stacks of layers.
//! - [`backend`]: the operations that layers are made of, and the backends that compute them.
//! - [`link`]: decoders, losses and rank metrics of links; [`regression`]: losses of values;
//!   [`temporal`]: node memory of streams of events.
//! - [`optim`], [`schedule`]: optimisers and learning rates; [`metric`]: scores.
//! - [`cost`]: the choice between aggregating first and multiplying first.
//! - `testing` (a feature): conformance tests of layers.

pub mod backend;
pub mod cost;
mod distinct;
mod error;
pub mod layer;
pub mod link;
pub mod matrix;
pub mod metric;
pub mod model;
pub mod optim;
pub mod regression;
pub mod schedule;
pub mod temporal;
#[cfg(feature = "testing")]
pub mod testing;
pub mod typed;

pub use backend::Backend;
pub use cost::ProductOrder;
pub use distinct::DistinctNodes;
pub use error::{Error, Result};
pub use layer::{Epilogue, Layer, LayerConfig, Param, Pass, Saved};
pub use matrix::{Matrix, View, ViewMut};
pub use model::{Activations, Model, ModelConfig, Projected, Reused};
