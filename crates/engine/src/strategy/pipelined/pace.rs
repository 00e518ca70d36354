//! What stages took at first, and whether they still do.

/// A stage that takes so many times longer or shorter than it did is looked at again.
const DRIFT: f64 = 1.5;
/// Fewer batches tell nothing: the first of a run fill a line, the last empty it.
const TELLING: u64 = 12;

/// Seconds a batch of each stage, in the first run and in the latest.
#[derive(Debug, Default)]
pub(super) struct Pace {
    usual: Option<[f64; 3]>,
    latest: Option<[f64; 3]>,
}

impl Pace {
    /// So many batches took so many seconds in each stage.
    pub(super) fn see(&mut self, batches: u64, spent: [f64; 3]) {
        if batches >= TELLING {
            self.latest = Some(spent.map(|seconds| seconds / batches as f64));
            self.usual = self.usual.or(self.latest);
        }
    }

    /// Whether a stage that matters takes much longer, or much shorter, than it used to.
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
    fn only_stages_that_matter_drift() {
        assert!(!drifted([1.0, 0.1, 3.0], [1.2, 0.3, 3.3]));
        assert!(drifted([1.0, 0.1, 3.0], [1.0, 1.0, 3.0]));
        assert!(drifted([1.0, 0.1, 3.0], [0.6, 0.1, 3.0]));
    }

    #[test]
    fn short_runs_tell_nothing() {
        let mut pace = Pace::default();
        pace.see(2, [9.0, 9.0, 9.0]);
        pace.see(100, [100.0, 100.0, 100.0]);
        pace.see(2, [9.0, 9.0, 9.0]);
        assert!(!pace.has_drifted());
        pace.see(100, [100.0, 100.0, 160.0]);
        assert!(pace.has_drifted());
    }
}
