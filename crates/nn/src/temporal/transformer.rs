//! A layer of a transformer over the rows of sequences.

use graphmill_core::{Block, keyed};

use crate::{
    Epilogue, Matrix, Param, Pass, View,
    backend::{
        Activation, Dropout,
        ops::{Add, Attend, AttendBackward, DotSoftmax, DotSoftmaxBackward, GeluBackward, GeluForward},
    },
    layer::{
        Linear,
        norm::{LayerNorm, Norm},
        site,
    },
};

/// Hidden units of the dense part for each column.
const EXPANSION: usize = 4;
/// Dropout sites of a layer besides those of attention and output rows.
const HIDDEN: u64 = 16;
const DENSE: u64 = 17;

/// Layer of a transformer encoder (Vaswani et al., *Attention is all you need*, NeurIPS 2017) with
/// norms before its two parts (Xiong et al., *On layer normalization in the transformer
/// architecture*, ICML 2020), as DyGFormer has it. `att` is the attention of the heads of a row to
/// all rows of its sequence:
///
/// ```text
/// n = norm_0(x)
/// y = x + dropout(dropout(att(n Q, n K)) (n V) O)
/// out = y + dropout(dropout(gelu(norm_1(y) W_0)) W_1)
/// ```
///
/// All dense layers have biases.
///
/// # Cost
///
/// For `N` rows of width `C` in sequences of `L` rows, O(N C (C + L)) multiplications.
///
/// # Memory
///
/// O(N (C + H L)) values for `H` heads, as the backward pass reads attention weights.
#[derive(Clone, Debug)]
pub(super) struct TransformerLayer {
    heads: usize,
    dropout: f32,
    norms: [LayerNorm; 2],
    query: Linear,
    key: Linear,
    value: Linear,
    merge: Linear,
    first: Linear,
    second: Linear,
}

/// Matrices that a forward pass saves for its backward pass.
#[derive(Clone, Debug, Default)]
pub(super) struct TransformerState {
    stats: [[Matrix; 2]; 2],
    normed: [Matrix; 2],
    query: Matrix,
    key: Matrix,
    value: Matrix,
    alpha: Matrix,
    dropped: Matrix,
    attended: Matrix,
    /// Rows that a part adds to its input.
    added: [Matrix; 2],
    /// Rows between the parts.
    between: Matrix,
    before: Matrix,
    hidden: Matrix,
    scratch: Scratch,
}

/// Gradients of a backward pass.
#[derive(Clone, Debug, Default)]
struct Scratch {
    added: Matrix,
    hidden: Matrix,
    normed: Matrix,
    attended: Matrix,
    alpha: Matrix,
    entries: Matrix,
    /// Of queries, keys and values.
    parts: [Matrix; 3],
}

impl TransformerLayer {
    /// Creates a layer of `width` columns, which `heads` divides.
    pub(super) fn new(width: usize, heads: usize, dropout: f32, key: u64) -> Self {
        let key = |part| keyed::key(&[key, part]);
        let dense = |names, part| Linear::named(names, width, width, true, key(part));
        let hidden = EXPANSION * width;
        Self {
            heads,
            dropout,
            norms: [
                LayerNorm::named(["norm.0.gamma", "norm.0.beta"], width),
                LayerNorm::named(["norm.1.gamma", "norm.1.beta"], width),
            ],
            query: dense(["query.weight", "query.bias"], 0),
            key: dense(["key.weight", "key.bias"], 1),
            value: dense(["value.weight", "value.bias"], 2),
            merge: dense(["merge.weight", "merge.bias"], 3),
            first: Linear::named(["dense.0.weight", "dense.0.bias"], width, hidden, true, key(4)),
            second: Linear::named(["dense.1.weight", "dense.1.bias"], hidden, width, true, key(5)),
        }
    }

