//! The naive backend: every operation as one plain serial loop over its definition, with sums in
//! f64.
//!
//! It is the reference for the tests of fast backends, and documents the meaning of each operation,
//! in a file per group. A new backend starts as a copy of this directory.

use super::{
    interface::{AggregationOps, AttentionOps, Backend, DenseOps, ElementOps, LossOps, NormOps, UpdateOps},
    ops::{
        AdamUpdate, Add, Aggregate, AggregateMax, AggregateMaxTransposed, AggregateTransposed, Attend,
        AttendBackward, AttendInput, AttendInputBackward, AttendInputTransposed, BatchNormApply,
        BatchNormBackward, BatchNormForward, Checked, DropStored, EdgeSoftmax, EdgeSoftmaxBackward,
        EpilogueBackward, EpilogueForward, Gather, Gemm, HeadDot, HeadDotBackward, HeadGemm, HeadMean,
        HeadMeanBackward, Hop, HopTransposed, L2NormBackward, L2NormForward, LayerNormBackward,
        LayerNormForward, SgdUpdate, SigmoidCrossEntropy, SoftmaxCrossEntropy,
    },
};
use crate::{
    View, ViewMut,
    matrix::{Slots, Table},
};

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

/// Backend of plain serial loops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

/// Element (`r`, `c`) of a matrix, in f64.
fn at(x: View, r: usize, c: usize) -> f64 {
    if x.is_sparse() {
        let (columns, values) = x.sparse_row(r).expect("rows are sparse");
        return columns.binary_search(&(c as u32)).map_or(0.0, |k| f64::from(values[k]));
    }
    let i = r * x.num_cols() + c;
    if let Some(Slots { cached, staged }) = x.slots() {
        return f64::from(i.checked_sub(cached.len()).map_or_else(|| cached[i], |i| staged[i]));
    }
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

/// `beta * old`, which does not read `old` if `beta` is 0.
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
    fn gemm(&self, op: Checked<Gemm>) {
        product::gemm(op.into_inner());
    }

    fn head_gemm(&self, op: Checked<HeadGemm>) {
        product::head_gemm(op.into_inner());
    }
}

impl AggregationOps for Reference {
    fn aggregate(&self, op: Checked<Aggregate>) {
        aggregate::aggregate(op.into_inner());
    }

    fn aggregate_transposed(&self, op: Checked<AggregateTransposed>) {
        aggregate::aggregate_transposed(op.into_inner());
    }

    fn hop(&self, op: Checked<Hop>) {
        aggregate::hop(op.into_inner());
    }

    fn hop_transposed(&self, op: Checked<HopTransposed>) {
        aggregate::hop_transposed(op.into_inner());
    }

    fn aggregate_max(&self, op: Checked<AggregateMax>) {
        aggregate::aggregate_max(op.into_inner());
    }

    fn aggregate_max_transposed(&self, op: Checked<AggregateMaxTransposed>) {
        aggregate::aggregate_max_transposed(op.into_inner());
    }
}

impl AttentionOps for Reference {
    fn attends_to_features(&self) -> bool {
        true
    }

    fn head_dot(&self, op: Checked<HeadDot>) {
        attention::head_dot(op.into_inner());
    }

    fn head_dot_backward(&self, op: Checked<HeadDotBackward>) {
        attention::head_dot_backward(op.into_inner());
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
        attention::attend_input(op.into_inner());
    }

    fn attend_input_backward(&self, op: Checked<AttendInputBackward>) {
        attention::attend_input_backward(op.into_inner());
    }

    fn attend_input_transposed(&self, op: Checked<AttendInputTransposed>) {
        attention::attend_input_transposed(op.into_inner());
    }

    fn head_mean(&self, op: Checked<HeadMean>) {
        attention::head_mean(op.into_inner());
    }

    fn head_mean_backward(&self, op: Checked<HeadMeanBackward>) {
        attention::head_mean_backward(op.into_inner());
    }
}

impl ElementOps for Reference {
    fn gather(&self, op: Checked<Gather>) {
        rows::gather(op.into_inner());
    }

    fn add(&self, op: Checked<Add>) {
        rows::add(op.into_inner());
    }

    fn drop_stored(&self, op: Checked<DropStored>) {
        rows::drop_stored(op.into_inner());
    }

    fn epilogue(&self, op: Checked<EpilogueForward>) {
        epilogue::epilogue(op.into_inner());
    }

    fn epilogue_backward(&self, op: Checked<EpilogueBackward>) {
        epilogue::epilogue_backward(op.into_inner());
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
}

impl NormOps for Reference {
    fn batch_norm(&self, op: Checked<BatchNormForward>) {
        norm::batch_norm(op.into_inner());
    }

    fn batch_norm_apply(&self, op: Checked<BatchNormApply>) {
        norm::batch_norm_apply(op.into_inner());
    }

    fn batch_norm_backward(&self, op: Checked<BatchNormBackward>) {
        norm::batch_norm_backward(op.into_inner());
    }

    fn layer_norm(&self, op: Checked<LayerNormForward>) {
        norm::layer_norm(op.into_inner());
    }

    fn layer_norm_backward(&self, op: Checked<LayerNormBackward>) {
        norm::layer_norm_backward(op.into_inner());
    }

    fn l2_norm(&self, op: Checked<L2NormForward>) {
        norm::l2_norm(op.into_inner());
    }

    fn l2_norm_backward(&self, op: Checked<L2NormBackward>) {
        norm::l2_norm_backward(op.into_inner());
    }
}

impl LossOps for Reference {
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

impl UpdateOps for Reference {
    fn adam(&self, op: Checked<AdamUpdate>) {
        update::adam(op.into_inner());
    }

    fn sgd(&self, op: Checked<SgdUpdate>) {
        update::sgd(op.into_inner());
    }
}
