//! Sums, means and maxima of the neighbours' rows.

use graphmill_core::Block;

use super::{Operation, shape};
use crate::{
    View, ViewMut,
    backend::{AggregationWeights, ArgMax},
};

/// Checks the sources' rows, and a result with a row per destination.
fn forward(block: &Block, src: View, dst: View) {
    shape::block(block);
    assert_eq!(src.num_rows(), block.num_src, "sources of an aggregation");
    assert_eq!(shape::of(dst), (block.num_dst, src.num_cols()), "result of an aggregation");
}

/// Checks a gradient of the destinations' rows, and that of the sources' rows.
fn backward(block: &Block, dst_grad: View, src_grad: View) {
    shape::local(block);
    assert_eq!(dst_grad.num_rows(), block.num_dst, "destinations of an aggregation's gradient");
    shape::source_grad(block, dst_grad, src_grad);
}

/// `dst = beta dst + A src`, with `A` (`D x S`) given by [`AggregationWeights`].
///
/// # Panics
/// The block lacks the weights.
#[derive(Debug)]
pub struct Aggregate<'a> {
    /// The edges.
    pub block: &'a Block,
    /// Coefficients of edges and own rows.
    pub weights: AggregationWeights<'a>,
    /// Sources' rows, `S x F`.
    pub src: View<'a>,
    /// Factor of the old result.
    pub beta: f32,
    /// Result, `D x F`.
    pub dst: ViewMut<'a>,
}

impl Operation for Aggregate<'_> {
    fn check(&self) {
        forward(self.block, self.src, self.dst.as_view());
        shape::weights(self.block, self.weights);
    }
}

/// Gradient of [`Aggregate`]: `src_grad = beta src_grad + A^T dst_grad`.
///
/// # Panics
/// The block is not local and transposed, or lacks the weights.
#[derive(Debug)]
pub struct AggregateTransposed<'a> {
    /// The edges, local and transposed.
    pub block: &'a Block,
    /// Coefficients of edges and own rows.
    pub weights: AggregationWeights<'a>,
    /// Gradient of the result, `D x F`.
    pub dst_grad: View<'a>,
    /// Factor of the old gradient.
    pub beta: f32,
    /// Gradient of the sources' rows, `S' x F`.
    pub src_grad: ViewMut<'a>,
}

impl Operation for AggregateTransposed<'_> {
    fn check(&self) {
        backward(self.block, self.dst_grad, self.src_grad.as_view());
        shape::weights(self.block, self.weights);
    }
}

/// One hop of MixHop, or GraphSAGE's concatenation: columns from `first` on are aggregated; the
/// columns before are copied from the destinations' own rows.
///
/// # Panics
/// The block lacks the weights, or `first` is beyond the columns.
#[derive(Debug)]
pub struct Hop<'a> {
    /// The edges.
    pub block: &'a Block,
    /// First aggregated column.
    pub first: usize,
    /// Coefficients of the aggregation.
    pub weights: AggregationWeights<'a>,
    /// Sources' rows, `S x F`.
    pub src: View<'a>,
    /// Result, `D x F`.
    pub dst: ViewMut<'a>,
}

impl Operation for Hop<'_> {
    fn check(&self) {
        forward(self.block, self.src, self.dst.as_view());
        shape::weights(self.block, self.weights);
        shape::prefix(self.block);
        assert!(self.first <= self.src.num_cols(), "copied columns of a hop");
    }
}

/// Gradient of [`Hop`].
///
/// # Panics
/// The block is not local and transposed, or lacks the weights, or `first` is beyond the columns.
#[derive(Debug)]
pub struct HopTransposed<'a> {
    /// The edges, local and transposed.
    pub block: &'a Block,
    /// First aggregated column.
    pub first: usize,
    /// Coefficients of the aggregation.
    pub weights: AggregationWeights<'a>,
    /// Gradient of the result, `D x F`.
    pub dst_grad: View<'a>,
    /// Gradient of the sources' rows, `S' x F`.
    pub src_grad: ViewMut<'a>,
}

impl Operation for HopTransposed<'_> {
    fn check(&self) {
        backward(self.block, self.dst_grad, self.src_grad.as_view());
        shape::weights(self.block, self.weights);
        shape::prefix(self.block);
        assert!(self.first <= self.dst_grad.num_cols(), "copied columns of a hop");
    }
}

/// `dst[v, f] = max over edges (u, v) of src[u, f]`; 0 for a destination without edges.
#[derive(Debug)]
pub struct AggregateMax<'a> {
    /// The edges.
    pub block: &'a Block,
    /// Sources' rows, `S x F`.
    pub src: View<'a>,
    /// Result, `D x F`.
    pub dst: ViewMut<'a>,
    /// Position of the first edge that attains each maximum, resized to `D x F`; `u32::MAX` for a
    /// destination without edges.
    pub arg: &'a mut ArgMax,
}

impl Operation for AggregateMax<'_> {
    fn check(&self) {
        forward(self.block, self.src, self.dst.as_view());
    }
}

/// Gradient of [`AggregateMax`]: each value goes to the source of the edge that attained the
/// maximum.
///
/// # Panics
/// The block is not local and transposed.
#[derive(Debug)]
pub struct AggregateMaxTransposed<'a> {
    /// The edges, local and transposed.
    pub block: &'a Block,
    /// Edges that attained the maxima of the forward pass, `D x F`.
    pub arg: &'a ArgMax,
    /// Gradient of the result, `D x F`.
    pub dst_grad: View<'a>,
    /// Gradient of the sources' rows, `S' x F`.
    pub src_grad: ViewMut<'a>,
}

impl Operation for AggregateMaxTransposed<'_> {
    fn check(&self) {
        backward(self.block, self.dst_grad, self.src_grad.as_view());
        let winners = (self.block.num_dst, self.dst_grad.num_cols());
        assert_eq!(shape::of(self.arg.bits()), winners, "edges of a maximum");
    }
}
