//! Dense layers of the channels of a patch, and the encoding of numbers of occurrences.

use graphmill_core::keyed;

use super::pair_tokens::Token;
use crate::{
    Epilogue, Matrix, Param, Pass, View,
    backend::{Activation, Dropout},
    layer::Linear,
};

const RELU: Epilogue = Epilogue { activation: Activation::Relu, dropout: Dropout::NONE };

/// `y = x W + b`, or `b` alone for rows without columns.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    linear: Option<Linear>,
    bias: Param,
}

impl Channel {
    /// Creates a layer from `width` to `out` columns, with the names of weight and bias.
    pub(super) fn new([weight, bias]: [&'static str; 2], width: usize, out: usize, key: u64) -> Self {
        let linear = || Linear::named([weight, ""], width, out, false, key);
        Self { linear: (width > 0).then(linear), bias: Param::zeros(bias, 1, out) }
    }

    /// Visits weight and bias.
    pub(super) fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.linear.iter().for_each(|linear| linear.visit(see));
        see(&self.bias);
    }

    /// Visits weight and bias mutably.
    pub(super) fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.linear.iter_mut().for_each(|linear| linear.visit_mut(see));
        see(&mut self.bias);
    }

    /// Computes `out`, resized to the rows of `x`.
    pub(super) fn forward(&self, pass: &Pass, x: View, out: &mut Matrix) {
        out.resize(x.num_rows(), self.bias.value.num_cols());
        match &self.linear {
            Some(linear) => linear.forward_product(pass, x, 0.0, out.view_mut()),
            None => pass.backend.fill(0.0, out.view_mut()),
        }
        Epilogue::NONE.apply(pass.backend, Some(&self.bias), out.view_mut());
    }

    /// Adds to the gradients of weight and bias. `x_grad`, if requested, is resized to the shape of
    /// `x` and overwritten.
    pub(super) fn backward(&mut self, pass: &Pass, x: View, grad: View, x_grad: Option<&mut Matrix>) {
        pass.backend.add_column_sums(grad, self.bias.grad.view_mut());
        if let Some(linear) = &mut self.linear {
            linear.backward_product(pass, x, grad);
            if let Some(x_grad) = x_grad {
                x_grad.resize(x.num_rows(), x.num_cols());
                linear.input_grad(pass, grad, 0.0, x_grad.view_mut());
            }
        }
    }
}

/// Encoding of a number of occurrences `c` as a row of `C` columns,
/// `f(c) = relu(c w + b_0) W_1 + b_1`.
///
/// The rows of all numbers up to the largest are computed once for a batch.
#[derive(Clone, Debug)]
pub(super) struct CountEncoding {
    first: Linear,
    second: Linear,
}

/// Matrices of a pass of a [`CountEncoding`].
#[derive(Clone, Debug, Default)]
pub(super) struct CountState {
    /// The numbers, `N x 1`, and the rows of the layers.
    numbers: Matrix,
    hidden: Matrix,
    encoded: Matrix,
    grad: Matrix,
    hidden_grad: Matrix,
}

impl CountEncoding {
    /// Creates an encoding of `width` columns.
    pub(super) fn new(width: usize, key: u64) -> Self {
        let key = |part| keyed::key(&[key, part]);
        Self {
            first: Linear::named(["common.0.weight", "common.0.bias"], 1, width, true, key(0)),
            second: Linear::named(["common.1.weight", "common.1.bias"], width, width, true, key(1)),
        }
    }

    /// Visits every parameter.
    pub(super) fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        [&self.first, &self.second].into_iter().for_each(|linear| linear.visit(see));
    }

    /// Visits every parameter mutably.
    pub(super) fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        [&mut self.first, &mut self.second].into_iter().for_each(|linear| linear.visit_mut(see));
    }

    /// Encodes the numbers from 0 to `largest`.
    pub(super) fn forward(&self, pass: &Pass, largest: u32, state: &mut CountState) {
        let CountState { numbers, hidden, encoded, .. } = state;
        let (count, width) = (largest as usize + 1, self.first.out_dim());
        numbers.resize(count, 1);
        numbers.view_mut().host().iter_mut().enumerate().for_each(|(c, x)| *x = c as f32);
        [&mut *hidden, encoded].into_iter().for_each(|to| to.resize(count, width));
        self.first.forward(pass, numbers.view(), 0.0, RELU, hidden.view_mut());
        self.second.forward(pass, hidden.view(), 0.0, Epilogue::NONE, encoded.view_mut());
    }

    /// Adds to the gradients of the parameters. `grad` has a line of `C` columns for each token.
    pub(super) fn backward(&mut self, pass: &Pass, tokens: &[Token], grad: View, state: &mut CountState) {
        let CountState { numbers, hidden, encoded, grad: sums, hidden_grad } = state;
        let width = self.first.out_dim();
        sums.resize(encoded.num_rows(), width);
        let to = sums.view_mut().host();
        to.fill(0.0);
        // tokens in their order
        for (token, line) in tokens.iter().zip(grad.host().chunks_exact(width)) {
            if token.node().is_some() {
                for count in token.counts {
                    let to = &mut to[count as usize * width..][..width];
                    to.iter_mut().zip(line).for_each(|(to, g)| *to += g);
                }
            }
        }
        let out = encoded.view();
        self.second.backward(pass, hidden.view(), out, Epilogue::NONE, sums, Some(hidden_grad));
        self.first.backward(pass, numbers.view(), hidden.view(), RELU, hidden_grad, None);
    }
}

impl CountState {
    /// Writes the sum of the encodings of two numbers to `to`.
    pub(super) fn sum(&self, counts: [u32; 2], to: &mut [f32]) {
        let encoded = self.encoded.view().host();
        let [a, b] = counts.map(|count| &encoded[count as usize * to.len()..][..to.len()]);
        to.iter_mut().zip(a).zip(b).for_each(|((to, a), b)| *to = a + b);
    }
}
