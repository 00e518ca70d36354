//! Symmetric normalisation (Kipf and Welling, 2017) for sampled blocks.
//!
//! GCN's matrix is `D^-1/2 (A + I) D^-1/2`, with `D` the in-degrees of `A + I`: edge `u -> v`
//! weighs `1 / sqrt((d_u + 1) (d_v + 1))` and `v` itself `1 / (d_v + 1)`. The degrees are those of the whole
//! graph, not of the sample, and a destination that drew `k` of its `d` neighbours scales their
//! edges by `d / k`. The sampled sum is then an unbiased estimate of the full one and equals it
//! when all neighbours are drawn, so that training and full-neighbour evaluation compute the same thing. (DGL and
//! PyG normalise by the degrees within the sample, which is biased towards low degrees.)

use graphmill_graph::{Block, Graph, NodeId};
use rayon::prelude::*;

use crate::prefetch::prefetch;

/// `1 / sqrt(d + 1)` per node of a graph.
#[derive(Clone, Debug)]
pub struct SymmetricWeights {
    inv_sqrt: Vec<f32>,
}

impl SymmetricWeights {
    /// Reads the degrees of `graph`. O(V), 4 bytes per node.
    pub fn new(graph: &Graph) -> Self {
        let inv_sqrt = graph
            .indptr()
            .par_windows(2)
            .map(|ends| (1.0 / ((ends[1] - ends[0]) as f64 + 1.0).sqrt()) as f32)
            .collect();
        Self { inv_sqrt }
    }

    /// Fills the weights of a block whose `indices` are still global ids and whose destinations are
    /// `dst`. O(D + E).
    pub fn fill(&self, graph: &Graph, dst: &[NodeId], block: &mut Block) {
        let Block { indptr, indices, edge_weight, self_weight, .. } = block;
        edge_weight.clear();
        self_weight.clear();
        for (i, &v) in dst.iter().enumerate() {
            let own = self.inv_sqrt[v as usize];
            self_weight.push(own * own);
            let (from, to) = (indptr[i] as usize, indptr[i + 1] as usize);
            if from == to {
                continue;
            }
            let drawn = own * (graph.in_degree(v) as f32 / (to - from) as f32);
            for e in from..to {
                if let Some(&ahead) = indices.get(e + 16) {
                    prefetch(&self.inv_sqrt, ahead as usize);
                }
                edge_weight.push(drawn * self.inv_sqrt[indices[e] as usize]);
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
        weights.fill(&graph, &[0], &mut block);
        assert_eq!(block.self_weight, [0.25]);
        let expected = [1.0 / 8f32.sqrt(), 0.5, 0.5];
        assert!(block.edge_weight.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-7));
        // two of the three drawn: each stands for 3/2
        let mut block = Block { num_dst: 1, indptr: vec![0, 2], indices: vec![2, 3], ..Block::default() };
        weights.fill(&graph, &[0], &mut block);
        assert!(block.edge_weight.iter().all(|w| (w - 0.75).abs() < 1e-7));
    }
}
