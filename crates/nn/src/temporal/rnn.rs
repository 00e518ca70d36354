//! Plain recurrent cell.

use graphmill_core::keyed;
use rayon::prelude::*;

use crate::{Epilogue, Matrix, Param, Pass, View, layer::Linear};

/// The recurrent cell of Elman (*Finding structure in time*, Cognitive Science 1990), in PyTorch's
/// form:
///
/// ```text
/// out = tanh(x W + b + h U + c)
/// ```
///
/// # Shapes
/// - `rnn.input.weight`: `I x M`; `rnn.hidden.weight`: `M x M`; biases: `1 x M`
#[derive(Clone, Debug)]
pub struct RnnCell {
    input: Linear,
    hidden: Linear,
}

/// Matrices that a forward pass saves for its backward pass.
#[derive(Clone, Debug, Default)]
pub struct RnnState {
    /// Output, `R x M`.
    out: Matrix,
    /// Gradient before the activation, `R x M`.
    grad: Matrix,
}

impl RnnCell {
    /// Creates a cell for inputs of width `I` and states of width `M`.
    pub fn new(input: usize, state: usize, key: u64) -> Self {
        let key = |part| keyed::key(&[key, part]);
        Self {
            input: Linear::named(["rnn.input.weight", "rnn.input.bias"], input, state, true, key(0)),
            hidden: Linear::named(["rnn.hidden.weight", "rnn.hidden.bias"], state, state, true, key(1)),
        }
    }

    /// Width of the states, `M`.
    pub fn width(&self) -> usize {
        self.hidden.in_dim()
    }

    /// Visits every parameter, always in the same order.
    pub fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Param)) {
        self.input.visit(see);
        self.hidden.visit(see);
    }

    /// Visits every parameter mutably, in the order of [`RnnCell::visit`].
    pub fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.input.visit_mut(see);
        self.hidden.visit_mut(see);
    }

    /// Computes the next states of `h` (`R x M`) from `x` (`R x I`); `out` is resized to `R x M`.
    pub fn forward(&self, pass: &Pass, x: View, h: View, saved: &mut RnnState, out: &mut Matrix) {
        out.resize(h.num_rows(), self.width());
        self.input.forward(pass, x, 0.0, Epilogue::NONE, out.view_mut());
        self.hidden.forward(pass, h, 1.0, Epilogue::NONE, out.view_mut());
        out.view_mut().host().par_iter_mut().with_min_len(1 << 12).for_each(|x| *x = x.tanh());
        saved.out.resize(out.num_rows(), out.num_cols());
        saved.out.view_mut().host().copy_from_slice(out.view().host());
    }

    /// Adds to the gradients of all parameters, from the gradient of the output (`R x M`); resizes
    /// and overwrites that of the input, if requested.
    pub fn backward(
        &mut self,
        pass: &Pass,
        [x, h]: [View; 2],
        saved: &mut RnnState,
        grad: View,
        x_grad: Option<&mut Matrix>,
    ) {
        let RnnState { out, grad: before } = saved;
        before.resize(out.num_rows(), out.num_cols());
        let values = out.view().host().iter().zip(grad.host());
        before.view_mut().host().iter_mut().zip(values).for_each(|(to, (y, g))| *to = g * (1.0 - y * y));
        for (linear, rows) in [(&mut self.input, x), (&mut self.hidden, h)] {
            linear.backward_product(pass, rows, before.view());
            if let Some(bias) = linear.bias_mut() {
                pass.backend.add_column_sums(before.view(), bias.grad.view_mut());
            }
        }
        if let Some(x_grad) = x_grad {
            x_grad.resize(x.num_rows(), x.num_cols());
            self.input.input_grad(pass, before.view(), 0.0, x_grad.view_mut());
        }
    }
}
