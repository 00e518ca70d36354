//! Hot queue of a super-batch: the nodes whose bottom-layer rows are computed once for several
//! batches (NeutronOrch, Ai et al., VLDB 2024, sections 4.1.2 and 4.2.2).
//!
//! The batches of a super-batch are drawn, without their bottom blocks, before training starts, so
//! the requests for each row are counted instead of estimated. The queue is sorted by requests, or
//! by a hotness that is computed in advance. `--hot-ratio` limits its length, and nodes with too
//! few requests are left out.

use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use graphmill_core::{NodeId, node_order::by_scores};
use rayon::prelude::*;

use super::RowExchange;
use crate::Result;

/// Order of the nodes in the hot queue.
#[derive(Clone, Debug)]
pub enum Ranking {
    /// By the number of batches of the super-batch that request a node, most first.
    Requests,
    /// By the rank of each node among all nodes, 0 being the hottest.
    Ranks(Vec<u32>),
}

impl Ranking {
    /// Order by these scores, one per node, the highest being the hottest.
    ///
    /// # Errors
    /// A score is NaN.
    pub fn by(scores: &[f64]) -> Result<Self> {
        let mut ranks = vec![0; scores.len()];
        for (rank, v) in by_scores(scores)?.into_iter().enumerate() {
            ranks[v as usize] = rank as u32;
        }
        Ok(Self::Ranks(ranks))
    }
}

/// Requests of the last counted super-batch, and its hot queue.
#[derive(Debug, Default)]
pub struct HotQueue {
    /// Number of batches that request each node's row.
    counts: Vec<AtomicU16>,
    queue: Vec<NodeId>,
    /// Number of requests for rows that may be reused.
    pub requested: u64,
    /// Number of requests for rows of nodes in the queue.
    pub reused: u64,
}

impl HotQueue {
    /// Nodes of the queue, the hottest first.
    pub fn nodes(&self) -> &[NodeId] {
        &self.queue
    }

    /// Share of the requested rows that is saved because rows of the queue are computed once.
    pub fn saved(&self) -> f64 {
        self.reused.saturating_sub(self.queue.len() as u64) as f64 / self.requested.max(1) as f64
    }

    /// Counts the requests that `requests` passes to its argument, in parallel: lists of nodes, and
    /// the number of the first node of their type. O(V + requests).
    pub fn count(&mut self, num_nodes: usize, requests: impl FnOnce(&(dyn Fn(NodeId, &[NodeId]) + Sync))) {
        if self.counts.len() != num_nodes {
            self.counts = (0..num_nodes).map(|_| AtomicU16::new(0)).collect();
        } else {
            self.counts.par_iter_mut().with_min_len(1 << 16).for_each(|count| *count.get_mut() = 0);
        }
        let counts = &self.counts;
        requests(&|first, nodes| {
            for &v in nodes {
                // at most the number of batches, which is limited so that 16 bits suffice
                counts[(first + v) as usize].fetch_add(1, Relaxed);
            }
        });
    }

    /// Replaces the requests of this rank's shares by those of all ranks. O(V + requests of all
    /// ranks).
    ///
    /// # Errors
    /// A rank did not take part.
    pub fn add_up(&mut self, exchange: &dyn RowExchange) -> Result<()> {
        let mut words = Vec::new();
        for (v, count) in (0..).zip(&mut self.counts) {
            let count = std::mem::take(count.get_mut());
            if count > 0 {
                words.extend([v, u32::from(count)]);
            }
        }
        for of_rank in exchange.gather(&words)? {
            for pair in of_rank.chunks_exact(2) {
                if let Some(count) = self.counts.get_mut(pair[0] as usize) {
                    let more = u16::try_from(pair[1]).unwrap_or(u16::MAX);
                    *count.get_mut() = count.get_mut().saturating_add(more);
                }
            }
        }
        Ok(())
    }

