//! Runs that train on one batch after the other: what runs on several types, on streams of
//! events and of tables of embeddings have in common.
//!
//! | file | contents |
//! | --- | --- |
//! | `trainer.rs` | the loop from the first epoch to the summary |
//! | `session.rs` | the part of it that a batch sees: counts, signals, checkpoints |
//! | `position.rs` | everything that a checkpoint holds and restores |
//! | `batch_run.rs` | interface of a run |
//! | `learner.rs` | interface of its model and optimisers |

#![forbid(unsafe_code)]

mod batch_run;
mod learner;
mod position;
mod session;
mod trainer;

pub(crate) use batch_run::{BatchRun, Part, Scored};
pub(crate) use learner::{
    BatchLearner, EpochCounts, NoCounts, RestoredState, RowsOf, SavedTensors, WriteTensors,
};
pub(crate) use session::{Completed, Session};
pub(crate) use trainer::train;
