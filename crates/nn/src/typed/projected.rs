//! Input rows that are features times a matrix, which the first layer reads without computing them.
//!
//! # Algorithm
//!
//! For rows `x = f P + b` and a layer that sums them linearly,
//!
//! ```text
//! (sum over e of w[e] x[u]) W = (sum over e of w[e] f[u]) (P W) + (sum over e of w[e]) b W
//! ```
//!
//! so features are summed, and the product has a row for each destination in the place of each
//! source. With `G` the gradient of `P W`, those of `P` and `W` are `G W^T` and `P^T G`. The
//! gradient of the rows `x` is not needed.
//!
//! # Source
//!
//! Schlichtkrull et al., *Modeling relational data with graph convolutional networks*, ESWC 2018,
//! equation 2, whose sum is linear in its rows; the order of its products follows from that.
//!
//! # Cost
//!
//! For each relation `O(E F + D F O)` and, for the product `P W`, `O(F H O)`, in the place of
//! `O(S F H)` for the rows of each type, with as much for their gradients.

use crate::{
    Matrix, Pass, View, ViewMut,
    backend::{
        Activation, Dropout,
        Side::{Plain, Transposed},
        ops::{Add, Dense, Gemm},
    },
    layer::Linear,
};

/// Input rows of a type as a projection of features, `f P + b`.
#[derive(Clone, Copy, Debug)]
pub struct Projected<'a> {
    /// Features of the sources, `S x F`.
    pub features: View<'a>,
    /// The matrix `P`, `F x H`.
    pub weight: View<'a>,
    /// The row `b`, `1 x H`.
    pub bias: View<'a>,
}

/// Gradients of `P` and `b`, which a layer adds to.
#[derive(Clone, Debug, Default)]
pub struct ProjectionGrad {
    /// Gradient of the matrix, `F x H`.
    pub weight: Matrix,
    /// Gradient of the row, `1 x H`.
    pub bias: Matrix,
}

impl ProjectionGrad {
    /// Resizes the gradients to those of a projection, and fills them with zeros.
    pub(super) fn clear(&mut self, pass: &Pass, of: Projected) {
        for (grad, value) in [(&mut self.weight, of.weight), (&mut self.bias, of.bias)] {
            grad.resize(value.num_rows(), value.num_cols());
            pass.backend.fill(0.0, grad.view_mut());
        }
    }
}

/// `P W` and `b W`, and their gradients.
#[derive(Clone, Debug, Default)]
pub(super) struct FoldedWeight {
    pub(super) weight: Matrix,
    pub(super) bias: Matrix,
    pub(super) weight_grad: Matrix,
    pub(super) bias_grad: Matrix,
}

impl FoldedWeight {
    /// Computes both by `product`, which multiplies rows by `W`, to `O` columns.
    pub(super) fn fill(&mut self, of: Projected, cols: usize, mut product: impl FnMut(View, ViewMut)) {
        for (x, to) in [(of.weight, &mut self.weight), (of.bias, &mut self.bias)] {
            to.resize(x.num_rows(), cols);
            product(x, to.view_mut());
        }
    }

    /// Resizes the gradients to the shapes of the values.
    pub(super) fn fit_grads(&mut self) {
        self.weight_grad.resize(self.weight.num_rows(), self.weight.num_cols());
        self.bias_grad.resize(1, self.bias.num_cols());
    }

    /// Rows that were multiplied by `W`, each with the gradient of its product.
    pub(super) fn pairs<'s>(&'s self, of: Projected<'s>) -> [(View<'s>, View<'s>); 2] {
        [(of.weight, self.weight_grad.view()), (of.bias, self.bias_grad.view())]
    }

    /// Passes the gradients on to the projection, by `input_grad`, which adds the product with
    /// `W^T`.
    pub(super) fn add_to(&self, to: &mut ProjectionGrad, mut input_grad: impl FnMut(View, ViewMut)) {
        input_grad(self.weight_grad.view(), to.weight.view_mut());
        input_grad(self.bias_grad.view(), to.bias.view_mut());
    }

    /// Computes the products of projected rows, the first features, with a layer.
    pub(super) fn forward(&mut self, pass: &Pass, linear: &Linear, x: Projected, out: ViewMut) {
        self.fill(x, linear.out_dim(), |x, to| linear.forward_product(pass, x, 0.0, to));
        if let Some(bias) = linear.bias() {
            Add { alpha: 1.0, x: bias.value.view(), y: self.bias.view_mut() }.run(pass.backend);
        }
        let x = x.features.rows(0..out.num_rows());
        let (w, bias) = (self.weight.view(), Some(self.bias.view()));
        let (activation, dropout) = (Activation::Identity, Dropout::NONE);
        Dense { x, w, plus: None, beta: 0.0, bias, activation, dropout, out }.run(pass.backend);
    }

    /// Gradients of the last [`FoldedWeight::forward`], of the layer and of the projection.
    pub(super) fn backward(
        &mut self,
        pass: &Pass,
        linear: &mut Linear,
        x: Projected,
        grad: View,
        to: &mut ProjectionGrad,
    ) {
        self.fit_grads();
        let a = (x.features.rows(0..grad.num_rows()), Transposed);
        Gemm { a, b: (grad, Plain), beta: 0.0, c: self.weight_grad.view_mut() }.run(pass.backend);
        pass.backend.fill(0.0, self.bias_grad.view_mut());
        pass.backend.add_column_sums(grad, self.bias_grad.view_mut());
        if let Some(bias) = linear.bias_mut() {
            Add { alpha: 1.0, x: self.bias_grad.view(), y: bias.grad.view_mut() }.run(pass.backend);
        }
        self.pass_on(pass, linear, x, to);
    }

    /// Passes the gradients on to the layer's weight and to the projection.
    pub(super) fn pass_on(&self, pass: &Pass, linear: &mut Linear, x: Projected, to: &mut ProjectionGrad) {
        self.pairs(x).into_iter().for_each(|(x, grad)| linear.backward_product(pass, x, grad));
        self.add_to(to, |grad, to| linear.input_grad(pass, grad, 1.0, to));
    }
}
