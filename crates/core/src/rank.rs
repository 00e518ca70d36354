//! Hotness of nodes from the graph alone: out-degrees and reverse PageRank.
//!
//! # Algorithm
//!
//! Both use one operation, [`spread`]: every node adds a value to each of its in-neighbours. Sums
//! are whole numbers (fixed point), so that threads may add in any order with the same bits; no
//! transposed graph is needed.
//!
//! # Source
//!
//! Reverse PageRank: Bar-Yossef and Mashiach, CIKM 2008; with weighted training nodes: Min et al.,
//! *Graph neural network training with data tiering*, KDD 2022, Algorithm 1.
//!
//! # Cost
//!
//! O(iterations (V + E)), parallel.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

use crate::{Graph, NodeId};

/// Minimum number of nodes per task.
const MIN_TASK_LEN: usize = 1 << 10;
/// Sum of all spread values in fixed-point units: half of the range of 64 bits, because each value
/// is rounded up or down.
const UNITS: f64 = (1u64 << 63) as f64;

/// Number of nodes that list each node among their in-neighbours (`V`). O(V + E), parallel.
pub fn out_degrees(graph: &Graph) -> Vec<u32> {
    out_degrees_of([graph], graph.num_nodes())
}

/// Number of edges of all `graphs` that leave each of `nodes` nodes.
pub(crate) fn out_degrees_of<'g>(graphs: impl IntoIterator<Item = &'g Graph>, nodes: usize) -> Vec<u32> {
    let counts: Vec<AtomicU32> = (0..nodes).map(|_| AtomicU32::new(0)).collect();
    for graph in graphs {
        graph.indices().par_chunks(1 << 14).for_each(|run| {
            for &u in run {
                // A sum: the order of the threads does not matter.
                counts[u as usize].fetch_add(1, Relaxed);
            }
        });
    }
    counts.into_iter().map(AtomicU32::into_inner).collect()
}

/// Sum, for every node `u` (`V`), of `value(v, e)` over the edges `e` (positions in `indices`) by
/// which a node `v` receives from `u`. `value` must not be negative, and is called twice for each
/// edge. O(V + E) calls, parallel, 8 `V` bytes in addition to the result; the error per edge is at
/// most `2^-63` of the sum of all values.
pub fn spread(graph: &Graph, value: impl Fn(NodeId, usize) -> f64 + Sync) -> Vec<f64> {
    let indptr = graph.indptr();
    let nodes = graph.num_nodes();
    let edges = |v: usize| indptr[v] as usize..indptr[v + 1] as usize;
    // Sums of fixed ranges in their order: the same bits for any number of threads.
    let runs: Vec<f64> = (0..nodes.div_ceil(MIN_TASK_LEN))
        .into_par_iter()
        .map(|run| {
            let run = run * MIN_TASK_LEN..nodes.min((run + 1) * MIN_TASK_LEN);
            run.flat_map(|v| edges(v).map(move |e| (v, e))).map(|(v, e)| value(v as NodeId, e)).sum::<f64>()
        })
        .collect();
    let total: f64 = runs.iter().sum();
    if total <= 0.0 {
        return vec![0.0; nodes];
    }
    let scale = UNITS / total;
    let sums: Vec<AtomicU64> = (0..nodes).map(|_| AtomicU64::new(0)).collect();
    (0..nodes).into_par_iter().with_min_len(MIN_TASK_LEN).for_each(|v| {
        for e in edges(v) {
            let units = (value(v as NodeId, e) * scale) as u64;
            // Whole numbers: the order of the threads does not matter.
            sums[graph.indices()[e] as usize].fetch_add(units, Relaxed);
        }
    });
    sums.into_par_iter().map(|sum| sum.into_inner() as f64 / scale).collect()
}

/// Options of reverse PageRank.
#[derive(Clone, Copy, Debug)]
pub struct RankOptions {
    /// Number of iterations; a few preserve the influence of the initial scores.
    pub iterations: usize,
    /// Share of a score that comes from receivers, between 0 and 1.
    pub damp: f64,
}

