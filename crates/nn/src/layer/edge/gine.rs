//! Graph isomorphism network with edge features.

use graphmill_core::keyed;

use super::{EdgeGrads, EdgeInput, EdgeLayer, EdgeLayerConfig, EdgeLayerSpec};
use crate::{
    Epilogue, Matrix, Param, Pass, Result, Saved, ViewMut,
    backend::{
        Activation, Dropout,
        ops::{AddDot, AddTimes, ReluSum, ReluSumBackward},
    },
    layer::{
        Linear,
        norm::{BatchNorm, Norm},
    },
};

/// The graph isomorphism operator with edge features (Hu et al., *Strategies for pre-training graph
/// neural networks*, ICLR 2020):
///
/// ```text
/// h[v] = (1 + eps) x[v] + sum over edges e = (u, v) of relu(x[u] + edge[e] W_edge + b_edge)
/// out[v] = relu(norm(h[v] W_1 + b_1)) W_2 + b_2
/// ```
///
/// `eps` is learned and starts at 0; `norm` is batch normalization or absent.
///
/// # Shapes
/// - `eps`: `1 x 1`; `edge.weight`: `K x F`; `mlp.0.weight`: `F x O`; `mlp.1.weight`: `O x O`
#[derive(Clone)]
pub struct Gine {
    eps: Param,
    edge: Linear,
    first: Linear,
    norm: Option<BatchNorm>,
    second: Linear,
}

const RELU: Epilogue = Epilogue { activation: Activation::Relu, dropout: Dropout::NONE };

impl Gine {
    /// Creates a layer with an MLP of inner width `O`.
    ///
    /// # Errors
    /// Never; the table requires the signature.
    pub fn make(config: &EdgeLayerConfig) -> Result<Box<dyn EdgeLayer>> {
        let EdgeLayerConfig { nodes, edge_dim, .. } = config;
        let key = |part| keyed::key(&[nodes.key, part]);
        let (from, to, bias) = (nodes.in_dim, nodes.out_dim, nodes.bias);
        Ok(Box::new(Self {
            eps: Param::zeros("eps", 1, 1),
            edge: Linear::named(["edge.weight", "edge.bias"], *edge_dim, from, bias, key(0)),
            first: Linear::named(["mlp.0.weight", "mlp.0.bias"], from, to, bias, key(1)),
            norm: nodes.batch_norm.then(|| BatchNorm::named(["mlp.gamma", "mlp.beta", "mlp.running"], to)),
            second: Linear::named(["mlp.1.weight", "mlp.1.bias"], to, to, bias, key(2)),
        }))
    }
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    /// Transformed rows of the edges, `E x F`, and their gradient.
    edges: Matrix,
    edges_grad: Matrix,
    /// `h`, `D x F`, and its gradient.
    sum: Matrix,
    sum_grad: Matrix,
    /// `h W_1 + b_1`, `D x O`; only with a norm.
    inner: Matrix,
    norm: [Matrix; 2],
    hidden: Matrix,
    hidden_grad: Matrix,
}

impl EdgeLayer for Gine {
    fn spec(&self) -> EdgeLayerSpec {
        let (in_dim, edge_dim, out_dim) = (self.first.in_dim(), self.edge.in_dim(), self.second.out_dim());
        EdgeLayerSpec { in_dim, edge_dim, out_dim }
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        see(&self.eps);
        self.edge.visit(see);
        self.first.visit(see);
        if let Some(norm) = &self.norm {
            norm.visit(see);
        }
        self.second.visit(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        see(&mut self.eps);
        self.edge.visit_mut(see);
        self.first.visit_mut(see);
        if let Some(norm) = &mut self.norm {
            norm.visit_mut(see);
        }
        self.second.visit_mut(see);
    }

    fn forward(&self, pass: &Pass, input: &EdgeInput, epilogue: Epilogue, saved: &mut Saved, out: ViewMut) {
        input.check(self.spec());
        let State { edges, sum, inner, norm: of_norm, hidden, .. } = saved.state();
        let (block, width) = (input.block, self.first.in_dim());
        edges.resize(block.num_edges(), width);
        self.edge.forward(pass, input.edges, 0.0, Epilogue::NONE, edges.view_mut());
        sum.resize(block.num_dst, width);
        ReluSum { block, x: input.x, edge: edges.view(), out: sum.view_mut() }.run(pass.backend);
        let (factors, x, y) = (self.eps.value.view(), input.own_rows(), sum.view_mut());
        AddTimes { factors, at: 0, plus: 1.0, x, y }.run(pass.backend);
        hidden.resize(block.num_dst, self.first.out_dim());
        match &self.norm {
            Some(norm) => {
                inner.resize(block.num_dst, self.first.out_dim());
                self.first.forward(pass, sum.view(), 0.0, Epilogue::NONE, inner.view_mut());
                norm.forward(pass, inner.view(), of_norm, hidden.view_mut());
                RELU.apply(pass.backend, None, hidden.view_mut());
            }
            None => self.first.forward(pass, sum.view(), 0.0, RELU, hidden.view_mut()),
        }
        self.second.forward(pass, hidden.view(), 0.0, epilogue, out);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        input: &EdgeInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        EdgeGrads { y, grad, mut x_grad, edge_grad }: EdgeGrads,
    ) {
        let State { edges, edges_grad, sum, sum_grad, inner, norm: of_norm, hidden, hidden_grad } =
            saved.state();
        let (backend, block) = (pass.backend, input.block);
        self.second.backward(pass, hidden.view(), y, epilogue, grad, Some(hidden_grad));
        let after_first = match &mut self.norm {
            Some(norm) => {
                RELU.backward(backend, None, hidden.view(), hidden_grad.view_mut());
                norm.backward(pass, inner.view(), of_norm, hidden_grad.view_mut());
                Epilogue::NONE
            }
            None => RELU,
        };
        self.first.backward(pass, sum.view(), hidden.view(), after_first, hidden_grad, Some(sum_grad));
        AddDot { x: input.own_rows(), y: sum_grad.view(), out: self.eps.grad.view_mut(), at: 0 }.run(backend);
        edges_grad.resize(block.num_edges(), self.first.in_dim());
        if let Some(x_grad) = &mut x_grad {
            x_grad.resize(block.num_src, self.first.in_dim());
        }
        ReluSumBackward {
            block,
            x: input.x,
            edge: edges.view(),
            grad: sum_grad.view(),
            x_grad: x_grad.as_mut().map(|x_grad| x_grad.view_mut()),
            edge_grad: edges_grad.view_mut(),
        }
        .run(backend);
        if let Some(x_grad) = x_grad {
            let (factors, y) = (self.eps.value.view(), x_grad.rows_mut(0..block.num_dst));
            AddTimes { factors, at: 0, plus: 1.0, x: sum_grad.view(), y }.run(backend);
        }
        self.edge.backward(pass, input.edges, edges.view(), Epilogue::NONE, edges_grad, edge_grad);
    }
}
