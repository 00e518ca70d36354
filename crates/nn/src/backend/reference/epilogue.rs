//! Bias, activation and dropout.

use super::{at, leaky, set};
use crate::backend::{
    Activation, dropped,
    ops::{EpilogueBackward, EpilogueForward},
};

fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Identity => x,
        // this form preserves NaN
        Activation::Relu => {
            if x <= 0.0 {
                0.0
            } else {
                x
            }
        }
        Activation::Elu if x > 0.0 => x,
        Activation::Elu => x.exp_m1(),
        Activation::LeakyRelu => leaky(x, 0.01),
    }
}

/// Derivative of an activation, computed from its output.
fn slope_at(activation: Activation, y: f64) -> f64 {
    match activation {
        Activation::Identity => 1.0,
        _ if y > 0.0 => 1.0,
        Activation::Relu => 0.0,
        Activation::Elu => y + 1.0,
        Activation::LeakyRelu => 0.01,
    }
}

pub(super) fn epilogue(op: EpilogueForward) {
    let EpilogueForward { bias, activation, dropout, x } = op;
    set(x, |r, c, old| {
        if dropped(dropout, r, c) {
            return 0.0;
        }
        let x = f64::from(old) + bias.map_or(0.0, |b| at(b, 0, c));
        f64::from(dropout.scale()) * activate(activation, x)
    });
}

pub(super) fn epilogue_backward(op: EpilogueBackward) {
    let EpilogueBackward { activation, dropout, y, mut grad, bias_grad } = op;
    let scale = f64::from(dropout.scale());
    set(grad.reborrow(), |r, c, old| {
        if dropped(dropout, r, c) {
            return 0.0;
        }
        f64::from(old) * scale * slope_at(activation, at(y, r, c) / scale)
    });
    if let Some(bias_grad) = bias_grad {
        super::rows::add_column_sums(grad.as_view(), bias_grad);
    }
}
