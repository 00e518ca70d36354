//! Rows and elements: gathers, sums, bias, activation and dropout.

use graphmill_core::NodeId;

use super::{Operation, shape};
use crate::{
    View, ViewMut,
    backend::{Activation, Dropout},
};

/// `dst[i] = src[ids[i]]`.
///
/// # Panics
/// An id is beyond the rows.
#[derive(Debug)]
pub struct Gather<'a> {
    /// Table, `V x F`, possibly sparse.
    pub src: View<'a>,
    /// Rows to gather, `R`.
    pub ids: &'a [NodeId],
    /// Result, `R x F`.
    pub dst: ViewMut<'a>,
}

impl Operation for Gather<'_> {
    fn check(&self) {
        let result = (self.ids.len(), self.src.num_cols());
        assert_eq!(shape::of(self.dst.as_view()), result, "result of a gather");
    }
}

/// `y = y + alpha x`.
#[derive(Debug)]
pub struct Add<'a> {
    /// Factor.
    pub alpha: f32,
    /// Rows, `R x F`, possibly sparse.
    pub x: View<'a>,
    /// Result, `R x F`, added to.
    pub y: ViewMut<'a>,
}

impl Operation for Add<'_> {
    fn check(&self) {
        shape::same(self.x, self.y.as_view());
    }
}

/// `out[at] = out[at] + ` [`dot`](crate::backend::ElementOps::dot) of `x` and `y`, rounded to f32.
#[derive(Debug)]
pub struct AddDot<'a> {
    /// First factor, `R x F`.
    pub x: View<'a>,
    /// Second factor, `R x F`.
    pub y: View<'a>,
    /// Results, `1 x N`, one of which is added to.
    pub out: ViewMut<'a>,
    /// Column of the result.
    pub at: usize,
}

impl Operation for AddDot<'_> {
    fn check(&self) {
        shape::same(self.x, self.y);
        shape::column(self.out.as_view(), self.at);
    }
}

/// Stored values of sparse rows after dropout. An element is dropped if [`EpilogueForward`] would
/// drop it in the equal dense matrix.
///
/// # Panics
/// The rows are not sparse, or are still rows of a table.
#[derive(Debug)]
pub struct DropStored<'a> {
    /// Sparse rows, gathered.
    pub x: View<'a>,
    /// Dropout.
    pub dropout: Dropout,
    /// Result: one row of one value per stored value.
    pub out: ViewMut<'a>,
}

impl Operation for DropStored<'_> {
    fn check(&self) {
        let stored = self.x.sparse().expect("rows are sparse and gathered").values.len();
        assert_eq!(shape::of(self.out.as_view()), (stored, 1), "one row per stored value");
    }
}

/// `x = dropout(activation(x + bias))`, in place, in one pass over the rows.
#[derive(Debug)]
pub struct EpilogueForward<'a> {
    /// Row `1 x F` added to each row.
    pub bias: Option<View<'a>>,
    /// Non-linearity.
    pub activation: Activation,
    /// Dropout after the non-linearity.
    pub dropout: Dropout,
    /// Rows, `R x F`, in place.
    pub x: ViewMut<'a>,
}

impl Operation for EpilogueForward<'_> {
    fn check(&self) {
        if let Some(bias) = self.bias {
            shape::row(bias, self.x.num_cols());
        }
    }
}

/// Gradient of [`EpilogueForward`] from its output, in place.
#[derive(Debug)]
pub struct EpilogueBackward<'a> {
    /// Non-linearity.
    pub activation: Activation,
    /// Dropout after the non-linearity.
    pub dropout: Dropout,
    /// Output of the forward pass, `R x F`.
    pub y: View<'a>,
    /// Gradient of the output, `R x F`; becomes that of the input.
    pub grad: ViewMut<'a>,
    /// Gradient of the bias, `1 x F`: the column sums of the result are added to it.
    pub bias_grad: Option<ViewMut<'a>>,
}

impl Operation for EpilogueBackward<'_> {
    fn check(&self) {
        shape::same(self.y, self.grad.as_view());
        if let Some(bias_grad) = &self.bias_grad {
            shape::row(bias_grad.as_view(), self.y.num_cols());
        }
    }
}
