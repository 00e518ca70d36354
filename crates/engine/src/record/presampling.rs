//! Cost of the minibatches that are counted for caches.

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Cost of hotness that is counted in minibatches, such as that of `presc:K`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PresamplingRecord {
    /// Minibatches that were drawn for the counts and not trained on.
    pub drawn_batches: u64,
    /// Minibatches of training that were counted (`presc-online:K`).
    pub counted_batches: u64,
    /// Seconds of drawing, counting and ranking, and of filling a cache during the run.
    pub seconds: f64,
}

impl std::ops::AddAssign for PresamplingRecord {
    fn add_assign(&mut self, other: Self) {
        self.drawn_batches += other.drawn_batches;
        self.counted_batches += other.counted_batches;
        self.seconds += other.seconds;
    }
}

/// Collects the cost of all counts of a run.
#[derive(Debug, Default)]
pub(crate) struct PresamplingCost(Mutex<PresamplingRecord>);

impl PresamplingCost {
    /// Adds a cost.
    pub(crate) fn add(&self, cost: PresamplingRecord) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += cost;
    }

    /// Total, unless nothing was counted.
    pub(crate) fn total(&self) -> Option<PresamplingRecord> {
        let total = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (total.drawn_batches + total.counted_batches > 0).then_some(total)
    }
}
