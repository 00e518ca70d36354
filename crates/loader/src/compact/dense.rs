//! Relabelling table with a word per node of the graph: a word of at least `base` means "seen in
//! this batch, local id = word - base".
//!
//! After a batch, `base` moves past all ids assigned, so nothing is cleared until the words
//! overflow, once in four billion nodes.
//!
//! One thread relabels 740 million ids per second on 2^20 nodes and 160 million on 2^24, more than
//! several threads draw. A parallel version, in which chunks mark unseen nodes by an atomic maximum
//! and number those that still have their mark, gave the same numbers three times slower on one
//! thread and ten times slower on two: locked operations do not overlap, and two cores contend for
//! the cache lines. Instead, the other threads draw while one relabels earlier draws: see
//! [`crate::sampler`].

use graphmill_core::{NodeId, memory};

use super::{PREFETCH_DISTANCE, RUN};
use crate::prefetch::prefetch;

/// Dense relabelling table. Memory: 4 bytes per node.
#[derive(Clone, Debug)]
pub struct Dense {
    word: Vec<u32>,
    base: u32,
    assigned: u32,
}

impl Dense {
    /// Creates a table for a graph of `num_nodes` nodes.
    pub fn new(num_nodes: usize) -> Self {
        Self { word: memory::demand_zeros(num_nodes), base: 1, assigned: 0 }
    }

    /// Forgets the previous batch and numbers `nodes` ([`super::Relabel::start`]).
    pub fn start(&mut self, nodes: &[NodeId]) {
        let next = u64::from(self.base) + u64::from(self.assigned);
        // the next batch assigns at most one id per node of the graph
        if next + self.word.len() as u64 > u64::from(u32::MAX) {
            self.word.fill(0);
            self.base = 1;
        } else {
            self.base = next as u32;
        }
        for (i, &v) in nodes.iter().enumerate() {
            if let Some(&ahead) = nodes.get(i + PREFETCH_DISTANCE) {
                prefetch(&self.word, ahead as usize);
            }
            debug_assert!(self.word[v as usize] < self.base, "node {v} twice among the seeds");
            self.word[v as usize] = self.base + i as u32;
        }
        self.assigned = nodes.len() as u32;
    }

    /// Replaces global ids by local ones ([`super::Relabel::relabel`]).
    pub fn relabel(&mut self, ids: &mut [NodeId], nodes: &mut Vec<NodeId>) {
        let (base, mut assigned) = (self.base, self.assigned);
        for start in (0..ids.len()).step_by(RUN) {
            let end = (start + RUN).min(ids.len());
            let mut next = nodes.len();
            // if the memory is refused, the next batch must know the ids of this one
            self.assigned = assigned;
            memory::demand_len(nodes, next + end - start, 0);
            // No branch tests for new ids: it would be unpredictable, and a misprediction costs
            // more than the two unneeded stores.
            for i in start..end {
                if let Some(&ahead) = ids.get(i + PREFETCH_DISTANCE) {
                    prefetch(&self.word, ahead as usize);
                }
                let id = ids[i];
                let word = &mut self.word[id as usize];
                let new = *word < base;
                let local = if new { assigned } else { *word - base };
                *word = base + local;
                ids[i] = local;
                nodes[next] = id;
                next += usize::from(new);
                assigned += u32::from(new);
            }
            nodes.truncate(next);
        }
        self.assigned = assigned;
    }

    #[cfg(test)]
    pub(super) fn set_base(&mut self, base: u32) {
        self.base = base;
    }
}
