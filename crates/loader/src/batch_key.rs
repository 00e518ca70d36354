//! The identity of a minibatch's random draws.

use graphmill_core::keyed;

/// The identity of a minibatch's random draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchKey {
    /// The run's seed.
    pub seed: u64,
    /// From 0.
    pub epoch: u64,
    /// Number of the batch within the epoch, from 0.
    pub batch: u64,
}

impl BatchKey {
    /// The key of the draws of a hop, 0 the seeds' own.
    pub fn hop(self, hop: usize) -> u64 {
        keyed::key(&[self.seed, self.epoch, self.batch, hop as u64])
    }
}
