//! Construction of CSC graphs from edge lists.
//!
//! # Algorithm
//!
//! Edges are partitioned by destination, and each part is sorted separately in a core's cache.
//!
//! # Source
//!
//! Wassenberg and Sanders, *Engineering a multi-core radix sort*, Euro-Par 2011, for the
//! distribution (see [`deal`]).
//!
//! # Cost
//!
//! O(V + E) work, parallel. Counting the edges of each destination and storing each at its
//! position, one by one, took three times as long for 50 million edges between 2^25 nodes, because
//! nearly every edge misses the caches three times.

#![forbid(unsafe_code)]

pub mod deal;
pub mod duplicates;
pub mod item;
pub mod radix;

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use rayon::prelude::*;

use self::{
    deal::{Dealer, sample, splitters},
    duplicates::sort_and_merge,
    item::{Item, Weighted},
};
use crate::{Error, Graph, NodeId, Result, csc::is_no_weight, memory, search::position};

/// Approximate number of keys of a part: with the workspace of the sort it stays in a core's L2
/// cache.
const PART: usize = 1 << 16;
/// Maximum number of parts: more would exceed the caches during the distribution.
const PARTS: usize = 512;

/// Options of [`build`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeOptions {
    /// True to store every edge in both directions.
    pub undirected: bool,
    /// True to drop self-loops.
    pub drop_self_loops: bool,
    /// True to keep parallel edges. Otherwise they are merged, and their weights are added.
    pub keep_duplicates: bool,
}

impl EdgeOptions {
    /// Edges as given, without duplicates.
    pub const DIRECTED: Self = Self { undirected: false, drop_self_loops: false, keep_duplicates: false };
    /// Every edge in both directions, without duplicates and self-loops.
    pub const UNDIRECTED: Self = Self { undirected: true, drop_self_loops: true, keep_duplicates: false };
}

/// Builds the graph of `V = num_nodes` nodes with an edge from each `src[i]` to `dst[i]` (messages
/// flow from source to destination). Rows are sorted by source, so the result does not depend on
/// the order of the edges or on the number of threads.
///
/// O(V + E) work, parallel throughout; `8 E' + 8 V` bytes in addition to the lists and `indptr`
/// (including the result's `4 E'`), where `E'` counts both directions of an undirected graph.
///
/// # Errors
/// The two lists differ in length, or an id is not below `num_nodes`.
pub fn build(num_nodes: usize, src: &[NodeId], dst: &[NodeId], options: EdgeOptions) -> Result<Graph> {
    build_of::<u64>(num_nodes, src, dst, &[], options)
}

/// Builds a graph as [`build`] does, for edges with weights `weight[i]`, finite and not negative.
/// The reverse of an undirected edge has the same weight; merged duplicates have the sum of their
/// weights, as in PyG's `coalesce`. Takes `16 E'` additional bytes.
///
/// # Errors
/// As for [`build`]; the number of weights differs, a weight is invalid, or a sum of duplicates is
/// infinite.
pub fn build_weighted(
    num_nodes: usize,
    src: &[NodeId],
    dst: &[NodeId],
    weight: &[f32],
    options: EdgeOptions,
) -> Result<Graph> {
    if weight.len() != src.len() {
        return Err(Error::invalid(format!("{} edge weights for {} edges", weight.len(), src.len())));
    }
    if let Some(e) = position(weight, is_no_weight) {
        return Err(no_weight(e as u64, weight[e]));
    }
    build_of::<Weighted>(num_nodes, src, dst, weight, options)
}

/// Error for an invalid edge weight.
pub fn no_weight(edge: u64, weight: f32) -> Error {
    Error::invalid(format!("edge {edge} weighs {weight}: weights are finite and at least 0"))
}

