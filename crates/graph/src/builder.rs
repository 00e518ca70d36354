//! From edge lists to CSC: a parallel counting sort by destination, then a sort of every row.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

use crate::{Error, Graph, NodeId, Result, search::position};

/// What [`build`] does to the edges on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeOptions {
    /// Store every edge both ways.
    pub undirected: bool,
    /// Drop edges from a node to itself.
    pub drop_self_loops: bool,
    /// Keep several edges between the same two nodes.
    pub keep_duplicates: bool,
}

impl EdgeOptions {
    /// Edges as given, duplicates dropped.
    pub const DIRECTED: Self = Self { undirected: false, drop_self_loops: false, keep_duplicates: false };
    /// Every edge both ways, no duplicates, no self-loops.
    pub const UNDIRECTED: Self = Self { undirected: true, drop_self_loops: true, keep_duplicates: false };
}

/// The graph of `V = num_nodes` nodes with an edge from each `src[i]` to `dst[i]` (messages flow
/// from source to destination); rows come out sorted by source, so the result does not depend on
/// the order of the edges or on the number of threads.
///
/// O(V + E log(largest degree)) work, parallel throughout, `4 E' + 32 V` bytes beside the result, where `E'` counts both
/// directions of an undirected graph.
///
/// # Errors
/// The two lists differ in length, or an id is not below `num_nodes`.
pub fn build(num_nodes: usize, src: &[NodeId], dst: &[NodeId], options: EdgeOptions) -> Result<Graph> {
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
    let each = |visit: &(dyn Fn(NodeId, NodeId) + Sync)| {
        src.par_iter().zip(dst).with_min_len(1 << 14).for_each(|(&u, &v)| {
            let self_loop = u == v;
            if self_loop && options.drop_self_loops {
                return;
            }
            visit(u, v);
            if options.undirected && !self_loop {
                visit(v, u);
            }
        });
    };

    // Relaxed suffices for all three uses: counts and cursors are independent sums, and the fork
    // and join of the parallel loops order them against everything outside.
    let degree: Vec<AtomicU64> = (0..num_nodes).into_par_iter().map(|_| AtomicU64::new(0)).collect();
    each(&|_, v| {
        degree[v as usize].fetch_add(1, Relaxed);
    });
    let starts = running_sum(&degree, |degree| degree.load(Relaxed));
    let cursor = degree;
    cursor.par_iter().zip(&starts).for_each(|(cursor, &start)| cursor.store(start, Relaxed));
    let total = starts[num_nodes] as usize;
    let slots: Vec<AtomicU32> = (0..total).into_par_iter().map(|_| AtomicU32::new(0)).collect();
    each(&|u, v| {
        let slot = cursor[v as usize].fetch_add(1, Relaxed);
        slots[slot as usize].store(u, Relaxed);
    });
    drop(cursor);
    let mut indices: Vec<NodeId> = slots.par_iter().map(|slot| slot.load(Relaxed)).collect();
    drop(slots);

    // Sort each row and count what stays of it; where something goes, copy what stays.
    let kept: Vec<AtomicU64> = (0..num_nodes).into_par_iter().map(|_| AtomicU64::new(0)).collect();
    for_each_row(&starts, 0, &mut indices, &|v, row| {
        row.sort_unstable();
        let stays = if options.keep_duplicates { row.len() } else { dedup(row) };
        kept[v].store(stays as u64, Relaxed);
    });
    let indptr = running_sum(&kept, |kept| kept.load(Relaxed));
    if indptr[num_nodes] as usize == total {
        return Graph::new(indptr.into(), indices.into());
    }
    let mut closed: Vec<NodeId> = vec![0; indptr[num_nodes] as usize];
    for_each_row(&indptr, 0, &mut closed, &|v, row| {
        row.copy_from_slice(&indices[starts[v] as usize..][..row.len()]);
    });
    Graph::new(indptr.into(), closed.into())
}

/// `0, x0, x0 + x1, ..`: one entry more than there are items. Parallel over pieces.
fn running_sum<T: Sync>(items: &[T], value: impl Fn(&T) -> u64 + Sync) -> Vec<u64> {
    const PIECE: usize = 1 << 14;
    let sums: Vec<u64> = items.par_chunks(PIECE).map(|piece| piece.iter().map(&value).sum()).collect();
    let mut starts = Vec::with_capacity(sums.len());
    let mut start = 0;
    for sum in sums {
        starts.push(start);
        start += sum;
    }
    let mut out = vec![0; items.len() + 1];
    out[1..].par_chunks_mut(PIECE).zip(items.par_chunks(PIECE)).zip(starts).for_each(
        |((out, piece), mut sum)| {
            for (out, item) in out.iter_mut().zip(piece) {
                sum += value(item);
                *out = sum;
            }
        },
    );
    out
}

/// Calls `work(v, row)` for every row, in parallel. `starts` has an entry more than there are rows, the first of which is
/// row `first`; `data` holds these rows alone.
fn for_each_row(
    starts: &[u64],
    first: usize,
    data: &mut [NodeId],
    work: &(impl Fn(usize, &mut [NodeId]) + Sync),
) {
    /// Rows of a task.
    const ROWS: usize = 256;
    let rows = starts.len() - 1;
    if rows > ROWS {
        let middle = rows / 2;
        let (low, high) = data.split_at_mut((starts[middle] - starts[0]) as usize);
        rayon::join(
            || for_each_row(&starts[..=middle], first, low, work),
            || for_each_row(&starts[middle..], first + middle, high, work),
        );
        return;
    }
    let mut rest = data;
    for (i, ends) in starts.windows(2).enumerate() {
        let (row, after) = rest.split_at_mut((ends[1] - ends[0]) as usize);
        work(first + i, row);
        rest = after;
    }
}

/// Moves the distinct values of a sorted row to its front and counts them.
fn dedup(row: &mut [NodeId]) -> usize {
    let mut kept = 0;
    for i in 0..row.len() {
        if i == 0 || row[i] != row[kept - 1] {
            row[kept] = row[i];
            kept += 1;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_outside_are_refused() {
        let error = build(2, &[0, 1], &[1, 2], EdgeOptions::DIRECTED).unwrap_err().to_string();
        assert!(error.contains("edge 1 joins nodes 1 and 2"), "{error}");
        assert!(build(2, &[0], &[], EdgeOptions::DIRECTED).is_err());
        assert_eq!(build(0, &[], &[], EdgeOptions::DIRECTED).unwrap().num_nodes(), 0);
    }

    #[test]
    fn many_nodes_are_built_as_few_are() {
        // a hub, empty rows and duplicates over several pieces of the sums and tasks of the rows
        let nodes = 40_000u32;
        let mut stream = crate::keyed::Stream::new(5);
        let pairs: Vec<(u32, u32)> = (0..100_000u32)
            .map(|i| {
                let v = if i % 10 == 0 { 7 } else { 3 * stream.below(u64::from(nodes) / 3) as u32 };
                (stream.below(300) as u32, v)
            })
            .collect();
        let (src, dst): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
        let graph = build(nodes as usize, &src, &dst, EdgeOptions::DIRECTED).unwrap();
        let expected: BTreeSet<(u32, u32)> = pairs.iter().map(|&(u, v)| (v, u)).collect();
        let found = (0..nodes).flat_map(|v| graph.in_neighbors(v).iter().map(move |&u| (v, u)));
        assert!(found.eq(expected));
    }

    proptest! {
        /// Against the plainest possible version: a set (or list) of pairs.
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
