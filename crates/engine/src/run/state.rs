//! The position of a run.

use graphmill_nn::schedule::{self, Patience};
use serde::{Deserialize, Serialize};

use super::CheckpointWriter;
use crate::{
    Result,
    learner::Learner,
    record::{Best, DatasetRecord, EpochTotals},
    reuse,
};

/// Position of a run. A checkpoint holds it, the model, the best model, the optimiser's state and
/// older parameters that reused rows are made from.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunState {
    /// Dataset that is trained on.
    pub dataset: DatasetRecord,
    /// Checksum of the partition, if the dataset is partitioned: other partitions draw other
    /// batches.
    #[serde(default)]
    pub partition: Option<String>,
    /// Current epoch, from 0.
    pub epoch: usize,
    /// Number of completed batches of the epoch.
    pub batch: u64,
    /// Number of updates of the run.
    pub step: u64,
    /// Totals of the current epoch so far.
    pub sums: EpochTotals,
    /// The best epoch so far.
    pub best: Option<Best>,
    /// State of early stopping.
    pub patience: Patience,
    /// State of the learning-rate schedule.
    pub schedule: schedule::State,
    /// Seconds that the run has taken.
    pub seconds: f64,
    /// Largest staleness of a gradient, or of a reused row.
    pub staleness: u64,
    /// Position of the reuse of bottom-layer rows.
    #[serde(default)]
    pub reuse: reuse::ReusePosition,
}

impl RunState {
    /// Advances to the next epoch.
    pub(crate) fn next_epoch(&mut self) {
        self.epoch += 1;
        self.batch = 0;
        self.sums = EpochTotals::default();
    }

    /// Writes a checkpoint of this position and the learner's model.
    ///
    /// # Errors
    /// The disk is full or cannot be written.
    pub(crate) fn save(&mut self, checkpoints: &mut CheckpointWriter, learner: &Learner) -> Result<()> {
        self.seconds = checkpoints.seconds();
        if checkpoints.run().is_none() {
            return Ok(());
        }
        self.reuse = learner.history.position();
        let history = learner.history.tensors();
        checkpoints.save((self.epoch, self.batch), &learner.model, &*learner.optimizer, &history, self)
    }
}
