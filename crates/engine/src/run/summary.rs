//! The summary of a run that has ended.

use super::{Inputs, RunPosition};
use crate::record::{Best, Staleness, Summary, TestScore};

/// Summary of a run that ends at `position`; `bound` is the largest staleness of its strategy, in
/// updates.
pub(crate) fn summary(inputs: &Inputs, position: &mut RunPosition, test: TestScore, bound: u64) -> Summary {
    let records = std::mem::take(&mut position.records);
    let best = position.state.best.unwrap_or(Best { epoch: 0, valid_score: None });
    let seconds = position.checkpoints.seconds();
    Summary {
        dataset: position.state.dataset.clone(),
        staleness: Staleness { bound, max: position.state.staleness },
        presampling: inputs.presampling.cost.total(),
        verification: inputs.files().record(),
        nvidia: inputs.devices.records(),
        all_reduce: inputs.devices.all_reduce(),
        ..Summary::new(inputs.config, inputs.data, records, best, test, seconds)
    }
}
