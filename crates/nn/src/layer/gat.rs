//! Graph attention.

mod options;

use graphmill_core::keyed;

pub use options::GatOptions;

use super::{
    Epilogue, Layer, LayerConfig, LayerGrads, LayerInput, LayerSpec, Linear, Param, Pass, ReusableLayer,
    Saved, site,
};
use crate::{
    Error, Matrix, Result, View, ViewMut,
    backend::{
        Activation, Dropout,
        Side::{Plain, Transposed},
        ops::{
            Attend, AttendBackward, AttendInput, AttendInputBackward, AttendInputTransposed, EdgeSoftmax,
            EdgeSoftmaxBackward, HeadDot, HeadDotBackward, HeadGemm, HeadMean, HeadMeanBackward,
        },
    },
    cost::{self, BlockShape, ProductOrder, Purpose},
};

/// Slope of the leaky ReLU for negative scores (section 3.3 of the paper).
const SLOPE: f32 = 0.2;

/// The graph attentional operator (Velickovic et al., *Graph Attention Networks*, ICLR 2018,
/// equations 1 to 6). With `z = x W` and for each head `h`:
///
/// ```text
/// score(u, v) = leaky_relu(a_source . z[u] + a_target . z[v])
/// alpha[., v] = softmax over u in {in-neighbours of v, v itself} of score(u, v)
/// out[v] = sum over u of dropout(alpha[u, v]) z[u] + b
/// ```
///
/// Heads are concatenated (`concat`, equation 5) or averaged (equation 6, for the last layer). The
/// paper's `a` is split into its two halves, as in every implementation. A destination attends to
/// itself once, besides any self-loop among its edges.
///
/// Transform first costs `S F H C + 2 S H C + E H C` multiplications, where `C` is the width of a
/// head.
///
/// Aggregate first uses that the heads' scores and sums are linear in the input rows:
///
/// ```text
/// a_source . z[u] = x[u] . w_source,   w_source = W_h a_source                         F per head
/// out[v] = (sum over u of dropout(alpha[u, v]) x[u]) W_h + b
/// ```
///
/// Every head aggregates input rows, and only destinations are transformed: `2 E H F + D F H C`
/// multiplications, and a row is read once for all heads. The gradient of `w_source` reaches `W_h`
/// and `a_source` by the product rule. With `g` the gradient of the scores:
/// `g_w = sum over entries of g[u, v] x[u]`, `g_W = g_w a^T + ...` and `g_a = W^T g_w`.
///
/// # Shapes
/// - `weight`: `F x (H C)`; `source`, `target`: `1 x (H C)`; `bias`: `1 x O`
/// - `O = H C` when concatenated, `O = C` when averaged
/// - in `S x F`, out `D x O`; the attention weights are `(E + D) x H`
#[derive(Clone, Debug)]
pub struct Gat {
    spec: LayerSpec,
    linear: Linear,
    source: Param,
    target: Param,
    bias: Option<Param>,
    heads: usize,
    attention_dropout: f32,
}

impl Gat {
    /// Creates a layer of widths `F` and `O` with `heads` heads.
    ///
    /// # Errors
    /// `heads` is 0, or `O` is not a multiple of the heads that are concatenated.
    pub fn make(config: &LayerConfig) -> Result<Box<dyn Layer>> {
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
        let attention = |name, part| Param::glorot(name, 1, all, heads, head_dim, keyed::key(&[key, part]));
        let spec = LayerSpec::both_orders(in_dim, out_dim, vec![all, heads, heads]);
        Ok(Box::new(Self {
            spec: LayerSpec { combines_own_rows: false, ..spec },
            linear: Linear::new(in_dim, all, false, keyed::key(&[key, 0])),
            source: attention("source", 1),
            target: attention("target", 2),
            bias: bias.then(|| Param::zeros("bias", 1, out_dim)),
            heads,
            attention_dropout: options.attention_dropout as f32,
        }))
    }

    /// Number of columns of all heads, `H C`.
    fn width(&self) -> usize {
        self.linear.out_dim()
    }

    fn is_mean(&self) -> bool {
        self.width() != self.spec.out_dim
    }

    fn attention_epilogue(&self, pass: &Pass) -> Epilogue {
        let dropout = pass.dropout(self.attention_dropout, site::ATTENTION);
        Epilogue { activation: Activation::Identity, dropout }
    }

