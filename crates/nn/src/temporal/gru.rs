//! Gated recurrent unit.

use graphmill_core::keyed;
use rayon::prelude::*;

use crate::{Epilogue, Matrix, Param, Pass, View, layer::Linear};

/// Number of rows of a task.
const MIN_TASK_LEN: usize = 32;

/// The gated recurrent unit (Cho et al., *Learning phrase representations using RNN
/// encoder-decoder*, EMNLP 2014), in PyTorch's form:
///
/// ```text
/// r = sigmoid(x W_r + b_r + h U_r + c_r)
/// z = sigmoid(x W_z + b_z + h U_z + c_z)
/// n = tanh(x W_n + b_n + r * (h U_n + c_n))
/// out = (1 - z) * n + z * h
/// ```
///
/// # Shapes
/// - `gru.input.weight`: `I x 3M` (r, z, n); `gru.hidden.weight`: `M x 3M`; biases: `1 x 3M`
#[derive(Clone, Debug)]
pub struct GruCell {
    input: Linear,
    hidden: Linear,
}

/// Matrices that a forward pass saves for its backward pass.
#[derive(Clone, Debug, Default)]
pub struct GruState {
    /// `x W + b` and `h U + c`, `R x 3M`, and their gradients.
    parts: [Matrix; 2],
    grads: [Matrix; 2],
}

/// The three gates of an element.
struct Gates {
    reset: f32,
    update: f32,
    new: f32,
}

/// Gates of column `c` from both parts of a row.
fn gates(x: &[f32], h: &[f32], c: usize, width: usize) -> Gates {
    let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
    let reset = sigmoid(x[c] + h[c]);
    let update = sigmoid(x[width + c] + h[width + c]);
    Gates { reset, update, new: (x[2 * width + c] + reset * h[2 * width + c]).tanh() }
}

impl GruCell {
    /// Creates a cell for inputs of width `I` and states of width `M`.
    pub fn new(input: usize, state: usize, key: u64) -> Self {
        let key = |part| keyed::key(&[key, part]);
        Self {
            input: Linear::named(["gru.input.weight", "gru.input.bias"], input, 3 * state, true, key(0)),
            hidden: Linear::named(["gru.hidden.weight", "gru.hidden.bias"], state, 3 * state, true, key(1)),
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

    /// Visits every parameter mutably, in the order of [`GruCell::visit`].
    pub fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.input.visit_mut(see);
        self.hidden.visit_mut(see);
    }

    /// Computes the next states of `h` (`R x M`) from `x` (`R x I`); `out` is resized to `R x M`.
    pub fn forward(&self, pass: &Pass, x: View, h: View, saved: &mut GruState, out: &mut Matrix) {
        let width = self.width();
        let [of_x, of_h] = &mut saved.parts;
        for (linear, rows, part) in [(&self.input, x, &mut *of_x), (&self.hidden, h, &mut *of_h)] {
            part.resize(rows.num_rows(), 3 * width);
            linear.forward(pass, rows, 0.0, Epilogue::NONE, part.view_mut());
        }
        out.resize(h.num_rows(), width);
        let (of_x, of_h, h) = (of_x.view().host(), of_h.view().host(), h.host());
        let rows = out.view_mut().host().par_chunks_mut(width.max(1)).enumerate();
        rows.with_min_len(MIN_TASK_LEN).for_each(|(r, out)| {
            let parts = 3 * r * width..3 * (r + 1) * width;
            let (x, h_part) = (&of_x[parts.clone()], &of_h[parts]);
            for (c, out) in out.iter_mut().enumerate() {
                let Gates { update, new, .. } = gates(x, h_part, c, width);
                *out = (1.0 - update) * new + update * h[r * width + c];
            }
        });
    }

    /// Adds to the gradients of all parameters, from the gradient of the output (`R x M`); resizes
    /// and overwrites that of the input, if requested.
    pub fn backward(
        &mut self,
        pass: &Pass,
        [x, h]: [View; 2],
        saved: &mut GruState,
        grad: View,
        x_grad: Option<&mut Matrix>,
    ) {
        let width = self.width();
        let GruState { parts: [of_x, of_h], grads: [to_x, to_h] } = saved;
        [&mut *to_x, to_h].into_iter().for_each(|to| to.resize(h.num_rows(), 3 * width));
        let (of_x, of_h, states, grad) = (of_x.view().host(), of_h.view().host(), h.host(), grad.host());
        let rows = to_x.view_mut().host().par_chunks_mut(3 * width.max(1));
        let rows = rows.zip(to_h.view_mut().host().par_chunks_mut(3 * width.max(1))).enumerate();
        rows.with_min_len(MIN_TASK_LEN).for_each(|(r, (to_x, to_h))| {
            let parts = 3 * r * width..3 * (r + 1) * width;
            let (x, h_part) = (&of_x[parts.clone()], &of_h[parts]);
            for c in 0..width {
                let Gates { reset, update, new } = gates(x, h_part, c, width);
                let (g, h) = (grad[r * width + c], states[r * width + c]);
                let to_new = g * (1.0 - update) * (1.0 - new * new);
                let to_update = g * (h - new) * update * (1.0 - update);
                let to_reset = to_new * h_part[2 * width + c] * reset * (1.0 - reset);
                for (at, of_x, of_h) in [
                    (c, to_reset, to_reset),
                    (width + c, to_update, to_update),
                    (2 * width + c, to_new, to_new * reset),
                ] {
                    (to_x[at], to_h[at]) = (of_x, of_h);
                }
            }
        });
        for (linear, rows, grad) in [(&mut self.input, x, &*to_x), (&mut self.hidden, h, &*to_h)] {
            linear.backward_product(pass, rows, grad.view());
            if let Some(bias) = linear.bias_mut() {
                pass.backend.add_column_sums(grad.view(), bias.grad.view_mut());
            }
        }
        if let Some(x_grad) = x_grad {
            x_grad.resize(x.num_rows(), x.num_cols());
            self.input.input_grad(pass, to_x.view(), 0.0, x_grad.view_mut());
        }
    }
}