impl Default for RankOptions {
    /// Five iterations (Data Tiering, section 3.2) and the usual 0.85, which the paper leaves open.
    fn default() -> Self {
        Self { iterations: 5, damp: 0.85 }
    }
}

/// Reverse PageRank (`V`): a node is hot if its receivers are hot and receive from few others,
/// `s(u) = (1 - d) / V + d * sum over v that receive from u of s(v) / indegree(v)`, from `start`.
/// With `start` of one it is the plain version (Bar-Yossef and Mashiach, CIKM 2008); weighting the
/// training nodes by `V / train` and stopping after five iterations gives the version of Min et
/// al., KDD 2022, Algorithm 1.
///
/// O(iterations (V + E)), parallel, the same bits for any number of threads.
pub fn reverse_pagerank(graph: &Graph, start: &[f64], options: RankOptions) -> Vec<f64> {
    let nodes = graph.num_nodes();
    assert_eq!(start.len(), nodes, "a score for each node to begin with");
    let base = (1.0 - options.damp) / nodes.max(1) as f64;
    let mut score: Vec<f64> = start.iter().map(|s| s / nodes.max(1) as f64).collect();
    for _ in 0..options.iterations {
        // Nodes without in-neighbours contribute nothing, so there is no division by 0.
        let share: Vec<f64> = score
            .par_iter()
            .enumerate()
            .map(|(v, s)| s / graph.in_degree(v as NodeId).max(1) as f64)
            .collect();
        let sums = spread(graph, |v, _| share[v as usize]);
        score = sums.into_par_iter().map(|sum| base + options.damp * sum).collect();
    }
    score
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{EdgeOptions, build};

    /// Direct implementation of the formula.
    fn plain(graph: &Graph, start: &[f64], RankOptions { iterations, damp }: RankOptions) -> Vec<f64> {
        let n = graph.num_nodes();
        let mut score: Vec<f64> = start.iter().map(|s| s / n as f64).collect();
        for _ in 0..iterations {
            let mut next = vec![(1.0 - damp) / n as f64; n];
            for v in 0..n as NodeId {
                for &u in graph.in_neighbors(v) {
                    next[u as usize] += damp * score[v as usize] / graph.in_degree(v) as f64;
                }
            }
            score = next;
        }
        score
    }

    #[test]
    fn nodes_with_many_receivers_are_hot() {
        // 1 and 2 receive from 0, 3 receives from 1 and 2.
        let graph = build(4, &[0, 0, 1, 2], &[1, 2, 3, 3], EdgeOptions::DIRECTED).unwrap();
        assert_eq!(out_degrees(&graph), [2, 1, 1, 0]);
        let score = reverse_pagerank(&graph, &[1.0; 4], RankOptions { iterations: 1, damp: 0.5 });
        let expected = [0.125 + 0.25, 0.125 + 0.0625, 0.125 + 0.0625, 0.125];
        score.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-15, "{a} {b}"));
        assert_eq!(spread(&graph, |_, _| 0.0), [0.0; 4]);
        let empty = Graph::new(vec![0].into(), vec![].into()).unwrap();
        assert!(reverse_pagerank(&empty, &[], RankOptions::default()).is_empty());
    }

    proptest! {
        #[test]
        fn scores_match_the_formula_for_any_number_of_threads(
            edges in prop::collection::vec((0..60u32, 0..60u32), 0..300),
            labelled in prop::collection::vec(0..60usize, 0..20),
        ) {
            let (src, dst): (Vec<u32>, Vec<u32>) = edges.into_iter().unzip();
            let graph = build(60, &src, &dst, EdgeOptions::DIRECTED).unwrap();
            let mut start = [1.0; 60];
            labelled.into_iter().for_each(|v| start[v] = 7.5);
            let options = RankOptions::default();
            let score = reverse_pagerank(&graph, &start, options);
            for (a, b) in score.iter().zip(plain(&graph, &start, options)) {
                prop_assert!((a - b).abs() < 1e-12, "{a} {b}");
            }
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            prop_assert_eq!(pool.install(|| reverse_pagerank(&graph, &start, options)), score);
        }
    }
}
