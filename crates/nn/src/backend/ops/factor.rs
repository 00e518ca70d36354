//! Products with learned factors: a few values, which a backend reads where the parameters are.

use super::{Operation, shape};
use crate::{View, ViewMut};

/// `y = y + (plus + factors[at]) x`.
#[derive(Debug)]
pub struct AddTimes<'a> {
    /// Factors, `1 x N`.
    pub factors: View<'a>,
    /// Column of the factor.
    pub at: usize,
    /// Constant part of the factor.
    pub plus: f32,
    /// Rows, `R x F`.
    pub x: View<'a>,
    /// Result, `R x F`, added to.
    pub y: ViewMut<'a>,
}

impl Operation for AddTimes<'_> {
    fn check(&self) {
        shape::column(self.factors, self.at);
        shape::same(self.x, self.y.as_view());
    }
}

/// `out[r, h O + o] = factors[h] x[r, h O + o]`.
#[derive(Debug)]
pub struct ScaleHeads<'a> {
    /// A factor for each head, `1 x H`.
    pub factors: View<'a>,
    /// Rows, `R x (H O)`.
    pub x: View<'a>,
    /// Result, of the same shape.
    pub out: ViewMut<'a>,
}

impl ScaleHeads<'_> {
    /// Computes the operation for backends without a kernel.
    pub fn on_host(self) {
        let Self { factors, x, out } = self;
        let (factors, width, cols) = (factors.host(), x.num_cols() / factors.num_cols(), x.num_cols());
        let values = out.host().iter_mut().zip(x.host()).enumerate();
        values.for_each(|(i, (out, x))| *out = factors[i % cols / width] * x);
    }
}

impl Operation for ScaleHeads<'_> {
    fn check(&self) {
        shape::row(self.factors, self.factors.num_cols());
        shape::head_width(self.x.num_cols(), self.factors.num_cols());
        shape::same(self.x, self.out.as_view());
    }
}

/// Gradients of [`ScaleHeads`], added to.
#[derive(Debug)]
pub struct ScaleHeadsBackward<'a> {
    /// A factor for each head, `1 x H`.
    pub factors: View<'a>,
    /// Rows, `R x (H O)`.
    pub x: View<'a>,
    /// Gradient of the result.
    pub grad: View<'a>,
    /// Gradient of the factors, added to.
    pub factors_grad: ViewMut<'a>,
    /// Gradient of the rows, added to.
    pub x_grad: ViewMut<'a>,
}

impl ScaleHeadsBackward<'_> {
    /// Computes the operation for backends without a kernel.
    pub fn on_host(self) {
        let Self { factors, x, grad, factors_grad, x_grad } = self;
        let (heads, cols) = (factors.num_cols(), x.num_cols());
        let (width, factors) = (cols / heads, factors.host());
        let mut sums = vec![0.0f64; heads];
        let values = x_grad.host().iter_mut().zip(grad.host()).zip(x.host()).enumerate();
        values.for_each(|(i, ((x_grad, grad), x))| {
            let h = i % cols / width;
            *x_grad += factors[h] * grad;
            sums[h] += f64::from(*grad) * f64::from(*x);
        });
        factors_grad.host().iter_mut().zip(sums).for_each(|(grad, sum)| *grad += sum as f32);
    }
}

impl Operation for ScaleHeadsBackward<'_> {
    fn check(&self) {
        shape::row(self.factors, self.factors.num_cols());
        shape::head_width(self.x.num_cols(), self.factors.num_cols());
        shape::same(self.factors, self.factors_grad.as_view());
        shape::same(self.x, self.grad);
        shape::same(self.x, self.x_grad.as_view());
    }
}

/// `y = b y + (1 - b) x` with `b = sigmoid(skip)`.
#[derive(Debug)]
pub struct Skip<'a> {
    /// The value, `1 x 1`.
    pub skip: View<'a>,
    /// Skipped rows, `R x F`.
    pub x: View<'a>,
    /// Rows, `R x F`, in place.
    pub y: ViewMut<'a>,
}

impl Operation for Skip<'_> {
    fn check(&self) {
        shape::row(self.skip, 1);
        shape::same(self.x, self.y.as_view());
    }
}

/// Gradients of [`Skip`].
#[derive(Debug)]
pub struct SkipBackward<'a> {
    /// The value, `1 x 1`.
    pub skip: View<'a>,
    /// Skipped rows, `R x F`.
    pub x: View<'a>,
    /// Rows before the operation, `R x F`.
    pub y: View<'a>,
    /// Gradient of the result, `R x F`; becomes that of `y`.
    pub grad: ViewMut<'a>,
    /// Gradient of the skipped rows, added to.
    pub x_grad: ViewMut<'a>,
    /// Gradient of the value, added to.
    pub skip_grad: ViewMut<'a>,
}

impl Operation for SkipBackward<'_> {
    fn check(&self) {
        shape::row(self.skip, 1);
        shape::same(self.skip, self.skip_grad.as_view());
        for x in [self.y, self.grad.as_view(), self.x_grad.as_view()] {
            shape::same(self.x, x);
        }
    }
}

/// Share of the new rows in [`Skip`].
pub fn share(skip: View) -> f32 {
    1.0 / (1.0 + (-skip.host()[0]).exp())
}
