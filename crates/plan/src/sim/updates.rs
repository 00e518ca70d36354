//! Updates of the model in a simulation: the batches that may train on the current parameters.
//!
//! The rule is that of the engine's scheduler: every `round` batches make one update, and a batch
//! of round `r` may train on parameters of version `v` if `r - v` is at most `staleness`.

use std::{collections::BTreeSet, ops::Range};

/// Rule of the updates of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Updates {
    /// Batches per update, at least one.
    pub round: u64,
    /// Largest staleness of a gradient, in updates; 0 if updates are synchronous.
    pub staleness: u64,
}

impl Updates {
    /// Updates for which no batch waits: asynchronous ones without a bound, or those of a single
    /// device.
    pub const UNBOUNDED: Self = Self { round: 1, staleness: u64::MAX };
}

/// Version of the model while `count` batches train.
pub(super) struct Model {
    updates: Updates,
    count: u64,
    version: u64,
    /// Batches with a gradient that waits for the others of its round.
    trained: BTreeSet<u64>,
}

impl Model {
    /// The model before an epoch of `count` batches.
    pub(super) fn new(updates: Updates, count: u64) -> Self {
        let updates = Updates { round: updates.round.max(1), ..updates };
        Self { updates, count, version: 0, trained: BTreeSet::new() }
    }

    /// Returns true if this batch may train on the current parameters.
    pub(super) fn may_train(&self, number: u64) -> bool {
        (number / self.updates.round).saturating_sub(self.version) <= self.updates.staleness
    }

    /// Adds the gradient of a batch; returns true if the model changes.
    pub(super) fn add(&mut self, number: u64) -> bool {
        self.trained.insert(number);
        let before = self.version;
        loop {
            let round = self.next_round();
            let held = self.trained.range(round.clone()).count() as u64;
            if round.is_empty() || held < round.end - round.start {
                return self.version > before;
            }
            self.trained = self.trained.split_off(&round.end);
            self.version += 1;
        }
    }

    fn next_round(&self) -> Range<u64> {
        let start = self.version.saturating_mul(self.updates.round).min(self.count);
        start..start.saturating_add(self.updates.round).min(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_update_in_order() {
        let mut model = Model::new(Updates { round: 2, staleness: 1 }, 5);
        assert_eq!([0, 3, 4].map(|number| model.may_train(number)), [true, true, false]);
        assert!(!model.add(2) && !model.add(3) && !model.add(0));
        assert!(model.add(1), "both waiting rounds update");
        assert_eq!(model.version, 2);
        assert!(model.may_train(4) && model.add(4), "the last round is short");
    }
}
