//! Recurrent cells.

use graphmill_core::keyed;

use crate::{
    Epilogue, Matrix, Param, Pass, View,
    backend::{
        Activation, Dropout,
        Side::{Plain, Transposed},
        cpu,
        ops::{Dense, Gemm},
    },
    layer::Linear,
};

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

/// Rows that a cell reads.
#[derive(Clone, Copy, Debug)]
pub struct CellInput<'a> {
    /// Input, `R x I`, or its last `I - M` columns if the first ones are the state.
    pub x: View<'a>,
    /// State, `R x M`.
    pub h: View<'a>,
    /// True if the input is `[h | x]`.
    pub repeats_state: bool,
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
///
/// # Cost
/// `3 (I + M) M` multiplications for each row of a gated unit. With `x = [h | rest]`, products of
/// the state with `W` and `U` are those with `W + U`, except in `n`: `M^2 x 2` fewer for each row,
/// and `M^2` fewer of `2 M^2` in a plain cell.
#[derive(Clone, Debug)]
pub struct RecurrentCell {
    kind: CellKind,
    input: Linear,
    hidden: Linear,
}

/// Matrices that a forward pass saves for its backward pass.
#[derive(Clone, Debug, Default)]
pub struct CellState {
    /// `x W + b`, which a gated unit replaces by its gates, and `h U + c`; with a repeated state,
    /// `rest W + b`, and `h` times the joined weights.
    parts: [Matrix; 2],
    /// Gradients of both products.
    grads: [Matrix; 2],
    /// Weight and bias of a repeated state: `W + U` of the gates, then `U` and `W` of `n`.
    joined: [Matrix; 2],
    joined_grads: [Matrix; 2],
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

    /// Computes the next states, `R x M`; `out` is resized.
    pub fn forward(&self, pass: &Pass, input: CellInput, saved: &mut CellState, out: &mut Matrix) {
        let (width, all) = (self.width(), self.hidden.out_dim());
        let CellInput { x, h, repeats_state } = input;
        let CellState { parts: [of_x, of_h], joined, .. } = saved;
        of_x.resize(x.num_rows(), all);
        if repeats_state {
            self.join(joined);
            of_h.resize(h.num_rows(), joined[0].num_cols());
            let rest = self.input.weight().value.rows(width..self.input.in_dim());
            let bias = self.input.bias().map(|bias| bias.value.view());
            dense(pass, x, rest, bias, of_x);
            dense(pass, h, joined[0].view(), Some(joined[1].view()), of_h);
        } else {
            of_h.resize(h.num_rows(), all);
            self.input.forward(pass, x, 0.0, Epilogue::NONE, of_x.view_mut());
            self.hidden.forward(pass, h, 0.0, Epilogue::NONE, of_h.view_mut());
        }
        out.resize(h.num_rows(), width);
        let (of_x, of_h, out) = (of_x.view_mut().host(), of_h.view().host(), out.view_mut().host());
        match self.kind {
            CellKind::Gru => cpu::gru(width, of_x, of_h, h.host(), out),
            CellKind::Rnn => cpu::rnn(of_x, of_h, out),
        }
    }

    /// Weights of the state that the input repeats, and their biases.
    fn join(&self, [weight, bias]: &mut [Matrix; 2]) {
        let (width, all) = (self.width(), self.hidden.out_dim());
        let extra = if self.kind == CellKind::Gru { width } else { 0 };
        weight.resize(width, all + extra);
        let (of_x, of_h) =
            (self.input.weight().value.view().host(), self.hidden.weight().value.view().host());
        let rows = weight.view_mut().host().chunks_exact_mut((all + extra).max(1));
        for (to, (x, h)) in rows.zip(of_x.chunks_exact(all.max(1)).zip(of_h.chunks_exact(all.max(1)))) {
            let summed = all - extra;
            to[..summed].iter_mut().zip(x).zip(h).for_each(|((to, x), h)| *to = x + h);
            to[summed..all].copy_from_slice(&h[summed..]);
            to[all..].copy_from_slice(&x[summed..]);
        }
        bias.resize(1, all + extra);
        let to = bias.view_mut().host();
        to.fill(0.0);
        if let Some(bias) = self.hidden.bias() {
            to[..all].copy_from_slice(bias.value.view().host());
        }
    }

