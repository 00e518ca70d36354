//! Operations that layers are written against, in groups; a [`Backend`] implements all groups.
//!
//! A method takes the checked struct of its operation ([`super::ops`]); layers call the struct's
//! `run`.

use super::{
    Side,
    ops::{
        AdamUpdate, Add, AddDot, AddTimes, Aggregate, AggregateMax, AggregateMaxTransposed,
        AggregateTransposed, Attend, AttendBackward, AttendInput, AttendInputBackward, AttendInputTransposed,
        BatchNormApply, BatchNormBackward, BatchNormForward, Checked, Dense, DotSoftmax, DotSoftmaxBackward,
        DropStored, EdgeAttention, EdgeAttentionBackward, EdgeSoftmax, EdgeSoftmaxBackward, EpilogueBackward,
        EpilogueForward, GatedSum, GatedSumBackward, Gather, GeluBackward, GeluForward, Gemm, HeadDot,
        HeadDotBackward, HeadGemm, HeadMean, HeadMeanBackward, Hop, HopTransposed, L2NormBackward,
        L2NormForward, LayerNormBackward, LayerNormForward, PairSoftmax, PairSoftmaxBackward,
        RelationAttention, RelationAttentionBackward, ReluSum, ReluSumBackward, ScaleHeads,
        ScaleHeadsBackward, SgdUpdate, SigmoidCrossEntropy, Skip, SkipBackward, SoftmaxCrossEntropy,
        WeightGradients, factor::share,
    },
};
use crate::{Result, View, ViewMut};

/// Visitor of several matrices, always in the same order.
pub type Matrices<'m> = dyn FnMut(&mut dyn FnMut(View)) + 'm;

