//! Steps of optimizers.

use super::{Operation, shape};
use crate::{
    View, ViewMut,
    backend::{AdamStep, SgdStep},
};

/// One step of Adam or AdamW (Kingma and Ba, 2015; Loshchilov and Hutter, 2019) on a parameter:
///
/// ```text
/// g = grad + weight_decay value                       (Adam; AdamW shrinks the value instead)
/// m = beta1 m + (1 - beta1) g
/// v = beta2 v + (1 - beta2) g^2
/// value -= lr m / correction1 / (sqrt(v / correction2) + eps)
/// ```
#[derive(Debug)]
pub struct AdamUpdate<'a> {
    /// Parameters of the step.
    pub step: AdamStep,
    /// Gradient, `R x F`.
    pub grad: View<'a>,
    /// First moment, in place.
    pub m: ViewMut<'a>,
    /// Second moment, in place.
    pub v: ViewMut<'a>,
    /// Parameter, in place.
    pub value: ViewMut<'a>,
}

impl Operation for AdamUpdate<'_> {
    fn check(&self) {
        for x in [&self.m, &self.v, &self.value] {
            shape::same(self.grad, x.as_view());
        }
    }
}

/// One step of SGD with momentum on a parameter:
///
/// ```text
/// g = grad + weight_decay value
/// velocity = momentum velocity + g
/// value -= lr velocity                                (Nesterov: lr (g + momentum velocity))
/// ```
#[derive(Debug)]
pub struct SgdUpdate<'a> {
    /// Parameters of the step.
    pub step: SgdStep,
    /// Gradient, `R x F`.
    pub grad: View<'a>,
    /// Velocity, in place.
    pub velocity: ViewMut<'a>,
    /// Parameter, in place.
    pub value: ViewMut<'a>,
}

impl Operation for SgdUpdate<'_> {
    fn check(&self) {
        for x in [&self.velocity, &self.value] {
            shape::same(self.grad, x.as_view());
        }
    }
}
