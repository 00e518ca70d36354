//! Attention (GAT) over transformed rows.
//!
//! `Z` is `S x (H O)`: `H` heads of `O` columns each. Every destination also attends to its own
//! row, so an attention matrix is `(E + D) x H`: the edges' entries, then the destinations' own.

use graphmill_core::Block;

use super::{Operation, shape};
use crate::{View, ViewMut};

/// `out[r, h] = sum over o of z[r, h O + o] a[h O + o]`.
///
/// # Panics
/// The columns of `z` do not form `H` heads.
#[derive(Debug)]
pub struct HeadDot<'a> {
    /// Rows, `R x (H O)`.
    pub z: View<'a>,
    /// A vector for each head, `1 x (H O)`.
    pub a: View<'a>,
    /// Number of heads, `H`.
    pub heads: usize,
    /// Result, `R x H`.
    pub out: ViewMut<'a>,
}

impl HeadDot<'_> {
    /// Width of a head, `O`.
    pub fn width(&self) -> usize {
        shape::head_width(self.z.num_cols(), self.heads)
    }
}

/// Checks a result of one value per row and head.
fn head_dot(z: View, a: View, heads: usize, out: View) {
    shape::row(a, z.num_cols());
    assert_eq!(shape::of(out), (z.num_rows(), heads), "one value per row and head");
    shape::head_width(z.num_cols(), heads);
}

impl Operation for HeadDot<'_> {
    fn check(&self) {
        head_dot(self.z, self.a, self.heads, self.out.as_view());
    }
}

/// Gradients of [`HeadDot`], both added to.
///
/// # Panics
/// The columns of `z` do not form `H` heads.
#[derive(Debug)]
pub struct HeadDotBackward<'a> {
    /// Rows, `R x (H O)`.
    pub z: View<'a>,
    /// A vector for each head, `1 x (H O)`.
    pub a: View<'a>,
    /// Number of heads, `H`.
    pub heads: usize,
    /// Gradient of the result, `R x H`.
    pub grad: View<'a>,
    /// Gradient of the rows, added to.
    pub z_grad: ViewMut<'a>,
    /// Gradient of the vectors, added to.
    pub a_grad: ViewMut<'a>,
}

impl HeadDotBackward<'_> {
    /// Width of a head, `O`.
    pub fn width(&self) -> usize {
        shape::head_width(self.z.num_cols(), self.heads)
    }
}

impl Operation for HeadDotBackward<'_> {
    fn check(&self) {
        head_dot(self.z, self.a, self.heads, self.grad);
        shape::same(self.z, self.z_grad.as_view());
        shape::same(self.a, self.a_grad.as_view());
    }
}

/// Checks the two parts of the scores, and an attention matrix of as many heads.
fn edge_softmax(block: &Block, source: View, target: View, alpha: View) {
    shape::block(block);
    shape::prefix(block);
    shape::same(source, target);
    assert_eq!(source.num_rows(), block.num_src, "sources of an attention");
    shape::entries(block, source.num_cols(), alpha);
}

/// `alpha = softmax over {edges of v, v itself} of leaky_relu(source[u] + target[own_row(v)])`.
///
/// Stable: the largest logit of each destination is subtracted first.
#[derive(Debug)]
pub struct EdgeSoftmax<'a> {
    /// The edges.
    pub block: &'a Block,
    /// Sources' part of the scores, `S x H`.
    pub source: View<'a>,
    /// Destinations' part of the scores, `S x H`.
    pub target: View<'a>,
    /// Slope of the leaky ReLU below 0.
    pub slope: f32,
    /// Result, `(E + D) x H`.
    pub alpha: ViewMut<'a>,
}

impl Operation for EdgeSoftmax<'_> {
    fn check(&self) {
        edge_softmax(self.block, self.source, self.target, self.alpha.as_view());
    }
}

/// Gradients of [`EdgeSoftmax`].
///
/// # Panics
/// The block is not local and transposed.
#[derive(Debug)]
pub struct EdgeSoftmaxBackward<'a> {
    /// The edges, local and transposed.
    pub block: &'a Block,
    /// Sources' part of the scores, `S x H`.
    pub source: View<'a>,
    /// Destinations' part of the scores, `S x H`.
    pub target: View<'a>,
    /// Slope of the leaky ReLU below 0.
    pub slope: f32,
    /// Result of the forward pass, `(E + D) x H`.
    pub alpha: View<'a>,
    /// Its gradient.
    pub alpha_grad: View<'a>,
    /// Scratch of the same shape.
    pub scratch: ViewMut<'a>,
    /// Gradient of `source`, `S' x H`.
    pub source_grad: ViewMut<'a>,
    /// Gradient of `target`, `S' x H`.
    pub target_grad: ViewMut<'a>,
}