    /// Adds to the gradients of all parameters, from the gradient of the output (`R x M`); resizes
    /// and overwrites that of the input's `x`, if requested.
    pub fn backward(
        &mut self,
        pass: &Pass,
        input: CellInput,
        saved: &mut CellState,
        grad: View,
        x_grad: Option<&mut Matrix>,
    ) {
        let (kind, width, all) = (self.kind, self.width(), self.hidden.out_dim());
        let CellInput { x, h, repeats_state } = input;
        let CellState { parts: [of_x, of_h], grads: [to_x, to_h], joined_grads, .. } = saved;
        to_x.resize(h.num_rows(), all);
        to_h.resize(h.num_rows(), of_h.num_cols());
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
        let first = if repeats_state { width } else { 0 };
        let rest = first..self.input.in_dim();
        let c = self.input.weight_mut().grad.rows_mut(rest.clone());
        Gemm { a: (x, Transposed), b: (to_x.view(), Plain), beta: 1.0, c }.run(pass.backend);
        if let Some(bias) = self.input.bias_mut() {
            pass.backend.add_column_sums(to_x.view(), bias.grad.view_mut());
        }
        if repeats_state {
            self.backward_joined(pass, h, to_h.view(), joined_grads);
        } else {
            self.hidden.backward_product(pass, h, to_h.view());
            if let Some(bias) = self.hidden.bias_mut() {
                pass.backend.add_column_sums(to_h.view(), bias.grad.view_mut());
            }
        }
        if let Some(x_grad) = x_grad {
            x_grad.resize(x.num_rows(), x.num_cols());
            let (a, b) = ((to_x.view(), Plain), (self.input.weight().value.rows(rest), Transposed));
            Gemm { a, b, beta: 0.0, c: x_grad.view_mut() }.run(pass.backend);
        }
    }

    /// Adds the gradient of the joined weights and biases to those that they are made of.
    fn backward_joined(&mut self, pass: &Pass, h: View, to_h: View, [weight, bias]: &mut [Matrix; 2]) {
        let (width, all, joined) = (self.width(), self.hidden.out_dim(), to_h.num_cols());
        weight.resize(width, joined);
        Gemm { a: (h, Transposed), b: (to_h, Plain), beta: 0.0, c: weight.view_mut() }.run(pass.backend);
        bias.resize(1, joined);
        pass.backend.fill(0.0, bias.view_mut());
        pass.backend.add_column_sums(to_h, bias.view_mut());
        let add = |to: &mut [f32], from: &[f32]| to.iter_mut().zip(from).for_each(|(to, x)| *to += x);
        let of_x = self.input.weight_mut().grad.view_mut().host().chunks_exact_mut(all.max(1));
        let of_h = self.hidden.weight_mut().grad.view_mut().host().chunks_exact_mut(all.max(1));
        let summed = 2 * all - joined;
        for (from, (x, h)) in weight.view().host().chunks_exact(joined.max(1)).zip(of_x.zip(of_h)) {
            add(&mut x[..summed], from);
            add(&mut x[summed..], &from[all..]);
            add(h, from);
        }
        if let Some(to) = self.hidden.bias_mut() {
            add(to.grad.view_mut().host(), bias.view().host());
        }
    }
}

/// Computes `out = x w + bias`.
fn dense(pass: &Pass, x: View, w: View, bias: Option<View>, out: &mut Matrix) {
    let (activation, dropout) = (Activation::Identity, Dropout::NONE);
    Dense { x, w, plus: None, beta: 0.0, bias, activation, dropout, out: out.view_mut() }.run(pass.backend);
}