/// A kind of device: its name, its work queue, and all groups of operations.
///
/// ```
/// use graphmill_core::Block;
/// use graphmill_nn::{Backend, Matrix, backend::{AggregationWeights, Reference, ops::Aggregate}};
///
/// // one destination with two in-neighbours: the mean of their rows
/// let backend: &dyn Backend = &Reference;
/// let block = Block { num_dst: 1, num_src: 3, indptr: vec![0, 2], indices: vec![1, 2], ..Block::default() };
/// let rows = Matrix::from_slice(3, 2, &[9.0, 9.0, 1.0, 2.0, 3.0, 4.0]);
/// let mut mean = Matrix::zeros(1, 2);
/// let (weights, src, dst) = (AggregationWeights::MEAN, rows.view(), mean.view_mut());
/// Aggregate { block: &block, weights, src, beta: 0.0, dst }.run(backend);
/// assert_eq!(mean.view().host(), [2.0, 3.0]);
/// ```
pub trait Backend:
    DenseOps + AggregationOps + AttentionOps + ElementOps + NormOps + LossOps + UpdateOps + Send + Sync
{
    /// Name of the kind of device.
    fn name(&self) -> &'static str;

    /// Final value of the loss that an operation returned. A backend that queues its work returns a
    /// finite placeholder from the operation, so that the backward pass need not wait, and waits
    /// here.
    fn resolve_loss(&self, loss: f64) -> f64 {
        loss
    }

    /// Begins a step that differs from an earlier one only in its number: the same shapes in the
    /// same order. A backend may run such steps more cheaply, with the same results. The step lasts
    /// until [`Backend::end_replayable_step`], or until the next one begins.
    fn begin_replayable_step(&self) {}

    /// Ends the replayable step.
    fn end_replayable_step(&self) {}

    /// Returns the first error of an operation. Errors are sticky: later operations are no-ops.
    ///
    /// # Errors
    /// An operation has failed; the first error is returned.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Dense products.
///
/// ```
/// use graphmill_nn::{Matrix, backend::{Reference, Side::Plain, ops::Gemm}};
///
/// let (a, b) = (Matrix::from_slice(1, 2, &[1.0, 2.0]), Matrix::from_slice(2, 1, &[3.0, 4.0]));
/// let mut c = Matrix::zeros(1, 1);
/// Gemm { a: (a.view(), Plain), b: (b.view(), Plain), beta: 0.0, c: c.view_mut() }.run(&Reference);
/// assert_eq!(c.view().host(), [11.0]);
/// ```
pub trait DenseOps: ElementOps {
    /// Runs [`Gemm`].
    fn gemm(&self, op: Checked<Gemm>);

    /// Runs [`HeadGemm`].
    fn head_gemm(&self, op: Checked<HeadGemm>);

    /// Runs [`WeightGradients`].
    fn weight_gradients(&self, op: Checked<WeightGradients>) {
        op.into_inner().products().into_iter().for_each(|product| self.gemm(Checked::new(product)));
    }

    /// Runs [`Dense`].
    fn dense(&self, op: Checked<Dense>) {
        in_steps(self, op.into_inner());
    }
}

/// Runs the products of a dense layer, and then its epilogue.
pub(super) fn in_steps<B: DenseOps + ?Sized>(backend: &B, op: Dense) {
    let Dense { x, w, plus, beta, bias, activation, dropout, mut out } = op;
    let mut add = |x, w, beta| {
        let c = out.reborrow();
        backend.gemm(Checked::new(Gemm { a: (x, Side::Plain), b: (w, Side::Plain), beta, c }));
    };
    add(x, w, beta);
    if let Some((x, w)) = plus {
        add(x, w, 1.0);
    }
    backend.epilogue(Checked::new(EpilogueForward { bias, activation, dropout, x: out }));
}

/// Sums, means and maxima of the neighbours' rows.
///
/// ```
/// use graphmill_core::Block;
/// use graphmill_nn::{Matrix, backend::{ArgMax, Reference, ops::AggregateMax}};
///
/// // one destination with two in-neighbours
/// let block = Block { num_dst: 1, num_src: 3, indptr: vec![0, 2], indices: vec![1, 2], ..Block::default() };
/// let src = Matrix::from_slice(3, 1, &[9.0, 2.0, 3.0]);
/// let (mut dst, mut arg) = (Matrix::zeros(1, 1), ArgMax::default());
/// AggregateMax { block: &block, src: src.view(), dst: dst.view_mut(), arg: &mut arg }.run(&Reference);
/// assert_eq!(dst.view().host(), [3.0]);
/// ```
pub trait AggregationOps {
    /// Runs [`Aggregate`].
    fn aggregate(&self, op: Checked<Aggregate>);

    /// Runs [`AggregateTransposed`].
    fn aggregate_transposed(&self, op: Checked<AggregateTransposed>);

    /// Runs [`Hop`].
    fn hop(&self, op: Checked<Hop>);

    /// Runs [`HopTransposed`].
    fn hop_transposed(&self, op: Checked<HopTransposed>);

    /// Runs [`ReluSum`], on the host by default.
    fn relu_sum(&self, op: Checked<ReluSum>) {
        op.into_inner().on_host();
    }

    /// Runs [`ReluSumBackward`], on the host by default.
    fn relu_sum_backward(&self, op: Checked<ReluSumBackward>) {
        op.into_inner().on_host();
    }

    /// Runs [`GatedSum`], on the host by default.
    fn gated_sum(&self, op: Checked<GatedSum>) {
        op.into_inner().on_host();
    }

    /// Runs [`GatedSumBackward`], on the host by default.
    fn gated_sum_backward(&self, op: Checked<GatedSumBackward>) {
        op.into_inner().on_host();
    }

    /// Runs [`AggregateMax`].
    fn aggregate_max(&self, op: Checked<AggregateMax>);

    /// Runs [`AggregateMaxTransposed`].
    fn aggregate_max_transposed(&self, op: Checked<AggregateMaxTransposed>);
}

/// Attention (GAT).
///
/// ```
/// use graphmill_nn::{Matrix, backend::{Reference, ops::HeadDot}};
///
/// // one row of two heads of width 1
/// let (z, a) = (Matrix::from_slice(1, 2, &[2.0, 3.0]), Matrix::from_slice(1, 2, &[10.0, 100.0]));
/// let mut out = Matrix::zeros(1, 2);
/// HeadDot { z: z.view(), a: a.view(), heads: 2, out: out.view_mut() }.run(&Reference);
/// assert_eq!(out.view().host(), [20.0, 300.0]);
/// ```
pub trait AttentionOps {
    /// Runs [`HeadDot`].
    fn head_dot(&self, op: Checked<HeadDot>);

    /// Runs [`HeadDotBackward`].
    fn head_dot_backward(&self, op: Checked<HeadDotBackward>);

    /// Runs [`EdgeSoftmax`].
    fn edge_softmax(&self, op: Checked<EdgeSoftmax>);

    /// Runs [`EdgeSoftmaxBackward`].
    fn edge_softmax_backward(&self, op: Checked<EdgeSoftmaxBackward>);

    /// Runs [`Attend`].
    fn attend(&self, op: Checked<Attend>);

    /// Runs [`AttendBackward`].
    fn attend_backward(&self, op: Checked<AttendBackward>);

    /// Runs [`AttendInput`].
    fn attend_input(&self, op: Checked<AttendInput>);

    /// Runs [`AttendInputBackward`].
    fn attend_input_backward(&self, op: Checked<AttendInputBackward>);

    /// Runs [`AttendInputTransposed`].
    fn attend_input_transposed(&self, op: Checked<AttendInputTransposed>);

    /// Runs [`DotSoftmax`], on the host by default.
    fn dot_softmax(&self, op: Checked<DotSoftmax>) {
        op.into_inner().on_host();
    }

    /// Runs [`DotSoftmaxBackward`], on the host by default.
    fn dot_softmax_backward(&self, op: Checked<DotSoftmaxBackward>) {
        op.into_inner().on_host();
    }

    /// Runs [`EdgeAttention`], on the host by default.
    fn edge_attention(&self, op: Checked<EdgeAttention>) {
        op.into_inner().on_host();
    }

    /// Runs [`EdgeAttentionBackward`], on the host by default.
    fn edge_attention_backward(&self, op: Checked<EdgeAttentionBackward>) {
        op.into_inner().on_host();
    }

    /// Returns true if layers may attend to features by [`RelationAttention`]; by default, they
    /// project the rows of all sources, by operations that every backend has.
    fn attends_to_features(&self) -> bool {
        false
    }

    /// Runs [`RelationAttention`], on the host by default.
    fn relation_attention(&self, op: Checked<RelationAttention>) {
        op.into_inner().on_host();
    }

    /// Runs [`RelationAttentionBackward`], on the host by default.
    fn relation_attention_backward(&self, op: Checked<RelationAttentionBackward>) {
        op.into_inner().on_host();
    }

    /// Runs [`PairSoftmax`], on the host by default.
    fn pair_softmax(&self, op: Checked<PairSoftmax>) {
        op.into_inner().on_host();
    }

    /// Runs [`PairSoftmaxBackward`], on the host by default.
    fn pair_softmax_backward(&self, op: Checked<PairSoftmaxBackward>) {
        op.into_inner().on_host();
    }

    /// Runs [`HeadMean`].
    fn head_mean(&self, op: Checked<HeadMean>);

    /// Runs [`HeadMeanBackward`].
    fn head_mean_backward(&self, op: Checked<HeadMeanBackward>);
}

/// Rows and elements: gathers, sums, bias, activation and dropout.
///
/// ```
/// use graphmill_nn::{Matrix, backend::{ElementOps, Reference, ops::Gather}};
///
/// let src = Matrix::from_slice(3, 1, &[5.0, 6.0, 7.0]);
/// let mut dst = Matrix::zeros(2, 1);
/// Gather { src: src.view(), ids: &[2, 0], dst: dst.view_mut() }.run(&Reference);
/// Reference.scale(10.0, dst.view_mut());
/// assert_eq!(dst.view().host(), [70.0, 50.0]);
/// ```
pub trait ElementOps {
    /// Runs [`Gather`].
    fn gather(&self, op: Checked<Gather>);

    /// Runs [`Add`].
    fn add(&self, op: Checked<Add>);

    /// Runs [`AddDot`].
    fn add_dot(&self, op: Checked<AddDot>) {
        let AddDot { x, y, out, at } = op.into_inner();
        out.host()[at] += self.dot(x, y) as f32;
    }

    /// Runs [`AddTimes`], with a factor that the host reads by default.
    fn add_times(&self, op: Checked<AddTimes>) {
        let AddTimes { factors, at, plus, x, y } = op.into_inner();
        self.add(Checked::new(Add { alpha: plus + factors.host()[at], x, y }));
    }

    /// Runs [`ScaleHeads`], on the host by default.
    fn scale_heads(&self, op: Checked<ScaleHeads>) {
        op.into_inner().on_host();
    }

    /// Runs [`ScaleHeadsBackward`], on the host by default.
    fn scale_heads_backward(&self, op: Checked<ScaleHeadsBackward>) {
        op.into_inner().on_host();
    }

    /// Runs [`Skip`], with a value that the host reads by default.
    fn skip(&self, op: Checked<Skip>) {
        let Skip { skip, x, mut y } = op.into_inner();
        let share = share(skip);
        self.scale(share, y.reborrow());
        self.add(Checked::new(Add { alpha: 1.0 - share, x, y }));
    }

    /// Runs [`SkipBackward`], with a value that the host reads by default.
    fn skip_backward(&self, op: Checked<SkipBackward>) {
        let SkipBackward { skip, x, y, grad, x_grad, skip_grad } = op.into_inner();
        let share = share(skip);
        let change = self.dot(grad.as_view(), y) - self.dot(grad.as_view(), x);
        skip_grad.host()[0] += (f64::from(share * (1.0 - share)) * change) as f32;
        self.add(Checked::new(Add { alpha: 1.0 - share, x: grad.as_view(), y: x_grad }));
        self.scale(share, grad);
    }

    /// Runs [`DropStored`].
    fn drop_stored(&self, op: Checked<DropStored>);

    /// Runs [`EpilogueForward`].
    fn epilogue(&self, op: Checked<EpilogueForward>);

    /// Runs [`EpilogueBackward`].
    fn epilogue_backward(&self, op: Checked<EpilogueBackward>);

    /// Runs [`GeluForward`], on the host by default.
    fn gelu(&self, op: Checked<GeluForward>) {
        op.into_inner().on_host();
    }

    /// Runs [`GeluBackward`], on the host by default.
    fn gelu_backward(&self, op: Checked<GeluBackward>) {
        op.into_inner().on_host();
    }

    /// Sets every element to `value`, even NaN.
    fn fill(&self, value: f32, x: ViewMut);

    /// `x = alpha x`.
    fn scale(&self, alpha: f32, x: ViewMut);

    /// `dst = src`, of equal shapes.
    fn copy(&self, src: View, dst: ViewMut);

    /// `out = out + the column sums of x`: `R x F` to `1 x F`.
    fn add_column_sums(&self, x: View, out: ViewMut);

    /// Sum of `x * y`, of equal shapes, in f64.
    fn dot(&self, x: View, y: View) -> f64;

    /// Sum of the squares of all values of several matrices, in f64.
    fn squares(&self, matrices: &mut Matrices) -> f64 {
        let mut sum = 0.0;
        matrices(&mut |x| sum += self.dot(x, x));
        sum
    }
}

/// Normalizations of rows.
///
/// ```
/// use graphmill_nn::{Matrix, backend::{Reference, ops::L2NormForward}};
///
/// let x = Matrix::from_slice(1, 2, &[3.0, 4.0]);
/// let (mut norms, mut out) = (Matrix::zeros(1, 1), Matrix::zeros(1, 2));
/// L2NormForward { x: x.view(), norms: norms.view_mut(), out: out.view_mut() }.run(&Reference);
/// assert_eq!((norms.view().host(), out.view().host()), (&[5.0][..], &[0.6, 0.8][..]));
/// ```
pub trait NormOps {
    /// Runs [`BatchNormForward`].
    fn batch_norm(&self, op: Checked<BatchNormForward>);

    /// Runs [`BatchNormApply`].
    fn batch_norm_apply(&self, op: Checked<BatchNormApply>);

    /// Runs [`BatchNormBackward`].
    fn batch_norm_backward(&self, op: Checked<BatchNormBackward>);

    /// Runs [`LayerNormForward`].
    fn layer_norm(&self, op: Checked<LayerNormForward>);

    /// Runs [`LayerNormBackward`].
    fn layer_norm_backward(&self, op: Checked<LayerNormBackward>);

    /// Runs [`L2NormForward`].
    fn l2_norm(&self, op: Checked<L2NormForward>);

    /// Runs [`L2NormBackward`].
    fn l2_norm_backward(&self, op: Checked<L2NormBackward>);
}

/// Losses, and the functions that turn scores into probabilities.
///
/// ```
/// use graphmill_nn::{Matrix, backend::{Reference, ops::SoftmaxCrossEntropy}};
///
/// let (logits, mut grad) = (Matrix::zeros(1, 2), Matrix::zeros(1, 2));
/// let (logits, grad) = (logits.view(), grad.view_mut());
/// let loss = SoftmaxCrossEntropy { logits, label: &[1], weight: &[], scale: 1.0, grad }.run(&Reference);
/// assert!((loss - 2f64.ln()).abs() < 1e-6);
/// ```
pub trait LossOps {
    /// Runs [`SoftmaxCrossEntropy`].
    fn softmax_cross_entropy(&self, op: Checked<SoftmaxCrossEntropy>) -> f64;

    /// Runs [`SigmoidCrossEntropy`].
    fn sigmoid_cross_entropy(&self, op: Checked<SigmoidCrossEntropy>) -> f64;

    /// Softmax of each row, in place.
    fn softmax(&self, x: ViewMut);

    /// `1 / (1 + e^-x)`, in place.
    fn sigmoid(&self, x: ViewMut);
}

/// Steps of optimizers.
///
/// ```
/// use graphmill_nn::{Matrix, backend::{Reference, SgdStep, ops::SgdUpdate}};
///
/// let grad = Matrix::from_slice(1, 1, &[4.0]);
/// let (mut velocity, mut value) = (Matrix::zeros(1, 1), Matrix::from_slice(1, 1, &[1.0]));
/// let step = SgdStep { lr: 0.5, momentum: 0.0, nesterov: false, weight_decay: 0.0 };
/// let (velocity, target) = (velocity.view_mut(), value.view_mut());
/// SgdUpdate { step, grad: grad.view(), velocity, value: target }.run(&Reference);
/// assert_eq!(value.view().host(), [-1.0]);
/// ```
pub trait UpdateOps {
    /// Runs [`AdamUpdate`].
    fn adam(&self, op: Checked<AdamUpdate>);

    /// Runs [`SgdUpdate`].
    fn sgd(&self, op: Checked<SgdUpdate>);
}
