//! Order of the inputs in an epoch and their distribution over processes, like torch's `DataLoader`
//! with a `DistributedSampler`.

#![forbid(unsafe_code)]

use graphmill_core::keyed::{self, Stream};

/// Parameters of an epoch's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputOrder {
    /// Number of inputs.
    pub inputs: usize,
    /// Inputs per batch, at least 1.
    pub batch_size: usize,
    /// True to draw a new order for every epoch.
    pub shuffle: bool,
    /// True to drop the inputs that do not fill a batch, or do not divide evenly over the ranks.
    pub drop_last: bool,
    /// Seed of the run.
    pub seed: u64,
    /// Rank of this process among those that share the inputs.
    pub rank: usize,
    /// Number of these processes, at least 1. All get equally many inputs: if they do not divide
    /// evenly, the first inputs are repeated.
    pub world_size: usize,
}

impl InputOrder {
    /// Number of inputs of this process.
    pub fn len(&self) -> usize {
        if self.drop_last { self.inputs / self.world_size } else { self.inputs.div_ceil(self.world_size) }
    }

    /// Returns true if this process gets no inputs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of batches of this process.
    pub fn num_batches(&self) -> usize {
        if self.drop_last { self.len() / self.batch_size } else { self.len().div_ceil(self.batch_size) }
    }

    /// Numbers of this process's inputs in an epoch, in order. O(inputs).
    pub fn epoch(&self, epoch: u64) -> Vec<u64> {
        let mut all: Vec<u64> = (0..self.inputs as u64).collect();
        if self.shuffle {
            Stream::new(keyed::key(&[self.seed, epoch, SHUFFLE])).shuffle(&mut all);
        }
        if self.world_size == 1 || all.is_empty() {
            return all;
        }
        (0..self.len()).map(|i| all[(self.rank + i * self.world_size) % all.len()]).collect()
    }
}

/// Part of the key that distinguishes these draws from all others.
const SHUFFLE: u64 = u64::from_be_bytes(*b"shuffle!");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_every_epoch_evenly() {
        let order = InputOrder {
            inputs: 10,
            batch_size: 3,
            shuffle: true,
            drop_last: false,
            seed: 5,
            rank: 0,
            world_size: 1,
        };
        let whole = order.epoch(2);
        assert_ne!(whole, order.epoch(3));
        assert_eq!(order.num_batches(), 4);
        assert_eq!(InputOrder { drop_last: true, ..order }.num_batches(), 3);
        let of = |rank, drop_last| InputOrder { rank, world_size: 4, drop_last, ..order };
        let mut all = Vec::new();
        for rank in 0..4 {
            assert_eq!(of(rank, false).epoch(2).len(), 3);
            all.extend(of(rank, true).epoch(2));
            assert_eq!((of(rank, true).len(), of(rank, true).num_batches()), (2, 0));
        }
        let mut dropped = whole[..8].to_vec();
        dropped.sort();
        all.sort();
        assert_eq!(all, dropped);
        // the first inputs are repeated
        assert_eq!(of(3, false).epoch(2), [whole[3], whole[7], whole[1]]);
        let mut sorted = whole;
        sorted.sort();
        assert_eq!(sorted, (0..10).collect::<Vec<_>>());
        assert!(InputOrder { inputs: 0, world_size: 3, ..order }.epoch(0).is_empty());
        assert_eq!(InputOrder { shuffle: false, ..order }.epoch(7), (0..10).collect::<Vec<_>>());
    }
}
