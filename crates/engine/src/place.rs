//! Where a run stands.

use graphmill_nn::schedule::{self, Patience};
use serde::{Deserialize, Serialize};

use crate::{
    record::{Best, DatasetRecord},
    reuse,
    sums::Sums,
};

/// Where a run stands. With the model, the best model, the optimiser's state and older parameters that rows are
/// made from it is all that a checkpoint holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Place {
    /// What is trained on.
    pub dataset: DatasetRecord,
    /// The epoch in hand, from 0.
    pub epoch: usize,
    /// Batches done in it.
    pub batch: u64,
    /// Updates made in all.
    pub step: u64,
    /// What the epoch in hand has added up so far.
    pub sums: Sums,
    /// The best epoch so far.
    pub best: Option<Best>,
    /// Early stopping's memory.
    pub patience: Patience,
    /// The schedule's memory.
    pub schedule: schedule::State,
    /// Seconds the run has taken.
    pub seconds: f64,
    /// The largest staleness of a gradient, or of a reused row.
    pub staleness: u64,
    /// Where the reuse of bottom-layer rows stands.
    #[serde(default)]
    pub reuse: reuse::Place,
}

impl Place {
    /// Goes on to the next epoch.
    pub(crate) fn next_epoch(&mut self) {
        self.epoch += 1;
        self.batch = 0;
        self.sums = Sums::default();
    }
}
