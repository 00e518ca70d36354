//! Scores of edges for classification and regression, from both ends and the edge's features.

use graphmill_core::{NodeId, keyed};

use crate::{
    DistinctNodes, Epilogue, Matrix, Param, Pass, View,
    backend::{
        Activation, Dropout,
        cpu::{add_gathered, add_rows},
        ops::{EpilogueBackward, EpilogueForward, Gather},
    },
    layer::{Init, Linear},
};

/// Edges to score.
#[derive(Clone, Copy, Debug)]
pub struct EdgePairs<'a> {
    /// Embeddings of the nodes, `N x H`.
    pub nodes: View<'a>,
    /// Row of each edge's source, `P`.
    pub source: &'a [NodeId],
    /// Row of each edge's destination, `P`.
    pub destination: &'a [NodeId],
    /// Features of the edges, `P x K`, if the head reads them.
    pub edges: Option<View<'a>>,
}

/// An MLP over the joined rows of both ends and of the edge:
///
/// ```text
/// out = relu(h[u] W_source + h[v] W_destination + edge W_edge + b) W_out + b_out
/// ```
///
/// The outputs are scores of classes for a cross-entropy, or values for a squared error.
///
/// # Cost
/// The products with `W_source` and `W_destination` have a row for each distinct end, not for each
/// edge.
///
/// # Shapes
/// - `source.weight`, `destination.weight`: `H x W`; `edge.weight`: `K x W`; `out.weight`: `W x C`
#[derive(Clone, Debug)]
pub struct EdgeHead {
    source: Linear,
    destination: Linear,
    edge: Option<Linear>,
    out: Linear,
}

/// Matrices that a forward pass saves for its backward pass.
#[derive(Clone, Debug, Default)]
pub struct EdgeHeadState {
    ends: [EndState; 2],
    hidden: Matrix,
    hidden_grad: Matrix,
}

/// Rows of the distinct sources, or destinations.
#[derive(Clone, Debug, Default)]
struct EndState {
    distinct: DistinctNodes,
    rows: Matrix,
    /// Rows after their product, then the gradient of these.
    projected: Matrix,
    rows_grad: Matrix,
}

const RELU: Activation = Activation::Relu;

impl EdgeHead {
    /// Creates a head on embeddings of width `H` and features of width `K` (0: none), with an inner
    /// width and `C` outputs.
    pub fn new([dim, edge_dim]: [usize; 2], inner: usize, outputs: usize, key: u64) -> Self {
        let key = |part| keyed::key(&[key, part]);
        let plain = |name, from, part| Linear::named([name, ""], from, inner, false, key(part));
        Self {
            source: Linear::named(["source.weight", "bias"], dim, inner, true, key(0)),
            destination: plain("destination.weight", dim, 1),
            edge: (edge_dim > 0).then(|| plain("edge.weight", edge_dim, 2)),
            out: Linear::named(["out.weight", "out.bias"], inner, outputs, true, key(3)),
        }
    }

    /// The same head with the initial weights of PyTorch's dense layers over joined rows, whose
    /// bound is `1 / sqrt(in)`: for rows that are not of unit size.
    #[must_use]
    pub fn with_small_weights(mut self) -> Self {
        let joined = [Some(&self.source), Some(&self.destination), self.edge.as_ref()];
        let joined: usize = joined.into_iter().flatten().map(Linear::in_dim).sum();
        let own = self.out.in_dim();
        let shrink = |linear: &mut Linear, fan_in: usize| {
            let (from, to) = (linear.in_dim() as f64, linear.out_dim() as f64);
            let by = Init::FanIn.bound(fan_in as f64, to) / Init::Glorot.bound(from, to);
            let values = linear.weight_mut().value.view_mut().host().iter_mut();
            values.for_each(|x| *x = (f64::from(*x) * by) as f32);
        };
        shrink(&mut self.source, joined);
        shrink(&mut self.destination, joined);
        self.edge.iter_mut().for_each(|edge| shrink(edge, joined));
        shrink(&mut self.out, own);
        self
    }

