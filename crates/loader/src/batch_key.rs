//! Identity of a minibatch's random draws.

#![forbid(unsafe_code)]

use graphmill_core::keyed;

/// Identity of a minibatch's random draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchKey {
    /// The run's seed.
    pub seed: u64,
    /// Epoch, from 0.
    pub epoch: u64,
    /// Number of the batch within the epoch, from 0.
    pub batch: u64,
}

impl BatchKey {
    /// Key of the draws of a hop; hop 0 is next to the seeds.
    pub fn hop(self, hop: usize) -> u64 {
        keyed::key(&[self.seed, self.epoch, self.batch, hop as u64])
    }
}
