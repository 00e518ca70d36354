//! Normalizations of rows.

use super::{Operation, shape};
use crate::{View, ViewMut};

/// Checks rows, scale, shift and result.
fn rows(x: View, gamma: View, beta: View, out: View) {
    shape::row(gamma, x.num_cols());
    shape::row(beta, x.num_cols());
    shape::same(x, out);
}

/// Checks the statistics of a batch norm.
fn of_columns(x: View, stats: View) {
    assert_eq!(shape::of(stats), (2, x.num_cols()), "statistics of a batch norm");
}

/// Checks the statistics of a layer norm.
fn of_rows(x: View, stats: View) {
    assert_eq!(shape::of(stats), (x.num_rows(), 2), "statistics of a layer norm");
}

/// Batch normalization (Ioffe and Szegedy, 2015):
/// `out = gamma (x - mean) / sqrt(var + eps) + beta`, with mean and variance of each column.
#[derive(Debug)]
pub struct BatchNormForward<'a> {
    /// Input rows, `R x F`.
    pub x: View<'a>,
    /// Scale, `1 x F`.
    pub gamma: View<'a>,
    /// Shift, `1 x F`.
    pub beta: View<'a>,
    /// Term added to the variance.
    pub eps: f32,
    /// Mean and biased variance, `2 x F`, written.
    pub stats: ViewMut<'a>,
    /// Result, `R x F`.
    pub out: ViewMut<'a>,
}

impl Operation for BatchNormForward<'_> {
    fn check(&self) {
        rows(self.x, self.gamma, self.beta, self.out.as_view());
        of_columns(self.x, self.stats.as_view());
    }
}

/// [`BatchNormForward`] with given statistics, for evaluation.
#[derive(Debug)]
pub struct BatchNormApply<'a> {
    /// Input rows, `R x F`.
    pub x: View<'a>,
    /// Scale, `1 x F`.
    pub gamma: View<'a>,
    /// Shift, `1 x F`.
    pub beta: View<'a>,
    /// Term added to the variance.
    pub eps: f32,
    /// Mean and variance, `2 x F`.
    pub stats: View<'a>,
    /// Result, `R x F`.
    pub out: ViewMut<'a>,
}

impl Operation for BatchNormApply<'_> {
    fn check(&self) {
        rows(self.x, self.gamma, self.beta, self.out.as_view());
        of_columns(self.x, self.stats);
    }
}

/// Gradients of [`BatchNormForward`].
#[derive(Debug)]
pub struct BatchNormBackward<'a> {
    /// Input rows, `R x F`.
    pub x: View<'a>,
    /// Scale, `1 x F`.
    pub gamma: View<'a>,
    /// Term added to the variance.
    pub eps: f32,
    /// Statistics of the forward pass, `2 x F`.
    pub stats: View<'a>,
    /// Gradient of the result, `R x F`; becomes that of `x`.
    pub grad: ViewMut<'a>,
    /// Gradient of the scale, added to.
    pub gamma_grad: ViewMut<'a>,
    /// Gradient of the shift, added to.
    pub beta_grad: ViewMut<'a>,
}

impl Operation for BatchNormBackward<'_> {
    fn check(&self) {
        rows(self.x, self.gamma, self.beta_grad.as_view(), self.grad.as_view());
        of_columns(self.x, self.stats);
        shape::same(self.gamma, self.gamma_grad.as_view());
    }
}

/// Layer normalization (Ba, Kiros and Hinton, 2016):
/// `out = gamma (x - mean) / sqrt(var + eps) + beta`, with mean and variance of each row.
#[derive(Debug)]
pub struct LayerNormForward<'a> {
    /// Input rows, `R x F`.
    pub x: View<'a>,
    /// Scale, `1 x F`.
    pub gamma: View<'a>,
    /// Shift, `1 x F`.
    pub beta: View<'a>,
    /// Term added to the variance.
    pub eps: f32,
    /// Mean and biased variance, `R x 2`, written.
    pub stats: ViewMut<'a>,
    /// Result, `R x F`.
    pub out: ViewMut<'a>,
}

impl Operation for LayerNormForward<'_> {
    fn check(&self) {
        rows(self.x, self.gamma, self.beta, self.out.as_view());
        of_rows(self.x, self.stats.as_view());
    }
}

/// Gradients of [`LayerNormForward`].
#[derive(Debug)]
pub struct LayerNormBackward<'a> {
    /// Input rows, `R x F`.
    pub x: View<'a>,
    /// Scale, `1 x F`.
    pub gamma: View<'a>,
    /// Term added to the variance.
    pub eps: f32,
    /// Statistics of the forward pass, `R x 2`.
    pub stats: View<'a>,
    /// Gradient of the result, `R x F`; becomes that of `x`.
    pub grad: ViewMut<'a>,
    /// Gradient of the scale, added to.
    pub gamma_grad: ViewMut<'a>,
    /// Gradient of the shift, added to.
    pub beta_grad: ViewMut<'a>,
}

impl Operation for LayerNormBackward<'_> {
    fn check(&self) {
        rows(self.x, self.gamma, self.beta_grad.as_view(), self.grad.as_view());
        of_rows(self.x, self.stats);
        shape::same(self.gamma, self.gamma_grad.as_view());
    }
}

/// Checks rows, their lengths, and a matrix of the rows' shape.
fn l2_norm(x: View, norms: View, out: View) {
    assert_eq!(shape::of(norms), (x.num_rows(), 1), "norms");
    shape::same(x, out);
}

/// `out[r] = x[r] / max(|x[r]|, 1e-12)`.
#[derive(Debug)]
pub struct L2NormForward<'a> {
    /// Input rows, `R x F`.
    pub x: View<'a>,
    /// `|x[r]|`, `R x 1`, written.
    pub norms: ViewMut<'a>,
    /// Result, `R x F`.
    pub out: ViewMut<'a>,
}

impl Operation for L2NormForward<'_> {
    fn check(&self) {
        l2_norm(self.x, self.norms.as_view(), self.out.as_view());
    }
}

/// Gradient of [`L2NormForward`] from its output, in place.
///
/// Rows of norm up to 1e-12 get gradient 0, because the exact value, 1e12 times the output's
/// gradient, would destroy the parameters of earlier layers.
#[derive(Debug)]
pub struct L2NormBackward<'a> {
    /// Output of the forward pass, `R x F`.
    pub y: View<'a>,
    /// Norms of the forward pass, `R x 1`.
    pub norms: View<'a>,
    /// Gradient of the output, `R x F`; becomes that of the input.
    pub grad: ViewMut<'a>,
}

impl Operation for L2NormBackward<'_> {
    fn check(&self) {
        l2_norm(self.y, self.norms, self.grad.as_view());
    }
}
