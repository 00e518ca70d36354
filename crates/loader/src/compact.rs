//! Unique nodes in first-seen order: global ids to local ones.
//!
//! A dense table with one word per node of the graph; a word of at least `base` means "seen in
//! this batch, local id = word - base". After a batch `base` moves past all ids handed out, so nothing is
//! cleared until the words run over, once in four billion nodes. First-seen order is what makes the
//! bottom layer's aggregation stream; never sort by global id.

use graphmill_graph::NodeId;

use crate::prefetch::prefetch;

/// How many ids ahead the table is asked for.
const AHEAD: usize = 16;

/// Relabels node ids, batch after batch. Memory: 4 bytes per node of the graph.
#[derive(Clone, Debug)]
pub struct Relabel {
    word: Vec<u32>,
    base: u32,
    handed_out: u32,
}

impl Relabel {
    /// For a graph of `num_nodes` nodes.
    pub fn new(num_nodes: usize) -> Self {
        Self { word: vec![0; num_nodes], base: 1, handed_out: 0 }
    }

    /// Forgets the last batch and numbers `nodes` (distinct) from 0.
    pub fn start(&mut self, nodes: &[NodeId]) {
        let next = u64::from(self.base) + u64::from(self.handed_out);
        // the next batch hands out at most one id per node of the graph
        if next + self.word.len() as u64 > u64::from(u32::MAX) {
            self.word.fill(0);
            self.base = 1;
        } else {
            self.base = next as u32;
        }
        self.handed_out = 0;
        for (i, &v) in nodes.iter().enumerate() {
            if let Some(&ahead) = nodes.get(i + AHEAD) {
                prefetch(&self.word, ahead as usize);
            }
            debug_assert!(self.word[v as usize] < self.base, "node {v} twice among the seeds");
            self.word[v as usize] = self.base + i as u32;
        }
        self.handed_out = nodes.len() as u32;
    }

    /// Replaces every global id by its local one; ids seen for the first time are appended to
    /// `nodes`, whose length is the number of ids handed out so far. O(len).
    pub fn relabel(&mut self, ids: &mut [NodeId], nodes: &mut Vec<NodeId>) {
        debug_assert_eq!(nodes.len(), self.handed_out as usize);
        for i in 0..ids.len() {
            if let Some(&ahead) = ids.get(i + AHEAD) {
                prefetch(&self.word, ahead as usize);
            }
            let id = ids[i];
            let word = &mut self.word[id as usize];
            ids[i] = if *word >= self.base {
                *word - self.base
            } else {
                let local = self.handed_out;
                *word = self.base + local;
                self.handed_out += 1;
                nodes.push(id);
                local
            };
        }
    }

    #[cfg(test)]
    fn set_base(&mut self, base: u32) {
        self.base = base;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// The plainest version: a hash map filled in order.
    fn naive(seeds: &[u32], ids: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let mut nodes = seeds.to_vec();
        let mut local: HashMap<u32, u32> = seeds.iter().enumerate().map(|(i, &v)| (v, i as u32)).collect();
        let out = ids
            .iter()
            .map(|&id| {
                *local.entry(id).or_insert_with(|| {
                    nodes.push(id);
                    nodes.len() as u32 - 1
                })
            })
            .collect();
        (out, nodes)
    }

    proptest! {
        #[test]
        fn same_as_a_hash_map(batches in prop::collection::vec(prop::collection::vec(0u32..50, 0..200), 1..20)) {
            let mut relabel = Relabel::new(50);
            for (b, ids) in batches.iter().enumerate() {
                let seeds = [b as u32 % 50, (b as u32 + 7) % 50];
                if b == 10 { relabel.set_base(u32::MAX - 40); } // runs over, clears
                let mut nodes = seeds.to_vec();
                let mut found = ids.clone();
                relabel.start(&seeds);
                let middle = found.len() / 2;
                let (first, second) = found.split_at_mut(middle);
                relabel.relabel(first, &mut nodes);
                relabel.relabel(second, &mut nodes);
                let (expected, expected_nodes) = naive(&seeds, ids);
                prop_assert_eq!(found, expected);
                prop_assert_eq!(nodes, expected_nodes);
            }
        }
    }
}
