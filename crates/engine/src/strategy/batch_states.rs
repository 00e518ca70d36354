//! States of a minibatch in the [scheduler](super::scheduler), with the data that workers add to
//! it.

use graphmill_core::Matrix;
use graphmill_loader::{Extracted, MiniBatch, Sampled, Traffic};

use super::scheduler::{BatchScheduler, BatchStates, SchedulerState, Task};
use crate::{machine::monitor::Guarded, record::Stages, stage::Drawn};

/// Scheduler of the minibatches of an epoch.
pub(super) type Scheduler = BatchScheduler<Guarded<SchedulerState<MinibatchStates>>>;
/// Task of a worker on minibatches.
pub(super) type BatchTask = Task<MinibatchStates>;

/// States of a minibatch.
pub(super) enum MinibatchStates {}

impl BatchStates for MinibatchStates {
    type Free = MiniBatch;
    type Sampled = Timed<Drawn>;
    type Extracted = Timed<Drawn<Extracted>>;
    type Trained = Trained;
}

/// Batch with the seconds of its stages so far.
pub(super) struct Timed<B> {
    pub(super) batch: B,
    pub(super) spent: Stages,
}

impl<B: Into<MiniBatch>> From<Timed<B>> for MiniBatch {
    fn from(timed: Timed<B>) -> Self {
        timed.batch.into()
    }
}

/// Batch after the backward pass, without its feature rows.
pub(super) struct Trained {
    pub(super) batch: Sampled,
    pub(super) traffic: Traffic,
    pub(super) spent: Stages,
    pub(super) gradient: Gradient,
}

impl From<Trained> for MiniBatch {
    fn from(trained: Trained) -> Self {
        trained.batch.into()
    }
}

/// The gradient of a batch.
pub(super) struct Gradient {
    /// One matrix per parameter of the model, in the visiting order; for running statistics, their
    /// new values.
    pub(super) values: Vec<Matrix>,
    /// The batch's mean loss.
    pub(super) loss: f64,
    /// The version of the parameters it was computed from.
    pub(super) version: u64,
    /// Age in updates of the oldest row that the batch reused.
    pub(super) reused: u64,
}