fn build_of<I: Item>(
    num_nodes: usize,
    src: &[NodeId],
    dst: &[NodeId],
    weight: &[f32],
    options: EdgeOptions,
) -> Result<Graph> {
    if src.len() != dst.len() {
        return Err(Error::invalid(format!("{} edge sources for {} destinations", src.len(), dst.len())));
    }
    let outside = |ids: &[NodeId]| position(ids, |&id| id as usize >= num_nodes);
    if let Some(e) = [outside(src), outside(dst)].into_iter().flatten().min() {
        return Err(Error::invalid(format!(
            "edge {e} joins nodes {} and {}, but there are {num_nodes} nodes",
            src[e], dst[e]
        )));
    }
    let directions = if options.undirected { 2 } else { 1 };
    let parts = (src.len() * directions / PART).clamp(1, PARTS);
    let dealer = Dealer::new(splitters(sample(src, dst, options.undirected), parts));
    let parts: Vec<Mutex<Vec<I>>> = (0..dealer.parts()).map(|_| Mutex::default()).collect();
    dealer.deal_edges(src, dst, weight, options, &|part, keys: &[I]| {
        // No thread panics while it holds the lock.
        parts[part].lock().expect("no holder panics").extend_from_slice(keys);
        Ok(())
    })?;

    // A row may lie in several parts, each of which adds its share. Relaxed suffices: these are
    // sums, ordered against everything else by the fork and join of the loop.
    let degree: Vec<AtomicU64> = (0..num_nodes).into_par_iter().map(|_| AtomicU64::new(0)).collect();
    let parts: Result<Vec<(Vec<NodeId>, Vec<f32>)>> = parts
        .into_par_iter()
        .with_max_len(1)
        .map(|keys| {
            let mut keys = keys.into_inner().expect("no holder panics");
            sort_and_merge(&mut keys, options.keep_duplicates)?;
            for row in keys.chunk_by(|a, b| a.key() >> 32 == b.key() >> 32) {
                degree[(row[0].key() >> 32) as usize].fetch_add(row.len() as u64, Relaxed);
            }
            // By reference: collecting in place would retain the memory of the keys.
            let weights =
                if I::WEIGHTED { keys.iter().map(|item| item.weight()).collect() } else { Vec::new() };
            Ok((keys.iter().map(|item| item.key() as NodeId).collect(), weights))
        })
        .collect();
    let (sources, weights): (Vec<_>, Vec<_>) = parts?.into_iter().unzip();
    let indptr = running_sum(&degree, |degree| degree.load(Relaxed))?;
    drop(degree);
    let edges = indptr[num_nodes] as usize;
    let graph = Graph::new(indptr.into(), joined(edges, sources)?.into())?;
    if I::WEIGHTED { graph.with_edge_weight(joined(edges, weights)?.into()) } else { Ok(graph) }
}

/// Concatenates `len` values of the parts. Parallel; a part's memory is freed as soon as it is
/// copied.
fn joined<T: bytemuck::Pod + Send + Sync>(len: usize, parts: Vec<Vec<T>>) -> Result<Vec<T>> {
    let mut all: Vec<T> = memory::zeroed(len)?;
    let mut rest = &mut all[..];
    let mut places = Vec::with_capacity(parts.len());
    for part in &parts {
        let (place, after) = rest.split_at_mut(part.len());
        places.push(place);
        rest = after;
    }
    places.into_par_iter().zip(parts).for_each(|(place, part)| place.copy_from_slice(&part));
    Ok(all)
}

