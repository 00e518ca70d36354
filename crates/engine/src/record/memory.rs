//! How much memory a run holds as it goes on.

use serde::{Deserialize, Serialize};

/// Samples of a run in all, about: a page can show no more.
const OF_A_RUN: usize = 400;

/// The process' memory at some moment of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemorySample {
    /// Seconds from the epoch's beginning.
    pub seconds: f64,
    /// Bytes resident.
    pub bytes: u64,
}

/// The samples of an epoch, never more than a few, evenly spread however long it takes: when there
/// are too many, every other one goes, and of those that come only every second, fourth, ... is
/// kept.
#[derive(Debug)]
pub struct Samples {
    most: usize,
    every: usize,
    offered: usize,
    kept: Vec<MemorySample>,
}

impl Samples {
    /// For the epochs of a run of so many.
    pub fn of_run(epochs: usize) -> Self {
        Self { most: OF_A_RUN / epochs.max(1), every: 1, offered: 0, kept: Vec::new() }
    }

    /// One more, later than all before it.
    pub fn offer(&mut self, sample: MemorySample) {
        if self.offered.is_multiple_of(self.every) {
            self.kept.push(sample);
        }
        self.offered += 1;
        if self.kept.len() > self.most {
            let mut number = 0;
            self.kept.retain(|_| {
                number += 1;
                number % 2 == 1 && self.most > 0
            });
            self.every *= 2;
        }
    }

    /// Those of the epoch; from here on they are the next one's.
    pub fn take(&mut self) -> Vec<MemorySample> {
        (self.every, self.offered) = (1, 0);
        std::mem::take(&mut self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_few_and_even() {
        for (epochs, offered) in [(1, 100), (1, 100_000), (40, 3), (40, 37), (300, 50), (1000, 50)] {
            let mut samples = Samples::of_run(epochs);
            for _ in 0..2 {
                (0..offered).for_each(|i| samples.offer(MemorySample { seconds: i as f64, bytes: 1 }));
                let kept = samples.take();
                let most = OF_A_RUN / epochs;
                assert!(
                    kept.len() <= most && kept.len() * 2 >= most.min(offered),
                    "{epochs}: {}",
                    kept.len()
                );
                let gaps: Vec<f64> = kept.windows(2).map(|pair| pair[1].seconds - pair[0].seconds).collect();
                assert!(gaps.iter().all(|&gap| gap == gaps[0]), "{gaps:?}");
                assert!(kept.first().is_none_or(|first| first.seconds == 0.0));
            }
        }
    }
}
