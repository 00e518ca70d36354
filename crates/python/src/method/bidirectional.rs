//! Drawn edges in both directions.

use crate::batch::Drawn;

/// Adds the reverse of every edge, drops duplicates, and sorts by destination, then source (PyG's
/// `to_bidirectional`). A drawn edge keeps its number; an added edge has the number of its reverse.
/// O(M log M).
pub(super) fn both_ways(out: &mut Drawn) {
    let Drawn { src, dst, edges, .. } = out;
    let there = src.iter().zip(&*dst).map(|(&u, &v)| u64::from(v) << 32 | u64::from(u));
    let back = src.iter().zip(&*dst).map(|(&u, &v)| u64::from(u) << 32 | u64::from(v));
    let mut all: Vec<(u64, usize)> = there.chain(back).zip(0..).collect();
    all.sort_unstable();
    all.dedup_by_key(|(ends, _)| *ends);
    let number = |&(_, i): &(u64, usize)| edges[if i < edges.len() { i } else { i - edges.len() }];
    let numbers: Vec<u64> = all.iter().map(number).collect();
    src.clear();
    src.extend(all.iter().map(|(ends, _)| *ends as u32));
    dst.clear();
    dst.extend(all.iter().map(|(ends, _)| (ends >> 32) as u32));
    *edges = numbers;
}
