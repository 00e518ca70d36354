//! Splits of the edges of a graph, and the graph that batches read.
//!
//! # Algorithm
//!
//! The edges of a directed graph, or the pairs of linked nodes of an undirected one, are shuffled
//! and cut by their shares. Edges that validate or test, and their reverses in an undirected graph,
//! are removed from the graph that is read. Edges of a node to itself stay in the graph and are not
//! learned.
//!
//! # Source
//!
//! Kipf and Welling, *Variational graph auto-encoders*, 2016, section 3 (removed edges).
//!
//! # Cost
//!
//! O(E log E) for the removal.

use graphmill_core::{
    Graph, NodeId, Result,
    keyed::{Stream, key},
};

/// Part of the key of the order of edges.
const ORDER: u64 = 0x6c69_6e6b_7370_6c74;
/// Part of the key of the direction in which an undirected edge is learned.
const DIRECTION: u64 = 0x6c69_6e6b_6469_7220;

/// An edge: source and destination.
pub type Edge = (NodeId, NodeId);

/// Edges without those of a node to itself, each once: both directions of an edge of an
/// `undirected` graph are one edge. Ascending by destination, then by source.
pub(crate) fn distinct(graph: &Graph, undirected: bool) -> Vec<Edge> {
    let mut edges = Vec::with_capacity(graph.num_edges() / if undirected { 2 } else { 1 });
    for v in 0..graph.num_nodes() as NodeId {
        let sources = graph.in_neighbors(v).iter().filter(|&&u| u < v || !undirected && u != v);
        edges.extend(sources.map(|&u| (u, v)));
    }
    // rows ascend, so equal edges are neighbours
    edges.dedup();
    edges
}

/// Edges between nodes of two types, each once. Ascending by destination, then by source.
pub(crate) fn all(graph: &Graph) -> Vec<Edge> {
    let rows = (0..graph.num_nodes() as NodeId).map(|v| (v, graph.in_neighbors(v)));
    let mut edges: Vec<Edge> = rows.flat_map(|(v, row)| row.iter().map(move |&u| (u, v))).collect();
    edges.dedup();
    edges
}

/// Shuffles edges and cuts them into parts of these shares; parts with a share above 0 have at
/// least one edge if there are enough.
pub(crate) fn split<E>(mut edges: Vec<E>, shares: [f64; 3], seed: u64) -> [Vec<E>; 3] {
    Stream::new(key(&[seed, ORDER])).shuffle(&mut edges);
    let (count, sum) = (edges.len(), shares.iter().sum::<f64>());
    let size = |share: f64| {
        let size = (count as f64 * share / sum).round() as usize;
        if share > 0.0 { size.max(1) } else { 0 }
    };
    let test = size(shares[2]).min(count.saturating_sub(1));
    let valid = size(shares[1]).min(count.saturating_sub(1 + test));
    let test = edges.split_off(count - test);
    let valid = edges.split_off(edges.len() - valid);
    [edges, valid, test]
}

/// Gives each edge one of its two directions at random, for graphs that have both.
pub(crate) fn directed(edges: &mut [Edge], seed: u64) {
    let key = key(&[seed, DIRECTION]);
    for edge in edges {
        let ends = u64::from(edge.0.min(edge.1)) << 32 | u64::from(edge.0.max(edge.1));
        if graphmill_core::keyed::key(&[key, ends]) & 1 == 1 {
            *edge = (edge.1, edge.0);
        }
    }
}

