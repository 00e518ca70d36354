//! Who runs what, where, and how far ahead: configuration, stages, strategies, the trainer, exact
//! inference, checkpoints, records and reports. [`trainer`] is the file to read first.

pub mod allocate;
pub mod bench;
mod best;
pub mod build;
pub mod checkpoint;
pub mod config;
pub mod cores;
pub mod device;
pub mod distributed;
pub mod error;
pub mod evaluate;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod gpu;
pub mod hotness;
pub mod learner;
pub mod memory;
mod nodes;
pub mod observer;
pub mod partition;
mod place;
pub mod plan;
pub mod record;
pub mod report;
pub mod reuse;
pub mod saved;
mod setup;
pub mod stage;
pub mod strategy;
pub mod sums;
mod tensorboard;
pub mod tiers;
pub mod timeline;
mod trace;
pub mod trainer;

pub use build::open_dataset;
pub use config::TrainConfig;
pub use error::{Error, Result};
pub use graphmill_graph::Dataset;
pub use record::RunDir;
pub use trainer::{Job, train};
