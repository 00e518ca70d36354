//! The summary of a run that has ended.

use super::{Inputs, RunPosition};
use crate::record::{Best, Staleness, Summary, TestScore};

/// Summary of a run that ends at `position`, whose strategy promised to be at most `bound` updates
/// late.
pub(crate) fn summary(inputs: &Inputs, position: &mut RunPosition, test: TestScore, bound: u64) -> Summary {
    let records = std::mem::take(&mut position.records);
    let best = position.state.best.unwrap_or(Best { epoch: 0, valid_score: None });
    let seconds = position.checkpoints.seconds();
    Summary {
        dataset: position.state.dataset.clone(),
        staleness: Staleness { bound, max: position.state.staleness },
        nvidia: inputs.computers.records(),
        all_reduce: inputs.computers.sums(),
        ..Summary::new(inputs.config, inputs.data, records, best, test, seconds)
    }
}
