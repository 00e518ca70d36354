//! Context of a forward or backward pass, shared by all layers.

use graphmill_core::keyed;

use super::Param;
use crate::{
    Backend, View, ViewMut,
    backend::{
        Activation, Dropout,
        ops::{EpilogueBackward, EpilogueForward},
    },
};

/// Context of a forward or backward pass.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    /// Backend that computes the operations.
    pub backend: &'a dyn Backend,
    /// If true, dropout drops values and batch norm uses the batch's statistics.
    pub training: bool,
    /// Root of every dropout mask of the pass; identifies seed, step and layer.
    pub key: u64,
}

impl Pass<'_> {
    /// Dropout at `site` of this pass, with probability `p` in training and 0 otherwise.
    pub fn dropout(&self, p: f32, site: u64) -> Dropout {
        if self.training && p > 0.0 {
            Dropout { p, key: keyed::key(&[self.key, site]) }
        } else {
            Dropout::NONE
        }
    }

    /// The same pass for part number `part` (a layer, a head, ...).
    pub fn part(&self, part: u64) -> Self {
        Self { key: keyed::key(&[self.key, part]), ..*self }
    }
}

/// Final operations on a layer's output rows, `dropout(activation(x + bias))`, applied in one pass
/// together with the layer's bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epilogue {
    /// Non-linearity.
    pub activation: Activation,
    /// Dropout after the non-linearity.
    pub dropout: Dropout,
}

impl Epilogue {
    /// No operation except the bias.
    pub const NONE: Self = Self { activation: Activation::Identity, dropout: Dropout::NONE };

    /// Applies bias, activation and dropout to `x` (`R x O`) in place.
    pub fn apply(&self, backend: &dyn Backend, bias: Option<&Param>, x: ViewMut) {
        if bias.is_some() || *self != Self::NONE {
            EpilogueForward {
                bias: bias.map(|b| b.value.view()),
                activation: self.activation,
                dropout: self.dropout,
                x,
            }
            .run(backend);
        }
    }

    /// Replaces the gradient of the finished rows `y` by that of the rows before the epilogue, and
    /// adds to the gradient of the bias. The gradient is unchanged if only a bias was applied.
    pub fn backward(&self, backend: &dyn Backend, bias: Option<&mut Param>, y: View, grad: ViewMut) {
        let bias_grad = bias.map(|b| b.grad.view_mut());
        if *self != Self::NONE {
            EpilogueBackward { activation: self.activation, dropout: self.dropout, y, grad, bias_grad }
                .run(backend);
        } else if let Some(bias_grad) = bias_grad {
            backend.add_column_sums(grad.as_view(), bias_grad);
        }
    }
}

/// Dropout sites of a layer: each has a separate mask ([`Pass::dropout`]).
pub mod site {
    /// Output rows.
    pub const OUTPUT: u64 = 0;
    /// Attention weights.
    pub const ATTENTION: u64 = 1;
    /// Reused rows after the output rows, if they are finished separately.
    pub const REUSED: u64 = 2;
}
