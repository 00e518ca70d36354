//! Graph attention.

use graphmill_graph::{Block, keyed};

use super::{Finish, Layer, LayerConfig, Linear, Order, Param, Pass, Saved, site};
use crate::{
    Error, Matrix, Result, View, ViewMut,
    backend::{Activation, Dropout},
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
/// Transforms first: `S F H C + 2 S H C + E H C` multiplications, with `C` the width of a head.
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
}

// In `Saved::t`: z, and the two parts of the scores (S x H). In `Saved::m`: alpha, alpha after dropout
// (only with dropout), the heads' rows or their gradient (D x H C, only when averaged), the gradient of
// alpha, scratch of its shape, the gradients of the scores' parts (S x H) and of z.
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
        &[Order::TransformFirst]
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

    fn backward(
        &mut self,
        pass: &Pass,
        _order: Order,
        block: &Block,
        x: View,
        y: View,
        finish: Finish,
        saved: &mut Saved,
        grad: &mut Matrix,
        x_grad: Option<&mut Matrix>,
    ) {
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
