//! The operations layers are written against.
//!
//! Shapes are given in every comment; `S`, `D` and `E` are a block's sources, destinations and
//! edges. A gradient of the sources, an operation's result, has rows for those alone that want one, the first `W`
//! ([`Block::num_grad_src`]; all where the block does not say otherwise). Operations check shapes with assertions: a mismatch is a bug in a layer, not an input
//! error. Every operation is deterministic: the same bits for any number of threads.
//!
//! Sparse rows ([`View::sparse`]) are read by the products, as their first factor, by [`Backend::add`], and by
//! [`Backend::gather`], also from a table. Their products stay in f32 whatever the backend's precision: they are bound by
//! memory.

use graphmill_graph::{Block, NodeId};

use crate::{Result, View, ViewMut};

pub mod cpu;
pub mod reference;
mod shape;
mod winners;

pub use cpu::{Cpu, Precision};
pub use reference::Reference;
pub use winners::Winners;

/// Whether a factor of a product is used as it is or transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// As it is.
    Plain,
    /// Transposed.
    Transposed,
}

/// The coefficient of an edge in an aggregation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EdgeWeight {
    /// 1: a sum.
    One,
    /// 1 / (edges of the destination): a mean; a destination without edges gets 0.
    Mean,
    /// [`Block::edge_weight`].
    Stored,
    /// [`Block::edge_weight`] / max(the sum of those of the destination's edges, 1): a mean by importance.
    Normalised,
}

/// The coefficient of a destination's own row in an aggregation.
#[derive(Clone, Copy, Debug)]
pub enum OwnWeight<'a> {
    /// It takes no part.
    None,
    /// The same for all.
    Constant(f32),
    /// 1 + the value of a `1 x 1` matrix, the same for all: a learned one, which stays where it is.
    OnePlus(View<'a>),
    /// [`Block::self_weight`].
    Stored,
}

/// The linear map `out[v] = own(v) x[own_row(v)] + sum over edges e = (u, v) of edge(e) x[u]`.
#[derive(Clone, Copy, Debug)]
pub struct Weighting<'a> {
    /// Per edge.
    pub edge: EdgeWeight,
    /// Per destination.
    pub own: OwnWeight<'a>,
}

impl Weighting<'_> {
    /// Mean over the in-neighbours.
    pub const MEAN: Self = Self { edge: EdgeWeight::Mean, own: OwnWeight::None };
    /// The weights stored in the block, own rows included.
    pub const STORED: Self = Self { edge: EdgeWeight::Stored, own: OwnWeight::Stored };
}

/// Pointwise non-linearities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// x
    Identity,
    /// max(x, 0)
    Relu,
    /// x for x > 0, exp(x) - 1 else
    Elu,
    /// x for x > 0, 0.01 x else
    LeakyRelu,
}

/// Inverted dropout: each value is zeroed with probability `p` and otherwise scaled by 1/(1-p).
///
/// The mask is a pure function of `key` and the element's row and column ([`dropped`]), so the
/// backward pass recomputes it and nothing is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability of a zero, in `[0, 1)`.
    pub p: f32,
    /// Identifies seed, step, layer and place.
    pub key: u64,
}

impl Dropout {
    /// Drops nothing.
    pub const NONE: Self = Self { p: 0.0, key: 0 };

    /// What survivors are multiplied by.
    pub fn scale(&self) -> f32 {
        1.0 / (1.0 - self.p)
    }

    /// A hash below this drops the element.
    pub fn threshold(&self) -> u32 {
        (f64::from(self.p) * 4_294_967_296.0) as u32
    }

    /// The part of the mask's key that a whole row shares.
    #[inline(always)]
    pub fn row_key(&self, row: usize) -> u32 {
        (graphmill_graph::keyed::mix(self.key ^ (row as u64).wrapping_mul(graphmill_graph::keyed::GOLDEN))
            >> 32) as u32
    }
}

