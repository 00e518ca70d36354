//! The Adam optimiser.
//!
//! # Algorithm
//!
//! PyTorch's form; `t` counts the updates from 1:
//!
//! ```text
//! g = gradient + decay * value
//! m = beta1 * m + (1 - beta1) * g
//! v = beta2 * v + (1 - beta2) * g^2
//! value -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
//! ```
//!
//! [`super::adamw`] is the same algorithm without the decay in `g`.
//!
//! # Source
//!
//! Kingma and Ba, *Adam: a method for stochastic optimization*, ICLR 2015, algorithm 1.
//!
//! # Cost
//!
//! One pass over each parameter per update.
//!
//! # Memory
//!
//! Two matrices per parameter.

use graphmill_core::table::Entry;

use super::{Make, Optimizer, Slots, check_fraction};
use crate::backend::{AdamStep, ops::AdamUpdate};
use crate::{Backend, Error, Matrix, Param, Result};

/// Name of Adam with decoupled decay.
pub(super) const ADAMW: &str = "adamw";

pub(super) const ENTRY: Entry<Make> = Entry {
    name: "adam",
    summary: "steps scaled by running means of the gradient and its square",
    source: "Kingma and Ba, ICLR 2015",
    options: &[],
    make: |_| Ok(Box::new(Adam::new(&AdamOptions::default(), false)?)),
};

/// Options of [`Adam`]. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamOptions {
    /// Decay of the first moment, in `[0, 1)`.
    pub beta1: f32,
    /// Decay of the second moment, in `[0, 1)`.
    pub beta2: f32,
    /// Added to the root of the second moment, positive.
    pub eps: f32,
}

impl Default for AdamOptions {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, eps: 1e-8 }
    }
}

/// Adam, or AdamW, which applies the decay to the weights.
#[derive(Clone, Debug)]
pub struct Adam {
    /// Step whose `lr` and corrections belong to the current update.
    step: AdamStep,
    steps: u64,
    moments: Slots<2>,
}

impl Adam {
    /// Creates Adam, or AdamW if `decoupled`.
    ///
    /// # Errors
    /// A beta is outside `[0, 1)`, or epsilon is not positive.
    pub fn new(options: &AdamOptions, decoupled: bool) -> Result<Self> {
        let AdamOptions { beta1, beta2, eps } = *options;
        check_fraction("beta1", beta1)?;
        check_fraction("beta2", beta2)?;
        if !(eps > 0.0 && eps.is_finite()) {
            return Err(Error::config("eps", eps, "must be positive, for example 1e-8"));
        }
        let step = AdamStep {
            lr: 0.0,
            beta1,
            beta2,
            eps,
            weight_decay: 0.0,
            decoupled,
            correction1: 1.0,
            correction2: 1.0,
        };
        Ok(Self { step, steps: 0, moments: Slots::default() })
    }

    /// Parameters of the current step.
    pub(super) fn step(&self) -> AdamStep {
        self.step
    }
}

impl AdamStep {
    /// The same step with learning rate `lr` and the corrections of update `t`, from 1.
    pub(super) fn at(self, lr: f32, t: u64) -> Self {
        let (correction1, correction2) = (correction(self.beta1, t), correction(self.beta2, t));
        Self { lr, correction1, correction2, ..self }
    }
}

/// `1 - beta^t`, from the beta by which the moments decay. In f32, 1 - 0.999 is off by 1e-5, and
/// the error must be equal on both sides so that the first steps have unit scale.
fn correction(beta: f32, t: u64) -> f32 {
    (1.0 - f64::from(beta).powf(t as f64)) as f32
}

impl Optimizer for Adam {
    fn name(&self) -> &'static str {
        if self.step.decoupled { ADAMW } else { ENTRY.name }
    }

    fn begin(&mut self, lr: f32) {
        self.steps += 1;
        self.step = self.step.at(lr, self.steps);
    }

    fn update(&mut self, backend: &dyn Backend, index: usize, param: &mut Param, decay: f32) {
        if !param.trainable {
            return;
        }
        let [m, v] = self.moments.at(index, param);
        let step = AdamStep { weight_decay: decay, ..self.step };
        AdamUpdate {
            step,
            grad: param.grad.view(),
            m: m.view_mut(),
            v: v.view_mut(),
            value: param.value.view_mut(),
        }
        .run(backend);
    }

    fn prepare(&mut self, index: usize, param: &Param) {
        if param.trainable {
            self.moments.at(index, param);
        }
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    fn visit_state(&self, see: &mut dyn FnMut(&str, &Matrix)) {
        self.moments.visit(["m", "v"], see);
    }

    fn visit_state_mut(&mut self, see: &mut dyn FnMut(&str, &mut Matrix)) {
        self.moments.visit_mut(["m", "v"], see);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::backend::Reference;

    /// Gradients of the six updates in the tests.
    const GRADS: [f64; 6] = [0.5, -0.25, 1.0, 0.125, -2.0, 0.75];

    /// The formula of the module's header (or of [`super::super::adamw`]'s) in f64.
    fn formula(decay: f64, decoupled: bool) -> Vec<f64> {
        let (lr, beta1, beta2, eps) = (0.1, 0.9f64, 0.999f64, 1e-8);
        let (mut x, mut m, mut v) = (1.0f64, 0.0f64, 0.0f64);
        let mut out = Vec::new();
        for (i, &gradient) in GRADS.iter().enumerate() {
            let t = i as i32 + 1;
            let mut g = gradient;
            if decoupled {
                x *= 1.0 - lr * decay;
            } else {
                g += decay * x;
            }
            m = beta1 * m + (1.0 - beta1) * g;
            v = beta2 * v + (1.0 - beta2) * g * g;
            x -= lr * (m / (1.0 - beta1.powi(t))) / ((v / (1.0 - beta2.powi(t))).sqrt() + eps);
            out.push(x);
        }
        out
    }

    /// Compares six updates of a scalar with the formula.
    pub(in super::super) fn follows_the_formula(decoupled: bool) {
        for decay in [0.0f32, 0.1] {
            let mut adam = Adam::new(&AdamOptions::default(), decoupled).unwrap();
            let mut param = Param::constant("weight", 1, 1, 1.0);
            for (&g, expected) in GRADS.iter().zip(formula(f64::from(decay), decoupled)) {
                param.grad.view_mut().host()[0] = g as f32;
                adam.begin(0.1);
                adam.update(&Reference, 0, &mut param, decay);
                let got = f64::from(param.value.view().host()[0]);
                assert!((got - expected).abs() < 2e-6, "{got} instead of {expected}");
            }
        }
    }

    #[test]
    fn adam_matches_the_formula() {
        follows_the_formula(false);
    }

    #[test]
    fn first_step_has_the_size_of_the_learning_rate() {
        // for any size of the gradient, m / sqrt(v) is its sign
        for g in [1e-3, 1.0, -1e3] {
            let mut adam = Adam::new(&AdamOptions::default(), false).unwrap();
            let mut param = Param::constant("weight", 1, 1, 0.0);
            param.grad.view_mut().host()[0] = g;
            adam.begin(0.01);
            adam.update(&Reference, 0, &mut param, 0.0);
            let got = param.value.view().host()[0];
            assert!((got + 0.01 * g.signum()).abs() < 2e-7, "{got} for {g}");
        }
    }
}