/// Edges with their reverses, ascending by destination, then by source: a set to search.
pub(crate) fn set<'e>(edges: impl IntoIterator<Item = &'e Edge>, reverses: bool) -> Vec<Edge> {
    let mut all = Vec::new();
    for &(u, v) in edges {
        all.push((v, u));
        if reverses {
            all.push((u, v));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns true if a [`set`] has the edge.
pub(crate) fn contains(set: &[Edge], (u, v): Edge) -> bool {
    set.binary_search(&(v, u)).is_ok()
}

/// The graph of one type or of a relation between two, without the edges of a [`set`]. O(E log R).
///
/// # Errors
/// None in practice: the rest of a sound graph is sound.
pub(crate) fn without(graph: &Graph, removed: &[Edge]) -> Result<Graph> {
    without_listed(graph, removed, &mut |_| {})
}

/// [`without`], with the numbers of the edges that are left passed to `keep`, ascending.
///
/// # Errors
/// As for [`without`].
pub(crate) fn without_listed(graph: &Graph, removed: &[Edge], keep: &mut dyn FnMut(usize)) -> Result<Graph> {
    let (mut indptr, mut indices) = (vec![0u64], Vec::with_capacity(graph.num_edges()));
    let mut weights = graph.edge_weight().map(|_| Vec::with_capacity(graph.num_edges()));
    for v in 0..graph.num_nodes() as NodeId {
        let first = graph.indptr()[v as usize] as usize;
        let start = removed.partition_point(|edge| edge.0 < v);
        let of_row = &removed[start..];
        let of_row = &of_row[..of_row.partition_point(|edge| edge.0 == v)];
        for (i, &u) in graph.in_neighbors(v).iter().enumerate() {
            if of_row.binary_search(&(v, u)).is_ok() {
                continue;
            }
            indices.push(u);
            keep(first + i);
            if let (Some(kept), Some(all)) = (&mut weights, graph.edge_weight()) {
                kept.push(all[first + i]);
            }
        }
        indptr.push(indices.len() as u64);
    }
    Graph::of_sound_edges(indptr.into(), indices.into(), weights.map(Into::into))
}

#[cfg(test)]
mod tests {
    use graphmill_core::{EdgeOptions, build};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_are_disjoint_and_the_rest_of_the_graph_has_no_held_out_edge(
            edges in prop::collection::vec((0u32..20, 0u32..20), 3..80),
            undirected in any::<bool>(),
            seed in 0u64..9,
        ) {
            let (from, to): (Vec<_>, Vec<_>) = edges.into_iter().unzip();
            let options = if undirected { EdgeOptions::UNDIRECTED } else { EdgeOptions::DIRECTED };
            let graph = build(20, &from, &to, options).unwrap();
            let all = distinct(&graph, undirected);
            let [train, valid, test] = split(all.clone(), [6.0, 2.0, 2.0], seed);
            let mut parts = [&train[..], &valid, &test].concat();
            prop_assert_eq!(parts.len(), all.len());
            parts.sort_unstable_by_key(|&(u, v)| (v, u));
            prop_assert_eq!(&parts, &all);
            if all.len() > 2 {
                prop_assert!(!train.is_empty() && !valid.is_empty() && !test.is_empty());
            }
            let held = set(valid.iter().chain(&test), undirected);
            let rest = without(&graph, &held).unwrap();
            for v in 0..20 {
                for &u in rest.in_neighbors(v) {
                    prop_assert!(!contains(&held, (u, v)));
                    prop_assert!(!undirected || !contains(&held, (v, u)));
                }
            }
            let loops = (0..20).filter(|&v| graph.in_neighbors(v).contains(&v)).count();
            prop_assert_eq!(rest.num_edges(), train.len() * if undirected { 2 } else { 1 } + loops);
            let mut turned = train.clone();
            directed(&mut turned, seed);
            prop_assert_eq!(set(&turned, true), set(&train, true));
        }
    }

    #[test]
    fn weights_follow_their_edges() {
        let graph = build(3, &[0, 1, 2], &[1, 1, 0], EdgeOptions::DIRECTED).unwrap();
        let graph = graph.with_edge_weight(vec![1.0, 2.0, 3.0].into()).unwrap();
        let rest = without(&graph, &set(&[(0, 1)], false)).unwrap();
        assert_eq!((rest.in_neighbors(0), rest.in_neighbors(1)), (&[2][..], &[1][..]));
        assert_eq!(rest.edge_weight(), Some(&[1.0, 3.0][..]));
    }
}
