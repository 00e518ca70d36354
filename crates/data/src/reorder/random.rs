//! Random order, the baseline.

use graphmill_core::{Graph, NodeId, Result, keyed, node_order::by_keys};

/// Separates these draws from others with the same seed.
const DOMAIN: u64 = 0x7265_6f72_6465_7231;

/// Orders the nodes by a keyed hash. O(V log V), parallel.
pub(super) fn order(graph: &Graph, seed: u64) -> Result<Vec<NodeId>> {
    by_keys(graph.num_nodes(), |v| keyed::key(&[DOMAIN, seed, v.into()]))
}
