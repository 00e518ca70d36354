//! Order by descending out-degree: nodes whose features are read most come first.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use graphmill_core::{Graph, NodeId, Result, node_order::by_keys};
use rayon::prelude::*;

/// Orders the nodes by the number of rows that list them, descending, ties by id. O(E + V log V),
/// parallel.
pub(super) fn order(graph: &Graph, _: u64) -> Result<Vec<NodeId>> {
    // Relaxed suffices: counts guard no other data, and the join of the loop orders them before
    // later reads.
    let degree: Vec<AtomicU64> = (0..graph.num_nodes()).into_par_iter().map(|_| AtomicU64::new(0)).collect();
    graph.indices().par_iter().with_min_len(1 << 14).for_each(|&u| {
        degree[u as usize].fetch_add(1, Relaxed);
    });
    by_keys(graph.num_nodes(), |v| !degree[v as usize].load(Relaxed))
}