    /// Computes the heads' rows from the aggregated ones, `D x H F` to `D x O`.
    fn multiply(&self, pass: &Pass, rows: View, all_heads: &mut Matrix, out: ViewMut) {
        let (backend, heads, weight) = (pass.backend, self.heads, self.linear.weight().value.view());
        if self.is_mean() {
            all_heads.resize(rows.num_rows(), self.width());
            HeadGemm { heads, a: (rows, Plain), b: (weight, Plain), beta: 0.0, c: all_heads.view_mut() }
                .run(backend);
            HeadMean { x: all_heads.view(), heads, out }.run(backend);
        } else {
            HeadGemm { heads, a: (rows, Plain), b: (weight, Plain), beta: 0.0, c: out }.run(backend);
        }
    }

    /// Gradient of the heads' rows, `D x H C`, from that of the output rows.
    fn heads_grad<'a>(&self, pass: &Pass, grad: View<'a>, all_heads: &'a mut Matrix) -> View<'a> {
        if !self.is_mean() {
            return grad;
        }
        all_heads.resize(grad.num_rows(), self.width());
        HeadMeanBackward { grad, heads: self.heads, x_grad: all_heads.view_mut() }.run(pass.backend);
        all_heads.view()
    }

    fn forward_aggregated(&self, pass: &Pass, input: &LayerInput, saved: &mut State, out: ViewMut) {
        let (backend, heads, in_dim) = (pass.backend, self.heads, self.spec.in_dim);
        let weight = self.linear.weight().value.view();
        let State { alpha, dropped, all_heads, aggregated, .. } = saved;
        let Aggregated { score, source, target, rows, .. } = aggregated;
        for (vector, a) in [(&mut *source, &self.source), (&mut *target, &self.target)] {
            vector.resize(in_dim, heads);
            HeadDot { z: weight, a: a.value.view(), heads, out: vector.view_mut() }.run(backend);
        }
        let entries = input.block.num_edges() + input.block.num_dst;
        let dropout = self.attention_epilogue(pass).dropout;
        score.resize(entries, heads);
        alpha.resize(entries, heads);
        dropped.resize(if dropout.threshold() == 0 { 0 } else { entries }, heads);
        rows.resize(input.block.num_dst, heads * in_dim);
        AttendInput {
            block: input.block,
            x: input.x,
            source: source.view(),
            target: target.view(),
            slope: SLOPE,
            dropout,
            score: score.view_mut(),
            alpha: alpha.view_mut(),
            used: dropped.view_mut(),
            out: rows.view_mut(),
        }
        .run(backend);
        self.multiply(pass, rows.view(), all_heads, out);
    }

