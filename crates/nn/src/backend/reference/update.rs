//! Updates.

use crate::backend::ops::{AdamUpdate, SgdUpdate};

pub(super) fn adam(op: AdamUpdate) {
    let AdamUpdate { step, grad, m, v, value } = op;
    let [lr, beta1, beta2] = [step.lr, step.beta1, step.beta2].map(f64::from);
    let [eps, decay, correction1, correction2] =
        [step.eps, step.weight_decay, step.correction1, step.correction2].map(f64::from);
    let (m, v) = (m.host(), v.host());
    for (i, value) in value.host().iter_mut().enumerate() {
        let mut x = f64::from(*value);
        let mut g = f64::from(grad.host()[i]);
        if step.decoupled {
            x -= lr * decay * x;
        } else {
            g += decay * x;
        }
        m[i] = (beta1 * f64::from(m[i]) + (1.0 - beta1) * g) as f32;
        v[i] = (beta2 * f64::from(v[i]) + (1.0 - beta2) * g * g) as f32;
        let root = (f64::from(v[i]) / correction2).sqrt() + eps;
        *value = (x - lr * f64::from(m[i]) / correction1 / root) as f32;
    }
}

pub(super) fn sgd(op: SgdUpdate) {
    let SgdUpdate { step, grad, velocity, value } = op;
    let [lr, momentum, decay] = [step.lr, step.momentum, step.weight_decay].map(f64::from);
    let velocity = velocity.host();
    for (i, value) in value.host().iter_mut().enumerate() {
        let x = f64::from(*value);
        let g = f64::from(grad.host()[i]) + decay * x;
        let speed = momentum * f64::from(velocity[i]) + g;
        velocity[i] = speed as f32;
        *value = (x - lr * if step.nesterov { g + momentum * speed } else { speed }) as f32;
    }
}
