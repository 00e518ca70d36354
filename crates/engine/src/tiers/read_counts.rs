//! Counts of the reads of each node in the first epochs of training, and their place in
//! checkpoints.

use std::{sync::Arc, time::Instant};

use graphmill_core::NodeId;

use crate::{
    Result,
    checkpoint::tensors::Tensor,
    record::{PresamplingCost, PresamplingRecord},
};

/// Prefix of the names of counts in a checkpoint.
pub(crate) const PREFIX: &str = "reads.";
const COUNTS: &str = "reads.counts";

/// Name of the counts of a rank in a checkpoint of several.
fn counts_of(rank: usize) -> String {
    format!("{COUNTS}.{rank}")
}

/// Ranks that each count their own shares of the batches.
pub(crate) trait CountingRanks: Send + Sync {
    /// This rank, if it trains; `None` if it is a graph store.
    fn trainer(&self) -> Option<usize>;

    /// Number of ranks that train, the first ones.
    fn num_trainers(&self) -> usize;

    /// Counts of every rank that trains on rank 0, which writes checkpoints; `None` on the others.
    /// All ranks call this at the same time, each with its own counts.
    ///
    /// # Errors
    /// A rank did not take part.
    fn collect(&self, own: &[u32]) -> Result<Option<Vec<Vec<u32>>>>;
}

/// Way in which a resumed run finds the counts of the batches before.
#[derive(Clone)]
pub(crate) enum Restart {
    /// It draws these batches again.
    Redraw,
    /// Its checkpoint holds the counts.
    Stored,
    /// Its checkpoint holds the counts of each of these ranks.
    StoredByRank(Arc<dyn CountingRanks>),
}

/// Counts of the reads of each node in the first epochs of training.
pub(crate) struct ReadCounts {
    epochs: u64,
    counts: Vec<u32>,
    restart: Restart,
}

impl ReadCounts {
    /// Counts of no reads yet, for `epochs` epochs and `nodes` nodes.
    pub(crate) fn new(epochs: u64, nodes: usize, restart: Restart) -> Self {
        Self { epochs, counts: vec![0; nodes], restart }
    }

    /// Number of epochs that are counted.
    pub(crate) fn epochs(&self) -> u64 {
        self.epochs
    }

    /// Counts by node (`V`).
    pub(crate) fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Mutable counts by node (`V`).
    pub(crate) fn counts_mut(&mut self) -> &mut [u32] {
        &mut self.counts
    }

    /// Frees the counts, once caches are filled, unless later checkpoints hold them.
    pub(crate) fn free(&mut self) {
        if self.is_redrawn() {
            self.counts = Vec::new();
        }
    }

    /// Returns true if a resumed run draws the counted batches again.
    pub(crate) fn is_redrawn(&self) -> bool {
        matches!(self.restart, Restart::Redraw)
    }

    /// Returns true if all ranks must write a checkpoint at the same time, because rank 0 collects
    /// their counts.
    pub(crate) fn is_collected(&self) -> bool {
        matches!(self.restart, Restart::StoredByRank(_))
    }

    /// Counts the nodes that a minibatch of an epoch reads, if it is among the first ones, and adds
    /// the time to `cost`.
    pub(crate) fn see(&mut self, epoch: u64, nodes: impl Iterator<Item = NodeId>, cost: &PresamplingCost) {
        if epoch < self.epochs {
            let clock = Instant::now();
            nodes.for_each(|v| self.counts[v as usize] += 1);
            let seconds = clock.elapsed().as_secs_f64();
            cost.add(PresamplingRecord { drawn_batches: 0, counted_batches: 1, seconds });
        }
    }

