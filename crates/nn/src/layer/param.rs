//! Learnable matrices and their initial values.

use graphmill_core::keyed;

use super::init::Init;
use crate::{Backend, Matrix};

/// Learnable matrix with its gradient.
#[derive(Clone, Debug)]
pub struct Param {
    /// Name, unique within its layer: "weight", "bias", ...
    pub name: &'static str,
    /// Value.
    pub value: Matrix,
    /// Gradient, of the same shape; backward passes add to it.
    pub grad: Matrix,
    /// False for running statistics, which are saved with the model but never updated by an
    /// optimiser.
    pub trainable: bool,
    /// Widths of the input and output rows, for the weight of a dense layer.
    fans: Option<[usize; 2]>,
}

impl Param {
    /// Creates a parameter of zeros.
    pub fn zeros(name: &'static str, rows: usize, cols: usize) -> Self {
        let (value, grad) = (Matrix::zeros(rows, cols), Matrix::zeros(rows, cols));
        Self { name, value, grad, trainable: true, fans: None }
    }

    /// Creates a parameter of one repeated value.
    pub fn constant(name: &'static str, rows: usize, cols: usize, value: f32) -> Self {
        let mut param = Self::zeros(name, rows, cols);
        param.value.view_mut().host().fill(value);
        param
    }

    /// Creates a parameter that is uniform in `[-b, b]` with `b = sqrt(6 / (fan_in + fan_out))`
    /// (Glorot and Bengio, 2010).
    pub fn glorot(
        name: &'static str,
        rows: usize,
        cols: usize,
        fan_in: usize,
        fan_out: usize,
        key: u64,
    ) -> Self {
        let mut param = Self::zeros(name, rows, cols);
        let bound = Init::Glorot.bound(fan_in as f64, fan_out as f64);
        let mut stream = keyed::Stream::new(key);
        for x in param.value.view_mut().host() {
            *x = (bound * (2.0 * stream.uniform() - 1.0)) as f32;
        }
        param
    }

    /// [`Param::glorot`] for a dense layer, which [`Param::rescale`] rescales.
    pub(super) fn dense(name: &'static str, rows: usize, cols: usize, fan_out: usize, key: u64) -> Self {
        Self { fans: Some([rows, fan_out]), ..Self::glorot(name, rows, cols, rows, fan_out, key) }
    }

    /// Rescales the initial weights of a dense layer, drawn by [`Param::glorot`], to the bound of
    /// `init`. Other parameters are unchanged.
    pub(crate) fn rescale(&mut self, init: Init) {
        let Some([fan_in, fan_out]) = self.fans.map(|fans| fans.map(|fan| fan as f64)) else { return };
        let by = (init.bound(fan_in, fan_out) / Init::Glorot.bound(fan_in, fan_out)) as f32;
        self.value.view_mut().host().iter_mut().for_each(|x| *x *= by);
    }

    /// Sets the gradient to zero, even if it is NaN (a product with 0 would preserve NaN).
    pub fn zero_grad(&mut self, backend: &dyn Backend) {
        backend.fill(0.0, self.grad.view_mut());
    }

    /// Excludes the parameter from updates by the optimiser.
    pub fn frozen(mut self) -> Self {
        self.trainable = false;
        self
    }
}
