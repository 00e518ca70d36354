//! Positions of nodes in the lists of a batch, for each node type.

use rustc_hash::FxHashMap;

/// Positions of the nodes of a batch: an array per type, or a map if every seed has its own tree.
#[derive(Default)]
pub struct Places {
    counts: Vec<usize>,
    /// For each node, the number of the batch (upper 32 bits) and its position.
    dense: Vec<Vec<u64>>,
    /// Positions by tree (upper 32 bits) and node.
    trees: Vec<FxHashMap<u64, u32>>,
    batch: u32,
    disjoint: bool,
}

impl Places {
    /// Creates positions for types with these numbers of nodes. The arrays of 8 bytes per node are
    /// allocated with the first batch.
    pub fn new(counts: impl Iterator<Item = usize>) -> Self {
        let counts: Vec<usize> = counts.collect();
        Self { trees: vec![FxHashMap::default(); counts.len()], counts, ..Self::default() }
    }

    /// Forgets all positions, before a batch with disjoint trees or with shared nodes.
    pub fn start(&mut self, disjoint: bool) {
        self.disjoint = disjoint;
        if disjoint {
            self.trees.iter_mut().for_each(FxHashMap::clear);
            return;
        }
        self.batch = self.batch.wrapping_add(1);
        if self.dense.is_empty() || self.batch == 0 {
            self.dense = self.counts.iter().map(|&count| vec![0; count]).collect();
            self.batch = 1;
        }
    }

    /// Position of node `v` of type `t` in `tree`; a new node gets `next`.
    pub fn insert(&mut self, t: usize, tree: u32, v: u32, next: u32) -> u32 {
        if self.disjoint {
            return *self.trees[t].entry(u64::from(tree) << 32 | u64::from(v)).or_insert(next);
        }
        let place = &mut self.dense[t][v as usize];
        if (*place >> 32) as u32 != self.batch {
            *place = u64::from(self.batch) << 32 | u64::from(next);
        }
        *place as u32
    }

    /// Position of node `v` of type `t` in `tree`, if the batch has it.
    pub fn find(&self, t: usize, tree: u32, v: u32) -> Option<u32> {
        if self.disjoint {
            return self.trees[t].get(&(u64::from(tree) << 32 | u64::from(v))).copied();
        }
        let place = self.dense.get(t)?.get(v as usize)?;
        ((*place >> 32) as u32 == self.batch).then_some(*place as u32)
    }
}
