//! Which nodes' bottom-layer rows are worth computing once for several batches: the hot queue of a
//! super-batch (NeutronOrch, sections 4.1.2 and 4.2.2).
//!
//! The batches of a super-batch are drawn before any of them is trained on, but for their bottom
//! blocks; so how many of them will ask for a row is not estimated, it is counted. The queue is in
//! the order of that count, or of a hotness that is computed beforehand, and ends where the ratio
//! says, or where a node comes up too seldom to be worth it.

use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use graphmill_core::{NodeId, node_order::by_scores};
use rayon::prelude::*;

use super::Ahead;
use crate::Result;

/// What makes one node hotter than another.
#[derive(Clone, Debug)]
pub enum Ranking {
    /// More batches of the super-batch ask for it.
    Asked,
    /// Its rank, 0 the hottest, among all nodes.
    Known(Vec<u32>),
}

impl Ranking {
    /// By these scores, hot ones high.
    ///
    /// # Errors
    /// A score is not a number.
    pub fn by(scores: &[f64]) -> Result<Self> {
        let mut ranks = vec![0; scores.len()];
        for (rank, v) in by_scores(scores)?.into_iter().enumerate() {
            ranks[v as usize] = rank as u32;
        }
        Ok(Self::Known(ranks))
    }
}

/// Counts, and the queue of the super-batch that was counted last.
#[derive(Debug, Default)]
pub struct HotQueue {
    /// How many batches ask for each node's row.
    counts: Vec<AtomicU16>,
    queue: Vec<NodeId>,
    /// Rows that batches ask for, and may reuse.
    pub asked: u64,
    /// Those of them that nodes in the queue stand for.
    pub reused: u64,
}

impl HotQueue {
    /// The nodes picked last, the hottest first.
    pub fn nodes(&self) -> &[NodeId] {
        &self.queue
    }

    /// The part of the rows asked for that need not be computed, since those of the queue are
    /// computed once.
    pub fn saved(&self) -> f64 {
        self.reused.saturating_sub(self.queue.len() as u64) as f64 / self.asked.max(1) as f64
    }

    /// Counts what the batches ask for. O(V + what they ask for).
    pub fn count(&mut self, num_nodes: usize, ahead: &mut Ahead) {
        if self.counts.len() != num_nodes {
            self.counts = (0..num_nodes).map(|_| AtomicU16::new(0)).collect();
        } else {
            self.counts.par_iter_mut().with_min_len(1 << 16).for_each(|count| *count.get_mut() = 0);
        }
        let counts = &self.counts;
        ahead.candidates(&|nodes| {
            for &v in nodes {
                // at most as many as there are batches, far fewer than would wrap
                counts[v as usize].fetch_add(1, Relaxed);
            }
        });
    }

    /// The hot queue: of the nodes that at least `least` batches ask for the hottest, at most
    /// `most` of them, the hottest first; equals by number.
    pub fn pick(&mut self, ranking: &Ranking, least: u16, most: usize) -> &[NodeId] {
        let counts = &self.counts;
        let count = |v: NodeId| counts[v as usize].load(Relaxed);
        self.queue.clear();
        let least = least.max(1);
        self.queue.par_extend((0..counts.len() as NodeId).into_par_iter().filter(|&v| count(v) >= least));
        match ranking {
            // a sort by counting would do as well; this is a hundredth of a super-batch
            Ranking::Asked => self.queue.par_sort_unstable_by_key(|&v| (u16::MAX - count(v), v)),
            Ranking::Known(rank) => self.queue.par_sort_unstable_by_key(|&v| rank[v as usize]),
        }
        self.queue.truncate(most);
        self.asked =
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
    fn the_queue_is_in_the_order_of_hotness() {
        let mut queue = counted(&[0, 3, 1, 3, 2, 7, 0]);
        assert_eq!(queue.pick(&Ranking::Asked, 2, 9), [5, 1, 3, 4]);
        assert_eq!((queue.asked, queue.reused), (16, 15));
        assert_eq!(queue.pick(&Ranking::Asked, 1, 3), [5, 1, 3]);
        assert_eq!(queue.pick(&Ranking::Asked, 0, 9), [5, 1, 3, 4, 2], "who is not asked for is not hot");
        // node 4 is the hottest of all, node 0 after it
        let known = Ranking::by(&[8.0, 1.0, 2.0, 4.0, 9.0, 0.5, 3.0]).unwrap();
        assert_eq!(queue.pick(&known, 2, 3), [4, 3, 1]);
        assert!(queue.pick(&known, 8, 3).is_empty());
    }
}
