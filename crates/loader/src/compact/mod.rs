//! Relabels global ids to local ones: distinct nodes in first-seen order.
//!
//! First-seen order lets the bottom layer's aggregation read rows in sequence; never sort by global
//! id.
//!
//! Two tables record the nodes that a batch has seen. Both are stamped, so nothing is cleared
//! between batches: [`dense`] has a word for every node of the graph, and [`table`] is an
//! open-addressing table whose size is proportional to the batch. The dense one is faster while it
//! fits into the caches. The other serves larger graphs, until a batch is so large that its table
//! would take as much memory as the dense one.

#![forbid(unsafe_code)]

pub mod dense;
pub mod table;

use dense::Dense;
use graphmill_core::NodeId;
use table::Table;

/// Number of ids between a table's prefetch and its use.
const PREFETCH_DISTANCE: usize = 24;
/// Number of ids relabelled between two checks that the list of new nodes has capacity for them.
const RUN: usize = 4096;
/// Maximum number of nodes of a graph with a dense table: 32 MiB per worker.
///
/// For lists of 200,000 ids on 2^20, 2^22, 2^24 and 2^26 nodes, an id takes 1.3, 1.9, 6.0 and 6.7
/// ns with the dense table and 5.2, 5.2, 4.6 and 4.6 ns with the other.
const MAX_DENSE_NODES: usize = 1 << 23;

/// Relabels node ids, batch after batch.
#[derive(Clone, Debug)]
pub struct Relabel {
    num_nodes: usize,
    table: AnyTable,
}

/// Table of the nodes seen in the batch.
#[derive(Clone, Debug)]
enum AnyTable {
    Dense(Dense),
    Sparse(Table),
}

impl Relabel {
    /// Creates a relabelling for a graph of `num_nodes` nodes. Memory: 4 bytes per node up to 2^23
    /// nodes; beyond, 16 to 64 bytes per node of the largest batch, but at most 4 per node of the
    /// graph.
    pub fn new(num_nodes: usize) -> Self {
        let table = if num_nodes <= MAX_DENSE_NODES {
            AnyTable::Dense(Dense::new(num_nodes))
        } else {
            AnyTable::Sparse(Table::default())
        };
        Self { num_nodes, table }
    }

    /// Forgets the previous batch and numbers `nodes` (distinct) from 0.
    pub fn start(&mut self, nodes: &[NodeId]) {
        self.fit(&[], &[], nodes.len());
        match &mut self.table {
            AnyTable::Dense(dense) => dense.start(nodes),
            AnyTable::Sparse(table) => table.start(nodes),
        }
    }

    /// Replaces every global id by its local one and appends ids seen for the first time to `new`.
    /// The local ids so far are the positions in `nodes`, followed by `new`. O(len).
    pub fn relabel(&mut self, ids: &mut [NodeId], nodes: &[NodeId], new: &mut Vec<NodeId>) {
        self.fit(nodes, new, ids.len());
        match &mut self.table {
            AnyTable::Dense(dense) => dense.relabel(ids, new),
            AnyTable::Sparse(table) => table.relabel(ids, new),
        }
    }

    /// Switches to the dense table, with the same local ids of `nodes` and `new`, if `more` ids
    /// could make the other table larger.
    fn fit(&mut self, nodes: &[NodeId], new: &[NodeId], more: usize) {
        let AnyTable::Sparse(table) = &self.table else { return };
        let most = (nodes.len() + new.len() + more).min(self.num_nodes);
        if most * 4 > self.num_nodes && table.bytes_for(most) > 4 * self.num_nodes {
            let mut dense = Dense::new(self.num_nodes);
            dense.start(nodes);
            dense.relabel(&mut new.to_vec(), &mut Vec::new());
            self.table = AnyTable::Dense(dense);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// Reference: a hash map filled in order.
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
        fn both_tables_relabel_as_a_hash_map_does(
            batches in prop::collection::vec(prop::collection::vec(0u32..50, 0..200), 1..20),
        ) {
            let mut dense = Dense::new(50);
            let mut table = Table::default();
            for (b, ids) in batches.iter().enumerate() {
                let seeds = [b as u32 % 50, (b as u32 + 7) % 50];
                if b == 10 {
                    // both overflow and are cleared
                    dense.set_base(u32::MAX - 40);
                    table.set_base(u32::MAX - 40);
                }
                dense.start(&seeds);
                table.start(&seeds);
                let (mut by_dense, mut by_table) = (ids.clone(), ids.clone());
                let (mut dense_nodes, mut table_nodes) = (seeds.to_vec(), seeds.to_vec());
                // two hops
                for hop in [0..ids.len() / 2, ids.len() / 2..ids.len()] {
                    dense.relabel(&mut by_dense[hop.clone()], &mut dense_nodes);
                    table.relabel(&mut by_table[hop], &mut table_nodes);
                }
                let expected = naive(&seeds, ids);
                prop_assert_eq!(&(by_dense, dense_nodes), &expected);
                prop_assert_eq!(&(by_table, table_nodes), &expected);
            }
        }
    }

    #[test]
    fn a_batch_of_most_of_the_graph_switches_to_the_dense_table() {
        let mut relabel = Relabel { num_nodes: 1000, table: AnyTable::Sparse(Table::default()) };
        let (nodes, mut new) = ([7, 3], Vec::new());
        relabel.start(&nodes);
        relabel.relabel(&mut [1, 7, 900], &nodes, &mut new);
        assert!(matches!(relabel.table, AnyTable::Sparse(_)));
        let mut ids: Vec<u32> = (0..900).collect();
        let (expected, expected_nodes) = naive(&nodes, &[vec![1, 7, 900], ids.clone()].concat());
        relabel.relabel(&mut ids, &nodes, &mut new);
        assert!(matches!(relabel.table, AnyTable::Dense(_)));
        assert_eq!((&ids[..], &[&nodes[..], &new].concat()), (&expected[3..], &expected_nodes));
    }
}
