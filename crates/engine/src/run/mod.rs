//! The parts of a run that [`trainer`](crate::trainer) puts together.
//!
//! | file | contents |
//! | --- | --- |
//! | `context.rs`, [`observer`] | directory, observer and interrupt of a run; the events that it reports |
//! | `inputs.rs`, `setup.rs` | configuration, dataset and devices; the parts and tables made from them |
//! | `preparation.rs` | progress of the work before the first epoch, which a stop ends |
//! | `state.rs`, `position.rs` | the position that a checkpoint holds; saving it and continuing from it |
//! | `start.rs` | the start from the model of another run |
//! | `checkpoint_writer.rs`, `best.rs` | checkpoints, and the best model that each of them holds |
//! | `peers.rs` | the other ranks, if several train together |
//! | `updates.rs`, `meter.rs` | counting and saving after every update; time and memory of an epoch |
//! | `scoring.rs` | when an epoch is scored, and whether it is the best |
//! | `baseline.rs` | the score of label propagation without the model |
//! | `link_scoring.rs` | metric and loss of the edges that validate |
//! | `loss_alarm.rs` | a warning when the loss explodes |
//! | `notices.rs` | notes for the observer about the choices of a run |
//! | `summary.rs` | the summary of a run that has ended |

#![forbid(unsafe_code)]

mod baseline;
mod best;
mod checkpoint_writer;
mod context;
mod inputs;
mod link_scoring;
pub mod loss_alarm;
mod meter;
pub(crate) mod notices;
pub mod observer;
mod peers;
mod position;
mod preparation;
pub(crate) mod scoring;
pub(crate) mod setup;
mod start;
mod state;
mod summary;
pub mod tiers;
pub(crate) mod updates;

pub(crate) use baseline::label_propagation;
pub(crate) use checkpoint_writer::CheckpointWriter;
pub use context::RunContext;
pub(crate) use inputs::Inputs;
pub(crate) use meter::Meter;
pub(crate) use peers::Peers;
pub(crate) use position::RunPosition;
pub(crate) use preparation::Preparation;
pub(crate) use start::Earlier;
pub use state::RunState;
pub(crate) use state::check_recorded;
pub(crate) use summary::summary;