/// The mask's hash of column `col` in a row with that key: 32 bits, the `lowbias32` mixer
/// (C. Wellons, *Prospecting for hash functions*, 2018), which is two multiplications and
/// vectorises.
#[inline(always)]
pub fn mask_hash(row_key: u32, col: u32) -> u32 {
    let mut x = row_key ^ col.wrapping_mul(0x9e37_79b9);
    x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// Whether dropout zeroes the element at (`row`, `col`).
#[inline]
pub fn dropped(dropout: Dropout, row: usize, col: usize) -> bool {
    mask_hash(dropout.row_key(row), col as u32) < dropout.threshold()
}

/// One step of Adam or AdamW (Kingma and Ba, 2015; Loshchilov and Hutter, 2019).
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    /// Learning rate.
    pub lr: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// L2 penalty added to the gradient (Adam), or decay of the weight itself (AdamW).
    pub weight_decay: f32,
    /// Whether the decay is AdamW's.
    pub decoupled: bool,
    /// 1 - beta1^t.
    pub correction1: f32,
    /// 1 - beta2^t.
    pub correction2: f32,
}

/// One step of SGD with momentum (PyTorch's form: `velocity = momentum * velocity + g`, and Nesterov's).
#[derive(Clone, Copy, Debug)]
pub struct SgdStep {
    /// Learning rate.
    pub lr: f32,
    /// Weight of the velocity.
    pub momentum: f32,
    /// Whether to look ahead (Nesterov).
    pub nesterov: bool,
    /// L2 penalty added to the gradient.
    pub weight_decay: f32,
}

/// Shows several matrices, always in the same order.
pub type Matrices<'m> = dyn FnMut(&mut dyn FnMut(View)) + 'm;

/// The operations. One implementation per kind of device.
pub trait Backend: Send + Sync {
    /// What to call it.
    fn name(&self) -> &'static str;

    /// The loss that an operation returned. A backend that queues its work returns a finite stand-in instead, so that the backward
    /// pass need not wait for it, and waits here.
    fn settle(&self, loss: f64) -> f64 {
        loss
    }

    /// A step begins that is as one before was, but for its number: the same shapes in the same order. A backend may do such steps
    /// in a cheaper way; their results are the same. Without [`Backend::end_again`] it goes on until the next begins.
    fn begin_again(&self) {}

    /// The step is over.
    fn end_again(&self) {}

    /// Whether all operations so far were done: they have no result to say so, and do nothing behind one that failed.
    ///
    /// # Errors
    /// The first failure.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    // ------------------------------------------------------------------ dense products

    /// `c = beta c + op(a) op(b)`; with `beta == 0` the old `c` is not read. Either or neither
    /// factor is transposed, not both. `a` transposed reduces over rows (a weight gradient).
    fn gemm(&self, a: View, side_a: Side, b: View, side_b: Side, beta: f32, c: ViewMut);

    /// [`Backend::gemm`] head by head: every matrix is `heads` runs of columns side by side, and
    /// `c[h] = beta c[h] + op(a[h]) op(b[h])`.
    #[allow(clippy::too_many_arguments, reason = "a product, by heads")]
    fn head_gemm(&self, heads: usize, a: View, side_a: Side, b: View, side_b: Side, beta: f32, c: ViewMut);

    /// `c[i] = beta c[i] + a[i]^T b`: the gradients of two weights whose products were added, so that `b`, the gradient of
    /// the sum, need be prepared only once.
    fn weight_gradients(&self, a: [View; 2], b: View, beta: f32, c: [ViewMut; 2]) {
        for (a, c) in a.into_iter().zip(c) {
            self.gemm(a, Side::Transposed, b, Side::Plain, beta, c);
        }
    }

    // ------------------------------------------------------------------ aggregation

    /// `dst = beta dst + A src`, with `A` as [`Weighting`] says: `S x F` to `D x F`. The block may
    /// be local or global.
    fn aggregate(&self, block: &Block, weighting: Weighting, src: View, beta: f32, dst: ViewMut);

