//! What every layer is told about the pass it is part of.

use graphmill_core::keyed;

use super::Param;
use crate::{
    Backend, View, ViewMut,
    backend::{
        Activation, Dropout,
        ops::{EpilogueBackward, EpilogueForward},
    },
};

/// What a forward or backward pass is part of.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    /// Where the arithmetic runs.
    pub backend: &'a dyn Backend,
    /// Whether dropout drops and batch norm uses the batch's statistics.
    pub training: bool,
    /// Identifies seed, step and layer: the root of every dropout mask of the pass.
    pub key: u64,
}

impl Pass<'_> {
    /// The dropout at place `site` of this pass, with probability `p` when training.
    pub fn dropout(&self, p: f32, site: u64) -> Dropout {
        if self.training && p > 0.0 {
            Dropout { p, key: keyed::key(&[self.key, site]) }
        } else {
            Dropout::NONE
        }
    }

    /// The same pass seen by its part number `part` (a layer, a head, ...).
    pub fn part(&self, part: u64) -> Self {
        Self { key: keyed::key(&[self.key, part]), ..*self }
    }
}

/// What is done to a layer's output rows last: `dropout(activation(x + bias))`, in one pass over
/// them together with the layer's own bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epilogue {
    /// The non-linearity.
    pub activation: Activation,
    /// The dropout after it.
    pub dropout: Dropout,
}

impl Epilogue {
    /// Nothing but the bias.
    pub const NONE: Self = Self { activation: Activation::Identity, dropout: Dropout::NONE };

    /// Finishes `x` (`R x O`) in place.
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

    /// From the gradient of the finished rows `y` to that of the rows before, in place (unchanged
    /// where nothing but a bias was applied); adds to the bias' gradient.
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

/// The places in a layer where dropout happens: each has its own mask ([`Pass::dropout`]).
pub mod site {
    /// The output rows.
    pub const OUTPUT: u64 = 0;
    /// The attention weights.
    pub const ATTENTION: u64 = 1;
    /// Reused rows behind the output rows, where they are finished apart.
    pub const REUSED: u64 = 2;
}