/// Prefix sums `0, x0, x0 + x1, ..`: one entry more than there are items. Parallel over chunks.
fn running_sum<T: Sync>(items: &[T], value: impl Fn(&T) -> u64 + Sync) -> Result<Vec<u64>> {
    const CHUNK_LEN: usize = 1 << 14;
    let sums: Vec<u64> = items.par_chunks(CHUNK_LEN).map(|piece| piece.iter().map(&value).sum()).collect();
    let mut starts = Vec::with_capacity(sums.len());
    let mut start = 0;
    for sum in sums {
        starts.push(start);
        start += sum;
    }
    let mut out: Vec<u64> = memory::zeroed(items.len() + 1)?;
    out[1..].par_chunks_mut(CHUNK_LEN).zip(items.par_chunks(CHUNK_LEN)).zip(starts).for_each(
        |((out, piece), mut sum)| {
            for (out, item) in out.iter_mut().zip(piece) {
                sum += value(item);
                *out = sum;
            }
        },
    );
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_out_of_range_are_rejected() {
        let error = build(2, &[0, 1], &[1, 2], EdgeOptions::DIRECTED).unwrap_err().to_string();
        assert!(error.contains("edge 1 joins nodes 1 and 2"), "{error}");
        assert!(build(2, &[0], &[], EdgeOptions::DIRECTED).is_err());
        for weight in [-1.0, f32::NAN, f32::INFINITY] {
            let bad = build_weighted(2, &[0, 1], &[1, 0], &[0.0, weight], EdgeOptions::DIRECTED);
            assert!(bad.unwrap_err().to_string().contains(&format!("edge 1 weighs {weight}")));
        }
        assert!(build_weighted(2, &[0], &[1], &[], EdgeOptions::DIRECTED).is_err());
        assert_eq!(build(0, &[], &[], EdgeOptions::DIRECTED).unwrap().num_nodes(), 0);
    }

    #[test]
    fn large_and_small_inputs_agree() {
        // A hub whose row lies in several parts, empty rows and duplicates; any number of threads.
        let nodes = 40_000u32;
        let mut stream = crate::keyed::Stream::new(5);
        let pairs: Vec<(u32, u32)> = (0..6 * PART)
            .map(|i| {
                let v = if i % 3 == 0 { 7 } else { 3 * stream.below(u64::from(nodes) / 3) as u32 };
                (stream.below(30_000) as u32, v)
            })
            .collect();
        let (src, dst): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
        let expected: BTreeSet<(u32, u32)> = pairs.iter().map(|&(u, v)| (v, u)).collect();
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let graph = pool.install(|| build(nodes as usize, &src, &dst, EdgeOptions::DIRECTED)).unwrap();
            let found = (0..nodes).flat_map(|v| graph.in_neighbors(v).iter().map(move |&u| (v, u)));
            assert!(found.eq(expected.iter().copied()), "{threads} threads");
        }
    }

    proptest! {
        /// Compares weights with a map of sums: multiples of 1/8, whose sums are exact in any
        /// order.
        #[test]
        fn weights_are_those_of_a_map_of_sums(
            edges in prop::collection::vec((0u32..20, 0u32..20, 0u32..100), 0..200),
            undirected: bool, drop_self_loops: bool, keep_duplicates: bool,
        ) {
            let src: Vec<u32> = edges.iter().map(|e| e.0).collect();
            let dst: Vec<u32> = edges.iter().map(|e| e.1).collect();
            let weight: Vec<f32> = edges.iter().map(|e| e.2 as f32 / 8.0).collect();
            let options = EdgeOptions { undirected, drop_self_loops, keep_duplicates };
            let graph = build_weighted(20, &src, &dst, &weight, options).unwrap();
            let mut all: Vec<(u32, u32, u32)> = Vec::new();
            for (u, v, w) in edges {
                if u == v && drop_self_loops { continue }
                all.push((v, u, w));
                if undirected && u != v { all.push((u, v, w)) }
            }
            all.sort_unstable();
            if !keep_duplicates {
                let runs = all.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1));
                all = runs.map(|run| (run[0].0, run[0].1, run.iter().map(|e| e.2).sum())).collect();
            }
            let rows = (0..20u32).flat_map(|v| graph.in_neighbors(v).iter().map(move |&u| (v, u)));
            let weights = graph.edge_weight().unwrap().iter().map(|w| (w * 8.0) as u32);
            let found: Vec<(u32, u32, u32)> = rows.zip(weights).map(|((v, u), w)| (v, u, w)).collect();
            prop_assert_eq!(found, all);
        }

        /// Compares with the simplest possible version: a set (or list) of pairs.
        #[test]
        fn same_as_a_set_of_pairs(
            pairs in prop::collection::vec((0u32..20, 0u32..20), 0..200),
            undirected: bool, drop_self_loops: bool, keep_duplicates: bool,
        ) {
            let (src, dst): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
            let options = EdgeOptions { undirected, drop_self_loops, keep_duplicates };
            let graph = build(20, &src, &dst, options).unwrap();
            let mut all: Vec<(u32, u32)> = Vec::new();
            for (u, v) in pairs {
                if u == v && drop_self_loops { continue }
                all.push((v, u));
                if undirected && u != v { all.push((u, v)) }
            }
            let expected: Vec<(u32, u32)> = if keep_duplicates {
                all.sort_unstable();
                all
            } else {
                all.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
            };
            let found: Vec<(u32, u32)> =
                (0..20).flat_map(|v| graph.in_neighbors(v).iter().map(move |&u| (v, u))).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
