//! Attention (GAT) over input rows, which all heads share.

use graphmill_core::Block;

use super::{Operation, shape};
use crate::{View, ViewMut, backend::Dropout};

/// Checks the heads' vectors, attention matrices, and a result, for rows of `cols` columns.
fn check(block: &Block, cols: usize, vectors: [View; 2], of_entries: &[View], out: View) {
    let [source, target] = vectors;
    let heads = source.num_cols();
    shape::block(block);
    shape::prefix(block);
    shape::same(source, target);
    assert_eq!(cols, source.num_rows(), "sources of an attention");
    assert_eq!(shape::of(out), (block.num_dst, heads * cols), "result of an attention");
    for &x in of_entries {
        shape::entries(block, heads, x);
    }
}

/// Attention with scores and sums over input rows:
///
/// ```text
/// score[e, h] = x[u] . source[., h] + x[own_row(v)] . target[., h]
/// alpha = softmax over e in {edges of v, v itself} of leaky_relu(score)
/// used = dropout(alpha)
/// out[v, h F + f] = sum over e of used[e, h] x[u, f]
/// ```
#[derive(Debug)]
pub struct AttendInput<'a> {
    /// The edges.
    pub block: &'a Block,
    /// Input rows, `S x F`.
    pub x: View<'a>,
    /// Sources' vectors, `F x H`.
    pub source: View<'a>,
    /// Destinations' vectors, `F x H`.
    pub target: View<'a>,
    /// Slope of the leaky ReLU below 0.
    pub slope: f32,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
    /// Scores, `(E + D) x H`, written.
    pub score: ViewMut<'a>,
    /// Attention weights, `(E + D) x H`, written.
    pub alpha: ViewMut<'a>,
    /// Weights after dropout, `(E + D) x H`, written; may be empty without dropout.
    pub used: ViewMut<'a>,
    /// Result, `D x (H F)`.
    pub out: ViewMut<'a>,
}

impl Operation for AttendInput<'_> {
    fn check(&self) {
        let of_entries = [self.score.as_view(), self.alpha.as_view(), self.used.as_view()];
        let written = if self.dropout.threshold() == 0 { 2 } else { 3 };
        assert_eq!(self.x.num_rows(), self.block.num_src, "sources of an attention");
        let vectors = [self.source, self.target];
        check(self.block, self.x.num_cols(), vectors, &of_entries[..written], self.out.as_view());
    }
}

/// Gradients of [`AttendInput`], except that of `x`.
#[derive(Debug)]
pub struct AttendInputBackward<'a> {
    /// The edges.
    pub block: &'a Block,
    /// Input rows, `S x F`.
    pub x: View<'a>,
    /// Slope of the leaky ReLU below 0.
    pub slope: f32,
    /// Scores of the forward pass, `(E + D) x H`.
    pub score: View<'a>,
    /// Attention weights of the forward pass.
    pub alpha: View<'a>,
    /// Weights after dropout; `alpha` without dropout.
    pub used: View<'a>,
    /// Gradient of the result, `D x (H F)`.
    pub grad: View<'a>,
    /// Gradient of the scores, `(E + D) x H`.
    pub score_grad: ViewMut<'a>,
    /// Gradient of the sources' vectors, `F x H`.
    pub source_grad: ViewMut<'a>,
    /// Gradient of the destinations' vectors, `F x H`.
    pub target_grad: ViewMut<'a>,
}

impl Operation for AttendInputBackward<'_> {
    fn check(&self) {
        let of_entries = [self.score, self.alpha, self.used, self.score_grad.as_view()];
        let vectors = [self.source_grad.as_view(), self.target_grad.as_view()];
        assert_eq!(self.x.num_rows(), self.block.num_src, "sources of an attention");
        check(self.block, self.x.num_cols(), vectors, &of_entries, self.grad);
    }
}

/// Gradient of [`AttendInput`] with respect to `x`, after [`AttendInputBackward`].
///
/// # Panics
/// The block is not local and transposed.
#[derive(Debug)]
pub struct AttendInputTransposed<'a> {
    /// The edges, local and transposed.
    pub block: &'a Block,
    /// Sources' vectors, `F x H`.
    pub source: View<'a>,
    /// Destinations' vectors, `F x H`.
    pub target: View<'a>,
    /// Attention weights after dropout, `(E + D) x H`.
    pub used: View<'a>,
    /// Gradient of the result, `D x (H F)`.
    pub grad: View<'a>,
    /// Gradient of the scores, `(E + D) x H`.
    pub score_grad: View<'a>,
    /// Gradient of the input rows, `S' x F`.
    pub x_grad: ViewMut<'a>,
}

impl Operation for AttendInputTransposed<'_> {
    fn check(&self) {
        shape::local(self.block);
        let x_grad = self.x_grad.as_view();
        shape::source_grad(self.block, x_grad, x_grad);
        let (vectors, of_entries) = ([self.source, self.target], [self.used, self.score_grad]);
        check(self.block, x_grad.num_cols(), vectors, &of_entries, self.grad);
    }
}
