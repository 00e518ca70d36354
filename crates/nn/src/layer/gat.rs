//! Graph attention.

use graphmill_graph::{Block, keyed};

use super::{Finish, Layer, LayerConfig, Linear, Order, Param, Pass, Saved, site};
use crate::{
    Error, Matrix, Result, View, ViewMut,
    backend::{
        Activation, Dropout,
        Side::{Plain, Transposed},
    },
    cost::{self, BlockShape, Purpose},
};

/// Slope of the leaky ReLU for negative scores (section 3.3 of the paper).
const SLOPE: f32 = 0.2;

/// The graph attentional operator from *Graph Attention Networks* (Velickovic et al., ICLR 2018,
/// equations 1 to 6). With `z = x W` and for each head `h`:
///
/// ```text
/// score(u, v) = leaky_relu(a_source . z[u] + a_target . z[v])
/// alpha[., v] = softmax over u in {in-neighbours of v, v itself} of score(u, v)
/// out[v] = sum over u of dropout(alpha[u, v]) z[u] + b
/// ```
///
/// Heads stand side by side (`concat`, equation 5) or are averaged (equation 6, for the last layer). The
/// paper's `a` is split into its two halves, as every implementation does. A destination attends
/// to itself once, besides any self-loop among its edges.
///
/// Transform first costs `S F H C + 2 S H C + E H C` multiplications, with `C` the width of a head.
///
/// Aggregate first: the heads' scores are linear in the input rows, and so are the sums,
///
/// ```text
/// a_source . z[u] = x[u] . w_source,   w_source = W_h a_source                         F per head
/// out[v] = (sum over u of dropout(alpha[u, v]) x[u]) W_h + b
/// ```
///
/// so every head aggregates input rows, and only destinations are transformed: `2 E H F + D F H C`
/// multiplications, and a row is read once for all heads. The gradient of `w_source` is carried on to `W_h` and
/// `a_source` by the product rule: with `g` that of the scores, `g_w = sum over entries of g[u, v] x[u]`,
/// `g_W = g_w a^T + ...` and `g_a = W^T g_w`.
///
/// # Shapes
/// - `weight`: `F x (H C)`; `source`, `target`: `1 x (H C)`; `bias`: `1 x O`
/// - `O = H C` when concatenated, `O = C` when averaged
/// - in `S x F`, out `D x O`; the attention weights are `(E + D) x H`
#[derive(Clone, Debug)]
pub struct Gat {
    linear: Linear,
    source: Param,
    target: Param,
    bias: Option<Param>,
    heads: usize,
    out_dim: usize,
    attention_dropout: f32,
    dims: [usize; 3],
}

