//! Test for undirected graphs.
//!
//! # Algorithm
//!
//! The edges from a smaller to a larger id and the reversed edges from a larger to a smaller one
//! are compared as multisets, by the 128-bit sums of a hash of their members. The sums agree by
//! chance once in 10^38 graphs. Searching the counterpart of each edge in its row would miss the
//! caches several times per edge.
//!
//! # Source
//!
//! MSet-Add-Hash of Clarke, Devadas, van Dijk, Gassend and Suh, *Incremental multiset hash
//! functions*, Asiacrypt 2003, section 4.
//!
//! # Cost
//!
//! O(E), parallel, without additional memory.
//!
//! # Deviations
//!
//! A mixing function replaces the cryptographic hash.

#![forbid(unsafe_code)]

use rayon::prelude::*;

use crate::{Graph, NodeId, keyed};

/// Returns true if every edge is stored as often in one direction as in the other, with the same
/// weights if `weights` is set. Unsorted rows (which this project never creates) count as
/// asymmetric.
pub fn is_symmetric(graph: &Graph, weights: bool) -> bool {
    let weight = graph.edge_weight().filter(|_| weights);
    let row = |v: NodeId| {
        let start = graph.indptr()[v as usize] as usize;
        let row = graph.in_neighbors(v);
        if !row.is_sorted() {
            return None;
        }
        let mut sums = [0u64; 2];
        for (i, &u) in row.iter().enumerate().filter(|&(_, &u)| u != v) {
            let ends = u64::from(u.max(v)) << 32 | u64::from(u.min(v));
            let bits = weight.map_or(0, |weight| u64::from(weight[start + i].to_bits()));
            let hashes = [keyed::key(&[ends, bits]), keyed::key(&[!ends, bits])];
            for (sum, hash) in sums.iter_mut().zip(hashes) {
                *sum = if u < v { sum.wrapping_add(hash) } else { sum.wrapping_sub(hash) };
            }
        }
        Some(sums)
    };
    let add = |a: [u64; 2], b: [u64; 2]| [a[0].wrapping_add(b[0]), a[1].wrapping_add(b[1])];
    let nodes = graph.num_nodes() as NodeId;
    let sums = (0..nodes).into_par_iter().with_min_len(1 << 10).map(row);
    sums.try_reduce(|| [0; 2], |a, b| Some(add(a, b))) == Some([0; 2])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{EdgeOptions, build};

    const ALL: EdgeOptions = EdgeOptions { keep_duplicates: true, ..EdgeOptions::DIRECTED };

    #[test]
    fn both_directions_are_counted() {
        let symmetric = |src: &[u32], dst: &[u32]| is_symmetric(&build(4, src, dst, ALL).unwrap(), true);
        assert!(symmetric(&[], &[]));
        assert!(symmetric(&[0, 1, 2], &[1, 0, 2]));
        assert!(symmetric(&[0, 1, 0, 1], &[1, 0, 1, 0]));
        assert!(!symmetric(&[0], &[1]));
        assert!(!symmetric(&[0, 1, 0], &[1, 0, 1]));
        assert!(!symmetric(&[0, 1, 2], &[1, 2, 0]));
    }

    #[test]
    fn weights_are_compared_on_request() {
        // 0 <- 1, 1 <- 0, 2 <- 2.
        let graph = build(3, &[0, 1, 2], &[1, 0, 2], ALL).unwrap();
        let weighted = |weights: [f32; 3]| graph.clone().with_edge_weight(weights.to_vec().into()).unwrap();
        assert!(is_symmetric(&weighted([2., 2., 3.]), true));
        assert!(!is_symmetric(&weighted([2., 3., 3.]), true));
        assert!(is_symmetric(&weighted([2., 3., 3.]), false));
    }

    proptest! {
        /// Compares with sorted lists of the edges and of the reversed edges.
        #[test]
        fn same_as_comparing_lists(
            edges in prop::collection::vec((0u32..4, 0u32..4), 0..12), mirror: bool,
        ) {
            let mut edges = edges;
            if mirror {
                edges.extend(edges.clone().iter().map(|&(u, v)| (v, u)));
            }
            let mut turned: Vec<_> = edges.iter().map(|&(u, v)| (v, u)).collect();
            let (src, dst): (Vec<_>, Vec<_>) = edges.iter().copied().unzip();
            edges.sort_unstable();
            turned.sort_unstable();
            prop_assert_eq!(is_symmetric(&build(4, &src, &dst, ALL).unwrap(), true), edges == turned);
        }
    }
}
