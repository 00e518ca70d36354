//! Graph attention with joint scores, with and without edge features.

use graphmill_core::{Block, keyed};

use super::{EdgeGrads, EdgeInput, EdgeLayer, EdgeLayerConfig, EdgeLayerSpec, EdgeRows};
use crate::{
    Epilogue, Error, Layer, LayerConfig, Matrix, Param, Pass, Result, Saved, View, ViewMut,
    backend::{
        Activation, Dropout,
        ops::{Attend, AttendBackward, HeadMean, HeadMeanBackward, PairSoftmax, PairSoftmaxBackward},
    },
    layer::{GatOptions, LayerGrads, LayerInput, LayerSpec, Linear, site},
};

/// Slope of the leaky ReLU for negative values.
const SLOPE: f32 = 0.2;

/// The attention of GATv2 (Brody, Alon and Yahav, *How attentive are graph attention networks?*,
/// ICLR 2022, equation 7). With `l = x W_left`, `r = x W_right + b_right`, `f = edge W_edge` and
/// for each head:
///
/// ```text
/// score(e) = a . leaky_relu(l[u] + r[v] + f[e])                         e = (u, v)
/// alpha[., v] = softmax over {edges of v, v itself} of score
/// out[v] = sum over e of dropout(alpha[e]) l[u] + b
/// ```
///
/// A destination attends to itself once, with the mean of its edges' rows. Heads are concatenated,
/// or averaged in the last layer. Without edge features, `f` is absent and the layer is a
/// [`Layer`].
///
/// PyTorch Geometric has a second bias in `W_left`; it adds nothing, because attention weights sum
/// to 1.
///
/// # Shapes
/// - `left.weight`, `right.weight`: `F x (H C)`; `edge.weight`: `K x (H C)`; `attention`: `1 x (H
///   C)`; `right.bias`: `1 x (H C)`; `bias`: `1 x O`
#[derive(Clone, Debug)]
pub struct Gatv2 {
    spec: LayerSpec,
    left: Linear,
    right: Linear,
    edge: Option<Linear>,
    attention: Param,
    bias: Option<Param>,
    heads: usize,
    attention_dropout: f32,
}

/// Makes the layer with rows of edges.
pub(super) fn make_with_edges(config: &EdgeLayerConfig) -> Result<Box<dyn EdgeLayer>> {
    Ok(Box::new(Gatv2::new(&config.nodes, Some(config.edge_dim))?))
}

