//! GraphSAGE with edge features.

use graphmill_core::keyed;

use super::{EdgeGrads, EdgeInput, EdgeLayer, EdgeLayerConfig, EdgeLayerSpec, EdgeRows};
use crate::{
    Epilogue, Matrix, Param, Pass, Result, Saved, ViewMut,
    backend::{
        AggregationWeights,
        ops::{Aggregate, AggregateTransposed},
    },
    layer::Linear,
};

/// The mean aggregator of GraphSAGE (Hamilton, Ying and Leskovec, *Inductive representation
/// learning on large graphs*, NeurIPS 2017) over neighbours' rows joined with their edges' rows:
///
/// ```text
/// out[v] = mean over edges e = (u, v) of [x[u] | edge[e]] [W_neigh; W_edge] + x[v] W_self + b
/// ```
///
/// The joined rows are not stored: the mean of a joined row is the joined means.
///
/// # Shapes
/// - `neigh.weight`, `self.weight`: `F x O`; `edge.weight`: `K x O`; `bias`: `1 x O`
#[derive(Clone, Debug)]
pub struct EdgeSage {
    neighbors: Linear,
    edge: Linear,
    own: Linear,
}

impl EdgeSage {
    /// Creates a layer.
    ///
    /// # Errors
    /// Never; the table requires the signature.
    pub fn make(config: &EdgeLayerConfig) -> Result<Box<dyn EdgeLayer>> {
        let EdgeLayerConfig { nodes, edge_dim, .. } = config;
        let key = |part| keyed::key(&[nodes.key, part]);
        let (from, to) = (nodes.in_dim, nodes.out_dim);
        Ok(Box::new(Self {
            neighbors: Linear::named(["neigh.weight", ""], from, to, false, key(0)),
            edge: Linear::named(["edge.weight", ""], *edge_dim, to, false, key(1)),
            own: Linear::named(["self.weight", "bias"], from, to, nodes.bias, key(2)),
        }))
    }
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    rows: EdgeRows,
    /// Means of the neighbours and of the edges, and their gradients.
    neighbors: Matrix,
    edges: Matrix,
    through: Matrix,
}

impl EdgeLayer for EdgeSage {
    fn spec(&self) -> EdgeLayerSpec {
        let (in_dim, edge_dim, out_dim) = (self.own.in_dim(), self.edge.in_dim(), self.own.out_dim());
        EdgeLayerSpec { in_dim, edge_dim, out_dim }
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        [&self.neighbors, &self.edge, &self.own].into_iter().for_each(|linear| linear.visit(see));
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        [&mut self.neighbors, &mut self.edge, &mut self.own]
            .into_iter()
            .for_each(|linear| linear.visit_mut(see));
    }

    fn forward(
        &self,
        pass: &Pass,
        input: &EdgeInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        mut out: ViewMut,
    ) {
        input.check(self.spec());
        let State { rows, neighbors, edges, .. } = saved.state();
        let block = input.block;
        rows.fill(block);
        neighbors.resize(block.num_dst, input.x.num_cols());
        let (weights, dst) = (AggregationWeights::MEAN, neighbors.view_mut());
        Aggregate { block, weights, src: input.x, beta: 0.0, dst }.run(pass.backend);
        edges.resize(block.num_dst, input.edges.num_cols());
        rows.mean(pass, input.edges, edges.view_mut());
        self.neighbors.forward_product(pass, neighbors.view(), 0.0, out.reborrow());
        self.edge.forward_product(pass, edges.view(), 1.0, out.reborrow());
        self.own.forward(pass, input.own_rows(), 1.0, epilogue, out);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        input: &EdgeInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        EdgeGrads { y, grad, x_grad, edge_grad }: EdgeGrads,
    ) {
        let State { rows, neighbors, edges, through } = saved.state();
        let block = input.block;
        epilogue.backward(pass.backend, self.own.bias_mut(), y, grad.view_mut());
        let grad = grad.view();
        self.own.backward_product(pass, input.own_rows(), grad);
        self.neighbors.backward_product(pass, neighbors.view(), grad);
        self.edge.backward_product(pass, edges.view(), grad);
        if let Some(x_grad) = x_grad {
            through.resize(block.num_dst, self.neighbors.in_dim());
            self.neighbors.input_grad(pass, grad, 0.0, through.view_mut());
            x_grad.resize(block.num_src, self.neighbors.in_dim());
            let (weights, src_grad) = (AggregationWeights::MEAN, x_grad.view_mut());
            AggregateTransposed { block, weights, dst_grad: through.view(), beta: 0.0, src_grad }
                .run(pass.backend);
            self.own.input_grad(pass, grad, 1.0, x_grad.rows_mut(0..block.num_dst));
        }
        if let Some(edge_grad) = edge_grad {
            through.resize(block.num_dst, self.edge.in_dim());
            self.edge.input_grad(pass, grad, 0.0, through.view_mut());
            edge_grad.resize(input.edges.num_rows(), self.edge.in_dim());
            rows.mean_backward(pass, through.view(), 0.0, edge_grad);
        }
    }
}
