//! Attention heads of typed layers: their widths, and the result that they make together.

use super::TypedLayerConfig;
use crate::{
    Error, Matrix, Pass, Result, View, ViewMut,
    backend::ops::{Add, HeadMean, HeadMeanBackward},
    layer::{GatOptions, Linear},
};

/// Heads whose rows are concatenated, or averaged in a layer that computes scores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub(super) count: usize,
    /// Width of a head, `C`.
    pub(super) dim: usize,
    is_mean: bool,
}

impl Heads {
    /// Heads of a layer's options.
    pub(super) fn new(config: &TypedLayerConfig) -> Result<Self> {
        let options = config.own.get::<GatOptions>();
        let (count, out_dim) =
            (if config.scores { options.out_heads } else { options.heads }, config.out_dim);
        if count == 0 {
            return Err(Error::config("heads", count, "must be at least 1"));
        }
        if !config.scores && !out_dim.is_multiple_of(count) {
            let message = format!("does not divide {out_dim} columns; use a divisor");
            return Err(Error::config("heads", count, message));
        }
        let dim = if config.scores { out_dim } else { out_dim / count };
        Ok(Self { count, dim, is_mean: config.scores && count > 1 })
    }

    /// Number of columns of all heads, `H C`.
    pub(super) fn width(&self) -> usize {
        self.count * self.dim
    }

    /// Adds the result of the heads' rows, `D x H C`, to `out`, `D x O`.
    pub(super) fn add(&self, pass: &Pass, rows: View, scratch: &mut Matrix, out: ViewMut) {
        if !self.is_mean {
            return Add { alpha: 1.0, x: rows, y: out }.run(pass.backend);
        }
        scratch.resize(rows.num_rows(), self.dim);
        HeadMean { x: rows, heads: self.count, out: scratch.view_mut() }.run(pass.backend);
        Add { alpha: 1.0, x: scratch.view(), y: out }.run(pass.backend);
    }

    /// Gradient of the heads' rows, `D x H C`, from that of the result.
    pub(super) fn backward(&self, pass: &Pass, grad: View, rows_grad: &mut Matrix) {
        rows_grad.resize(grad.num_rows(), self.width());
        if self.is_mean {
            HeadMeanBackward { grad, heads: self.count, x_grad: rows_grad.view_mut() }.run(pass.backend);
        } else {
            pass.backend.copy(grad, rows_grad.view_mut());
        }
    }
}

/// Adds to the gradients of a dense layer and of its input, from that of its output.
pub(super) fn backward_linear(pass: &Pass, linear: &mut Linear, x: View, grad: View, x_grad: ViewMut) {
    linear.backward_product(pass, x, grad);
    if let Some(bias) = linear.bias_mut() {
        pass.backend.add_column_sums(grad, bias.grad.view_mut());
    }
    linear.input_grad(pass, grad, 1.0, x_grad);
}
