//! Symmetric normalisation of sampled blocks.
//!
//! # Algorithm
//!
//! GCN's matrix is `D^-1/2 (A + I) D^-1/2`, with `D` the in-degrees of `A + I`: edge `u -> v` has
//! weight `1 / sqrt((d_u + 1) (d_v + 1))` and `v` itself `1 / (d_v + 1)`. The degrees are those of
//! the whole graph, not of the sample, and a destination that drew `k` of its `d` neighbours scales
//! their edges by `d / k`. Edges that the batch excludes are not counted by this `d`: a scale would
//! show a model which nodes are ends of the edges that it predicts.
//!
//! # Source
//!
//! Kipf and Welling, *Semi-supervised classification with graph convolutional networks*, ICLR 2017.
//!
//! # Cost
//!
//! O(V) once, and O(D + E) per block.
//!
//! # Deviations
//!
//! The sampled sum is an unbiased estimate of the full one and equals it when all neighbours are
//! drawn, so training and full-neighbour evaluation compute the same function. DGL and PyG
//! normalise by the degrees within the sample, which is biased towards low degrees.

#![forbid(unsafe_code)]

use std::sync::Arc;

use graphmill_core::{Block, Buffer, Graph, NodeId, memory};
use rayon::prelude::*;

use crate::{
    link::{ExcludedEdges, append_places},
    prefetch::prefetch,
};

/// Maximum number of destinations that one task fills.
const MAX_TASK_LEN: usize = 4096;

/// Precomputed `1 / sqrt(d + 1)` of each node of a graph.
#[derive(Clone, Debug)]
pub struct SymmetricWeights {
    inv_sqrt: Arc<Vec<f32>>,
    /// In-degrees, if they differ from those of the sampled graph.
    degrees: Option<Buffer<u32>>,
}

/// Lists of neighbours that a block was drawn from.
#[derive(Clone, Copy)]
struct DrawnFrom<'a> {
    graph: &'a Graph,
    degrees: Option<&'a [u32]>,
    /// Edges that the draws left out.
    excluded: Option<&'a ExcludedEdges>,
    /// True if the edges already have weights.
    known: bool,
}

impl DrawnFrom<'_> {
    /// Number of neighbours of `v` without excluded edges.
    fn count(&self, v: NodeId) -> f32 {
        let degree = match self.degrees {
            Some(degrees) => degrees[v as usize],
            None => self.graph.in_degree(v) as u32,
        };
        let excluded = self.excluded.map_or(&[][..], |excluded| excluded.sources_of(v));
        if excluded.is_empty() {
            return degree as f32;
        }
        let mut places = Vec::new();
        append_places(self.graph, v, excluded, &mut places);
        (degree - places.len() as u32) as f32
    }
}

/// A run of destinations with their edges. `indptr` has one more entry than `dst` and is relative
/// to its own first entry.
struct RunOfRows<'r> {
    dst: &'r [NodeId],
    indptr: &'r [u32],
    indices: &'r [NodeId],
    edge_weight: &'r mut [f32],
    self_weight: &'r mut [f32],
}

impl SymmetricWeights {
    /// Reads the in-degrees of `graph`. O(V), 4 bytes per node.
    pub fn new(graph: &Graph) -> Self {
        let inv_sqrt = graph
            .indptr()
            .par_windows(2)
            .map(|ends| (1.0 / ((ends[1] - ends[0]) as f64 + 1.0).sqrt()) as f32)
            .collect();
        Self { inv_sqrt: Arc::new(inv_sqrt), degrees: None }
    }

    /// Uses the given in-degrees (`V`), for a graph that holds the edges of some nodes only. O(V),
    /// 4 bytes per node.
    pub fn of_degrees(degrees: Buffer<u32>) -> Self {
        let inv_sqrt = degrees.par_iter().map(|&d| (1.0 / (f64::from(d) + 1.0).sqrt()) as f32).collect();
        Self { inv_sqrt: Arc::new(inv_sqrt), degrees: Some(degrees) }
    }

    /// Precomputed `1 / sqrt(d + 1)` of each node (`V`), for code that fills weights elsewhere.
    pub fn inv_sqrt(&self) -> &Arc<Vec<f32>> {
        &self.inv_sqrt
    }

    /// In-degrees (`V`), if they differ from those of the sampled graph.
    pub fn degrees(&self) -> Option<&[u32]> {
        self.degrees.as_deref()
    }

    /// Fills the weights of a block with destinations `dst` whose `indices` are still global ids.
    /// The draws left out the edges `excluded`. Existing edge weights replace the factor `d / k`:
    /// each is the number of neighbours that its edge represents. O(D + E), parallel for many
    /// destinations.
    pub fn fill(&self, graph: &Graph, dst: &[NodeId], excluded: Option<&ExcludedEdges>, block: &mut Block) {
        let Block { indptr, indices, edge_weight, self_weight, .. } = block;
        let known = !edge_weight.is_empty();
        memory::demand_len(edge_weight, indices.len(), 0.0);
        memory::demand_len(self_weight, dst.len(), 0.0);
        let from = DrawnFrom { graph, degrees: self.degrees(), excluded, known };
        self.fill_rows(from, RunOfRows { dst, indptr, indices, edge_weight, self_weight });
    }

