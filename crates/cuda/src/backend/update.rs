//! Updates of parameters.

#![allow(unsafe_code, reason = "device memory and kernels")]

use graphmill_nn::backend::{
    AdamStep, SgdStep,
    ops::{AdamUpdate, SgdUpdate},
};

use super::work::Work;
use crate::{
    Result,
    kernels::{self, Late},
};

pub(super) fn adam(work: &Work, op: AdamUpdate) -> Result<()> {
    let AdamUpdate { step, grad, m, v, value } = op;
    let count = grad.num_rows() * grad.num_cols();
    let AdamStep { lr, beta1, beta2, eps, weight_decay, decoupled, correction1, correction2 } = step;
    let (grad, m, v, value) = (work.read(grad)?, work.change(m)?, work.change(v)?, work.change(value)?);
    let kernel = kernels::AdamUpdate {
        grad,
        m,
        v,
        value,
        count,
        lr: Late(lr),
        beta1,
        beta2,
        eps,
        decay: weight_decay,
        decoupled,
        correction1: Late(correction1),
        correction2: Late(correction2),
    };
    // SAFETY: all have equally many values
    unsafe { work.queue.run(count, &kernel) }
}

pub(super) fn sgd(work: &Work, op: SgdUpdate) -> Result<()> {
    let SgdUpdate { step, grad, velocity, value } = op;
    let count = grad.num_rows() * grad.num_cols();
    let SgdStep { lr, momentum, nesterov, weight_decay } = step;
    let (grad, velocity, value) = (work.read(grad)?, work.change(velocity)?, work.change(value)?);
    let (lr, decay) = (Late(lr), weight_decay);
    let kernel = kernels::SgdUpdate { grad, velocity, value, count, lr, momentum, nesterov, decay };
    // SAFETY: all have equally many values
    unsafe { work.queue.run(count, &kernel) }
}
