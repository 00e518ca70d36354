//! Discrete-event simulation of one epoch: a heap of events, without randomness, so that results
//! are reproducible.

mod clock;
mod factored;
mod sharing;
mod updates;

pub use factored::{Factored, factored};
pub use sharing::{Sharing, sharing};
pub use updates::Updates;

/// Minibatches of an epoch.
#[derive(Clone, Copy, Debug)]
pub struct Batches {
    /// Number of batches, at least one.
    pub count: u64,
    /// Size of the last batch relative to the others.
    pub last: f64,
}

impl Batches {
    /// Size of a batch by its number.
    fn size(&self, number: u64) -> f64 {
        if number + 1 == self.count { self.last } else { 1.0 }
    }

    /// Sum of the sizes of all batches.
    pub(crate) fn sum(&self) -> f64 {
        self.count.saturating_sub(1) as f64 + self.last
    }
}

/// Durations of a minibatch after its sampling, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Trainer {
    /// Gathering of missing rows by the host, without contention.
    pub gather: f64,
    /// Copying them to the device, and gathering the cached ones.
    pub copy: f64,
    /// Training.
    pub train: f64,
}

impl Trainer {
    /// Duration of the extraction.
    pub fn extract(&self) -> f64 {
        self.gather + self.copy
    }

    /// Interval between batches if extraction overlaps with training.
    pub fn overlapped(&self) -> f64 {
        self.extract().max(self.train)
    }
}

/// Result of a simulated epoch: its seconds, and the busy shares of the executors of each stage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Epoch {
    /// Seconds from the first batch's sampling to the last one's update.
    pub seconds: f64,
    /// Busy share of Samplers, from 0 to 1.
    pub sample: f64,
    /// Share of Trainers that wait for the host's gathers.
    pub gather: f64,
    /// Share of Trainers that copy.
    pub copy: f64,
    /// Share of Trainers that train.
    pub train: f64,
    /// Number of batches trained by standby Trainers.
    pub switched: u64,
}

#[cfg(test)]
mod tests;