    /// Visits every parameter, always in the same order.
    pub fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.source.visit(see);
        self.destination.visit(see);
        self.edge.iter().for_each(|edge| edge.visit(see));
        self.out.visit(see);
    }

    /// Visits every parameter mutably, in the order of [`EdgeHead::visit`].
    pub fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.source.visit_mut(see);
        self.destination.visit_mut(see);
        self.edge.iter_mut().for_each(|edge| edge.visit_mut(see));
        self.out.visit_mut(see);
    }

    /// Computes the outputs of all edges; `out` is resized to `P x C`.
    ///
    /// # Panics
    /// The lists differ in length, or the features of edges are missing or have another shape: a
    /// bug in the caller.
    pub fn forward(&self, pass: &Pass, pairs: &EdgePairs, saved: &mut EdgeHeadState, out: &mut Matrix) {
        let count = pairs.source.len();
        assert_eq!(count, pairs.destination.len(), "ends of edges");
        assert_eq!(self.edge.is_some(), pairs.edges.is_some(), "features of edges");
        let EdgeHeadState { ends, hidden, .. } = saved;
        hidden.resize(count, self.source.out_dim());
        let linears = [&self.source, &self.destination];
        let lists = [pairs.source, pairs.destination];
        for (i, ((linear, end), ids)) in linears.into_iter().zip(ends).zip(lists).enumerate() {
            let EndState { distinct, rows, projected, .. } = end;
            distinct.list(ids, pairs.nodes.num_rows());
            rows.resize(distinct.nodes().len(), pairs.nodes.num_cols());
            Gather { src: pairs.nodes, ids: distinct.nodes(), dst: rows.view_mut() }.run(pass.backend);
            projected.resize(rows.num_rows(), linear.out_dim());
            linear.forward_product(pass, rows.view(), 0.0, projected.view_mut());
            if i == 0 {
                let ids = distinct.numbers();
                Gather { src: projected.view(), ids, dst: hidden.view_mut() }.run(pass.backend);
            } else {
                add_gathered(distinct.numbers(), projected.view(), hidden.view_mut());
            }
        }
        if let Some((linear, edges)) = self.edge.as_ref().zip(pairs.edges) {
            linear.forward_product(pass, edges, 1.0, hidden.view_mut());
        }
        let bias = self.source.bias().map(|bias| bias.value.view());
        EpilogueForward { bias, activation: RELU, dropout: Dropout::NONE, x: hidden.view_mut() }
            .run(pass.backend);
        out.resize(count, self.out.out_dim());
        self.out.forward(pass, hidden.view(), 0.0, Epilogue::NONE, out.view_mut());
    }

    /// Adds to every parameter's gradient. `grad` is that of `out`; `nodes_grad` is resized to `N x
    /// H` and overwritten, in the order of the edges, so that it does not depend on threads.
    pub fn backward(
        &mut self,
        pass: &Pass,
        pairs: &EdgePairs,
        saved: &mut EdgeHeadState,
        out: View,
        grad: &mut Matrix,
        nodes_grad: &mut Matrix,
    ) {
        let EdgeHeadState { ends, hidden, hidden_grad } = saved;
        self.out.backward(pass, hidden.view(), out, Epilogue::NONE, grad, Some(hidden_grad));
        let bias_grad = self.source.bias_mut().map(|bias| bias.grad.view_mut());
        let (y, of_hidden) = (hidden.view(), hidden_grad.view_mut());
        EpilogueBackward { activation: RELU, dropout: Dropout::NONE, y, grad: of_hidden, bias_grad }
            .run(pass.backend);
        let through = hidden_grad.view();
        if let Some((linear, edges)) = self.edge.as_mut().zip(pairs.edges) {
            linear.backward_product(pass, edges, through);
        }
        let dim = pairs.nodes.num_cols();
        nodes_grad.resize(pairs.nodes.num_rows(), dim);
        pass.backend.fill(0.0, nodes_grad.view_mut());
        let linears = [&mut self.source, &mut self.destination];
        for (linear, end) in linears.into_iter().zip(ends) {
            let EndState { distinct, rows, projected, rows_grad } = end;
            pass.backend.fill(0.0, projected.view_mut());
            add_rows(distinct.numbers(), through, projected.view_mut());
            linear.backward_product(pass, rows.view(), projected.view());
            rows_grad.resize(rows.num_rows(), dim);
            linear.input_grad(pass, projected.view(), 0.0, rows_grad.view_mut());
            add_rows(distinct.nodes(), rows_grad.view(), nodes_grad.view_mut());
        }
    }
}
