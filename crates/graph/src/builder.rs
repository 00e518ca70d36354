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
/// O(V + E log(largest degree)) work, `4 E' + 32 V` bytes beside the result, where `E'` counts both
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
    let cursor: Vec<AtomicU64> = (0..num_nodes + 1).into_par_iter().map(|_| AtomicU64::new(0)).collect();
    each(&|_, v| {
        cursor[v as usize + 1].fetch_add(1, Relaxed);
    });
    let mut total = 0;
    for c in &cursor {
        total += c.load(Relaxed);
        c.store(total, Relaxed);
    }
    let starts: Vec<u64> = cursor.iter().map(|c| c.load(Relaxed)).collect();
    let slots: Vec<AtomicU32> = (0..total as usize).into_par_iter().map(|_| AtomicU32::new(0)).collect();
    each(&|u, v| {
        let slot = cursor[v as usize].fetch_add(1, Relaxed);
        slots[slot as usize].store(u, Relaxed);
    });
    drop(cursor);
    let mut indices: Vec<NodeId> = slots.into_iter().map(AtomicU32::into_inner).collect();

    // Sort each row; then, where duplicates go, count and close the gaps.
    let mut rows: Vec<&mut [NodeId]> = Vec::with_capacity(num_nodes);
    let mut rest = &mut indices[..];
    for v in 0..num_nodes {
        let (row, after) = rest.split_at_mut((starts[v + 1] - starts[v]) as usize);
        rows.push(row);
        rest = after;
    }
    let kept: Vec<u64> = rows
        .into_par_iter()
        .with_min_len(256)
        .map(|row| {
            row.sort_unstable();
            if options.keep_duplicates { row.len() as u64 } else { dedup(row) as u64 }
        })
        .collect();
    let mut indptr = Vec::with_capacity(num_nodes + 1);
    let mut end = 0;
    indptr.push(0);
    for v in 0..num_nodes {
        let from = starts[v] as usize;
        indices.copy_within(from..from + kept[v] as usize, end as usize);
        end += kept[v];
        indptr.push(end);
    }
    indices.truncate(end as usize);
    indices.shrink_to_fit();
    Graph::new(indptr.into(), indices.into())
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
