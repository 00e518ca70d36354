//! Samples of the process memory during a run.

use serde::{Deserialize, Serialize};

/// Approximate maximum number of samples of a run, as many as a report can show.
const MAX_SAMPLES: usize = 400;

/// Process memory at one moment of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemorySample {
    /// Seconds since the start of the epoch.
    pub seconds: f64,
    /// Resident bytes.
    pub bytes: u64,
}

/// A bounded number of evenly spaced samples of an epoch of unknown length: if there are too many,
/// every second sample is dropped, and from then on only every second, fourth, ... is stored.
#[derive(Debug)]
pub struct Samples {
    max: usize,
    every: usize,
    offered: usize,
    stored: Vec<MemorySample>,
}

impl Samples {
    /// Samples of one epoch of a run of `epochs` epochs.
    pub fn of_run(epochs: usize) -> Self {
        Self { max: MAX_SAMPLES / epochs.max(1), every: 1, offered: 0, stored: Vec::new() }
    }

    /// Offers a sample that is later than all earlier ones.
    pub fn offer(&mut self, sample: MemorySample) {
        if self.offered.is_multiple_of(self.every) {
            self.stored.push(sample);
        }
        self.offered += 1;
        if self.stored.len() > self.max {
            let mut number = 0;
            self.stored.retain(|_| {
                number += 1;
                number % 2 == 1 && self.max > 0
            });
            self.every *= 2;
        }
    }

    /// Returns the samples of the epoch and starts the next one.
    pub fn take(&mut self) -> Vec<MemorySample> {
        (self.every, self.offered) = (1, 0);
        std::mem::take(&mut self.stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_bounded_and_evenly_spaced() {
        for (epochs, offered) in [(1, 100), (1, 100_000), (40, 3), (40, 37), (300, 50), (1000, 50)] {
            let mut samples = Samples::of_run(epochs);
            for _ in 0..2 {
                (0..offered).for_each(|i| samples.offer(MemorySample { seconds: i as f64, bytes: 1 }));
                let stored = samples.take();
                let max = MAX_SAMPLES / epochs;
                assert!(
                    stored.len() <= max && stored.len() * 2 >= max.min(offered),
                    "{epochs}: {}",
                    stored.len()
                );
                let gaps: Vec<f64> =
                    stored.windows(2).map(|pair| pair[1].seconds - pair[0].seconds).collect();
                assert!(gaps.iter().all(|&gap| gap == gaps[0]), "{gaps:?}");
                assert!(stored.first().is_none_or(|first| first.seconds == 0.0));
            }
        }
    }
}