    /// The counts for a checkpoint; empty if a resumed run repeats them, and on ranks that write
    /// none. If they [are collected](Self::is_collected), all ranks call this at the same time.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn tensors(&self) -> Result<Vec<Tensor>> {
        Ok(match &self.restart {
            Restart::Redraw => Vec::new(),
            Restart::Stored => vec![Tensor::of_words(COUNTS, &self.counts)],
            Restart::StoredByRank(ranks) => {
                let all = ranks.collect(&self.counts)?.unwrap_or_default();
                all.iter().enumerate().map(|(rank, own)| Tensor::of_words(&counts_of(rank), own)).collect()
            }
        })
    }

    /// Restores the counts from the tensors of a checkpoint whose names begin with [`PREFIX`]. If
    /// another number of ranks has written it, each rank gets the sum over these, because it takes
    /// seeds of several of them.
    ///
    /// # Errors
    /// A message: they are missing, or those of another graph.
    pub(crate) fn restore(&mut self, tensors: &[Tensor]) -> std::result::Result<(), String> {
        let name = match &self.restart {
            Restart::Redraw => return Ok(()),
            Restart::Stored => Some(COUNTS.to_string()),
            Restart::StoredByRank(ranks) => match ranks.trainer() {
                None => return Ok(()),
                Some(rank) => (tensors.len() == ranks.num_trainers()).then(|| counts_of(rank)),
            },
        };
        let is_own = |tensor: &&Tensor| name.as_ref().is_none_or(|name| tensor.name == *name);
        let saved: Vec<Vec<u32>> = tensors.iter().filter(is_own).map(Tensor::words).collect();
        if saved.is_empty() || saved.iter().any(|of| of.len() != self.counts.len()) {
            return Err("the reads of the first epochs, which fill its caches, are missing".into());
        }
        self.counts.fill(0);
        for of in &saved {
            self.counts.iter_mut().zip(of).for_each(|(sum, &reads)| *sum = sum.saturating_add(reads));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranks that train, of which this one is `rank`, and a graph store. Rank 1 has counted
    /// nothing.
    struct Two(usize);

    impl CountingRanks for Two {
        fn trainer(&self) -> Option<usize> {
            (self.0 < 2).then_some(self.0)
        }

        fn num_trainers(&self) -> usize {
            2
        }

        fn collect(&self, own: &[u32]) -> Result<Option<Vec<Vec<u32>>>> {
            Ok((self.0 == 0).then(|| vec![own.to_vec(), vec![0; own.len()]]))
        }
    }

    fn counted(restart: Restart) -> ReadCounts {
        let mut counts = ReadCounts::new(2, 4, restart);
        let cost = PresamplingCost::default();
        counts.see(0, [0, 2].into_iter(), &cost);
        counts.see(1, [2].into_iter(), &cost);
        counts.see(2, [3].into_iter(), &cost);
        assert_eq!((counts.counts(), cost.total().unwrap().counted_batches), (&[1, 0, 2, 0][..], 2));
        counts
    }

    #[test]
    fn a_checkpoint_restores_the_counts_of_each_rank() {
        assert!(counted(Restart::Redraw).tensors().unwrap().is_empty());
        let saved = counted(Restart::Stored).tensors().unwrap();
        let mut restored = ReadCounts::new(2, 4, Restart::Stored);
        restored.restore(&saved).unwrap();
        assert_eq!(restored.counts(), [1, 0, 2, 0]);
        let of_rank = |rank| Restart::StoredByRank(Arc::new(Two(rank)));
        let all = counted(of_rank(0)).tensors().unwrap();
        assert!(counted(of_rank(1)).tensors().unwrap().is_empty(), "rank 0 writes");
        for (rank, counts) in [(0, [1, 0, 2, 0]), (1, [0; 4]), (2, [0; 4])] {
            let mut restored = ReadCounts::new(2, 4, of_rank(rank));
            restored.restore(&all).unwrap();
            assert_eq!(restored.counts(), counts, "{rank}");
        }
        // of another number of ranks: the sum over these
        let two = [Tensor::of_words("reads.counts.0", &[1, 0, 2, 0]), Tensor::of_words("x", &[1, 1, 0, 0])];
        let mut of_three = ReadCounts::new(2, 4, of_rank(1));
        of_three.restore(&[&two[..], &saved[..]].concat()).unwrap();
        assert_eq!(of_three.counts(), [3, 1, 4, 0]);
        for (nodes, tensors) in [(5, &saved[..]), (4, &[])] {
            let error = ReadCounts::new(2, nodes, Restart::Stored).restore(tensors).unwrap_err();
            assert!(error.contains("are missing"), "{error}");
        }
    }
}