    /// Fills the queue with the hottest nodes that `min_batches` batches or more request, at most
    /// `max_hot`, the hottest first; equals in the order of their ids. O(V + nodes log nodes),
    /// parallel.
    pub fn pick(&mut self, ranking: &Ranking, min_batches: u16, max_hot: usize) -> &[NodeId] {
        let counts = &self.counts;
        let count = |v: NodeId| counts[v as usize].load(Relaxed);
        self.queue.clear();
        let min_batches = min_batches.max(1);
        self.queue
            .par_extend((0..counts.len() as NodeId).into_par_iter().filter(|&v| count(v) >= min_batches));
        match ranking {
            // a counting sort would be faster, but this takes a hundredth of a super-batch's time
            Ranking::Requests => self.queue.par_sort_unstable_by_key(|&v| (u16::MAX - count(v), v)),
            Ranking::Ranks(rank) => self.queue.par_sort_unstable_by_key(|&v| rank[v as usize]),
        }
        self.queue.truncate(max_hot);
        self.requested =
            counts.par_iter().with_min_len(1 << 16).map(|count| u64::from(count.load(Relaxed))).sum();
        self.reused = self.queue.par_iter().with_min_len(1 << 14).map(|&v| u64::from(count(v))).sum();
        &self.queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(counts: &[u16]) -> HotQueue {
        HotQueue { counts: counts.iter().map(|&c| AtomicU16::new(c)).collect(), ..HotQueue::default() }
    }

    #[test]
    fn the_queue_is_sorted_by_hotness() {
        let mut queue = counted(&[0, 3, 1, 3, 2, 7, 0]);
        assert_eq!(queue.pick(&Ranking::Requests, 2, 9), [5, 1, 3, 4]);
        assert_eq!((queue.requested, queue.reused), (16, 15));
        assert_eq!(queue.pick(&Ranking::Requests, 1, 3), [5, 1, 3]);
        assert_eq!(
            queue.pick(&Ranking::Requests, 0, 9),
            [5, 1, 3, 4, 2],
            "nodes without requests are not hot"
        );
        // node 4 is the hottest of all, node 0 after it
        let known = Ranking::by(&[8.0, 1.0, 2.0, 4.0, 9.0, 0.5, 3.0]).unwrap();
        assert_eq!(queue.pick(&known, 2, 3), [4, 3, 1]);
        assert!(queue.pick(&known, 8, 3).is_empty());
        assert_eq!((queue.requested, queue.reused, queue.saved()), (16, 0, 0.0));
    }

    #[test]
    fn rows_are_saved_if_they_are_requested_more_than_once() {
        let mut queue = counted(&[0, 3, 1, 4]);
        queue.pick(&Ranking::Requests, 1, 9);
        // three rows are made for eight requests
        assert_eq!(queue.saved(), 5.0 / 8.0);
        queue.pick(&Ranking::Requests, 2, 9);
        assert_eq!(queue.saved(), 5.0 / 8.0, "a row that is requested once saves nothing");
        assert_eq!(HotQueue::default().saved(), 0.0);
    }

    /// Three ranks; the others have these words.
    struct Others([Vec<u32>; 2]);

    impl RowExchange for Others {
        fn rank(&self) -> usize {
            1
        }

        fn maker(&self, node: NodeId) -> usize {
            node as usize % 3
        }

        fn gather(&self, words: &[u32]) -> Result<Vec<Vec<u32>>> {
            Ok(vec![self.0[0].clone(), words.to_vec(), self.0[1].clone()])
        }
    }

    #[test]
    fn requests_of_all_ranks_are_added_up() {
        let mut queue = counted(&[2, 0, 65_000, 1]);
        // the second rank knows a node that this graph does not have
        queue.add_up(&Others([vec![0, 5, 1, 3], vec![2, 60_000, 3, 1 << 20, 9, 1]])).unwrap();
        let counts: Vec<u16> = queue.counts.iter().map(|count| count.load(Relaxed)).collect();
        assert_eq!(counts, [7, 3, u16::MAX, u16::MAX], "at most the largest number of 16 bits");
    }
}