    fn forward_transformed(&self, pass: &Pass, input: &LayerInput, saved: &mut State, out: ViewMut) {
        let (backend, block, heads) = (pass.backend, input.block, self.heads);
        let [z, source, target] = tables(input.transformed);
        let State { alpha, dropped, all_heads, .. } = saved;
        alpha.resize(block.num_edges() + block.num_dst, heads);
        EdgeSoftmax {
            block,
            source: source.view(),
            target: target.view(),
            slope: SLOPE,
            alpha: alpha.view_mut(),
        }
        .run(backend);
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
            Attend { block, alpha, z: z.view(), out: all_heads.view_mut() }.run(backend);
            HeadMean { x: all_heads.view(), heads, out }.run(backend);
        } else {
            Attend { block, alpha, z: z.view(), out }.run(backend);
        }
    }

    /// [`Layer::backward`] in [`ProductOrder::AggregateFirst`], before the epilogue.
    fn backward_aggregated(
        &mut self,
        pass: &Pass,
        input: &LayerInput,
        grad: View,
        saved: &mut State,
        x_grad: Option<&mut Matrix>,
    ) {
        let (backend, block, heads, in_dim) = (pass.backend, input.block, self.heads, self.spec.in_dim);
        let State { alpha, dropped, all_heads, aggregated, .. } = saved;
        let Aggregated { score, source, target, rows, rows_grad, score_grad, source_grad, target_grad } =
            aggregated;
        let heads_grad = self.heads_grad(pass, grad, all_heads);
        let Param { value: weight, grad: weight_grad, .. } = self.linear.weight_mut();
        let weight = weight.view();
        let (a, b, c) = ((rows.view(), Transposed), (heads_grad, Plain), weight_grad.view_mut());
        HeadGemm { heads, a, b, beta: 1.0, c }.run(backend);
        rows_grad.resize(block.num_dst, heads * in_dim);
        let (a, b, c) = ((heads_grad, Plain), (weight, Transposed), rows_grad.view_mut());
        HeadGemm { heads, a, b, beta: 0.0, c }.run(backend);
        let used = if dropped.num_rows() == 0 { alpha.view() } else { dropped.view() };
        score_grad.resize(alpha.num_rows(), heads);
        source_grad.resize(in_dim, heads);
        target_grad.resize(in_dim, heads);
        AttendInputBackward {
            block,
            x: input.x,
            slope: SLOPE,
            score: score.view(),
            alpha: alpha.view(),
            used,
            grad: rows_grad.view(),
            score_grad: score_grad.view_mut(),
            source_grad: source_grad.view_mut(),
            target_grad: target_grad.view_mut(),
        }
        .run(backend);
        if let Some(x_grad) = x_grad {
            x_grad.resize(block.num_grad_src(), in_dim);
            AttendInputTransposed {
                block,
                source: source.view(),
                target: target.view(),
                used,
                grad: rows_grad.view(),
                score_grad: score_grad.view(),
                x_grad: x_grad.view_mut(),
            }
            .run(backend);
        }
        for (vector_grad, a) in [(source_grad, &mut self.source), (target_grad, &mut self.target)] {
            let (value, a_grad) = (a.value.view(), a.grad.view_mut());
            let weight_grad = weight_grad.view_mut();
            HeadDotBackward {
                z: weight,
                a: value,
                heads,
                grad: vector_grad.view(),
                z_grad: weight_grad,
                a_grad,
            }
            .run(backend);
        }
    }

    /// [`Layer::backward`] in [`ProductOrder::TransformFirst`], before the epilogue.
    fn backward_transformed(
        &mut self,
        pass: &Pass,
        input: &LayerInput,
        grad: View,
        saved: &mut State,
        x_grad: Option<&mut Matrix>,
    ) {
        input.assert_unrestricted();
        let (backend, block, heads) = (pass.backend, input.block, self.heads);
        let [z, source, target] = tables(input.transformed);
        let State { alpha, dropped, all_heads, transformed, .. } = saved;
        let Transformed { alpha_grad, scratch, source_grad, target_grad, z_grad } = transformed;
        let heads_grad = self.heads_grad(pass, grad, all_heads);
        let attention = self.attention_epilogue(pass);
        let used = if attention.dropout == Dropout::NONE { alpha.view() } else { dropped.view() };
        alpha_grad.resize(alpha.num_rows(), heads);
        z_grad.resize(block.num_src, self.width());
        AttendBackward {
            block,
            alpha: used,
            z: z.view(),
            grad: heads_grad,
            alpha_grad: alpha_grad.view_mut(),
            z_grad: z_grad.view_mut(),
        }
        .run(backend);
        attention.backward(backend, None, used, alpha_grad.view_mut());
        scratch.resize(alpha.num_rows(), heads);
        source_grad.resize(block.num_src, heads);
        target_grad.resize(block.num_src, heads);
        EdgeSoftmaxBackward {
            block,
            source: source.view(),
            target: target.view(),
            slope: SLOPE,
            alpha: alpha.view(),
            alpha_grad: alpha_grad.view(),
            scratch: scratch.view_mut(),
            source_grad: source_grad.view_mut(),
            target_grad: target_grad.view_mut(),
        }
        .run(backend);
        let Param { value, grad: a_grad, .. } = &mut self.source;
        let (a, a_grad, grad) = (value.view(), a_grad.view_mut(), source_grad.view());
        HeadDotBackward { z: z.view(), a, heads, grad, z_grad: z_grad.view_mut(), a_grad }.run(backend);
        // only destinations are targets, and they are the first sources
        let dst = 0..block.num_dst;
        let Param { value, grad: a_grad, .. } = &mut self.target;
        let (a, a_grad) = (value.view(), a_grad.view_mut());
        let (z, grad) = (z.rows(dst.clone()), target_grad.rows(dst.clone()));
        HeadDotBackward { z, a, heads, grad, z_grad: z_grad.rows_mut(dst), a_grad }.run(backend);
        self.linear.backward_product(pass, input.x, z_grad.view());
        if let Some(x_grad) = x_grad {
            x_grad.resize(block.num_src, self.spec.in_dim);
            self.linear.input_grad(pass, z_grad.view(), 0.0, x_grad.view_mut());
        }
    }
}

/// Tables of transformed rows: `z`, and the two parts of the scores (`S x H`).
fn tables(transformed: &[Matrix]) -> &[Matrix; 3] {
    transformed.try_into().expect("three tables of transformed rows")
}

/// Matrices of a pass.
#[derive(Clone, Debug, Default)]
struct State {
    alpha: Matrix,
    /// `alpha` after dropout; only with dropout.
    dropped: Matrix,
    /// Rows of the heads or their gradient, `D x H C`; only if they are averaged.
    all_heads: Matrix,
    transformed: Transformed,
    aggregated: Aggregated,
}

