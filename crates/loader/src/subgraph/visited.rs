//! A set of nodes that is emptied when it is listed: a bit per node, and an upper level with a bit
//! per word of bits.
//!
//! Listing descends from the upper level, so it costs O(n + V / 4096) for n nodes, is ascending
//! without a sort, and leaves the set empty for the next subgraph without a pass over the graph.

use graphmill_core::{NodeId, memory};

use crate::prefetch::prefetch;

/// Set of visited nodes. Memory: `V / 8` bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Visited {
    bits: Vec<u64>,
    upper: Vec<u64>,
}

/// Number of nodes between a prefetch of a node's word and its insertion.
const PREFETCH_DISTANCE: usize = 16;

impl Visited {
    /// Grows for nodes `0..num_nodes` and keeps the set's contents.
    pub(super) fn fit(&mut self, num_nodes: usize) {
        let words = num_nodes.div_ceil(64);
        if self.bits.len() < words {
            memory::demand_len(&mut self.upper, words.div_ceil(64), 0);
            memory::demand_len(&mut self.bits, words, 0);
        }
    }

    /// Adds `v` and returns true if it is new.
    #[inline(always)]
    pub(super) fn insert(&mut self, v: NodeId) -> bool {
        let word = v as usize / 64;
        let bit = 1 << (v % 64);
        let new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        self.upper[word / 64] |= 1 << (word % 64);
        new
    }

    /// Returns true if `v` is in the set.
    #[inline(always)]
    pub(super) fn contains(&self, v: NodeId) -> bool {
        self.bits[v as usize / 64] >> (v % 64) & 1 == 1
    }

    /// Overwrites `nodes`, in any order and with repetitions, with the distinct nodes among them
    /// and in the set, ascending, and empties the set.
    pub(super) fn distinct(&mut self, nodes: &mut Vec<NodeId>) {
        for i in 0..nodes.len() {
            if let Some(&ahead) = nodes.get(i + PREFETCH_DISTANCE) {
                prefetch(&self.bits, ahead as usize / 64);
            }
            self.insert(nodes[i]);
        }
        self.drain(nodes);
    }

    /// Overwrites `nodes` with the set, ascending, and empties it.
    pub(super) fn drain(&mut self, nodes: &mut Vec<NodeId>) {
        nodes.clear();
        for (i, upper) in self.upper.iter_mut().enumerate() {
            let mut words = std::mem::take(upper);
            while words != 0 {
                let word = i * 64 + words.trailing_zeros() as usize;
                words &= words - 1;
                let mut bits = std::mem::take(&mut self.bits[word]);
                while bits != 0 {
                    nodes.push((word * 64) as NodeId + bits.trailing_zeros());
                    bits &= bits - 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_listed_ascending_and_empty_afterwards() {
        let mut set = Visited::default();
        set.fit(300_000);
        assert!(set.insert(299_999) && !set.insert(299_999) && set.contains(299_999) && !set.contains(0));
        let mut nodes = vec![5, 64, 5, 4096, 63, 0, 131_072];
        set.distinct(&mut nodes);
        assert_eq!(nodes, [0, 5, 63, 64, 4096, 131_072, 299_999]);
        set.drain(&mut nodes);
        assert!(nodes.is_empty() && !set.contains(5));
    }
}
