//! Concurrent runs that differ only by their number, and their statistics.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::{Context, Result};

/// Executes `each` of `0..runs`, as many concurrently as there are cores: results must not depend
/// on timing.
pub(crate) fn side_by_side<T: Send>(
    runs: usize,
    each: &(impl Fn(usize) -> Result<T> + Sync),
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<Option<T>>> = Mutex::new((0..runs).map(|_| None).collect());
    let worker = || -> Result<()> {
        loop {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= runs {
                return Ok(());
            }
            let value = each(run)?;
            found.lock().expect("no worker panics while it holds the lock")[run] = Some(value);
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker returns its errors"))
    })?;
    let found = found.into_inner().expect("the workers are gone");
    found.into_iter().map(|value| value.context("a run is missing")).collect()
}

/// Formats `mean ± standard deviation` of some scores (of one: ± 0).
pub(crate) fn mean_and_deviation(scores: &[f64]) -> String {
    let mean = scores.iter().sum::<f64>() / scores.len() as f64;
    let squares: f64 = scores.iter().map(|s| (s - mean).powi(2)).sum();
    let deviation = (squares / (scores.len().max(2) - 1) as f64).sqrt();
    format!("{mean:.2} ± {deviation:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order_and_errors_are_returned() {
        assert_eq!(side_by_side(5, &|run| Ok(10 * run)).unwrap(), [0, 10, 20, 30, 40]);
        let failing = |run| if run == 3 { anyhow::bail!("run {run}") } else { Ok(run) };
        assert_eq!(side_by_side(5, &failing).unwrap_err().to_string(), "run 3");
        assert_eq!(mean_and_deviation(&[1.0, 3.0]), "2.00 ± 1.41");
        assert_eq!(mean_and_deviation(&[2.5]), "2.50 ± 0.00");
    }
}
