//! The CPU backend: threads of the current rayon pool, and the widest vectors of the machine.
//!
//! One concept per file:
//!
//! | file | |
//! | --- | --- |
//! | `simd`, `simd_x86` | vectors behind one trait: portable, AVX2, AVX-512 |
//! | `level` | instruction set of a kernel, chosen at run time |
//! | `math` | exponential, logarithm, sigmoid and hyperbolic tangent of vectors |
//! | `cosine`, `gates` | time encodings; recurrent cells |
//! | `parallel`, `scratch` | division of work into tasks; memory for partial results |
//! | `columns` | sums over rows, in a fixed order |
//! | `sum` | weighted sums of rows over edges |
//! | `factors` | the factors of a dense product |
//! | `split_sum` | products with a long inner dimension, in parts |
//! | `gemm_bf16` | dense products by bf16 instructions, of vectors or of AMX |
//! | `sparse` | products of sparse rows |
//! | `slices`, `slicing`, `caches` | aggregation by slices of columns; its cost model; the cache
//! sizes in that model |
//! | `attend_rows` | dot products and sums of rows for several heads at once |
//! | `gemm`, `head_gemm`, `dot_attention`, `edge_attention`, `relation_attention`, `pair_attention`, `edge_sum`, `aggregate`, `hop`, `maximum`, `attention`, `attend_input`, `attend_input_grad`, `heads`, `rows`, `epilogue`, `batch_norm`, `row_norm`, `loss`, `update` | the operations |
//!
//! Results have the same bits for any number of threads: see `parallel`. Between machines of
//! different [`Level`]s they differ in the last digits.

use super::{
    interface::{
        AggregationOps, AttentionOps, Backend, DenseOps, ElementOps, LossOps, NormOps, UpdateOps, in_steps,
    },
    ops::{
        AdamUpdate, Add, Aggregate, AggregateMax, AggregateMaxTransposed, AggregateTransposed, Attend,
        AttendBackward, AttendInput, AttendInputBackward, AttendInputTransposed, BatchNormApply,
        BatchNormBackward, BatchNormForward, Checked, Dense, DotSoftmax, DotSoftmaxBackward, DropStored,
        EdgeAttention, EdgeAttentionBackward, EdgeSoftmax, EdgeSoftmaxBackward, EpilogueBackward,
        EpilogueForward, GatedSum, GatedSumBackward, Gather, GeluBackward, GeluForward, Gemm, HeadDot,
        HeadDotBackward, HeadGemm, HeadMean, HeadMeanBackward, Hop, HopTransposed, L2NormBackward,
        L2NormForward, LayerNormBackward, LayerNormForward, PairSoftmax, PairSoftmaxBackward,
        RelationAttention, RelationAttentionBackward, ReluSum, ReluSumBackward, SgdUpdate,
        SigmoidCrossEntropy, SoftmaxCrossEntropy, WeightGradients,
    },
};
use crate::{View, ViewMut};

mod aggregate;
mod attend_input;
mod attend_input_grad;
mod attend_rows;
mod attention;
mod batch_norm;
mod caches;
mod columns;
mod cosine;
mod dot_attention;
mod edge_attention;
mod edge_sum;
mod epilogue;
mod factors;
mod gates;
mod gelu;
mod gemm;
#[cfg(target_arch = "x86_64")]
mod gemm_bf16;
mod head_gemm;
mod heads;
mod hop;
mod level;
mod loss;
mod math;
mod maximum;
mod nonzero;
mod pair_attention;
mod parallel;
mod relation_attention;
mod row_norm;
mod rows;
mod scratch;
mod simd;
#[cfg(target_arch = "x86_64")]
mod simd_x86;
mod slices;
mod slicing;
mod source;
mod sparse;
mod split_sum;
mod sum;
#[cfg(target_arch = "x86_64")]
mod tiles;
mod update;

pub(crate) use cosine::{Waves, cosines};
pub(crate) use gates::{gru, gru_backward, rnn, rnn_backward};
pub use level::{Level, with_level};
pub(crate) use rows::{add_gathered, add_rows};
pub use slicing::{Slicing, with_slicing};

/// Precision of the factors in dense products. Sums and all stored values are f32 either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// 32-bit floats.
    #[default]
    F32,
    /// Both factors rounded to the nearest bf16 (8 significant bits).
    Bf16,
    /// Both factors rounded to sums of two bf16 (16 significant bits, of which NVIDIA's TF32 has
    /// 11), if this machine multiplies these faster than f32, and not at all if it does not.
    Tf32,
}

