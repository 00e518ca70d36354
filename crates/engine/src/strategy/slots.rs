//! Minibatches on the [line](super::scheduler), with what workers add to them.

use graphmill_core::Matrix;
use graphmill_loader::{Extracted, MiniBatch, Sampled, Traffic};

use super::scheduler::{BatchScheduler, SchedulerState, Slots, Task};
use crate::{machine::monitor::Guarded, record::Stages, stage::Drawn};

/// The line of an epoch.
pub(super) type Batches = BatchScheduler<Guarded<SchedulerState<BatchSlots>>>;
/// Work of the line of an epoch.
pub(super) type BatchTask = Task<BatchSlots>;

/// The states of a minibatch.
pub(super) enum BatchSlots {}

impl Slots for BatchSlots {
    type Free = MiniBatch;
    type Sampled = Timed<Drawn>;
    type Extracted = Timed<Drawn<Extracted>>;
    type Trained = Trained;
}

/// A batch, and the seconds of its stages so far.
pub(super) struct Timed<B> {
    pub(super) batch: B,
    pub(super) spent: Stages,
}

impl<B: Into<MiniBatch>> From<Timed<B>> for MiniBatch {
    fn from(timed: Timed<B>) -> Self {
        timed.batch.into()
    }
}

/// A batch after the backward pass, whose feature rows were given away.
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
    /// One matrix for each parameter of the model, in the visiting order; of running statistics,
    /// their new values.
    pub(super) values: Vec<Matrix>,
    /// The batch's mean loss.
    pub(super) loss: f64,
    /// The version of the parameters it was computed from.
    pub(super) version: u64,
    /// Age in updates of the oldest row that the batch reused.
    pub(super) reused: u64,
}
