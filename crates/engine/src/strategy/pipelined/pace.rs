//! Drift of the stages' times.

/// Ratio of a stage's old and new times that counts as drift.
const DRIFT: f64 = 1.5;
/// Least number of batches of a measurement: the first batches of a run fill the queues, and the
/// last ones empty them.
const MIN_BATCHES: u64 = 12;

/// Seconds per batch of each stage, in the first run and in the latest.
#[derive(Debug, Default)]
pub(super) struct Pace {
    usual: Option<[f64; 3]>,
    latest: Option<[f64; 3]>,
}

impl Pace {
    /// Records the seconds that `batches` batches spent in each stage.
    pub(super) fn record(&mut self, batches: u64, spent: [f64; 3]) {
        if batches >= MIN_BATCHES {
            self.latest = Some(spent.map(|seconds| seconds / batches as f64));
            self.usual = self.usual.or(self.latest);
        }
    }

    /// Returns true if a stage with a tenth of the time or more has become much slower or faster.
    pub(super) fn has_drifted(&self) -> bool {
        self.usual.zip(self.latest).is_some_and(|(usual, latest)| drifted(usual, latest))
    }
}

fn drifted(usual: [f64; 3], now: [f64; 3]) -> bool {
    let all: f64 = now.iter().sum::<f64>().max(usual.iter().sum());
    let changed = |(a, b): (&f64, &f64)| a.max(*b) > 0.1 * all && a.max(*b) > DRIFT * a.min(*b);
    usual.iter().zip(&now).any(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_stages_do_not_count_as_drift() {
        assert!(!drifted([1.0, 0.1, 3.0], [1.2, 0.3, 3.3]));
        assert!(drifted([1.0, 0.1, 3.0], [1.0, 1.0, 3.0]));
        assert!(drifted([1.0, 0.1, 3.0], [0.6, 0.1, 3.0]));
    }

    #[test]
    fn short_runs_are_not_recorded() {
        let mut pace = Pace::default();
        pace.record(2, [9.0, 9.0, 9.0]);
        pace.record(100, [100.0, 100.0, 100.0]);
        pace.record(2, [9.0, 9.0, 9.0]);
        assert!(!pace.has_drifted());
        pace.record(100, [100.0, 100.0, 160.0]);
        assert!(pace.has_drifted());
    }
}