impl Precision {
    /// Returns true if this machine has instructions for the precision. If not, factors in bf16
    /// are rounded and multiplied in f32: the same products except for the order of sums, slower
    /// than in f32. Those in TF32 are then multiplied as f32.
    pub fn is_native(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        let has_unit = || gemm_bf16::Unit::of(self).is_some();
        #[cfg(not(target_arch = "x86_64"))]
        let has_unit = || false;
        self == Self::F32 || has_unit()
    }

    /// The precision in which this machine multiplies.
    fn effective(self) -> Self {
        if self == Self::Tf32 && !self.is_native() { Self::F32 } else { self }
    }
}

/// The CPU backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// Precision of the factors in dense products.
    pub precision: Precision,
}

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }
}

impl DenseOps for Cpu {
    fn gemm(&self, op: Checked<Gemm>) {
        let op = op.into_inner();
        if op.a.0.is_sparse() {
            return sparse::product(op);
        }
        gemm::gemm(self.precision.effective(), op);
    }

    fn head_gemm(&self, op: Checked<HeadGemm>) {
        head_gemm::head_gemm(self.precision.effective(), op.into_inner());
    }

    fn weight_gradients(&self, op: Checked<WeightGradients>) {
        let op = op.into_inner();
        if op.a.iter().any(View::is_sparse) {
            return op.products().into_iter().for_each(|product| self.gemm(Checked::new(product)));
        }
        gemm::weight_gradients(self.precision.effective(), op);
    }

    fn dense(&self, op: Checked<Dense>) {
        let op = op.into_inner();
        if op.x.is_sparse() || op.plus.is_some_and(|(x, _)| x.is_sparse()) {
            return in_steps(self, op);
        }
        epilogue::dense(self.precision.effective(), op);
    }
}

impl AggregationOps for Cpu {
    fn aggregate(&self, op: Checked<Aggregate>) {
        aggregate::aggregate(op.into_inner());
    }

    fn aggregate_transposed(&self, op: Checked<AggregateTransposed>) {
        aggregate::aggregate_transposed(op.into_inner());
    }

    fn hop(&self, op: Checked<Hop>) {
        hop::hop(op.into_inner());
    }

    fn hop_transposed(&self, op: Checked<HopTransposed>) {
        hop::hop_transposed(op.into_inner());
    }

    fn relu_sum(&self, op: Checked<ReluSum>) {
        edge_sum::relu_sum(op.into_inner());
    }

    fn relu_sum_backward(&self, op: Checked<ReluSumBackward>) {
        edge_sum::relu_sum_backward(op.into_inner());
    }

    fn gated_sum(&self, op: Checked<GatedSum>) {
        edge_sum::gated_sum(op.into_inner());
    }

    fn gated_sum_backward(&self, op: Checked<GatedSumBackward>) {
        edge_sum::gated_sum_backward(op.into_inner());
    }

    fn aggregate_max(&self, op: Checked<AggregateMax>) {
        maximum::aggregate_max(op.into_inner());
    }

    fn aggregate_max_transposed(&self, op: Checked<AggregateMaxTransposed>) {
        maximum::aggregate_max_transposed(op.into_inner());
    }
}

impl AttentionOps for Cpu {
    fn head_dot(&self, op: Checked<HeadDot>) {
        heads::head_dot(op.into_inner());
    }

    fn head_dot_backward(&self, op: Checked<HeadDotBackward>) {
        heads::head_dot_backward(op.into_inner());
    }

    fn edge_softmax(&self, op: Checked<EdgeSoftmax>) {
        attention::edge_softmax(op.into_inner());
    }

    fn edge_softmax_backward(&self, op: Checked<EdgeSoftmaxBackward>) {
        attention::edge_softmax_backward(op.into_inner());
    }

    fn attend(&self, op: Checked<Attend>) {
        attention::attend(op.into_inner());
    }

    fn attend_backward(&self, op: Checked<AttendBackward>) {
        attention::attend_backward(op.into_inner());
    }

    fn attend_input(&self, op: Checked<AttendInput>) {
        attend_input::attend_input(op.into_inner());
    }

    fn attend_input_backward(&self, op: Checked<AttendInputBackward>) {
        attend_input_grad::backward(op.into_inner());
    }

    fn attend_input_transposed(&self, op: Checked<AttendInputTransposed>) {
        attend_input_grad::transposed(op.into_inner());
    }

    fn dot_softmax(&self, op: Checked<DotSoftmax>) {
        dot_attention::dot_softmax(op.into_inner());
    }

    fn dot_softmax_backward(&self, op: Checked<DotSoftmaxBackward>) {
        dot_attention::dot_softmax_backward(op.into_inner());
    }