    /// Fills a run of destinations, split in halves while it is long.
    fn fill_rows(&self, of: DrawnFrom, rows: RunOfRows) {
        let RunOfRows { dst, indptr, indices, edge_weight, self_weight } = rows;
        let at = |i: usize| (indptr[i] - indptr[0]) as usize;
        if dst.len() > MAX_TASK_LEN {
            let middle = dst.len() / 2;
            let (dst, indices) = (dst.split_at(middle), indices.split_at(at(middle)));
            let (edges, own) = (edge_weight.split_at_mut(at(middle)), self_weight.split_at_mut(middle));
            let first = RunOfRows {
                dst: dst.0,
                indptr: &indptr[..=middle],
                indices: indices.0,
                edge_weight: edges.0,
                self_weight: own.0,
            };
            let second = RunOfRows {
                dst: dst.1,
                indptr: &indptr[middle..],
                indices: indices.1,
                edge_weight: edges.1,
                self_weight: own.1,
            };
            rayon::join(|| self.fill_rows(of, first), || self.fill_rows(of, second));
            return;
        }
        for (i, (&v, self_weight)) in dst.iter().zip(self_weight).enumerate() {
            let own = self.inv_sqrt[v as usize];
            *self_weight = own * own;
            let (from, to) = (at(i), at(i + 1));
            if from == to {
                continue;
            }
            let drawn = own * (of.count(v) / (to - from) as f32);
            for e in from..to {
                if let Some(&ahead) = indices.get(e + 16) {
                    prefetch(&self.inv_sqrt, ahead as usize);
                }
                let stands_for = if of.known { own * edge_weight[e] } else { drawn };
                edge_weight[e] = stands_for * self.inv_sqrt[indices[e] as usize];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_rows_get_the_exact_weights_and_samples_are_scaled() {
        // in-degrees: node 0 has 3 (from 1, 2, 3), node 1 has 1 (from 0), nodes 2 and 3 none
        let graph = Graph::new(vec![0, 3, 4, 4, 4].into(), vec![1, 2, 3, 0].into()).unwrap();
        let weights = SymmetricWeights::new(&graph);
        let mut block = Block { num_dst: 1, indptr: vec![0, 3], indices: vec![1, 2, 3], ..Block::default() };
        weights.fill(&graph, &[0], None, &mut block);
        assert_eq!(block.self_weight, [0.25]);
        let expected = [1.0 / 8f32.sqrt(), 0.5, 0.5];
        assert!(block.edge_weight.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-7));
        // two of the three are drawn, so each represents 3/2
        let mut block = Block { num_dst: 1, indptr: vec![0, 2], indices: vec![2, 3], ..Block::default() };
        weights.fill(&graph, &[0], None, &mut block);
        assert!(block.edge_weight.iter().all(|w| (w - 0.75).abs() < 1e-7));
        // the sampler already set the number of neighbours that each edge represents
        block.edge_weight = vec![3.0, 0.5];
        weights.fill(&graph, &[0], None, &mut block);
        assert!(block.edge_weight.iter().zip([1.5, 0.25]).all(|(w, expected)| (w - expected).abs() < 1e-7));
    }

    #[test]
    fn long_blocks_are_filled_as_single_rows_are() {
        // the in-neighbours of node v are the v % 5 nodes after it
        let nodes = 3 * MAX_TASK_LEN as u32 + 7;
        let mut indptr = vec![0u64];
        let mut indices = Vec::new();
        for v in 0..nodes {
            indices.extend((1..=v % 5).map(|i| (v + i) % nodes));
            indptr.push(indices.len() as u64);
        }
        let graph = Graph::new(indptr.clone().into(), indices.clone().into()).unwrap();
        let weights = SymmetricWeights::new(&graph);
        let dst: Vec<NodeId> = (0..nodes).collect();
        let indptr: Vec<u32> = indptr.iter().map(|&x| x as u32).collect();
        let mut block = Block { num_dst: dst.len(), indptr, indices, ..Block::default() };
        weights.fill(&graph, &dst, None, &mut block);
        for v in [0, 4, MAX_TASK_LEN, 2 * MAX_TASK_LEN + 3, nodes as usize - 1] {
            let mut row = Block { num_dst: 1, indptr: vec![0, (v % 5) as u32], ..Block::default() };
            row.indices = block.indices[block.edges(v)].to_vec();
            weights.fill(&graph, &[v as NodeId], None, &mut row);
            assert_eq!(row.edge_weight, block.edge_weight[block.edges(v)]);
            assert_eq!(row.self_weight, [block.self_weight[v]]);
        }
    }

    #[test]
    fn excluded_edges_do_not_count_among_those_that_drawn_ones_stand_for() {
        // node 0 has the neighbours 1, 2, 2 and 3, of which the batch excludes both edges from 2
        let graph = Graph::new(vec![0, 4, 4, 4, 4].into(), vec![1, 2, 2, 3].into()).unwrap();
        let weights = SymmetricWeights::new(&graph);
        let mut excluded = ExcludedEdges::default();
        excluded.refill([(2, 0)]);
        let drawn = |indices: &[NodeId]| {
            let (indptr, indices) = (vec![0, indices.len() as u32], indices.to_vec());
            let mut block = Block { num_dst: 1, indptr, indices, ..Block::default() };
            weights.fill(&graph, &[0], Some(&excluded), &mut block);
            block.edge_weight
        };
        let own = 1.0 / 5f32.sqrt();
        assert_eq!(drawn(&[1, 3]), [own, own]);
        assert_eq!(drawn(&[3]), [2.0 * own]);
    }
}