/// Matrices of [`ProductOrder::TransformFirst`].
#[derive(Clone, Debug, Default)]
struct Transformed {
    alpha_grad: Matrix,
    /// Scratch of the shape of `alpha`.
    scratch: Matrix,
    /// Gradients of the scores' parts, `S x H`.
    source_grad: Matrix,
    target_grad: Matrix,
    z_grad: Matrix,
}

/// Matrices of [`ProductOrder::AggregateFirst`].
#[derive(Clone, Debug, Default)]
struct Aggregated {
    score: Matrix,
    /// The two halves of the scores' vectors, `F x H`.
    source: Matrix,
    target: Matrix,
    /// Aggregated rows, `D x H F`.
    rows: Matrix,
    rows_grad: Matrix,
    score_grad: Matrix,
    source_grad: Matrix,
    target_grad: Matrix,
}

impl Layer for Gat {
    fn spec(&self) -> &LayerSpec {
        &self.spec
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

    fn cost(&self, order: ProductOrder, shape: BlockShape, purpose: Purpose) -> f64 {
        let head_dim = self.width() / self.heads;
        cost::attention(order, shape, self.spec.in_dim, self.heads, head_dim, purpose)
    }

    fn transform(&self, pass: &Pass, x: View, at: usize, tables: &mut [Matrix]) {
        let rows = at..at + x.num_rows();
        let [z, source, target]: &mut [Matrix; 3] =
            tables.try_into().expect("three tables of transformed rows");
        self.linear.forward_product(pass, x, 0.0, z.rows_mut(rows.clone()));
        let z = z.rows(rows.clone());
        HeadDot { z, a: self.source.value.view(), heads: self.heads, out: source.rows_mut(rows.clone()) }
            .run(pass.backend);
        HeadDot { z, a: self.target.value.view(), heads: self.heads, out: target.rows_mut(rows) }
            .run(pass.backend);
    }

    fn forward(
        &self,
        pass: &Pass,
        input: &LayerInput,
        epilogue: Epilogue,
        saved: &mut Saved,
        mut out: ViewMut,
    ) {
        match input.order {
            ProductOrder::AggregateFirst => {
                self.forward_aggregated(pass, input, saved.state(), out.reborrow());
            }
            ProductOrder::TransformFirst => {
                self.forward_transformed(pass, input, saved.state(), out.reborrow());
            }
        }
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
        epilogue.backward(pass.backend, self.bias.as_mut(), y, grad.view_mut());
        match input.order {
            ProductOrder::AggregateFirst => {
                self.backward_aggregated(pass, input, grad.view(), saved.state(), x_grad);
            }
            ProductOrder::TransformFirst => {
                self.backward_transformed(pass, input, grad.view(), saved.state(), x_grad);
            }
        }
    }

    fn as_reusable(&self) -> Option<&dyn ReusableLayer> {
        Some(self)
    }

    fn as_reusable_mut(&mut self) -> Option<&mut dyn ReusableLayer> {
        Some(self)
    }
}

/// The aggregates of a row are the heads' weighted sums of input rows, side by side.
impl ReusableLayer for Gat {
    fn aggregate_dims(&self) -> Vec<usize> {
        vec![self.heads * self.spec.in_dim]
    }

    fn save_aggregates(
        &self,
        pass: &Pass,
        input: &LayerInput,
        saved: &mut Saved,
        at: usize,
        aggregates: &mut [Matrix],
    ) {
        let State { aggregated, .. } = saved.state();
        pass.backend.copy(aggregated.rows.view(), aggregates[0].rows_mut(at..at + input.block.num_dst));
    }

    fn apply_aggregates(&self, pass: &Pass, aggregates: &[Matrix], saved: &mut Saved, out: ViewMut) {
        let State { all_heads, .. } = saved.state();
        self.multiply(pass, aggregates[0].view(), all_heads, out);
    }

    fn backward_aggregates(&mut self, pass: &Pass, aggregates: &[Matrix], saved: &mut Saved, grad: View) {
        let State { all_heads, .. } = saved.state();
        let heads_grad = self.heads_grad(pass, grad, all_heads);
        let (a, b, heads) = ((aggregates[0].view(), Transposed), (heads_grad, Plain), self.heads);
        let c = self.linear.weight_mut().grad.view_mut();
        HeadGemm { heads, a, b, beta: 1.0, c }.run(pass.backend);
    }

    fn bias(&self) -> Option<&Param> {
        self.bias.as_ref()
    }

    fn bias_mut(&mut self) -> Option<&mut Param> {
        self.bias.as_mut()
    }
}
