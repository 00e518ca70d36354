//! Splits of the edges of a graph, and the graph that batches read.
//!
//! # Algorithm
//!
//! The edges of a directed graph, or the pairs of linked nodes of an undirected one, are shuffled
//! and cut by their shares. Edges that validate or test, and their reverses in an undirected graph,
//! are removed from the graph that is read. Edges of a node to itself stay in the graph and are not
//! learned.
//!
//! By time, a pair of nodes has the time of the latest of its edges, in an undirected graph in both
//! directions, so that the graph that is read has no edge of a later time than a held-out one. The
//! pairs are sorted by time and cut where the time changes, as near to the shares as possible:
//! pairs of equal times are in one part.
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
use rayon::prelude::*;

use crate::{Error, config::link::EdgeShares};

/// Part of the key of the order of edges.
const ORDER: u64 = 0x6c69_6e6b_7370_6c74;
/// Part of the seed of the edges of a stored task that validate.
const HELD_OUT: u64 = 0x6865_6c64_206f_7574;
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

/// Takes a random part of the edges that train a stored task, of at least one edge if there are
/// two, and returns it. Training edges that repeat one of them, or are the reverse of one by
/// `same`, which is equal for both, are left out.
pub(crate) fn hold_out<E: Copy, K: Ord>(
    train: &mut Vec<E>,
    fraction: f64,
    seed: u64,
    same: impl Fn(E) -> K,
) -> Vec<E> {
    let all = std::mem::take(train);
    let [mut rest, held, _] = split(all, [1.0 - fraction, fraction, 0.0], seed ^ HELD_OUT);
    let mut known: Vec<K> = held.iter().map(|&edge| same(edge)).collect();
    known.sort_unstable();
    rest.retain(|&edge| known.binary_search(&same(edge)).is_err());
    *train = rest;
    held
}

/// Refuses `--valid-fraction` for a part that is not that of a task without validation edges.
pub(crate) fn refuse_hold_out(fraction: f64, why: &str) -> Result<(), Error> {
    match fraction {
        0.0 => Ok(()),
        _ => Err(Error::usage(format!("--valid-fraction {fraction}: {why}; leave it out"))),
    }
}

/// [`split`] by the time of each edge: no edge of a part is later than one of the next, and edges
/// of equal times are in one part. The parts are shuffled.
///
/// # Errors
/// There are fewer distinct times than parts with a share above 0.
pub(crate) fn split_by_time<E>(
    edges: Vec<E>,
    time: &[i64],
    shares: [f64; 3],
    seed: u64,
) -> Result<[Vec<E>; 3], String> {
    let mut order: Vec<(i64, E)> = time.iter().copied().zip(edges).collect();
    order.sort_by_key(|&(time, _)| time);
    let (count, sum) = (order.len(), shares.iter().sum::<f64>());
    let borders: Vec<usize> = (1..count).filter(|&i| order[i - 1].0 < order[i].0).collect();
    let parts = shares.iter().filter(|&&share| share > 0.0).count();
    if borders.len() + 1 < parts {
        return Err(format!("they have {} distinct times", borders.len() + usize::from(count > 0)));
    }
    // leaves `before` borders for the parts before, and is the nearest to the shares of these
    let border = |borders: &[usize], before: usize, share: f64| {
        let wanted = (count as f64 * share / sum).round() as usize;
        borders[before..].iter().copied().min_by_key(|&at| at.abs_diff(wanted)).unwrap_or(count)
    };
    let has_valid = usize::from(shares[1] > 0.0);
    let test = match shares[2] > 0.0 {
        true => border(&borders, has_valid, shares[0] + shares[1]),
        false => count,
    };
    let before = &borders[..borders.partition_point(|&at| at < test)];
    let valid = if has_valid > 0 { border(before, 0, shares[0]) } else { test };
    let mut edges: Vec<E> = order.into_iter().map(|(_, edge)| edge).collect();
    let mut parts = [Vec::new(), edges.split_off(valid.min(test)), Vec::new()];
    parts[2] = parts[1].split_off(test - valid.min(test));
    parts[0] = edges;
    for (i, part) in (0..).zip(&mut parts) {
        Stream::new(key(&[seed, ORDER, i])).shuffle(part);
    }
    Ok(parts)
}

/// Edges of a dataset with their times. The sources of a row may have any order.
#[derive(Clone, Copy)]
pub(crate) struct TimedEdges<'e> {
    /// Start of each destination's row.
    pub(crate) indptr: &'e [u64],
    /// Source of each edge.
    pub(crate) indices: &'e [NodeId],
    /// Time of each edge.
    pub(crate) time: &'e [i64],
}

impl TimedEdges<'_> {
    /// Latest time of each of these pairs of nodes among the edges that join it, in both directions
    /// if they are `undirected`. O(E log E).
    pub(crate) fn latest(&self, edges: &[Edge], undirected: bool) -> Vec<i64> {
        let mut all: Vec<(NodeId, NodeId, i64)> = Vec::with_capacity(self.indices.len());
        for (v, ends) in (0..).zip(self.indptr.windows(2)) {
            let row = ends[0] as usize..ends[1] as usize;
            all.extend(row.map(|e| (v, self.indices[e], self.time[e])));
        }
        all.par_sort_unstable();
        let of_pair = |u: NodeId, v: NodeId| {
            let end = all.partition_point(|edge| (edge.0, edge.1) <= (v, u));
            let last = end.checked_sub(1).map(|last| all[last]);
            last.filter(|edge| (edge.0, edge.1) == (v, u)).map_or(i64::MIN, |edge| edge.2)
        };
        let of = |&(u, v): &Edge| match undirected {
            true => of_pair(u, v).max(of_pair(v, u)),
            false => of_pair(u, v),
        };
        edges.par_iter().map(of).collect()
    }
}

