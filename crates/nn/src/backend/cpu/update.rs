//! Optimiser steps, each in one pass over the values and their moments.

use super::{
    level::{Isa, kernel},
    parallel::{self, Rows},
};
use crate::{
    ViewMut,
    backend::{
        AdamStep, SgdStep,
        ops::{AdamUpdate, SgdUpdate},
    },
};

/// Views a matrix as rows of one value.
fn flat(x: ViewMut<'_>) -> Rows<'_, f32> {
    Rows { data: x.host(), width: 1 }
}

pub(super) fn adam(op: AdamUpdate) {
    let AdamUpdate { step, grad, m, v, value } = op;
    let (isa, grad) = (Isa::current(), grad.host());
    parallel::rows(grad.len(), 4, (flat(m), flat(v), flat(value)), |range, (m, v, value)| {
        adam_elements(isa, step, &grad[range], m.data, v.data, value.data);
    });
}

pub(super) fn sgd(op: SgdUpdate) {
    let SgdUpdate { step, grad, velocity, value } = op;
    let (isa, grad) = (Isa::current(), grad.host());
    parallel::rows(grad.len(), 3, (flat(velocity), flat(value)), |range, (velocity, value)| {
        sgd_elements(isa, step, &grad[range], velocity.data, value.data);
    });
}

kernel! {
    fn adam_elements[](s: S, step: AdamStep, grad: &[f32], m: &mut [f32], v: &mut [f32], value: &mut [f32]) {
        let (beta1, beta2) = (s.splat(step.beta1), s.splat(step.beta2));
        let (rest1, rest2) = (s.splat(1.0 - step.beta1), s.splat(1.0 - step.beta2));
        let rate = s.splat(-step.lr / step.correction1);
        let correction2 = s.splat(1.0 / step.correction2);
        let eps = s.splat(step.eps);
        let (shrink, penalty) =
            if step.decoupled { (1.0 - step.lr * step.weight_decay, 0.0) } else { (1.0, step.weight_decay) };
        let (shrink, penalty) = (s.splat(shrink), s.splat(penalty));
        let mut c = 0;
        while c < grad.len() {
            let x = s.load(value, c);
            let g = s.mul_add(penalty, x, s.load(grad, c));
            let first = s.mul_add(beta1, s.load(m, c), s.mul(rest1, g));
            let second = s.mul_add(beta2, s.load(v, c), s.mul(rest2, s.mul(g, g)));
            let root = s.add(s.sqrt(s.mul(second, correction2)), eps);
            s.store(m, c, first);
            s.store(v, c, second);
            s.store(value, c, s.mul_add(shrink, x, s.div(s.mul(rate, first), root)));
            c += S::LANES;
        }
    }

    fn sgd_elements[](s: S, step: SgdStep, grad: &[f32], velocity: &mut [f32], value: &mut [f32]) {
        let (momentum, decay) = (s.splat(step.momentum), s.splat(step.weight_decay));
        let rate = s.splat(-step.lr);
        let mut c = 0;
        while c < grad.len() {
            let x = s.load(value, c);
            let g = s.mul_add(decay, x, s.load(grad, c));
            let speed = s.mul_add(momentum, s.load(velocity, c), g);
            let direction = if step.nesterov { s.mul_add(momentum, speed, g) } else { speed };
            s.store(velocity, c, speed);
            s.store(value, c, s.mul_add(rate, direction, x));
            c += S::LANES;
        }
    }
}