impl Gat {
    /// A layer `F` to `O` with `heads` heads.
    ///
    /// # Errors
    /// There is no head, or `O` is not a multiple of the heads that are to stand side by side.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
        let &LayerConfig { in_dim, out_dim, heads, concat, attention_dropout, bias, key, .. } = config;
        if heads == 0 {
            return Err(Error::config("heads", heads, "attention needs at least one head"));
        }
        if concat && !out_dim.is_multiple_of(heads) {
            let message = format!("{out_dim} columns cannot be divided among them; choose a divisor");
            return Err(Error::config("heads", heads, message));
        }
        let head_dim = if concat { out_dim / heads } else { out_dim };
        let all = heads * head_dim;
        let attention = |name, part| Param::glorot(name, 1, all, heads, head_dim, keyed::key(&[key, part]));
        Ok(Box::new(Self {
            linear: Linear::new(in_dim, all, false, keyed::key(&[key, 0])),
            source: attention("source", 1),
            target: attention("target", 2),
            bias: bias.then(|| Param::zeros("bias", 1, out_dim)),
            heads,
            out_dim,
            attention_dropout,
            dims: [all, heads, heads],
        }))
    }

    fn is_mean(&self) -> bool {
        self.dims[0] != self.out_dim
    }

    fn attention_finish(&self, pass: &Pass) -> Finish {
        let dropout = pass.dropout(self.attention_dropout, site::ATTENTION);
        Finish { activation: Activation::Identity, dropout }
    }

    /// [`Layer::backward`] of [`Order::AggregateFirst`].
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    fn aggregated_backward(
        &mut self,
        pass: &Pass,
        block: &Block,
        x: View,
        y: View,
        finish: Finish,
        saved: &mut Saved,
        grad: &mut Matrix,
        x_grad: Option<&mut Matrix>,
    ) {
        let (backend, heads, in_dim) = (pass.backend, self.heads, self.in_dim());
        let is_mean = self.is_mean();
        let [
            alpha,
            dropped,
            all_heads,
            score,
            source,
            target,
            rows,
            rows_grad,
            score_grad,
            source_grad,
            target_grad,
        ] = &mut saved.m;
        finish.backward(backend, self.bias.as_mut(), y, grad.view_mut());
        let heads_grad = if is_mean {
            all_heads.resize(block.num_dst, self.dims[0]);
            backend.head_mean_backward(grad.view(), heads, all_heads.view_mut());
            all_heads.view()
        } else {
            grad.view()
        };
        let Param { value: weight, grad: weight_grad, .. } = self.linear.weight_mut();
        let weight = weight.view();
        backend.head_gemm(heads, rows.view(), Transposed, heads_grad, Plain, 1.0, weight_grad.view_mut());
        rows_grad.resize(block.num_dst, heads * in_dim);
        backend.head_gemm(heads, heads_grad, Plain, weight, Transposed, 0.0, rows_grad.view_mut());
        let used = if dropped.num_rows() == 0 { alpha.view() } else { dropped.view() };
        score_grad.resize(alpha.num_rows(), heads);
        source_grad.resize(in_dim, heads);
        target_grad.resize(in_dim, heads);
        backend.attend_input_backward(
            block,
            x,
            SLOPE,
            score.view(),
            alpha.view(),
            used,
            rows_grad.view(),
            score_grad.view_mut(),
            source_grad.view_mut(),
            target_grad.view_mut(),
        );
        if let Some(x_grad) = x_grad {
            x_grad.resize(block.num_grad_src(), in_dim);
            backend.attend_input_transposed(
                block,
                source.view(),
                target.view(),
                used,
                rows_grad.view(),
                score_grad.view(),
                x_grad.view_mut(),
            );
        }
        for (vector_grad, a) in [(source_grad, &mut self.source), (target_grad, &mut self.target)] {
            let (value, a_grad) = (a.value.view(), a.grad.view_mut());
            let weight_grad = weight_grad.view_mut();
            backend.head_dot_backward(weight, value, heads, vector_grad.view(), weight_grad, a_grad);
        }
    }
}

// Transform first, in `Saved::t`: z, and the two parts of the scores (S x H). In `Saved::m`: alpha, alpha after
// dropout (only with dropout), the heads' rows or their gradient (D x H C, only when averaged), the gradient of
// alpha, scratch of its shape, the gradients of the scores' parts (S x H) and of z.
//
// Aggregate first, in `Saved::m`: the same three, the scores, the two halves of the scores' vectors (F x H), the
// aggregated rows (D x H F), their gradient, that of the scores, and those of the vectors.
impl Layer for Gat {
    fn in_dim(&self) -> usize {
        self.linear.in_dim()
    }

    fn out_dim(&self) -> usize {
        self.out_dim
    }

    fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.linear.visit(see);
        see(&self.source);
        see(&self.target);
        self.bias.iter().for_each(see);
    }

    fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.linear.visit_mut(see);
        see(&mut self.source);
        see(&mut self.target);
        self.bias.iter_mut().for_each(see);
    }

    fn boxed(&self) -> Box<dyn Layer> {
        Box::new(self.clone())
    }

    fn orders(&self) -> &'static [Order] {
        &[Order::AggregateFirst, Order::TransformFirst]
    }

    fn cost(&self, order: Order, shape: BlockShape, purpose: Purpose) -> f64 {
        let head_dim = self.dims[0] / self.heads;
        cost::attention(order, shape, self.in_dim(), self.heads, head_dim, purpose)
    }

    fn transformed_dims(&self) -> &[usize] {
        &self.dims
    }

    fn transform(&self, pass: &Pass, x: View, at: usize, t: &mut [Matrix]) {
        let rows = at..at + x.num_rows();
        let [z, source, target] = t else { unreachable!("three tables") };
        self.linear.forward_product(pass, x, 0.0, z.rows_mut(rows.clone()));
        let z = z.rows(rows.clone());
        pass.backend.head_dot(z, self.source.value.view(), self.heads, source.rows_mut(rows.clone()));
        pass.backend.head_dot(z, self.target.value.view(), self.heads, target.rows_mut(rows));
    }

    fn combines_own_rows(&self) -> bool {
        false
    }

    fn combine(
        &self,
        pass: &Pass,
        block: &Block,
        _x: View,
        t: &[Matrix],
        finish: Finish,
        saved: &mut Saved,
        mut out: ViewMut,
    ) {
        let backend = pass.backend;
        let [z, source, target] = t else { unreachable!("three tables") };
        let [alpha, dropped, all_heads, ..] = &mut saved.m;
        alpha.resize(block.num_edges() + block.num_dst, self.heads);
        backend.edge_softmax(block, source.view(), target.view(), SLOPE, alpha.view_mut());
        let attention = self.attention_finish(pass);
        let alpha = if attention.dropout == Dropout::NONE {
            alpha.view()
        } else {
            dropped.resize(alpha.num_rows(), self.heads);
            backend.copy(alpha.view(), dropped.view_mut());
            attention.apply(backend, None, dropped.view_mut());
            dropped.view()
        };
        if self.is_mean() {
            all_heads.resize(block.num_dst, self.dims[0]);
            backend.attend(block, alpha, z.view(), all_heads.view_mut());
            backend.head_mean(all_heads.view(), self.heads, out.reborrow());
        } else {
            backend.attend(block, alpha, z.view(), out.reborrow());
        }
        finish.apply(backend, self.bias.as_ref(), out);
    }

    fn aggregate_first(
        &self,
        pass: &Pass,
        block: &Block,
        x: View,
        finish: Finish,
        saved: &mut Saved,
        mut out: ViewMut,
    ) {
        let (backend, heads, weight) = (pass.backend, self.heads, self.linear.weight().value.view());
        let [alpha, dropped, all_heads, score, source, target, rows, ..] = &mut saved.m;
        for (vector, a) in [(&mut *source, &self.source), (&mut *target, &self.target)] {
            vector.resize(self.in_dim(), heads);
            backend.head_dot(weight, a.value.view(), heads, vector.view_mut());
        }
        let entries = block.num_edges() + block.num_dst;
        let dropout = self.attention_finish(pass).dropout;
        score.resize(entries, heads);
        alpha.resize(entries, heads);
        dropped.resize(if dropout.threshold() == 0 { 0 } else { entries }, heads);
        rows.resize(block.num_dst, heads * self.in_dim());
        backend.attend_input(
            block,
            x,
            source.view(),
            target.view(),
            SLOPE,
            dropout,
            score.view_mut(),
            alpha.view_mut(),
            dropped.view_mut(),
            rows.view_mut(),
        );
        if self.is_mean() {
            all_heads.resize(block.num_dst, self.dims[0]);
            backend.head_gemm(heads, rows.view(), Plain, weight, Plain, 0.0, all_heads.view_mut());
            backend.head_mean(all_heads.view(), heads, out.reborrow());
        } else {
            backend.head_gemm(heads, rows.view(), Plain, weight, Plain, 0.0, out.reborrow());
        }
        finish.apply(backend, self.bias.as_ref(), out);
    }

    fn kept_dims(&self) -> Vec<usize> {
        vec![self.heads * self.in_dim()]
    }

    fn keep(&self, pass: &Pass, block: &Block, _x: View, saved: &Saved, at: usize, kept: &mut [Matrix]) {
        let [_, _, _, _, _, _, rows, ..] = &saved.m;
        pass.backend.copy(rows.view(), kept[0].rows_mut(at..at + block.num_dst));
    }

    fn rows_of_kept(&self, pass: &Pass, kept: &[Matrix], saved: &mut Saved, out: ViewMut) {
        let (backend, heads, weight) = (pass.backend, self.heads, self.linear.weight().value.view());
        if self.is_mean() {
            let [_, _, all_heads, ..] = &mut saved.m;
            all_heads.resize(kept[0].num_rows(), self.dims[0]);
            backend.head_gemm(heads, kept[0].view(), Plain, weight, Plain, 0.0, all_heads.view_mut());
            backend.head_mean(all_heads.view(), heads, out);
        } else {
            backend.head_gemm(heads, kept[0].view(), Plain, weight, Plain, 0.0, out);
        }
    }

    fn kept_bias(&self) -> Option<&Param> {
        self.bias.as_ref()
    }

    fn kept_bias_mut(&mut self) -> Option<&mut Param> {
        self.bias.as_mut()
    }

    fn backward_kept(&mut self, pass: &Pass, kept: &[Matrix], saved: &mut Saved, grad: View) {
        let (backend, heads) = (pass.backend, self.heads);
        let heads_grad = if self.is_mean() {
            let [_, _, all_heads, ..] = &mut saved.m;
            all_heads.resize(grad.num_rows(), self.dims[0]);
            backend.head_mean_backward(grad, heads, all_heads.view_mut());
            all_heads.view()
        } else {
            grad
        };
        let to = self.linear.weight_mut().grad.view_mut();
        backend.head_gemm(heads, kept[0].view(), Transposed, heads_grad, Plain, 1.0, to);
    }

    fn backward(
        &mut self,
        pass: &Pass,
        order: Order,
        block: &Block,
        x: View,
        y: View,
        finish: Finish,
        saved: &mut Saved,
        grad: &mut Matrix,
        x_grad: Option<&mut Matrix>,
    ) {
        if order == Order::AggregateFirst {
            return self.aggregated_backward(pass, block, x, y, finish, saved, grad, x_grad);
        }
        super::assert_unrestricted(block);
        let backend = pass.backend;
        let heads = self.heads;
        let [z, source, target] = &saved.t;
        let [alpha, dropped, all_heads, alpha_grad, scratch, source_grad, target_grad, z_grad, ..] =
            &mut saved.m;
        finish.backward(backend, self.bias.as_mut(), y, grad.view_mut());
        let heads_grad = if self.is_mean() {
            all_heads.resize(block.num_dst, self.dims[0]);
            backend.head_mean_backward(grad.view(), heads, all_heads.view_mut());
            all_heads.view()
        } else {
            grad.view()
        };
        let attention = self.attention_finish(pass);
        let used = if attention.dropout == Dropout::NONE { alpha.view() } else { dropped.view() };
        alpha_grad.resize(alpha.num_rows(), heads);
        z_grad.resize(block.num_src, self.dims[0]);
        backend.attend_backward(block, used, z.view(), heads_grad, alpha_grad.view_mut(), z_grad.view_mut());
        attention.backward(backend, None, used, alpha_grad.view_mut());
        scratch.resize(alpha.num_rows(), heads);
        source_grad.resize(block.num_src, heads);
        target_grad.resize(block.num_src, heads);
        backend.edge_softmax_backward(
            block,
            source.view(),
            target.view(),
            SLOPE,
            alpha.view(),
            alpha_grad.view(),
            scratch.view_mut(),
            source_grad.view_mut(),
            target_grad.view_mut(),
        );
        let Param { value, grad: a_grad, .. } = &mut self.source;
        let (a, a_grad) = (value.view(), a_grad.view_mut());
        backend.head_dot_backward(z.view(), a, heads, source_grad.view(), z_grad.view_mut(), a_grad);
        // only destinations are targets, and they come first
        let dst = 0..block.num_dst;
        let Param { value, grad: a_grad, .. } = &mut self.target;
        let (a, a_grad) = (value.view(), a_grad.view_mut());
        let (z, g) = (z.rows(dst.clone()), target_grad.rows(dst.clone()));
        backend.head_dot_backward(z, a, heads, g, z_grad.rows_mut(dst), a_grad);
        self.linear.backward_product(pass, x, z_grad.view());
        if let Some(x_grad) = x_grad {
            x_grad.resize(block.num_src, self.in_dim());
            self.linear.input_grad(pass, z_grad.view(), 0.0, x_grad.view_mut());
        }
    }
}
