//! The CPU backend: threads of the current rayon pool, and the widest vectors that the machine has.
//!
//! One idea a file:
//!
//! | file | |
//! | --- | --- |
//! | `simd`, `simd_x86` | vectors behind one trait: portable, AVX2, AVX-512 |
//! | `level` | which of them a kernel runs on, decided at run time |
//! | `math` | exponential and logarithm of vectors |
//! | `parallel`, `scratch` | cutting work into pieces; memory for partial results |
//! | `columns` | sums over rows, in a fixed order |
//! | `factors` | the factors of a dense product |
//! | `gemm_bf16` | dense products by the instructions for bf16 |
//! | `sparse` | products of rows of which few values are not zero |
//! | `slices`, `slicing`, `caches` | aggregation a slice of columns at a time; when that is faster; the sizes it turns on |
//! | `attend_rows` | dot products and sums of rows for several heads at once |
//! | `gemm`, `head_gemm`, `aggregate`, `hop`, `maximum`, `attention`, `attend_input`, `attend_input_grad`, `heads`, `rows`, `epilogue`, `batch_norm`, `row_norm`, `loss`, `update` | the operations |
//!
//! The same bits come out for any number of threads: see `parallel`. Between machines of different
//! [`Level`]s they differ in the last places.

use graphmill_core::{Block, NodeId};

use super::{
    arg_max::ArgMax,
    interface::{AggregationOps, AttentionOps, Backend, DenseOps, ElementOps, LossOps, NormOps, UpdateOps},
    ops::{
        AttendInput, AttendInputBackward, AttendInputTransposed, Dense, EdgeSoftmaxBackward, HeadGemm,
        NormBackward,
    },
    types::{Activation, AdamStep, AggregationWeights, Dropout, SgdStep, Side},
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
mod epilogue;
mod factors;
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
mod parallel;
mod row_norm;
mod rows;
mod scratch;
mod simd;
#[cfg(target_arch = "x86_64")]
mod simd_x86;
mod slices;
mod slicing;
mod sparse;
mod update;

pub use level::{Level, with_level};
pub use slicing::{Slicing, with_slicing};

/// What dense products multiply in. Sums are f32 either way, and so is all that is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// 32-bit floats.
    #[default]
    F32,
    /// Both factors rounded to the nearest bf16 (8 significant bits).
    Bf16,
}

impl Precision {
    /// Whether this machine has instructions for it. Where it has none, the factors are rounded and multiplied in f32:
    /// the same products but for the order of sums, slower than in f32.
    pub fn is_native(self) -> bool {
        match self {
            Self::F32 => true,
            #[cfg(target_arch = "x86_64")]
            Self::Bf16 => gemm_bf16::is_available(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Bf16 => false,
        }
    }
}

/// The CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// What dense products multiply in.
    pub precision: Precision,
}

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }
}

impl DenseOps for Cpu {
    fn gemm(&self, a: View, side_a: Side, b: View, side_b: Side, beta: f32, c: ViewMut) {
        if a.is_sparse() {
            return sparse::product(a, side_a, b, side_b, beta, c);
        }
        gemm::gemm(self.precision, a, side_a, b, side_b, beta, c);
    }

    fn weight_gradients(&self, a: [View; 2], b: View, beta: f32, c: [ViewMut; 2]) {
        if a.iter().any(View::is_sparse) {
            for (a, c) in a.into_iter().zip(c) {
                self.gemm(a, Side::Transposed, b, Side::Plain, beta, c);
            }
            return;
        }
        gemm::weight_gradients(self.precision, a, b, beta, c);
    }

    fn head_gemm(&self, op: HeadGemm) {
        head_gemm::head_gemm(self.precision, op);
    }

    fn dense(&self, op: Dense) {
        if op.x.is_sparse() {
            let Dense { x, w, beta, bias, activation, dropout, mut out } = op;
            sparse::product(x, Side::Plain, w, Side::Plain, beta, out.reborrow());
            return epilogue::epilogue(bias, activation, dropout, out);
        }
        epilogue::dense(self.precision, op);
    }
}

impl AggregationOps for Cpu {
    fn aggregate(&self, block: &Block, weighting: AggregationWeights, src: View, beta: f32, dst: ViewMut) {
        aggregate::aggregate(block, weighting, src, beta, dst);
    }

    fn aggregate_transposed(
        &self,
        block: &Block,
        weighting: AggregationWeights,
        dst_grad: View,
        beta: f32,
        src_grad: ViewMut,
    ) {
        aggregate::aggregate_transposed(block, weighting, dst_grad, beta, src_grad);
    }

    fn hop(&self, first: usize, block: &Block, src: View, dst: ViewMut) {
        hop::hop(first, block, src, dst);
    }

    fn hop_transposed(&self, first: usize, block: &Block, dst_grad: View, src_grad: ViewMut) {
        hop::hop_transposed(first, block, dst_grad, src_grad);
    }

    fn aggregate_max(&self, block: &Block, src: View, dst: ViewMut, arg: &mut ArgMax) {
        maximum::aggregate_max(block, src, dst, arg);
    }

    fn aggregate_max_transposed(&self, block: &Block, arg: &ArgMax, dst_grad: View, src_grad: ViewMut) {
        maximum::aggregate_max_transposed(block, arg, dst_grad, src_grad);
    }
}