impl Gatv2 {
    /// Creates a layer without rows of edges.
    ///
    /// # Errors
    /// `heads` is 0, or `O` is not a multiple of the heads that are concatenated.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        Ok(Box::new(Self::new(config, None)?))
    }

    fn new(config: &LayerConfig, edge_dim: Option<usize>) -> Result<Self> {
        let &LayerConfig { in_dim, out_dim, concat, bias, key, .. } = config;
        let options = config.own.get::<GatOptions>();
        let heads = if concat { options.heads } else { options.out_heads };
        if heads == 0 {
            return Err(Error::config("heads", heads, "must be at least 1"));
        }
        if concat && !out_dim.is_multiple_of(heads) {
            let message = format!("does not divide {out_dim} columns; use a divisor");
            return Err(Error::config("heads", heads, message));
        }
        let head_dim = if concat { out_dim / heads } else { out_dim };
        let all = heads * head_dim;
        let key = |part| keyed::key(&[key, part]);
        let spec = LayerSpec::transform_first(in_dim, out_dim, vec![all, all]);
        Ok(Self {
            spec: LayerSpec { combines_own_rows: false, ..spec },
            left: Linear::named(["left.weight", ""], in_dim, all, false, key(0)),
            right: Linear::named(["right.weight", "right.bias"], in_dim, all, bias, key(1)),
            edge: edge_dim.map(|dim| Linear::named(["edge.weight", ""], dim, all, false, key(2))),
            attention: Param::glorot("attention", 1, all, heads, head_dim, key(3)),
            bias: bias.then(|| Param::zeros("bias", 1, out_dim)),
            heads,
            attention_dropout: options.attention_dropout as f32,
        })
    }

    /// Number of columns of all heads, `H C`.
    fn width(&self) -> usize {
        self.left.out_dim()
    }

    fn is_mean(&self) -> bool {
        self.width() != self.spec.out_dim
    }

    fn attention_epilogue(&self, pass: &Pass) -> Epilogue {
        let dropout = pass.dropout(self.attention_dropout, site::ATTENTION);
        Epilogue { activation: Activation::Identity, dropout }
    }

    fn see<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.left.visit(see);
        self.right.visit(see);
        self.edge.iter().for_each(|edge| edge.visit(see));
        see(&self.attention);
        self.bias.iter().for_each(see);
    }

    fn see_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.left.visit_mut(see);
        self.right.visit_mut(see);
        self.edge.iter_mut().for_each(|edge| edge.visit_mut(see));
        see(&mut self.attention);
        self.bias.iter_mut().for_each(see);
    }

    /// Computes the output rows before bias and epilogue.
    fn attend(&self, pass: &Pass, block: &Block, rows: Rows, saved: &mut Attention, out: ViewMut) {
        let (backend, heads) = (pass.backend, self.heads);
        let Rows { left, right, edge } = rows;
        let Attention { alpha, dropped, all_heads, .. } = saved;
        alpha.resize(block.num_edges() + block.num_dst, heads);
        let (vector, alpha_out) = (self.attention.value.view(), alpha.view_mut());
        PairSoftmax { block, left, right, edge, vector, slope: SLOPE, alpha: alpha_out }.run(backend);
        let attention = self.attention_epilogue(pass);
        let alpha = if attention.dropout == Dropout::NONE {
            alpha.view()
        } else {
            dropped.resize(alpha.num_rows(), heads);
            backend.copy(alpha.view(), dropped.view_mut());
            attention.apply(backend, None, dropped.view_mut());
            dropped.view()
        };
        if self.is_mean() {
            all_heads.resize(block.num_dst, self.width());
            Attend { block, alpha, z: left, out: all_heads.view_mut() }.run(backend);
            HeadMean { x: all_heads.view(), heads, out }.run(backend);
        } else {
            Attend { block, alpha, z: left, out }.run(backend);
        }
    }

    /// Computes the gradients of the rows from that of the output rows before bias and epilogue.
    fn attend_backward(&mut self, pass: &Pass, block: &Block, rows: Rows, grad: View, saved: &mut Attention) {
        let (backend, heads, width) = (pass.backend, self.heads, self.width());
        let Rows { left, right, edge } = rows;
        let (is_mean, attention) = (self.is_mean(), self.attention_epilogue(pass));
        let Attention { alpha, dropped, all_heads, alpha_grad, scratch, left_grad, right_grad, edge_grad } =
            saved;
        let grad = if is_mean {
            all_heads.resize(block.num_dst, width);
            HeadMeanBackward { grad, heads, x_grad: all_heads.view_mut() }.run(backend);
            all_heads.view()
        } else {
            grad
        };
        let used = if attention.dropout == Dropout::NONE { alpha.view() } else { dropped.view() };
        alpha_grad.resize(alpha.num_rows(), heads);
        left_grad.resize(block.num_src, width);
        let (of_alpha, z_grad) = (alpha_grad.view_mut(), left_grad.view_mut());
        AttendBackward { block, alpha: used, z: left, grad, alpha_grad: of_alpha, z_grad }.run(backend);
        attention.backward(backend, None, used, alpha_grad.view_mut());
        scratch.resize(alpha.num_rows(), heads);
        right_grad.resize(block.num_dst, width);
        if edge.is_some() {
            edge_grad.resize(alpha.num_rows(), width);
        }
        let Param { value, grad: vector_grad, .. } = &mut self.attention;
        PairSoftmaxBackward {
            block,
            left,
            right,
            edge,
            vector: value.view(),
            slope: SLOPE,
            alpha: alpha.view(),
            alpha_grad: alpha_grad.view(),
            scratch: scratch.view_mut(),
            left_grad: left_grad.view_mut(),
            right_grad: right_grad.view_mut(),
            edge_grad: edge.is_some().then(|| edge_grad.view_mut()),
            vector_grad: vector_grad.view_mut(),
        }
        .run(backend);
    }

    /// Adds to the gradients of both weights and computes that of the input rows.
    fn backward_nodes(
        &mut self,
        pass: &Pass,
        x: View,
        own_rows: View,
        saved: &Attention,
        x_grad: Option<&mut Matrix>,
    ) {
        let (left, right) = (saved.left_grad.view(), saved.right_grad.view());
        self.left.backward_product(pass, x, left);
        self.right.backward_product(pass, own_rows, right);
        if let Some(bias) = self.right.bias_mut() {
            pass.backend.add_column_sums(right, bias.grad.view_mut());
        }
        if let Some(x_grad) = x_grad {
            x_grad.resize(x.num_rows(), self.spec.in_dim);
            self.left.input_grad(pass, left, 0.0, x_grad.view_mut());
            self.right.input_grad(pass, right, 1.0, x_grad.rows_mut(0..own_rows.num_rows()));
        }
    }
}

/// Rows that the scores read.
#[derive(Clone, Copy)]
struct Rows<'a> {
    left: View<'a>,
    right: View<'a>,
    /// Rows of the entries, `(E + D) x (H C)`.
    edge: Option<View<'a>>,
}

/// Matrices of the attention.
#[derive(Clone, Debug, Default)]
struct Attention {
    alpha: Matrix,
    /// `alpha` after dropout; only with dropout.
    dropped: Matrix,
    /// Rows of the heads or their gradient; only if they are averaged.
    all_heads: Matrix,
    alpha_grad: Matrix,
    scratch: Matrix,
    left_grad: Matrix,
    right_grad: Matrix,
    edge_grad: Matrix,
}

