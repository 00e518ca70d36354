//! Updates of parameters.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_nn::backend::{
    AdamStep, SgdStep,
    ops::{AdamUpdate, SgdUpdate},
};

use super::work::Work;
use crate::{Result, arguments, device::Late};

pub(super) fn adam(work: &Work, op: AdamUpdate) -> Result<()> {
    let AdamUpdate { step, grad, m, v, value } = op;
    let count = grad.num_rows() * grad.num_cols();
    let AdamStep { lr, beta1, beta2, eps, weight_decay, decoupled, correction1, correction2 } = step;
    let (grad, m, v, value) = (work.read(grad)?, work.change(m)?, work.change(v)?, work.change(value)?);
    let decoupled = u32::from(decoupled);
    #[rustfmt::skip]
    let arguments = arguments![
        grad, m, v, value, count, Late(lr), beta1, beta2, eps, weight_decay, decoupled, Late(correction1),
        Late(correction2),
    ];
    // SAFETY: all have equally many values
    unsafe { work.queue.run("adam_update", count, arguments) }
}

pub(super) fn sgd(work: &Work, op: SgdUpdate) -> Result<()> {
    let SgdUpdate { step, grad, velocity, value } = op;
    let count = grad.num_rows() * grad.num_cols();
    let SgdStep { lr, momentum, nesterov, weight_decay } = step;
    let (grad, velocity, value) = (work.read(grad)?, work.change(velocity)?, work.change(value)?);
    let arguments =
        arguments![grad, velocity, value, count, Late(lr), momentum, u32::from(nesterov), weight_decay];
    // SAFETY: all have equally many values
    unsafe { work.queue.run("sgd_update", count, arguments) }
}
