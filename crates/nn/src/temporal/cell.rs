//! Recurrent cells.

use graphmill_core::keyed;

use crate::{Epilogue, Matrix, Param, Pass, View, backend::cpu, layer::Linear};

/// Formula of a [`RecurrentCell`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellKind {
    /// The gated recurrent unit (Cho et al., *Learning phrase representations using RNN
    /// encoder-decoder*, EMNLP 2014), as in TGN.
    Gru,
    /// The plain cell of Elman (*Finding structure in time*, Cognitive Science 1990), as in JODIE.
    Rnn,
}

impl CellKind {
    /// Number of parts of width `M` of both products.
    fn parts(self) -> usize {
        match self {
            Self::Gru => 3,
            Self::Rnn => 1,
        }
    }

    /// Names of weight and bias, of the input and of the state.
    fn names(self) -> [[&'static str; 2]; 2] {
        match self {
            Self::Gru => [["gru.input.weight", "gru.input.bias"], ["gru.hidden.weight", "gru.hidden.bias"]],
            Self::Rnn => [["rnn.input.weight", "rnn.input.bias"], ["rnn.hidden.weight", "rnn.hidden.bias"]],
        }
    }
}

/// A recurrent cell, in PyTorch's form. With `X = x W + b` and `H = h U + c`:
///
/// ```text
/// gru: r = sigmoid(X_r + H_r), z = sigmoid(X_z + H_z), n = tanh(X_n + r * H_n)
///      out = (1 - z) * n + z * h
/// rnn: out = tanh(X + H)
/// ```
///
/// # Shapes
/// - `gru.input.weight`: `I x 3M` (r, z, n); `gru.hidden.weight`: `M x 3M`; biases: `1 x 3M`
/// - `rnn.input.weight`: `I x M`; `rnn.hidden.weight`: `M x M`; biases: `1 x M`. All begin uniform
///   in `[-1 / sqrt(M), 1 / sqrt(M)]`, as in PyTorch: with larger weights, states keep the noise of
///   old inputs for long.
#[derive(Clone, Debug)]
pub struct RecurrentCell {
    kind: CellKind,
    input: Linear,
    hidden: Linear,
}

/// Matrices that a forward pass saves for its backward pass.
#[derive(Clone, Debug, Default)]
pub struct CellState {
    /// `x W + b`, which a gated unit replaces by its gates, and `h U + c`.
    parts: [Matrix; 2],
    /// Gradients of both products.
    grads: [Matrix; 2],
}

impl RecurrentCell {
    /// Creates a cell for inputs of width `I` and states of width `M`.
    pub fn new(kind: CellKind, input: usize, state: usize, key: u64) -> Self {
        let (key, [of_input, of_state]) = (|part| keyed::key(&[key, part]), kind.names());
        let width = kind.parts() * state;
        let mut cell = Self {
            kind,
            input: Linear::named(of_input, input, width, true, key(0)),
            hidden: Linear::named(of_state, state, width, true, key(1)),
        };
        if kind == CellKind::Rnn {
            let (bound, mut stream) = (1.0 / (state.max(1) as f64).sqrt(), keyed::Stream::new(key(2)));
            cell.visit_mut(&mut |param| {
                let values = param.value.view_mut().host().iter_mut();
                values.for_each(|x| *x = (bound * (2.0 * stream.uniform() - 1.0)) as f32);
            });
        }
        cell
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

    /// Visits every parameter mutably, in the order of [`RecurrentCell::visit`].
    pub fn visit_mut(&mut self, see: &mut dyn FnMut(&mut Param)) {
        self.input.visit_mut(see);
        self.hidden.visit_mut(see);
    }

    /// Computes the next states of `h` (`R x M`) from `x` (`R x I`); `out` is resized to `R x M`.
    pub fn forward(&self, pass: &Pass, x: View, h: View, saved: &mut CellState, out: &mut Matrix) {
        let (width, all) = (self.width(), self.hidden.out_dim());
        let [of_x, of_h] = &mut saved.parts;
        for (linear, rows, part) in [(&self.input, x, &mut *of_x), (&self.hidden, h, &mut *of_h)] {
            part.resize(rows.num_rows(), all);
            linear.forward(pass, rows, 0.0, Epilogue::NONE, part.view_mut());
        }
        out.resize(h.num_rows(), width);
        let (of_x, of_h, out) = (of_x.view_mut().host(), of_h.view().host(), out.view_mut().host());
        match self.kind {
            CellKind::Gru => cpu::gru(width, of_x, of_h, h.host(), out),
            CellKind::Rnn => cpu::rnn(of_x, of_h, out),
        }
    }

    /// Adds to the gradients of all parameters, from the gradient of the output (`R x M`); resizes
    /// and overwrites that of the input, if requested.
    pub fn backward(
        &mut self,
        pass: &Pass,
        [x, h]: [View; 2],
        saved: &mut CellState,
        grad: View,
        x_grad: Option<&mut Matrix>,
    ) {
        let (kind, width, all) = (self.kind, self.width(), self.hidden.out_dim());
        let CellState { parts: [of_x, of_h], grads: [to_x, to_h] } = saved;
        [&mut *to_x, to_h].into_iter().for_each(|to| to.resize(h.num_rows(), all));
        let (of_x, of_h, grad) = (of_x.view().host(), of_h.view().host(), grad.host());
        let to = [to_x.view_mut().host(), to_h.view_mut().host()];
        match kind {
            CellKind::Gru => cpu::gru_backward(width, [of_x, of_h, h.host(), grad], to),
            CellKind::Rnn => {
                let [to_x, to_h] = to;
                cpu::rnn_backward(of_x, of_h, grad, to_x);
                to_h.copy_from_slice(to_x);
            }
        }
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