    fn edge_attention(&self, op: Checked<EdgeAttention>) {
        edge_attention::forward(op.into_inner());
    }

    fn edge_attention_backward(&self, op: Checked<EdgeAttentionBackward>) {
        edge_attention::backward(op.into_inner());
    }

    fn attends_to_features(&self) -> bool {
        true
    }

    fn relation_attention(&self, op: Checked<RelationAttention>) {
        relation_attention::forward(op.into_inner());
    }

    fn relation_attention_backward(&self, op: Checked<RelationAttentionBackward>) {
        relation_attention::backward(op.into_inner());
    }

    fn pair_softmax(&self, op: Checked<PairSoftmax>) {
        pair_attention::pair_softmax(op.into_inner());
    }

    fn pair_softmax_backward(&self, op: Checked<PairSoftmaxBackward>) {
        pair_attention::pair_softmax_backward(op.into_inner());
    }

    fn head_mean(&self, op: Checked<HeadMean>) {
        heads::head_mean(op.into_inner());
    }

    fn head_mean_backward(&self, op: Checked<HeadMeanBackward>) {
        heads::head_mean_backward(op.into_inner());
    }
}

impl ElementOps for Cpu {
    fn gather(&self, op: Checked<Gather>) {
        let op = op.into_inner();
        if op.src.is_sparse() {
            return sparse::gather(op);
        }
        rows::gather(op);
    }

    fn add(&self, op: Checked<Add>) {
        let op = op.into_inner();
        if op.x.is_sparse() {
            return sparse::add(op);
        }
        rows::add(op);
    }

    fn drop_stored(&self, op: Checked<DropStored>) {
        sparse::drop_stored(op.into_inner());
    }

    fn epilogue(&self, op: Checked<EpilogueForward>) {
        epilogue::epilogue(op.into_inner());
    }

    fn epilogue_backward(&self, op: Checked<EpilogueBackward>) {
        epilogue::epilogue_backward(op.into_inner());
    }

    fn gelu(&self, op: Checked<GeluForward>) {
        gelu::forward(op.into_inner());
    }

    fn gelu_backward(&self, op: Checked<GeluBackward>) {
        gelu::backward(op.into_inner());
    }

    fn fill(&self, value: f32, x: ViewMut) {
        rows::elements(x.host(), 0, |_, x| x.fill(value));
    }

    fn scale(&self, alpha: f32, x: ViewMut) {
        rows::scale(alpha, x);
    }

    fn copy(&self, src: View, dst: ViewMut) {
        rows::copy(src, dst);
    }

    fn add_column_sums(&self, x: View, out: ViewMut) {
        columns::add_column_sums(x, out);
    }

    fn dot(&self, x: View, y: View) -> f64 {
        columns::dot(x, y)
    }
}

impl NormOps for Cpu {
    fn batch_norm(&self, op: Checked<BatchNormForward>) {
        batch_norm::batch_norm(op.into_inner());
    }

    fn batch_norm_apply(&self, op: Checked<BatchNormApply>) {
        batch_norm::batch_norm_apply(op.into_inner());
    }

    fn batch_norm_backward(&self, op: Checked<BatchNormBackward>) {
        batch_norm::batch_norm_backward(op.into_inner());
    }

    fn layer_norm(&self, op: Checked<LayerNormForward>) {
        row_norm::layer_norm(op.into_inner());
    }

    fn layer_norm_backward(&self, op: Checked<LayerNormBackward>) {
        row_norm::layer_norm_backward(op.into_inner());
    }

    fn l2_norm(&self, op: Checked<L2NormForward>) {
        row_norm::l2_norm(op.into_inner());
    }

    fn l2_norm_backward(&self, op: Checked<L2NormBackward>) {
        row_norm::l2_norm_backward(op.into_inner());
    }
}

impl LossOps for Cpu {
    fn softmax_cross_entropy(&self, op: Checked<SoftmaxCrossEntropy>) -> f64 {
        loss::softmax_cross_entropy(op.into_inner())
    }

    fn sigmoid_cross_entropy(&self, op: Checked<SigmoidCrossEntropy>) -> f64 {
        loss::sigmoid_cross_entropy(op.into_inner())
    }

    fn softmax(&self, x: ViewMut) {
        loss::softmax(x);
    }

    fn sigmoid(&self, x: ViewMut) {
        loss::sigmoid(x);
    }
}

impl UpdateOps for Cpu {
    fn adam(&self, op: Checked<AdamUpdate>) {
        update::adam(op.into_inner());
    }

    fn sgd(&self, op: Checked<SgdUpdate>) {
        update::sgd(op.into_inner());
    }
}
