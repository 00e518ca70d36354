//! Operations with many inputs, as structs with named fields.
//!
//! The formula of an operation stands with its method ([`super::DenseOps`], [`super::AttentionOps`],
//! [`super::NormOps`]).

use graphmill_core::Block;

use super::types::{Activation, Dropout, Side};
use crate::{View, ViewMut};

/// [`super::DenseOps::head_gemm`].
#[derive(Debug)]
pub struct HeadGemm<'a> {
    /// `H`.
    pub heads: usize,
    /// First factor.
    pub a: View<'a>,
    /// Side of the first factor.
    pub side_a: Side,
    /// Second factor.
    pub b: View<'a>,
    /// Side of the second factor; at most one is transposed.
    pub side_b: Side,
    /// Factor of the old result.
    pub beta: f32,
    /// Result.
    pub c: ViewMut<'a>,
}

/// [`super::DenseOps::dense`].
#[derive(Debug)]
pub struct Dense<'a> {
    /// Input rows, perhaps sparse.
    pub x: View<'a>,
    /// Weight.
    pub w: View<'a>,
    /// Factor of the old result.
    pub beta: f32,
    /// One row, added to each.
    pub bias: Option<View<'a>>,
    /// Non-linearity.
    pub activation: Activation,
    /// Dropout after it.
    pub dropout: Dropout,
    /// Result.
    pub out: ViewMut<'a>,
}

/// [`super::AttentionOps::edge_softmax_backward`].
#[derive(Debug)]
pub struct EdgeSoftmaxBackward<'a> {
    /// Local and transposed.
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
    /// Gradient of `source`, `W x H`, overwritten.
    pub source_grad: ViewMut<'a>,
    /// Gradient of `target`, `W x H`, overwritten.
    pub target_grad: ViewMut<'a>,
}

/// [`super::AttentionOps::attend_input`].
#[derive(Debug)]
pub struct AttendInput<'a> {
    /// Local or global.
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
    /// The weights after dropout, written; may be empty if nothing drops.
    pub used: ViewMut<'a>,
    /// Result, `D x (H F)`.
    pub out: ViewMut<'a>,
}

/// [`super::AttentionOps::attend_input_backward`].
#[derive(Debug)]
pub struct AttendInputBackward<'a> {
    /// Local or global.
    pub block: &'a Block,
    /// Input rows, `S x F`.
    pub x: View<'a>,
    /// Slope of the leaky ReLU below 0.
    pub slope: f32,
    /// Scores of the forward pass.
    pub score: View<'a>,
    /// Its attention weights.
    pub alpha: View<'a>,
    /// The weights after dropout; `alpha` if nothing drops.
    pub used: View<'a>,
    /// Gradient of the result, `D x (H F)`.
    pub grad: View<'a>,
    /// Gradient of the scores, `(E + D) x H`, overwritten.
    pub score_grad: ViewMut<'a>,
    /// Gradient of the sources' vectors, `F x H`, overwritten.
    pub source_grad: ViewMut<'a>,
    /// Gradient of the destinations' vectors, `F x H`, overwritten.
    pub target_grad: ViewMut<'a>,
}

/// [`super::AttentionOps::attend_input_transposed`].
#[derive(Debug)]
pub struct AttendInputTransposed<'a> {
    /// Local and transposed.
    pub block: &'a Block,
    /// Sources' vectors, `F x H`.
    pub source: View<'a>,
    /// Destinations' vectors, `F x H`.
    pub target: View<'a>,
    /// The weights after dropout.
    pub used: View<'a>,
    /// Gradient of the result, `D x (H F)`.
    pub grad: View<'a>,
    /// Gradient of the scores.
    pub score_grad: View<'a>,
    /// Gradient of the input rows, `W x F`, overwritten.
    pub x_grad: ViewMut<'a>,
}

/// [`super::NormOps::batch_norm_backward`] and [`super::NormOps::layer_norm_backward`].
#[derive(Debug)]
pub struct NormBackward<'a> {
    /// Input rows, `R x F`.
    pub x: View<'a>,
    /// Scale, `1 x F`.
    pub gamma: View<'a>,
    /// Added to the variance.
    pub eps: f32,
    /// Statistics of the forward pass.
    pub stats: View<'a>,
    /// Gradient of the result; becomes that of `x`.
    pub grad: ViewMut<'a>,
    /// Gradient of the scale, added to.
    pub gamma_grad: ViewMut<'a>,
    /// Gradient of the shift, added to.
    pub beta_grad: ViewMut<'a>,
}
