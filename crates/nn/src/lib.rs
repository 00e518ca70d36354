//! Graph neural network layers over message-flow blocks, and their gradients.
//!
//! Layers are first-class values with an explicit forward and backward, written once against
//! [`Backend`] (about thirty operations on row-major f32 matrices). There is no recorded tape, because
//! strategies place single layers on devices and choose the order of `(A X) W` or `A (X W)` per
//! layer by cost. Nothing here knows how a minibatch was made.

pub mod backend;
pub mod cost;
mod error;
pub mod layer;
pub mod matrix;
pub mod metric;
pub mod model;
pub mod optim;
pub mod schedule;

pub use backend::Backend;
pub use error::{Error, Result};
pub use layer::{Finish, Layer, LayerConfig, Order, Param, Pass, Saved};
pub use matrix::{Matrix, View, ViewMut};
pub use model::{Activations, Model, ModelConfig, Projected, Reused};
