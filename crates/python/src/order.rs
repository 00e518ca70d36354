//! Which inputs come when, and which of them are this process's: as torch's `DataLoader` under a
//! `DistributedSampler`.

use graphmill_core::keyed::{self, Stream};

/// What an epoch's order is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// How many inputs there are.
    pub inputs: usize,
    /// Inputs of a batch, at least 1.
    pub batch_size: usize,
    /// Whether each epoch has an order of its own.
    pub shuffle: bool,
    /// Whether what does not fill a batch is left out (and what does not fill all ranks alike).
    pub drop_last: bool,
    /// The run's seed.
    pub seed: u64,
    /// Which of the processes that share the inputs this is.
    pub rank: usize,
    /// How many of them there are, at least 1. Each gets as many inputs: where they do not come out
    /// even, the first inputs come again.
    pub world_size: usize,
}

impl Order {
    /// How many inputs this process gets.
    pub fn len(&self) -> usize {
        if self.drop_last { self.inputs / self.world_size } else { self.inputs.div_ceil(self.world_size) }
    }

    /// Whether it gets none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many batches this process gets.
    pub fn num_batches(&self) -> usize {
        if self.drop_last { self.len() / self.batch_size } else { self.len().div_ceil(self.batch_size) }
    }

    /// The inputs of an epoch, by number, in their order. O(inputs).
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

/// What the order's key has that no other has.
const SHUFFLE: u64 = u64::from_be_bytes(*b"shuffle!");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_every_epoch_evenly() {
        let order = Order {
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
        assert_eq!(Order { drop_last: true, ..order }.num_batches(), 3);
        let of = |rank, drop_last| Order { rank, world_size: 4, drop_last, ..order };
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
        // the first come again
        assert_eq!(of(3, false).epoch(2), [whole[3], whole[7], whole[1]]);
        let mut sorted = whole;
        sorted.sort();
        assert_eq!(sorted, (0..10).collect::<Vec<_>>());
        assert!(Order { inputs: 0, world_size: 3, ..order }.epoch(0).is_empty());
        assert_eq!(Order { shuffle: false, ..order }.epoch(7), (0..10).collect::<Vec<_>>());
    }
}
