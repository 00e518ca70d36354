//! The parts of a run that [`trainer`](crate::trainer) puts together.
//!
//! - [`RunContext`]: directory, observer and interrupt of a run; [`observer`]: the events that it reports.
//! - `setup.rs`: the parts and tables that outlive an epoch; `notices.rs`: notes about the choices made there.
//! - [`RunState`]: the position that a checkpoint holds; `position.rs`: how a run is saved there and continues from it.
//! - `updates.rs`: counting, reporting and saving behind every update; `scoring.rs`: scores of the model.

mod best;
mod checkpoint_writer;
mod context;
pub(crate) mod notices;
pub mod observer;
mod position;
pub(crate) mod scoring;
pub(crate) mod setup;
mod state;
pub mod tiers;
pub(crate) mod updates;

pub(crate) use checkpoint_writer::CheckpointWriter;
pub use context::RunContext;
pub(crate) use position::RunPosition;
pub use state::RunState;
