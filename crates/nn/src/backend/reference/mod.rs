//! The naive backend: every operation as one plain serial loop over its definition, sums in f64.
//!
//! It is what the fast backends are tested against, and what to read to learn what an operation
//! means: a file for each group of them. A new backend starts as a copy of this folder.

use graphmill_core::{Block, NodeId};

use super::{
    arg_max::ArgMax,
    interface::{AggregationOps, AttentionOps, Backend, DenseOps, ElementOps, LossOps, NormOps, UpdateOps},
    ops::{
        AttendInput, AttendInputBackward, AttendInputTransposed, EdgeSoftmaxBackward, HeadGemm, NormBackward,
    },
    types::{Activation, AdamStep, AggregationWeights, Dropout, SgdStep, Side},
};
use crate::{View, ViewMut, matrix::Table};

mod aggregate;
mod attention;
mod epilogue;
mod loss;
mod norm;
mod product;
mod rows;
#[cfg(test)]
mod tests;
mod update;

/// Plain loops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

/// Element (`r`, `c`) of a matrix, in f64.
fn at(x: View, r: usize, c: usize) -> f64 {
    if x.is_sparse() {
        let (columns, values) = x.sparse_row(r).expect("sparse rows");
        return columns.binary_search(&(c as u32)).map_or(0.0, |k| f64::from(values[k]));
    }
    let i = r * x.num_cols() + c;
    match x.table() {
        Table::F32(data) => f64::from(data[i]),
        Table::F16(data) => f64::from(data[i]),
        Table::Bf16(data) => f64::from(data[i]),
    }
}

/// Overwrites every element with `f(row, col, old value)`.
fn set(x: ViewMut, mut f: impl FnMut(usize, usize, f32) -> f64) {
    let cols = x.num_cols();
    for (i, value) in x.host().iter_mut().enumerate() {
        *value = f(i / cols, i % cols, *value) as f32;
    }
}

/// `beta * old`, without reading `old` where `beta` is 0.
fn keep(beta: f32, old: f32) -> f64 {
    if beta == 0.0 { 0.0 } else { f64::from(beta) * f64::from(old) }
}

fn leaky(x: f64, slope: f64) -> f64 {
    if x > 0.0 { x } else { slope * x }
}

impl Backend for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }
}

impl DenseOps for Reference {
    fn gemm(&self, a: View, side_a: Side, b: View, side_b: Side, beta: f32, c: ViewMut) {
        product::gemm(a, side_a, b, side_b, beta, c);
    }

    fn head_gemm(&self, op: HeadGemm) {
        product::head_gemm(op);
    }
}

impl AggregationOps for Reference {
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
        aggregate::hop(first, block, src, dst);
    }

    fn hop_transposed(&self, first: usize, block: &Block, dst_grad: View, src_grad: ViewMut) {
        aggregate::hop_transposed(first, block, dst_grad, src_grad);
    }

    fn aggregate_max(&self, block: &Block, src: View, dst: ViewMut, arg: &mut ArgMax) {
        aggregate::aggregate_max(block, src, dst, arg);
    }

    fn aggregate_max_transposed(&self, block: &Block, arg: &ArgMax, dst_grad: View, src_grad: ViewMut) {
        aggregate::aggregate_max_transposed(block, arg, dst_grad, src_grad);
    }
}

impl AttentionOps for Reference {
    fn head_dot(&self, z: View, a: View, heads: usize, out: ViewMut) {
        attention::head_dot(z, a, heads, out);
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
        attention::head_dot_backward(z, a, heads, grad, z_grad, a_grad);
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
        attention::attend_input(op);
    }

    fn attend_input_backward(&self, op: AttendInputBackward) {
        attention::attend_input_backward(op);
    }

    fn attend_input_transposed(&self, op: AttendInputTransposed) {
        attention::attend_input_transposed(op);
    }

    fn head_mean(&self, x: View, heads: usize, out: ViewMut) {
        attention::head_mean(x, heads, out);
    }

    fn head_mean_backward(&self, grad: View, heads: usize, x_grad: ViewMut) {
        attention::head_mean_backward(grad, heads, x_grad);
    }
}

impl ElementOps for Reference {
    fn gather(&self, src: View, ids: &[NodeId], dst: ViewMut) {
        rows::gather(src, ids, dst);
    }

    fn add(&self, alpha: f32, x: View, y: ViewMut) {
        rows::add(alpha, x, y);
    }

    fn drop_stored(&self, x: View, dropout: Dropout, out: ViewMut) {
        rows::drop_stored(x, dropout, out);
    }

    fn fill(&self, value: f32, x: ViewMut) {
        rows::fill(value, x);
    }

    fn scale(&self, alpha: f32, x: ViewMut) {
        rows::scale(alpha, x);
    }

    fn copy(&self, src: View, dst: ViewMut) {
        rows::copy(src, dst);
    }

    fn add_column_sums(&self, x: View, out: ViewMut) {
        rows::add_column_sums(x, out);
    }

    fn dot(&self, x: View, y: View) -> f64 {
        rows::dot(x, y)
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

impl NormOps for Reference {
    fn batch_norm(&self, x: View, gamma: View, beta: View, eps: f32, stats: ViewMut, out: ViewMut) {
        norm::batch_norm(x, gamma, beta, eps, stats, out);
    }

    fn batch_norm_apply(&self, x: View, gamma: View, beta: View, eps: f32, stats: View, out: ViewMut) {
        norm::batch_norm_apply(x, gamma, beta, eps, stats, out);
    }

    fn batch_norm_backward(&self, op: NormBackward) {
        norm::batch_norm_backward(op);
    }

    fn layer_norm(&self, x: View, gamma: View, beta: View, eps: f32, stats: ViewMut, out: ViewMut) {
        norm::layer_norm(x, gamma, beta, eps, stats, out);
    }

    fn layer_norm_backward(&self, op: NormBackward) {
        norm::layer_norm_backward(op);
    }

    fn l2_norm(&self, x: View, norms: ViewMut, out: ViewMut) {
        norm::l2_norm(x, norms, out);
    }

    fn l2_norm_backward(&self, y: View, norms: View, grad: ViewMut) {
        norm::l2_norm_backward(y, norms, grad);
    }
}

impl LossOps for Reference {
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

impl UpdateOps for Reference {
    fn adam(&self, step: AdamStep, grad: View, m: ViewMut, v: ViewMut, value: ViewMut) {
        update::adam(step, grad, m, v, value);
    }

    fn sgd(&self, step: SgdStep, grad: View, velocity: ViewMut, value: ViewMut) {
        update::sgd(step, grad, velocity, value);
    }
}