/// Matrices of a pass with rows of edges.
#[derive(Clone, Debug, Default)]
struct State {
    rows: EdgeRows,
    left: Matrix,
    right: Matrix,
    /// Mean of each destination's edges, `D x K`, and its gradient.
    mean: Matrix,
    mean_grad: Matrix,
    /// Rows of the entries, `(E + D) x (H C)`.
    edge: Matrix,
    attention: Attention,
}

impl Layer for Gatv2 {
    fn spec(&self) -> &LayerSpec {
        &self.spec
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.see(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.see_mut(see);
    }

    fn transform(&self, pass: &Pass, x: View, at: usize, tables: &mut [Matrix]) {
        let rows = at..at + x.num_rows();
        self.left.forward(pass, x, 0.0, Epilogue::NONE, tables[0].rows_mut(rows.clone()));
        self.right.forward(pass, x, 0.0, Epilogue::NONE, tables[1].rows_mut(rows));
    }

    fn forward(
        &self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        mut out: ViewMut,
    ) {
        let [left, right] = [0, 1].map(|table| input.transformed[table].view());
        let rows = Rows { left, right, edge: None };
        self.attend(pass, input.block, rows, saved.state(), out.reborrow());
        epilogue.apply(pass.backend, self.bias.as_ref(), out);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        LayerGrads { y, grad, x_grad }: LayerGrads,
    ) {
        input.assert_unrestricted();
        epilogue.backward(pass.backend, self.bias.as_mut(), y, grad.view_mut());
        let [left, right] = [0, 1].map(|table| input.transformed[table].view());
        let rows = Rows { left, right, edge: None };
        let attention: &mut Attention = saved.state();
        self.attend_backward(pass, input.block, rows, grad.view(), attention);
        let own_rows = input.x.rows(0..input.block.num_dst);
        self.backward_nodes(pass, input.x, own_rows, attention, x_grad);
    }
}

impl EdgeLayer for Gatv2 {
    fn spec(&self) -> EdgeLayerSpec {
        let LayerSpec { in_dim, out_dim, .. } = self.spec;
        EdgeLayerSpec { in_dim, edge_dim: self.edge.as_ref().map_or(0, Linear::in_dim), out_dim }
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.see(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.see_mut(see);
    }

    fn forward(
        &self,
        pass: &Pass,
        input: &EdgeInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        mut out: ViewMut,
    ) {
        input.check(EdgeLayer::spec(self));
        let State { rows, left, right, mean, edge, attention, .. } = saved.state();
        let (block, width) = (input.block, self.width());
        left.resize(block.num_src, width);
        self.left.forward(pass, input.x, 0.0, Epilogue::NONE, left.view_mut());
        right.resize(block.num_dst, width);
        self.right.forward(pass, input.own_rows(), 0.0, Epilogue::NONE, right.view_mut());
        if let Some(linear) = &self.edge {
            let edges = block.num_edges();
            rows.fill(block);
            mean.resize(block.num_dst, linear.in_dim());
            rows.mean(pass, input.edges, mean.view_mut());
            edge.resize(edges + block.num_dst, width);
            linear.forward_product(pass, input.edges, 0.0, edge.rows_mut(0..edges));
            linear.forward_product(pass, mean.view(), 0.0, edge.rows_mut(edges..edges + block.num_dst));
        }
        let edge = self.edge.is_some().then(|| edge.view());
        let rows = Rows { left: left.view(), right: right.view(), edge };
        self.attend(pass, block, rows, attention, out.reborrow());
        epilogue.apply(pass.backend, self.bias.as_ref(), out);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        input: &EdgeInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        EdgeGrads { y, grad, x_grad, edge_grad }: EdgeGrads,
    ) {
        epilogue.backward(pass.backend, self.bias.as_mut(), y, grad.view_mut());
        let State { rows, left, right, mean, mean_grad, edge, attention } = saved.state();
        let block = input.block;
        let of_edges = self.edge.is_some().then(|| edge.view());
        let views = Rows { left: left.view(), right: right.view(), edge: of_edges };
        self.attend_backward(pass, block, views, grad.view(), attention);
        self.backward_nodes(pass, input.x, input.own_rows(), attention, x_grad);
        let Some(linear) = &mut self.edge else {
            if let Some(edge_grad) = edge_grad {
                edge_grad.resize(block.num_edges(), 0);
            }
            return;
        };
        let edges = block.num_edges();
        let of_entries = &attention.edge_grad;
        let (of_edges, of_own) = (of_entries.rows(0..edges), of_entries.rows(edges..edges + block.num_dst));
        linear.backward_product(pass, input.edges, of_edges);
        linear.backward_product(pass, mean.view(), of_own);
        if let Some(edge_grad) = edge_grad {
            edge_grad.resize(edges, linear.in_dim());
            linear.input_grad(pass, of_edges, 0.0, edge_grad.view_mut());
            mean_grad.resize(block.num_dst, linear.in_dim());
            linear.input_grad(pass, of_own, 0.0, mean_grad.view_mut());
            rows.mean_backward(pass, mean_grad.view(), 1.0, edge_grad);
        }
    }
}