impl AttentionOps for Cpu {
    fn head_dot(&self, z: View, a: View, heads: usize, out: ViewMut) {
        heads::head_dot(z, a, heads, out);
    }

    fn head_dot_backward(
        &self,
        z: View,
        a: View,
        heads: usize,
        grad: View,
        z_grad: ViewMut,
        a_grad: ViewMut,
    ) {
        heads::head_dot_backward(z, a, heads, grad, z_grad, a_grad);
    }

    fn edge_softmax(&self, block: &Block, source: View, target: View, slope: f32, alpha: ViewMut) {
        attention::edge_softmax(block, source, target, slope, alpha);
    }

    fn edge_softmax_backward(&self, op: EdgeSoftmaxBackward) {
        attention::edge_softmax_backward(op);
    }

    fn attend(&self, block: &Block, alpha: View, z: View, out: ViewMut) {
        attention::attend(block, alpha, z, out);
    }

    fn attend_backward(
        &self,
        block: &Block,
        alpha: View,
        z: View,
        grad: View,
        alpha_grad: ViewMut,
        z_grad: ViewMut,
    ) {
        attention::attend_backward(block, alpha, z, grad, alpha_grad, z_grad);
    }

    fn attend_input(&self, op: AttendInput) {
        attend_input::attend_input(op);
    }

    fn attend_input_backward(&self, op: AttendInputBackward) {
        attend_input_grad::backward(op);
    }

    fn attend_input_transposed(&self, op: AttendInputTransposed) {
        attend_input_grad::transposed(op);
    }

    fn head_mean(&self, x: View, heads: usize, out: ViewMut) {
        heads::head_mean(x, heads, out);
    }

    fn head_mean_backward(&self, grad: View, heads: usize, x_grad: ViewMut) {
        heads::head_mean_backward(grad, heads, x_grad);
    }
}

impl ElementOps for Cpu {
    fn gather(&self, src: View, ids: &[NodeId], dst: ViewMut) {
        if src.is_sparse() {
            return sparse::gather(src, ids, dst);
        }
        rows::gather(src, ids, dst);
    }

    fn add(&self, alpha: f32, x: View, y: ViewMut) {
        if x.is_sparse() {
            return sparse::add(alpha, x, y);
        }
        rows::add(alpha, x, y);
    }

    fn drop_stored(&self, x: View, dropout: Dropout, out: ViewMut) {
        sparse::drop_stored(x, dropout, out);
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

    fn epilogue(&self, bias: Option<View>, activation: Activation, dropout: Dropout, x: ViewMut) {
        epilogue::epilogue(bias, activation, dropout, x);
    }

    fn epilogue_backward(
        &self,
        activation: Activation,
        dropout: Dropout,
        y: View,
        grad: ViewMut,
        bias_grad: Option<ViewMut>,
    ) {
        epilogue::epilogue_backward(activation, dropout, y, grad, bias_grad);
    }
}

impl NormOps for Cpu {
    fn batch_norm(&self, x: View, gamma: View, beta: View, eps: f32, stats: ViewMut, out: ViewMut) {
        batch_norm::batch_norm(x, gamma, beta, eps, stats, out);
    }

    fn batch_norm_apply(&self, x: View, gamma: View, beta: View, eps: f32, stats: View, out: ViewMut) {
        batch_norm::batch_norm_apply(x, gamma, beta, eps, stats, out);
    }

    fn batch_norm_backward(&self, op: NormBackward) {
        batch_norm::batch_norm_backward(op);
    }

    fn layer_norm(&self, x: View, gamma: View, beta: View, eps: f32, stats: ViewMut, out: ViewMut) {
        row_norm::layer_norm(x, gamma, beta, eps, stats, out);
    }

    fn layer_norm_backward(&self, op: NormBackward) {
        row_norm::layer_norm_backward(op);
    }

    fn l2_norm(&self, x: View, norms: ViewMut, out: ViewMut) {
        row_norm::l2_norm(x, norms, out);
    }

    fn l2_norm_backward(&self, y: View, norms: View, grad: ViewMut) {
        row_norm::l2_norm_backward(y, norms, grad);
    }
}

impl LossOps for Cpu {
    fn softmax_cross_entropy(
        &self,
        logits: View,
        label: &[i32],
        weight: &[f32],
        scale: f32,
        grad: ViewMut,
    ) -> f64 {
        loss::softmax_cross_entropy(logits, label, weight, scale, grad)
    }

    fn sigmoid_cross_entropy(
        &self,
        logits: View,
        target: &[u8],
        weight: &[f32],
        scale: f32,
        grad: ViewMut,
    ) -> f64 {
        loss::sigmoid_cross_entropy(logits, target, weight, scale, grad)
    }

    fn softmax(&self, x: ViewMut) {
        loss::softmax(x);
    }

    fn sigmoid(&self, x: ViewMut) {
        loss::sigmoid(x);
    }
}

impl UpdateOps for Cpu {
    fn adam(&self, step: AdamStep, grad: View, m: ViewMut, v: ViewMut, value: ViewMut) {
        update::adam(step, grad, m, v, value);
    }

    fn sgd(&self, step: SgdStep, grad: View, velocity: ViewMut, value: ViewMut) {
        update::sgd(step, grad, velocity, value);
    }
}
