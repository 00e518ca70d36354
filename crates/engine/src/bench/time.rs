//! Timing: a warm-up, then runs that are long enough for the clock.

use std::time::Instant;

/// Minimum seconds of a run, which repeats shorter work.
const MIN_SECONDS: f64 = 0.02;

/// Seconds per call of at least one run, in ascending order.
#[derive(Clone, Debug)]
pub(super) struct Times(Vec<f64>);

impl Times {
    /// Times of the given runs, which must not be empty.
    pub(super) fn new(mut seconds: Vec<f64>) -> Self {
        assert!(!seconds.is_empty(), "a case needs at least one run");
        seconds.sort_by(f64::total_cmp);
        Self(seconds)
    }

    /// Number of runs.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Minimum, median (the mean of the middle two) and maximum.
    pub(super) fn spread(&self) -> (f64, f64, f64) {
        let (runs, n) = (&self.0, self.0.len());
        (runs[0], (runs[(n - 1) / 2] + runs[n / 2]) / 2.0, runs[n - 1])
    }
}

/// Times `work` on the current rayon pool: a warm-up, then `repeat` runs. `wait` waits for queued
/// work.
pub(super) fn time(repeat: usize, work: impl FnMut() + Send, wait: &(dyn Fn() + Sync)) -> Times {
    // a scope runs on a thread of the pool, so that calls exclude the switch to it
    rayon::scope(|_| {
        let mut work = work;
        work(); // maps new pages, wakes threads, fills caches
        wait();
        let clock = Instant::now();
        work();
        wait();
        let calls = (MIN_SECONDS / clock.elapsed().as_secs_f64().max(1e-9)).ceil().max(1.0);
        let runs = (0..repeat).map(|_| {
            let clock = Instant::now();
            (0..calls as usize).for_each(|_| work());
            wait();
            clock.elapsed().as_secs_f64() / calls
        });
        Times::new(runs.collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_or_the_mean_of_the_middle_two() {
        assert_eq!(Times::new(vec![3.0, 1.0, 2.0]).spread(), (1.0, 2.0, 3.0));
        assert_eq!(Times::new(vec![4.0, 1.0, 2.0, 3.0]).spread(), (1.0, 2.5, 4.0));
        assert_eq!(Times::new(vec![7.0]).spread(), (7.0, 7.0, 7.0));
    }

    #[test]
    fn short_work_is_repeated_within_a_run() {
        // so short that even on a loaded machine one call is not enough
        let mut calls = 0u64;
        let times = time(2, || calls += 1, &|| {});
        assert_eq!(times.len(), 2);
        assert!(calls > 6, "two calls before and some in each run: {calls}");
    }
}
