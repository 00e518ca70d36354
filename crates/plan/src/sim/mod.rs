//! One epoch in simulated time: a plain heap of events, no randomness, the same figures whenever it is run.

mod clock;
mod factored;
mod sharing;

pub use factored::{Factored, factored};
pub use sharing::sharing;

/// The minibatches of an epoch.
#[derive(Clone, Copy, Debug)]
pub struct Batches {
    /// How many, at least one.
    pub count: u64,
    /// Size of the last one, the others' being 1.
    pub last: f64,
}

impl Batches {
    /// Size of a batch by its number.
    fn size(&self, number: u64) -> f64 {
        if number + 1 == self.count { self.last } else { 1.0 }
    }
}

/// Seconds of a minibatch behind its sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Trainer {
    /// The host's gathering of rows that the device lacks, were it alone.
    pub gather: f64,
    /// Copying them to the device, and gathering those that it has.
    pub copy: f64,
    /// Training.
    pub train: f64,
}

impl Trainer {
    /// Extraction.
    pub fn extract(&self) -> f64 {
        self.gather + self.copy
    }

    /// Seconds from one batch to the next where extraction goes on beside training.
    pub fn overlapped(&self) -> f64 {
        self.extract().max(self.train)
    }
}

/// What an epoch came to: its seconds, and how much of them the executors of each stage were at work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Epoch {
    /// From the first batch's sampling to the last one's update.
    pub seconds: f64,
    /// Samplers at work, from 0 to 1.
    pub sample: f64,
    /// Trainers that wait for the host's gathers.
    pub gather: f64,
    /// Trainers that copy.
    pub copy: f64,
    /// Trainers that train.
    pub train: f64,
    /// Batches that standby Trainers trained.
    pub switched: u64,
}

#[cfg(test)]
mod tests;