/// Splits edges by the option `--split-edges`; `timed` has their times, if they have some. Returns
/// the parts, and how they are split.
///
/// # Errors
/// The split is by time, and the edges have no times or too few.
pub(crate) fn split_of(
    option: EdgeShares,
    (edges, undirected): (Vec<Edge>, bool),
    timed: Option<TimedEdges>,
    seed: u64,
) -> Result<([Vec<Edge>; 3], &'static str), String> {
    if !option.by_time {
        return Ok((split(edges, option.shares, seed), "at random by --seed"));
    }
    let time = timed.map(|timed| timed.latest(&edges, undirected));
    Ok((split_at_times(option, edges, time.as_deref(), seed)?, "by time"))
}

/// Splits edges by the shares and the `time` of each.
///
/// # Errors
/// They have no times or too few.
pub(crate) fn split_at_times<E>(
    option: EdgeShares,
    edges: Vec<E>,
    time: Option<&[i64]>,
    seed: u64,
) -> Result<[Vec<E>; 3], String> {
    let refuse = |why: String| {
        let random = EdgeShares { by_time: false, ..option };
        format!("{why}, so --split-edges {option} cannot split them; use --split-edges {random}")
    };
    let Some(time) = time else {
        return Err(refuse("its edges have no times".into()));
    };
    split_by_time(edges, time, option.shares, seed)
        .map_err(|why| refuse(format!("its edges cannot be divided by time: {why}")))
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

    proptest! {
        #[test]
        fn no_edge_is_later_than_one_of_the_next_part_and_ties_stay_together(
            edges in prop::collection::vec((0u32..12, 0u32..12, 0i64..9), 1..80),
            undirected in any::<bool>(),
            valid in 0u32..3,
            test in 0u32..3,
        ) {
            // the stored order of parallel edges is that of the times as given
            let mut directed: Vec<(u32, u32, i64)> = edges;
            if undirected {
                let reverses: Vec<_> = directed.iter().map(|&(u, v, t)| (v, u, t)).collect();
                directed.extend(reverses);
            }
            directed.sort_by_key(|&(u, v, _)| (v, u));
            let starts = |v: u32| directed.partition_point(|edge| edge.1 < v) as u64;
            let indptr: Vec<u64> = (0..=12).map(starts).collect();
            let indices: Vec<u32> = directed.iter().map(|edge| edge.0).collect();
            let time: Vec<i64> = directed.iter().map(|edge| edge.2).collect();
            let graph = Graph::of_sound_edges(indptr.into(), indices.into(), None).unwrap();
            let all = distinct(&graph, undirected);
            let timed = TimedEdges { indptr: graph.indptr(), indices: graph.indices(), time: &time };
            let latest = timed.latest(&all, undirected);
            let time_of = |edge: &Edge| latest[all.iter().position(|other| other == edge).unwrap()];
            for (&(u, v), &latest) in all.iter().zip(&latest) {
                let of = directed.iter().filter(|edge| (edge.0, edge.1) == (u, v)
                    || undirected && (edge.1, edge.0) == (u, v));
                prop_assert_eq!(of.map(|edge| edge.2).max(), Some(latest));
            }
            let shares = [6.0, f64::from(valid), f64::from(test)];
            let mut times = latest.clone();
            times.sort_unstable();
            times.dedup();
            let wanted = shares.iter().filter(|&&share| share > 0.0).count();
            let Ok(parts) = split_by_time(all.clone(), &latest, shares, 4) else {
                prop_assert!(times.len() < wanted);
                return Ok(());
            };
            let mut found = parts.concat();
            found.sort_unstable_by_key(|&(u, v)| (v, u));
            prop_assert_eq!(&found, &all);
            for (part, share) in parts.iter().zip(shares) {
                prop_assert_eq!(part.is_empty(), share == 0.0 || all.is_empty());
            }
            let ends: Vec<(i64, i64)> = parts.iter().filter(|part| !part.is_empty()).map(|part| {
                let times = part.iter().map(time_of);
                (times.clone().min().unwrap(), times.max().unwrap())
            }).collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", ends);
        }
    }

    #[test]
    fn splits_by_time_are_as_near_to_the_shares_as_ties_allow() {
        let sizes = |time: &[i64], shares| {
            split_by_time((0..time.len()).collect(), time, shares, 1)
                .map(|parts| parts.map(|part| part.len()))
        };
        let time: Vec<i64> = (0..20).collect();
        assert_eq!(sizes(&time, [80.0, 10.0, 10.0]), Ok([16, 2, 2]));
        assert_eq!(sizes(&time, [90.0, 0.0, 10.0]), Ok([18, 0, 2]));
        assert_eq!(sizes(&[1, 1, 1, 1, 2, 2, 2, 3, 3, 3], [80.0, 10.0, 10.0]), Ok([4, 3, 3]));
        assert_eq!(sizes(&[1, 1, 2, 2], [80.0, 10.0, 10.0]), Err("they have 2 distinct times".into()));
        assert_eq!(sizes(&[], [80.0, 0.0, 0.0]), Ok([0, 0, 0]));
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