    /// Visits every parameter, always in the same order.
    pub(super) fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.norms.iter().for_each(|norm| norm.visit(see));
        let Self { query, key, value, merge, first, second, .. } = self;
        [query, key, value, merge, first, second].into_iter().for_each(|linear| linear.visit(see));
    }

    /// Visits every parameter mutably, in the order of [`TransformerLayer::visit`].
    pub(super) fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.norms.iter_mut().for_each(|norm| norm.visit_mut(see));
        let Self { query, key, value, merge, first, second, .. } = self;
        [query, key, value, merge, first, second].into_iter().for_each(|linear| linear.visit_mut(see));
    }

    fn scale(&self) -> f32 {
        ((self.query.out_dim() / self.heads) as f32).sqrt().recip()
    }

    fn drops(&self, pass: &Pass, site: u64) -> Epilogue {
        Epilogue { activation: Activation::Identity, dropout: pass.dropout(self.dropout, site) }
    }

    /// Computes the rows `out` from `x`, both `N x C`. `block` is square and local, with an edge
    /// into each row from every row of its sequence.
    pub(super) fn forward(
        &self,
        pass: &Pass,
        block: &Block,
        x: View,
        state: &mut TransformerState,
        out: &mut Matrix,
    ) {
        let (rows, width, backend) = (x.num_rows(), x.num_cols(), pass.backend);
        let TransformerState { stats, normed, added, between, .. } = state;
        normed[0].resize(rows, width);
        self.norms[0].forward(pass, x, &mut stats[0], normed[0].view_mut());
        added[0].resize(rows, width);
        between.resize(rows, width);
        backend.copy(x, between.view_mut());
        self.attend(pass, block, state);
        let TransformerState { stats, normed, added, between, before, hidden, .. } = state;
        Add { alpha: 1.0, x: added[0].view(), y: between.view_mut() }.run(backend);
        normed[1].resize(rows, width);
        self.norms[1].forward(pass, between.view(), &mut stats[1], normed[1].view_mut());
        [&mut *before, hidden].into_iter().for_each(|to| to.resize(rows, self.first.out_dim()));
        self.first.forward(pass, normed[1].view(), 0.0, Epilogue::NONE, before.view_mut());
        GeluForward { x: before.view(), out: hidden.view_mut() }.run(backend);
        self.drops(pass, HIDDEN).apply(backend, None, hidden.view_mut());
        added[1].resize(rows, width);
        self.second.forward(pass, hidden.view(), 0.0, self.drops(pass, DENSE), added[1].view_mut());
        out.resize(rows, width);
        backend.copy(between.view(), out.view_mut());
        Add { alpha: 1.0, x: added[1].view(), y: out.view_mut() }.run(backend);
    }

    /// Attention of the normed rows, into the rows to add.
    fn attend(&self, pass: &Pass, block: &Block, state: &mut TransformerState) {
        let TransformerState { normed, query, key, value, alpha, dropped, attended, added, .. } = state;
        let (rows, width, backend) = (normed[0].num_rows(), normed[0].num_cols(), pass.backend);
        for (linear, to) in [(&self.query, &mut *query), (&self.key, key), (&self.value, value)] {
            to.resize(rows, width);
            linear.forward(pass, normed[0].view(), 0.0, Epilogue::NONE, to.view_mut());
        }
        alpha.resize(block.num_edges() + rows, self.heads);
        let (query, key, scale) = (query.view(), key.view(), self.scale());
        DotSoftmax { block, query, key, scale, alpha: alpha.view_mut() }.run(backend);
        let attention = self.drops(pass, site::ATTENTION);
        let used = if attention.dropout == Dropout::NONE {
            alpha.view()
        } else {
            dropped.resize(alpha.num_rows(), self.heads);
            backend.copy(alpha.view(), dropped.view_mut());
            attention.apply(backend, None, dropped.view_mut());
            dropped.view()
        };
        attended.resize(rows, width);
        Attend { block, alpha: used, z: value.view(), out: attended.view_mut() }.run(backend);
        let output = self.drops(pass, site::OUTPUT);
        self.merge.forward(pass, attended.view(), 0.0, output, added[0].view_mut());
    }

    /// Replaces the gradient of the rows of the last [`TransformerLayer::forward`] by that of `x`,
    /// and adds to those of the parameters. `block` is transposed.
    pub(super) fn backward(
        &mut self,
        pass: &Pass,
        block: &Block,
        x: View,
        state: &mut TransformerState,
        grad: &mut Matrix,
    ) {
        let backend = pass.backend;
        let [output, hidden_drops, dense] = [site::OUTPUT, HIDDEN, DENSE].map(|site| self.drops(pass, site));
        let TransformerState { stats, normed, attended, added, between, before, hidden, scratch, .. } = state;
        let Scratch { added: added_grad, hidden: hidden_grad, normed: normed_grad, .. } = scratch;
        added_grad.resize(grad.num_rows(), grad.num_cols());
        backend.copy(grad.view(), added_grad.view_mut());
        self.second.backward(pass, hidden.view(), added[1].view(), dense, added_grad, Some(hidden_grad));
        hidden_drops.backward(backend, None, hidden.view(), hidden_grad.view_mut());
        GeluBackward { x: before.view(), grad: hidden_grad.view_mut() }.run(backend);
        let plain = Epilogue::NONE;
        self.first.backward(pass, normed[1].view(), before.view(), plain, hidden_grad, Some(normed_grad));
        self.norms[1].backward(pass, between.view(), &mut stats[1], normed_grad.view_mut());
        Add { alpha: 1.0, x: normed_grad.view(), y: grad.view_mut() }.run(backend);

        backend.copy(grad.view(), added_grad.view_mut());
        let attended_grad = &mut scratch.attended;
        self.merge.backward(pass, attended.view(), added[0].view(), output, added_grad, Some(attended_grad));
        self.backward_attention(pass, block, state);
        let TransformerState { stats, scratch, .. } = state;
        self.norms[0].backward(pass, x, &mut stats[0], scratch.normed.view_mut());
        Add { alpha: 1.0, x: scratch.normed.view(), y: grad.view_mut() }.run(backend);
    }

    /// Gradients of queries, keys and values, and of the normed rows.
    fn backward_attention(&mut self, pass: &Pass, block: &Block, state: &mut TransformerState) {
        let (scale, attention, backend) = (self.scale(), self.drops(pass, site::ATTENTION), pass.backend);
        let TransformerState { normed, query, key, value, alpha, dropped, scratch, .. } = state;
        let Scratch { normed: normed_grad, attended, alpha: alpha_grad, entries, parts, .. } = scratch;
        let (rows, width) = (query.num_rows(), query.num_cols());
        parts.iter_mut().for_each(|part| part.resize(rows, width));
        [&mut *alpha_grad, entries].into_iter().for_each(|grad| grad.resize(alpha.num_rows(), self.heads));
        let used = if attention.dropout == Dropout::NONE { alpha.view() } else { dropped.view() };
        let [query_grad, key_grad, value_grad] = parts;
        AttendBackward {
            block,
            alpha: used,
            z: value.view(),
            grad: attended.view(),
            alpha_grad: alpha_grad.view_mut(),
            z_grad: value_grad.view_mut(),
        }
        .run(backend);
        attention.backward(backend, None, used, alpha_grad.view_mut());
        DotSoftmaxBackward {
            block,
            query: query.view(),
            key: key.view(),
            scale,
            alpha: alpha.view(),
            alpha_grad: alpha_grad.view(),
            scratch: entries.view_mut(),
            query_grad: query_grad.view_mut(),
            key_grad: key_grad.view_mut(),
        }
        .run(backend);
        let linears = [&mut self.query, &mut self.key, &mut self.value];
        for (i, (linear, grad)) in linears.into_iter().zip(parts).enumerate() {
            linear.backward_product(pass, normed[0].view(), grad.view());
            if let Some(bias) = linear.bias_mut() {
                backend.add_column_sums(grad.view(), bias.grad.view_mut());
            }
            linear.input_grad(pass, grad.view(), if i == 0 { 0.0 } else { 1.0 }, normed_grad.view_mut());
        }
    }
}
