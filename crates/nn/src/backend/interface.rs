//! The operations layers are written against, in groups; a [`Backend`] has them all.

use graphmill_core::{Block, NodeId};

use super::{
    arg_max::ArgMax,
    ops::{
        AttendInput, AttendInputBackward, AttendInputTransposed, Dense, EdgeSoftmaxBackward, HeadGemm,
        NormBackward,
    },
    shape,
    types::{Activation, AdamStep, AggregationWeights, Dropout, SgdStep, Side},
};
use crate::{Result, View, ViewMut};

/// Shows several matrices, always in the same order.
pub type Matrices<'m> = dyn FnMut(&mut dyn FnMut(View)) + 'm;

/// A kind of device: its name, its queue of work, and all groups of operations.
///
/// ```
/// use graphmill_core::Block;
/// use graphmill_nn::{Backend, Matrix, backend::{AggregationWeights, Reference}};
///
/// // one destination with two in-neighbours: the mean of their rows
/// let backend: &dyn Backend = &Reference;
/// let block = Block { num_dst: 1, num_src: 3, indptr: vec![0, 2], indices: vec![1, 2], ..Block::default() };
/// let rows = Matrix::from_slice(3, 2, &[9.0, 9.0, 1.0, 2.0, 3.0, 4.0]);
/// let mut mean = Matrix::zeros(1, 2);
/// backend.aggregate(&block, AggregationWeights::MEAN, rows.view(), 0.0, mean.view_mut());
/// assert_eq!(mean.view().host(), [2.0, 3.0]);
/// ```
pub trait Backend:
    DenseOps + AggregationOps + AttentionOps + ElementOps + NormOps + LossOps + UpdateOps + Send + Sync
{
    /// The name of the kind of device.
    fn name(&self) -> &'static str;

    /// The loss that an operation returned. A backend that queues its work returns a finite placeholder
    /// instead, so that the backward pass need not wait for it, and waits here.
    fn resolve_loss(&self, loss: f64) -> f64 {
        loss
    }

    /// Begins a step that equals an earlier one but for its number: the same shapes in the same order. A
    /// backend may run such steps in a cheaper way; their results are the same. The step lasts until
    /// [`Backend::end_replayable_step`], or until the next begins.
    fn begin_replayable_step(&self) {}

    /// Ends the step.
    fn end_replayable_step(&self) {}

    /// Reports whether an operation failed: the first error is sticky, and later operations do nothing.
    ///
    /// # Errors
    /// The first failure.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Dense products.
pub trait DenseOps: ElementOps {
    /// `c = beta c + op(a) op(b)`; with `beta == 0` the old `c` is not read. Either or neither
    /// factor is transposed, not both. `a` transposed reduces over rows (a weight gradient).
    fn gemm(&self, a: View, side_a: Side, b: View, side_b: Side, beta: f32, c: ViewMut);

    /// [`DenseOps::gemm`] head by head: every matrix is `heads` runs of columns side by side, and
    /// `c[h] = beta c[h] + op(a[h]) op(b[h])`.
    fn head_gemm(&self, op: HeadGemm);

    /// `c[i] = beta c[i] + a[i]^T b`: the gradients of two weights whose products were added, so that `b`, the gradient of
    /// the sum, need be prepared only once.
    fn weight_gradients(&self, a: [View; 2], b: View, beta: f32, c: [ViewMut; 2]) {
        for (a, c) in a.into_iter().zip(c) {
            self.gemm(a, Side::Transposed, b, Side::Plain, beta, c);
        }
    }

    /// `out = dropout(activation(beta out + x w + bias))`: what a dense layer does, [`DenseOps::gemm`] and then
    /// [`ElementOps::epilogue`], which a backend may do while rows are still in its caches.
    fn dense(&self, op: Dense) {
        let Dense { x, w, beta, bias, activation, dropout, mut out } = op;
        self.gemm(x, Side::Plain, w, Side::Plain, beta, out.reborrow());
        self.epilogue(bias, activation, dropout, out);
    }
}

/// Sums, means and maxima of the neighbours' rows.
pub trait AggregationOps {
    /// `dst = beta dst + A src`, with `A` as [`AggregationWeights`] says: `S x F` to `D x F`. The block may
    /// be local or global.
    fn aggregate(&self, block: &Block, weighting: AggregationWeights, src: View, beta: f32, dst: ViewMut);

    /// `src_grad = beta src_grad + A^T dst_grad`: `D x F` to `W x F`. The block is local and
    /// transposed.
    fn aggregate_transposed(
        &self,
        block: &Block,
        weighting: AggregationWeights,
        dst_grad: View,
        beta: f32,
        src_grad: ViewMut,
    );

    /// One hop for the columns from `first` on, which are aggregated with the weights stored in the block
    /// ([`AggregationWeights::STORED`]); the columns before are the destinations' own rows: `S x F` to `D x F`. The block may be local
    /// or global.
    fn hop(&self, first: usize, block: &Block, src: View, dst: ViewMut);

    /// The gradient of [`AggregationOps::hop`]: overwrites `src_grad` (`W x F`). The block is local and transposed.
    fn hop_transposed(&self, first: usize, block: &Block, dst_grad: View, src_grad: ViewMut);

    /// Elementwise maximum over the in-neighbours, `S x F` to `D x F`; 0 where there are none. The
    /// winning edge's position goes to `arg` (resized to `D x F`; `u32::MAX` where there are none, the first
    /// of equals).
    fn aggregate_max(&self, block: &Block, src: View, dst: ViewMut, arg: &mut ArgMax);

    /// The gradient of [`AggregationOps::aggregate_max`]: overwrites `src_grad` (`W x F`). The block is
    /// local and transposed.
    fn aggregate_max_transposed(&self, block: &Block, arg: &ArgMax, dst_grad: View, src_grad: ViewMut);
}

/// Attention (GAT).
///
/// `Z` is `S x (H O)`: H heads of O columns each. Every destination also attends to its own row;
/// `alpha` is `(E + D) x H`: first the edges, then the destinations' own entries.
pub trait AttentionOps {
    /// `out[r, h] = sum over o of z[r, h O + o] a[h O + o]`, with `a` of `1 x (H O)`: `R x H`.
    fn head_dot(&self, z: View, a: View, heads: usize, out: ViewMut);

    /// The gradients of [`AttentionOps::head_dot`], both added to: `z_grad` (`R x (H O)`), `a_grad` (`1 x (H O)`).
    fn head_dot_backward(&self, z: View, a: View, heads: usize, grad: View, z_grad: ViewMut, a_grad: ViewMut);

    /// `alpha = softmax over e in {edges of v, v itself} of leaky_relu(source[u] + target[own_row(v)])`,
    /// with `source` and `target` of `S x H`. Stable: the largest logit of each destination is subtracted.
    fn edge_softmax(&self, block: &Block, source: View, target: View, slope: f32, alpha: ViewMut);

    /// The gradients of [`AttentionOps::edge_softmax`]: overwrites `source_grad` and `target_grad` (`W x H`).
    /// `scratch` is `alpha`'s shape. The block is local and transposed.
    fn edge_softmax_backward(&self, op: EdgeSoftmaxBackward);

    /// `out[v, h] = sum over e in {edges of v, v itself} of alpha[e, h] z[u, h]`: `D x (H O)`.
    fn attend(&self, block: &Block, alpha: View, z: View, out: ViewMut);

    /// The gradients of [`AttentionOps::attend`]: overwrites `alpha_grad` (`(E + D) x H`) and `z_grad`
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
    fn attend_input(&self, op: AttendInput);

    /// The gradients of [`AttentionOps::attend_input`] from that of `out`: overwrites `score_grad` (`(E + D) x H`),
    /// `source_grad` and `target_grad` (`F x H`). `used` is `alpha` itself where nothing was dropped. Local
    /// or global blocks.
    fn attend_input_backward(&self, op: AttendInputBackward);

    /// The gradient of [`AttentionOps::attend_input`] with respect to `x`, after
    /// [`AttentionOps::attend_input_backward`]: overwrites `x_grad` (`W x F`). The block is local and transposed.
    fn attend_input_transposed(&self, op: AttendInputTransposed);

    /// `out[r, o] = 1/H sum over h of x[r, h O + o]`: `R x (H O)` to `R x O`.
    fn head_mean(&self, x: View, heads: usize, out: ViewMut);

    /// The gradient of [`AttentionOps::head_mean`]: overwrites `x_grad` (`R x (H O)`).
    fn head_mean_backward(&self, grad: View, heads: usize, x_grad: ViewMut);
}

/// Rows and elements: gathers, sums, bias, activation and dropout.
pub trait ElementOps {
    /// `dst[i] = src[ids[i]]`.
    fn gather(&self, src: View, ids: &[NodeId], dst: ViewMut);

    /// `y = y + alpha x`.
    fn add(&self, alpha: f32, x: View, y: ViewMut);

    /// The values stored of the sparse rows `x` after dropout of its elements, `stored x 1`: an element is dropped
    /// where [`ElementOps::epilogue`] drops that of a dense matrix.
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

    /// `out = out + ` [`ElementOps::dot`] of `x` and `y`, rounded to f32: `out` is `1 x 1`.
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

    /// The gradient of [`ElementOps::epilogue`] from its output `y`, in place on `grad`; the column
    /// sums of the result are added to `bias_grad`.
    fn epilogue_backward(
        &self,
        activation: Activation,
        dropout: Dropout,
        y: View,
        grad: ViewMut,
        bias_grad: Option<ViewMut>,
    );
}

/// Normalisations of rows.
pub trait NormOps {
    /// Batch normalisation over the rows (Ioffe and Szegedy, 2015): writes `stats` (`2 x F`: mean,
    /// biased variance) and `out = gamma (x - mean) / sqrt(var + eps) + beta`.
    fn batch_norm(&self, x: View, gamma: View, beta: View, eps: f32, stats: ViewMut, out: ViewMut);

    /// The same with given `stats` (evaluation).
    fn batch_norm_apply(&self, x: View, gamma: View, beta: View, eps: f32, stats: View, out: ViewMut);

    /// The gradients of [`NormOps::batch_norm`], in place on `grad`; `gamma_grad` and `beta_grad` are added to.
    fn batch_norm_backward(&self, op: NormBackward);

    /// Layer normalisation of each row (Ba, Kiros and Hinton, 2016); `stats` is `R x 2`: mean, biased variance.
    fn layer_norm(&self, x: View, gamma: View, beta: View, eps: f32, stats: ViewMut, out: ViewMut);

    /// The gradients of [`NormOps::layer_norm`], in place on `grad`; `gamma_grad` and `beta_grad` are added to.
    fn layer_norm_backward(&self, op: NormBackward);

    /// `out[r] = x[r] / max(|x[r]|, 1e-12)`; `norms` is `R x 1` and receives `|x[r]|`.
    fn l2_norm(&self, x: View, norms: ViewMut, out: ViewMut);

    /// The gradient of [`NormOps::l2_norm`] from its output `y`, in place on `grad`. Rows of norm up to
    /// 1e-12 get 0: the exact value, 1e12 times the gradient, would wreck the parameters before them.
    fn l2_norm_backward(&self, y: View, norms: View, grad: ViewMut);
}

/// Losses, and what turns scores into probabilities.
pub trait LossOps {
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
}

/// Steps of optimizers.
pub trait UpdateOps {
    /// Adam or AdamW on `value`, with moments `m` and `v` of the same shape.
    fn adam(&self, step: AdamStep, grad: View, m: ViewMut, v: ViewMut, value: ViewMut);

    /// SGD on `value`, with its velocity of the same shape.
    fn sgd(&self, step: SgdStep, grad: View, velocity: ViewMut, value: ViewMut);
}
