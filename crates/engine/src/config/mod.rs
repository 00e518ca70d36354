//! Option values of a training run ([`TrainConfig`]). [`crate::options`] reads, writes and checks
//! them by name.

#![forbid(unsafe_code)]

mod check;
mod choices;
mod defaults;
mod devices;
pub mod embedding;
mod eval_every;
pub mod events;
pub mod link;
pub mod link_task;
mod stored_tasks;
mod train;
mod value;

pub(crate) use check::MAX_LAYERS;
pub(crate) use check::losses;
pub use choices::{
    Arithmetic, Bottom, CudaGraphs, FeaturePrecision, NormChoice, SelectBy, Switch, VerifyFeatures,
};
pub(crate) use defaults::parse_default;
pub use devices::Devices;
pub use eval_every::EvalEvery;
pub(crate) use eval_every::Work;
pub use graphmill_loader::Fanout;
pub(crate) use train::FREE;
pub use train::{IN_MEMORY, TrainConfig};
pub use value::{Bytes, Ratio};
