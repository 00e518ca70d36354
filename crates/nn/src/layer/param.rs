//! Learnable matrices and their first values.

use graphmill_graph::keyed;

use crate::{Backend, Matrix};

/// A learnable matrix with its gradient.
#[derive(Clone, Debug)]
pub struct Param {
    /// Name, unique within its layer: "weight", "bias", ...
    pub name: &'static str,
    /// The value.
    pub value: Matrix,
    /// The gradient, same shape; backward passes add to it.
    pub grad: Matrix,
    /// False for running statistics: saved with the model, never updated by an optimiser.
    pub trainable: bool,
}

impl Param {
    /// All zeros.
    pub fn zeros(name: &'static str, rows: usize, cols: usize) -> Self {
        Self { name, value: Matrix::zeros(rows, cols), grad: Matrix::zeros(rows, cols), trainable: true }
    }

    /// The same value everywhere.
    pub fn constant(name: &'static str, rows: usize, cols: usize, value: f32) -> Self {
        let mut param = Self::zeros(name, rows, cols);
        param.value.view_mut().host().fill(value);
        param
    }

    /// Uniform in `[-b, b]` with `b = sqrt(6 / (fan_in + fan_out))` (Glorot and Bengio, 2010).
    pub fn glorot(
        name: &'static str,
        rows: usize,
        cols: usize,
        fan_in: usize,
        fan_out: usize,
        key: u64,
    ) -> Self {
        let mut param = Self::zeros(name, rows, cols);
        let bound = (6.0 / (fan_in + fan_out).max(1) as f64).sqrt();
        let mut stream = keyed::Stream::new(key);
        for x in param.value.view_mut().host() {
            *x = (bound * (2.0 * stream.uniform() - 1.0)) as f32;
        }
        param
    }

    /// Sets the gradient to zero, whatever it was (a product with 0 would keep a NaN).
    pub fn zero_grad(&mut self, backend: &dyn Backend) {
        backend.fill(0.0, self.grad.view_mut());
    }

    /// Keeps the value out of the optimiser's hands.
    pub fn frozen(mut self) -> Self {
        self.trainable = false;
        self
    }
}
