//! Breadth-first order: the neighbours of a node get consecutive ids.

use graphmill_core::{Graph, NodeId, Result, memory, node_order::by_keys};

use super::adjacency::{Seen, both_ways};

/// Computes the order, component by component, each from its node of highest degree; neighbours in
/// stored order. Edges are followed in both directions. O(E + V log V); the traversal is sequential
/// and reads each row once.
pub(super) fn order(graph: &Graph, _: u64) -> Result<Vec<NodeId>> {
    let graph = both_ways(graph)?;
    let mut seen = Seen::new(graph.num_nodes())?;
    let mut order: Vec<NodeId> = memory::reserve(graph.num_nodes())?;
    for root in by_keys(graph.num_nodes(), |v| !(graph.in_degree(v) as u64))? {
        if !seen.insert(root) {
            continue;
        }
        let mut at = order.len();
        order.push(root);
        while let Some(&v) = order.get(at) {
            order.extend(graph.in_neighbors(v).iter().filter(|&&u| seen.insert(u)));
            at += 1;
        }
    }
    Ok(order)
}