    /// `src_grad = beta src_grad + A^T dst_grad`: `D x F` to `W x F`. The block is local and
    /// transposed.
    fn aggregate_transposed(
        &self,
        block: &Block,
        weighting: Weighting,
        dst_grad: View,
        beta: f32,
        src_grad: ViewMut,
    );

    /// One hop for the columns from `first` on, which are aggregated with the weights stored in the block
    /// ([`Weighting::STORED`]); the columns before are the destinations' own rows: `S x F` to `D x F`. The block may be local
    /// or global.
    fn hop(&self, first: usize, block: &Block, src: View, dst: ViewMut);

    /// The gradient of [`Backend::hop`]: overwrites `src_grad` (`W x F`). The block is local and transposed.
    fn hop_transposed(&self, first: usize, block: &Block, dst_grad: View, src_grad: ViewMut);

    /// Elementwise maximum over the in-neighbours, `S x F` to `D x F`; 0 where there are none. The
    /// winning edge's position goes to `arg` (resized to `D x F`; `u32::MAX` where there are none, the first
    /// of equals).
    fn aggregate_max(&self, block: &Block, src: View, dst: ViewMut, arg: &mut Winners);

    /// The gradient of [`Backend::aggregate_max`]: overwrites `src_grad` (`W x F`). The block is
    /// local and transposed.
    fn aggregate_max_transposed(&self, block: &Block, arg: &Winners, dst_grad: View, src_grad: ViewMut);

    // ------------------------------------------------------------------ attention (GAT)
    // `Z` is `S x (H O)`: H heads of O columns each. Every destination also attends to its own row;
    // `alpha` is `(E + D) x H`: first the edges, then the destinations' own entries.

    /// `out[r, h] = sum over o of z[r, h O + o] a[h O + o]`, with `a` of `1 x (H O)`: `R x H`.
    fn head_dot(&self, z: View, a: View, heads: usize, out: ViewMut);

    /// The gradients of [`Backend::head_dot`], both added to: `z_grad` (`R x (H O)`), `a_grad` (`1 x (H O)`).
    fn head_dot_backward(&self, z: View, a: View, heads: usize, grad: View, z_grad: ViewMut, a_grad: ViewMut);

    /// `alpha = softmax over e in {edges of v, v itself} of leaky_relu(source[u] + target[own_row(v)])`,
    /// with `source` and `target` of `S x H`. Stable: the largest logit of each destination is subtracted.
    fn edge_softmax(&self, block: &Block, source: View, target: View, slope: f32, alpha: ViewMut);

