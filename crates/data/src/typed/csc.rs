//! Order of edges by destination: the rows of a CSC graph, in the order of the input within a row.
//!
//! # Algorithm
//!
//! Destinations are divided into ranges. Every chunk of the edges is sorted by range, then every
//! range collects its edges from all chunks in order and sorts them by destination; both are
//! counting sorts, which keep the order of equal keys. Chunks, and then ranges, run in parallel.
//!
//! # Source
//!
//! Knuth, *The Art of Computer Programming* 3, section 5.2, algorithm D (distribution counting).
//!
//! # Cost
//!
//! O(V + E) work.
//!
//! # Memory
//!
//! 12 bytes per edge: the resulting order takes 8, and the chunks 4.

use graphmill_core::{Error, NodeId, Result, memory, search::position};
use rayon::prelude::*;

/// Edges of a chunk: positions within it take 32 bits.
const CHUNK_LEN: usize = 1 << 22;
/// Average number of edges of a range.
const RANGE_LEN: usize = 1 << 16;
/// Maximum number of ranges.
const MAX_RANGES: usize = 1 << 10;

/// Rows of a CSC graph, as positions of the edges.
#[derive(Debug)]
pub(super) struct Order {
    /// Start of each destination's row, and the number of edges (`V + 1`).
    pub(super) indptr: Vec<u64>,
    /// Position in the input of each edge of the rows (`E`).
    pub(super) order: Vec<u64>,
}

/// Checks that every id is below `count`.
///
/// # Errors
/// The first edge whose end does not exist; `end` is "source" or "destination".
pub(super) fn check_ids(ids: &[NodeId], count: usize, end: &str, node_type: &str) -> Result<()> {
    match position(ids, |&id| id as usize >= count) {
        None => Ok(()),
        Some(e) => Err(Error::invalid(format!(
            "edge {e} has the {end} {}, but there are {count} nodes of type '{node_type}'",
            ids[e]
        ))),
    }
}

/// Orders edges by destination, and by position among those of one destination. All destinations
/// are below `nodes`.
///
/// # Errors
/// Memory runs out.
pub(super) fn order(destinations: &[NodeId], nodes: usize) -> Result<Order> {
    let ranges = (destinations.len() / RANGE_LEN).clamp(1, MAX_RANGES.min(nodes.max(1)));
    order_by(destinations, nodes, ranges, CHUNK_LEN)
}

fn order_by(destinations: &[NodeId], nodes: usize, ranges: usize, chunk_len: usize) -> Result<Order> {
    let width = nodes.div_ceil(ranges).max(1);
    let chunks: Result<Vec<(Vec<u32>, Vec<u32>)>> = destinations
        .par_chunks(chunk_len)
        .map(|chunk| {
            let starts = starts(chunk.iter().map(|&v| v as usize / width), ranges);
            let order = place(chunk.iter().map(|&v| v as usize / width), &starts)?;
            Ok((starts, order))
        })
        .collect();
    let chunks = chunks?;
    let rows: Result<Vec<(Vec<u64>, Vec<u64>)>> = (0..ranges)
        .into_par_iter()
        .with_max_len(1)
        .map(|range| {
            let first = (range * width).min(nodes);
            let count = ((range + 1) * width).min(nodes) - first;
            let edges = || {
                chunks.iter().enumerate().flat_map(|(i, (starts, order))| {
                    let run = starts[range] as usize..starts[range + 1] as usize;
                    order[run].iter().map(move |&at| i * chunk_len + at as usize)
                })
            };
            let row = |e: usize| destinations[e] as usize - first;
            let mut ends: Vec<u64> = memory::zeroed(count + 1)?;
            edges().for_each(|e| ends[row(e) + 1] += 1);
            for v in 0..count {
                ends[v + 1] += ends[v];
            }
            let mut next: Vec<u64> = memory::reserve(ends.len())?;
            next.extend_from_slice(&ends);
            let mut order: Vec<u64> = memory::zeroed(ends[count] as usize)?;
            for e in edges() {
                let at = &mut next[row(e)];
                order[*at as usize] = e as u64;
                *at += 1;
            }
            Ok((ends, order))
        })
        .collect();
    let mut indptr = memory::reserve(nodes + 1)?;
    indptr.push(0);
    let mut order: Vec<u64> = memory::reserve(destinations.len())?;
    for (ends, range) in rows? {
        let before = order.len() as u64;
        indptr.extend(ends[1..].iter().map(|end| before + end));
        order.extend_from_slice(&range);
    }
    Ok(Order { indptr, order })
}

/// Start of each key's run in a counting sort, and the number of items.
fn starts(keys: impl Iterator<Item = usize>, count: usize) -> Vec<u32> {
    let mut starts = vec![0u32; count + 1];
    keys.for_each(|key| starts[key + 1] += 1);
    for key in 0..count {
        starts[key + 1] += starts[key];
    }
    starts
}

/// Positions of the items, sorted by key.
fn place(keys: impl Iterator<Item = usize>, starts: &[u32]) -> Result<Vec<u32>> {
    let mut next = starts.to_vec();
    let mut order: Vec<u32> = memory::zeroed(starts[starts.len() - 1] as usize)?;
    for (i, key) in keys.enumerate() {
        order[next[key] as usize] = i as u32;
        next[key] += 1;
    }
    Ok(order)
}

/// Destination of each edge of a CSC graph. Parallel.
pub(super) fn destinations(indptr: &[u64]) -> Vec<NodeId> {
    let rows = indptr.par_windows(2).with_min_len(1 << 12).enumerate();
    rows.flat_map_iter(|(v, ends)| (ends[0]..ends[1]).map(move |_| v as NodeId)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_are_a_stable_sort_for_any_division(
            destinations in prop::collection::vec(0u32..17, 0..200), ranges in 1usize..20,
            chunk_len in 1usize..50,
        ) {
            let found = order_by(&destinations, 17, ranges, chunk_len).unwrap();
            let mut expected: Vec<u64> = (0..destinations.len() as u64).collect();
            expected.sort_by_key(|&e| destinations[e as usize]);
            prop_assert_eq!(&found.order, &expected);
            let below = |v: u32| destinations.iter().filter(|&&w| w < v).count() as u64;
            prop_assert_eq!(&found.indptr, &(0..=17).map(below).collect::<Vec<_>>());
            let sorted: Vec<u32> = expected.iter().map(|&e| destinations[e as usize]).collect();
            prop_assert_eq!(super::destinations(&found.indptr), sorted);
        }
    }

    #[test]
    fn empty_graphs_have_empty_rows() {
        assert_eq!(order(&[], 0).unwrap().indptr, [0]);
        assert_eq!(order(&[], 2).unwrap().indptr, [0, 0, 0]);
        let error = check_ids(&[0, 3], 3, "source", "paper").unwrap_err().to_string();
        assert!(error.contains("edge 1 has the source 3, but there are 3 nodes of type 'paper'"), "{error}");
    }
}