impl Operation for EdgeSoftmaxBackward<'_> {
    fn check(&self) {
        edge_softmax(self.block, self.source, self.target, self.alpha);
        shape::local(self.block);
        shape::same(self.alpha, self.alpha_grad);
        shape::same(self.alpha, self.scratch.as_view());
        shape::source_grad(self.block, self.source, self.source_grad.as_view());
        shape::source_grad(self.block, self.target, self.target_grad.as_view());
    }
}

/// Checks an attention matrix, sources' rows of as many heads, and a result.
fn attend(block: &Block, alpha: View, z: View, out: View) {
    shape::block(block);
    shape::prefix(block);
    shape::entries(block, alpha.num_cols(), alpha);
    assert_eq!(z.num_rows(), block.num_src, "sources of an attention");
    assert_eq!(shape::of(out), (block.num_dst, z.num_cols()), "result of an attention");
    shape::head_width(z.num_cols(), alpha.num_cols());
}

/// `out[v, h] = sum over e in {edges of v, v itself} of alpha[e, h] z[u, h]`.
///
/// # Panics
/// The columns of `z` do not form `H` heads.
#[derive(Debug)]
pub struct Attend<'a> {
    /// The edges.
    pub block: &'a Block,
    /// Attention weights, `(E + D) x H`.
    pub alpha: View<'a>,
    /// Sources' rows, `S x (H O)`.
    pub z: View<'a>,
    /// Result, `D x (H O)`.
    pub out: ViewMut<'a>,
}

impl Attend<'_> {
    /// Width of a head, `O`.
    pub fn width(&self) -> usize {
        shape::head_width(self.z.num_cols(), self.alpha.num_cols())
    }
}

impl Operation for Attend<'_> {
    fn check(&self) {
        attend(self.block, self.alpha, self.z, self.out.as_view());
    }
}

/// Gradients of [`Attend`].
///
/// # Panics
/// The block is not local and transposed, or the columns of `z` do not form `H` heads.
#[derive(Debug)]
pub struct AttendBackward<'a> {
    /// The edges, local and transposed.
    pub block: &'a Block,
    /// Attention weights, `(E + D) x H`.
    pub alpha: View<'a>,
    /// Sources' rows, `S x (H O)`.
    pub z: View<'a>,
    /// Gradient of the result, `D x (H O)`.
    pub grad: View<'a>,
    /// Gradient of the attention weights, `(E + D) x H`.
    pub alpha_grad: ViewMut<'a>,
    /// Gradient of the sources' rows, `S' x (H O)`.
    pub z_grad: ViewMut<'a>,
}

impl AttendBackward<'_> {
    /// Width of a head, `O`.
    pub fn width(&self) -> usize {
        shape::head_width(self.z.num_cols(), self.alpha.num_cols())
    }
}

impl Operation for AttendBackward<'_> {
    fn check(&self) {
        attend(self.block, self.alpha, self.z, self.grad);
        shape::local(self.block);
        shape::same(self.alpha, self.alpha_grad.as_view());
        shape::source_grad(self.block, self.z, self.z_grad.as_view());
    }
}

/// `out[r, o] = 1/H sum over h of x[r, h O + o]`.
///
/// # Panics
/// The columns of `x` do not form `H` heads.
#[derive(Debug)]
pub struct HeadMean<'a> {
    /// Rows, `R x (H O)`.
    pub x: View<'a>,
    /// Number of heads, `H`.
    pub heads: usize,
    /// Result, `R x O`.
    pub out: ViewMut<'a>,
}

impl Operation for HeadMean<'_> {
    fn check(&self) {
        let width = shape::head_width(self.x.num_cols(), self.heads);
        assert_eq!(shape::of(self.out.as_view()), (self.x.num_rows(), width), "mean over heads");
    }
}

/// Gradient of [`HeadMean`].
///
/// # Panics
/// The columns of `x_grad` do not form `H` heads.
#[derive(Debug)]
pub struct HeadMeanBackward<'a> {
    /// Gradient of the result, `R x O`.
    pub grad: View<'a>,
    /// Number of heads, `H`.
    pub heads: usize,
    /// Gradient of the rows, `R x (H O)`.
    pub x_grad: ViewMut<'a>,
}

impl Operation for HeadMeanBackward<'_> {
    fn check(&self) {
        let width = shape::head_width(self.x_grad.num_cols(), self.heads);
        assert_eq!(shape::of(self.grad), (self.x_grad.num_rows(), width), "mean over heads");
    }
}
