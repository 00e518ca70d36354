//! A word per node of the graph: a word of at least `base` means "seen in this batch, local id =
//! word - base".
//!
//! After a batch `base` moves past all ids handed out, so nothing is cleared until the words run
//! over, once in four billion nodes.
//!
//! N.B. One thread numbers 740 million ids a second (2^20 nodes; 160 million on 2^24), more than
//! several draw. A parallel version, chunks marking unseen nodes by an atomic maximum and numbering
//! what still bears their mark, gave the same numbers three times slower on one thread and ten
//! times on two: locked operations do not overlap, and two cores fight for the lines. Instead the
//! threads draw while one of them numbers what was drawn before: see [`crate::sampler`].

use graphmill_core::NodeId;

use super::{AHEAD, RUN};
use crate::prefetch::prefetch;

/// See the module's text. Memory: 4 bytes per node.
#[derive(Clone, Debug)]
pub struct Dense {
    word: Vec<u32>,
    base: u32,
    handed_out: u32,
}

impl Dense {
    /// For a graph of `num_nodes` nodes.
    pub fn new(num_nodes: usize) -> Self {
        Self { word: vec![0; num_nodes], base: 1, handed_out: 0 }
    }

    /// See [`super::Relabel::start`].
    pub fn start(&mut self, nodes: &[NodeId]) {
        let next = u64::from(self.base) + u64::from(self.handed_out);
        // the next batch hands out at most one id per node of the graph
        if next + self.word.len() as u64 > u64::from(u32::MAX) {
            self.word.fill(0);
            self.base = 1;
        } else {
            self.base = next as u32;
        }
        for (i, &v) in nodes.iter().enumerate() {
            if let Some(&ahead) = nodes.get(i + AHEAD) {
                prefetch(&self.word, ahead as usize);
            }
            debug_assert!(self.word[v as usize] < self.base, "node {v} twice among the seeds");
            self.word[v as usize] = self.base + i as u32;
        }
        self.handed_out = nodes.len() as u32;
    }

    /// See [`super::Relabel::relabel`].
    pub fn relabel(&mut self, ids: &mut [NodeId], nodes: &mut Vec<NodeId>) {
        let (base, mut handed_out) = (self.base, self.handed_out);
        for start in (0..ids.len()).step_by(RUN) {
            let end = (start + RUN).min(ids.len());
            let mut next = nodes.len();
            nodes.resize(next + end - start, 0);
            // No branch asks whether an id is new: that is a coin toss, and a wrong guess costs
            // more than the two stores that are made in vain.
            for i in start..end {
                if let Some(&ahead) = ids.get(i + AHEAD) {
                    prefetch(&self.word, ahead as usize);
                }
                let id = ids[i];
                let word = &mut self.word[id as usize];
                let new = *word < base;
                let local = if new { handed_out } else { *word - base };
                *word = base + local;
                ids[i] = local;
                nodes[next] = id;
                next += usize::from(new);
                handed_out += u32::from(new);
            }
            nodes.truncate(next);
        }
        self.handed_out = handed_out;
    }

    #[cfg(test)]
    pub(super) fn set_base(&mut self, base: u32) {
        self.base = base;
    }
}
