//! The edges of a block as rows: a mean over each destination's edges, and its gradient.

use graphmill_core::Block;

use crate::{
    Matrix, Pass, View, ViewMut,
    backend::{
        AggregationWeights,
        ops::{Aggregate, AggregateTransposed},
    },
};

/// Block whose sources are the edges of another block.
#[derive(Clone, Debug, Default)]
pub struct EdgeRows(Block);

impl EdgeRows {
    /// Takes the edges of `block`. O(D + E).
    pub fn fill(&mut self, block: &Block) {
        let fetched;
        let from = if block.drawn_on_device().is_some() {
            let mut copy = block.clone();
            copy.fetch();
            fetched = copy;
            &fetched
        } else {
            block
        };
        let to = &mut self.0;
        to.clear();
        let edges = from.num_edges() as u32;
        (to.num_dst, to.num_src) = (from.num_dst, edges as usize);
        to.indptr.extend_from_slice(&from.indptr);
        to.indices.extend(0..edges);
        to.transposed.indptr.extend(0..=edges);
        to.transposed.edge.extend(0..edges);
        for v in 0..from.num_dst {
            to.transposed.dst.extend(from.edges(v).map(|_| v as u32));
        }
    }

    /// Computes the mean of each destination's edges, `E x K` to `D x K`; 0 without edges.
    pub fn mean(&self, pass: &Pass, edges: View, out: ViewMut) {
        let weights = AggregationWeights::MEAN;
        Aggregate { block: &self.0, weights, src: edges, beta: 0.0, dst: out }.run(pass.backend);
    }

    /// Computes `edge_grad = beta edge_grad +` the gradient of [`EdgeRows::mean`].
    pub fn mean_backward(&self, pass: &Pass, grad: View, beta: f32, edge_grad: &mut Matrix) {
        let weights = AggregationWeights::MEAN;
        let src_grad = edge_grad.view_mut();
        AggregateTransposed { block: &self.0, weights, dst_grad: grad, beta, src_grad }.run(pass.backend);
    }
}