    /// The gradients of [`Backend::edge_softmax`]: overwrites `source_grad` and `target_grad` (`W x H`).
    /// `scratch` is `alpha`'s shape. The block is local and transposed.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    fn edge_softmax_backward(
        &self,
        block: &Block,
        source: View,
        target: View,
        slope: f32,
        alpha: View,
        alpha_grad: View,
        scratch: ViewMut,
        source_grad: ViewMut,
        target_grad: ViewMut,
    );

    /// `out[v, h] = sum over e in {edges of v, v itself} of alpha[e, h] z[u, h]`: `D x (H O)`.
    fn attend(&self, block: &Block, alpha: View, z: View, out: ViewMut);

    /// The gradients of [`Backend::attend`]: overwrites `alpha_grad` (`(E + D) x H`) and `z_grad`
    /// (`W x (H O)`). The block is local and transposed.
    fn attend_backward(
        &self,
        block: &Block,
        alpha: View,
        z: View,
        grad: View,
        alpha_grad: ViewMut,
        z_grad: ViewMut,
    );

    /// Attention over input rows, which all heads share: with `source` and `target` of `F x H`,
    ///
    /// ```text
    /// score[e, h] = x[u] . source[., h] + x[own_row(v)] . target[., h]     (E + D) x H
    /// alpha = softmax over e in {edges of v, v itself} of leaky_relu(score)
    /// used = dropout(alpha)
    /// out[v, h F + f] = sum over e of used[e, h] x[u, f]                   D x (H F)
    /// ```
    ///
    /// `used` is written where the dropout drops, and may be empty else. Local or global blocks.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    fn attend_input(
        &self,
        block: &Block,
        x: View,
        source: View,
        target: View,
        slope: f32,
        dropout: Dropout,
        score: ViewMut,
        alpha: ViewMut,
        used: ViewMut,
        out: ViewMut,
    );

    /// The gradients of [`Backend::attend_input`] from that of `out`: overwrites `score_grad` (`(E + D) x H`),
    /// `source_grad` and `target_grad` (`F x H`). `used` is `alpha` itself where nothing was dropped. Local
    /// or global blocks.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    fn attend_input_backward(
        &self,
        block: &Block,
        x: View,
        slope: f32,
        score: View,
        alpha: View,
        used: View,
        grad: View,
        score_grad: ViewMut,
        source_grad: ViewMut,
        target_grad: ViewMut,
    );

    /// The gradient of [`Backend::attend_input`] with respect to `x`, after
    /// [`Backend::attend_input_backward`]: overwrites `x_grad` (`W x F`). The block is local and transposed.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    fn attend_input_transposed(
        &self,
        block: &Block,
        source: View,
        target: View,
        used: View,
        grad: View,
        score_grad: View,
        x_grad: ViewMut,
    );

    /// `out[r, o] = 1/H sum over h of x[r, h O + o]`: `R x (H O)` to `R x O`.
    fn head_mean(&self, x: View, heads: usize, out: ViewMut);

    /// The gradient of [`Backend::head_mean`]: overwrites `x_grad` (`R x (H O)`).
    fn head_mean_backward(&self, grad: View, heads: usize, x_grad: ViewMut);

    // ------------------------------------------------------------------ rows and elements

    /// `dst[i] = src[ids[i]]`.
    fn gather(&self, src: View, ids: &[NodeId], dst: ViewMut);

    /// `y = y + alpha x`.
    fn add(&self, alpha: f32, x: View, y: ViewMut);

    /// The values stored of the sparse rows `x` after dropout of its elements, `stored x 1`: an element is dropped
    /// where [`Backend::epilogue`] drops that of a dense matrix.
    fn drop_stored(&self, x: View, dropout: Dropout, out: ViewMut);

    /// Every element becomes `value`, whatever it was.
    fn fill(&self, value: f32, x: ViewMut);

    /// `x = alpha x`.
    fn scale(&self, alpha: f32, x: ViewMut);

    /// `dst = src`.
    fn copy(&self, src: View, dst: ViewMut);

    /// `out = out + the column sums of x`: `R x F` to `1 x F`.
    fn add_column_sums(&self, x: View, out: ViewMut);

    /// The sum of `x * y`, in f64.
    fn dot(&self, x: View, y: View) -> f64;

    /// `out = out + ` [`Backend::dot`] of `x` and `y`, rounded to f32: `out` is `1 x 1`.
    fn add_dot(&self, x: View, y: View, out: ViewMut) {
        shape::row(&out.as_view(), 1);
        out.host()[0] += self.dot(x, y) as f32;
    }

    /// The sum of the squares of all values of several matrices, in f64.
    fn squares(&self, matrices: &mut Matrices) -> f64 {
        let mut sum = 0.0;
        matrices(&mut |x| sum += self.dot(x, x));
        sum
    }

    /// In place `x = dropout(activation(x + bias))`, `bias` of `1 x F`: one pass over the rows.
    fn epilogue(&self, bias: Option<View>, activation: Activation, dropout: Dropout, x: ViewMut);

    /// `out = dropout(activation(beta out + x w + bias))`: what a dense layer does, [`Backend::gemm`] and then
    /// [`Backend::epilogue`], which a backend may do while rows are still in its caches.
    #[allow(clippy::too_many_arguments, reason = "two operations in one")]
    fn dense(
        &self,
        x: View,
        w: View,
        beta: f32,
        bias: Option<View>,
        activation: Activation,
        dropout: Dropout,
        mut out: ViewMut,
    ) {
        self.gemm(x, Side::Plain, w, Side::Plain, beta, out.reborrow());
        self.epilogue(bias, activation, dropout, out);
    }

    /// The gradient of [`Backend::epilogue`] from its output `y`, in place on `grad`; the column
    /// sums of the result are added to `bias_grad`.
    fn epilogue_backward(
        &self,
        activation: Activation,
        dropout: Dropout,
        y: View,
        grad: ViewMut,
        bias_grad: Option<ViewMut>,
    );

    // ------------------------------------------------------------------ normalisation

    /// Batch normalisation over the rows (Ioffe and Szegedy, 2015): writes `stats` (`2 x F`: mean,
    /// biased variance) and `out = gamma (x - mean) / sqrt(var + eps) + beta`.
    fn batch_norm(&self, x: View, gamma: View, beta: View, eps: f32, stats: ViewMut, out: ViewMut);

    /// The same with given `stats` (evaluation).
    fn batch_norm_apply(&self, x: View, gamma: View, beta: View, eps: f32, stats: View, out: ViewMut);

    /// The gradients of [`Backend::batch_norm`], in place on `grad`; `gamma_grad` and `beta_grad` are added to.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    fn batch_norm_backward(
        &self,
        x: View,
        gamma: View,
        eps: f32,
        stats: View,
        grad: ViewMut,
        gamma_grad: ViewMut,
        beta_grad: ViewMut,
    );

    /// Layer normalisation of each row (Ba, Kiros and Hinton, 2016); `stats` is `R x 2`: mean, biased variance.
    fn layer_norm(&self, x: View, gamma: View, beta: View, eps: f32, stats: ViewMut, out: ViewMut);

    /// The gradients of [`Backend::layer_norm`], in place on `grad`; `gamma_grad` and `beta_grad` are added to.
    #[allow(clippy::too_many_arguments, reason = "one operation, its inputs and its outputs")]
    fn layer_norm_backward(
        &self,
        x: View,
        gamma: View,
        eps: f32,
        stats: View,
        grad: ViewMut,
        gamma_grad: ViewMut,
        beta_grad: ViewMut,
    );

    /// `out[r] = x[r] / max(|x[r]|, 1e-12)`; `norms` is `R x 1` and receives `|x[r]|`.
    fn l2_norm(&self, x: View, norms: ViewMut, out: ViewMut);

    /// The gradient of [`Backend::l2_norm`] from its output `y`, in place on `grad`. Rows of norm up to
    /// 1e-12 get 0: the exact value, 1e12 times the gradient, would wreck the parameters before them.
    fn l2_norm_backward(&self, y: View, norms: View, grad: ViewMut);

    // ------------------------------------------------------------------ losses

    /// `scale * sum over r of weight[r] * -log softmax(logits[r])[label[r]]`, and its gradient. An
    /// empty `weight` is all ones; a label of -1 takes no part.
    fn softmax_cross_entropy(
        &self,
        logits: View,
        label: &[i32],
        weight: &[f32],
        scale: f32,
        grad: ViewMut,
    ) -> f64;

    /// `scale * sum over r, c of weight[r] * (log(1 + e^x) - t x)` with `x = logits[r, c]` and
    /// `t = target[r C + c]`, and its gradient.
    fn sigmoid_cross_entropy(
        &self,
        logits: View,
        target: &[u8],
        weight: &[f32],
        scale: f32,
        grad: ViewMut,
    ) -> f64;

    /// Each row's softmax, in place.
    fn softmax(&self, x: ViewMut);

    /// 1 / (1 + e^-x), in place.
    fn sigmoid(&self, x: ViewMut);

    // ------------------------------------------------------------------ updates

    /// Adam or AdamW on `value`, with moments `m` and `v` of the same shape.
    fn adam(&self, step: AdamStep, grad: View, m: ViewMut, v: ViewMut, value: ViewMut);

    /// SGD on `value`, with its velocity of the same shape.
    fn sgd(&self, step: SgdStep, grad: View, velocity: ViewMut, value: ViewMut);
}
