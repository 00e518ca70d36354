//! Stochastic gradient descent with momentum.
//!
//! # Algorithm
//!
//! PyTorch's form:
//!
//! ```text
//! g = gradient + decay * value
//! velocity = momentum * velocity + g
//! value -= lr * (nesterov ? g + momentum * velocity : velocity)
//! ```
//!
//! # Source
//!
//! Robbins and Monro, 1951; Polyak, 1964; Nesterov's form after Sutskever et al., *On the
//! importance of initialization and momentum in deep learning*, ICML 2013.
//!
//! # Cost
//!
//! One pass over each parameter per update.
//!
//! # Memory
//!
//! One matrix per parameter.

use clap::Args;
use graphmill_core::{
    options::{Fault, OptionGroup, OptionSet, range},
    table::Entry,
};
use serde::{Deserialize, Serialize};

use super::{Make, Optimizer, Slots, check_fraction};
use crate::backend::{SgdStep, ops::SgdUpdate};
use crate::{Backend, Error, Matrix, Param, Result};

pub(super) const ENTRY: Entry<Make> = Entry {
    name: "sgd",
    summary: "stochastic gradient descent, with optional momentum",
    source: "Sutskever et al., ICML 2013",
    options: &[OptionGroup::of::<SgdOptions>()],
    make: |own| Ok(Box::new(Sgd::new(&own.get())?)),
};

/// Options of [`Sgd`].
#[derive(Args, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SgdOptions {
    /// Momentum: weight of the velocity.
    #[arg(long, value_name = "M")]
    pub momentum: f64,
    /// Nesterov's look-ahead; requires momentum.
    #[arg(skip)]
    #[serde(skip)]
    pub nesterov: bool,
}

impl Default for SgdOptions {
    fn default() -> Self {
        Self { momentum: 0.9, nesterov: false }
    }
}

impl OptionSet for SgdOptions {
    fn check(&self) -> Result<(), Fault> {
        range("momentum", self.momentum, 0.0..1.0)
    }
}

/// SGD with momentum: options, step count and one velocity per parameter.
#[derive(Clone, Debug)]
pub struct Sgd {
    momentum: f32,
    nesterov: bool,
    lr: f32,
    steps: u64,
    velocity: Slots<1>,
}

impl Sgd {
    /// Creates the optimiser.
    ///
    /// # Errors
    /// The momentum is outside `[0, 1)`, or Nesterov's form lacks momentum.
    pub fn new(options: &SgdOptions) -> Result<Self> {
        let (momentum, nesterov) = (options.momentum as f32, options.nesterov);
        check_fraction("momentum", momentum)?;
        if nesterov && momentum == 0.0 {
            return Err(Error::config(
                "momentum",
                0,
                "nesterov requires momentum; set it, for example to 0.9",
            ));
        }
        Ok(Self { momentum, nesterov, lr: 0.0, steps: 0, velocity: Slots::default() })
    }
}

impl Optimizer for Sgd {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn begin(&mut self, lr: f32) {
        self.lr = lr;
        self.steps += 1;
    }

    fn update(&mut self, backend: &dyn Backend, index: usize, param: &mut Param, decay: f32) {
        if !param.trainable {
            return;
        }
        let [velocity] = self.velocity.at(index, param);
        let step =
            SgdStep { lr: self.lr, momentum: self.momentum, nesterov: self.nesterov, weight_decay: decay };
        SgdUpdate {
            step,
            grad: param.grad.view(),
            velocity: velocity.view_mut(),
            value: param.value.view_mut(),
        }
        .run(backend);
    }

    fn prepare(&mut self, index: usize, param: &Param) {
        if param.trainable {
            self.velocity.at(index, param);
        }
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    fn visit_state(&self, see: &mut dyn FnMut(&str, &Matrix)) {
        self.velocity.visit(["velocity"], see);
    }

    fn visit_state_mut(&mut self, see: &mut dyn FnMut(&str, &mut Matrix)) {
        self.velocity.visit_mut(["velocity"], see);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Reference;

    /// Values after each update of a scalar that starts at 1 with gradients 1, 2, -1.
    fn run(options: SgdOptions, decay: f32) -> Vec<f32> {
        let mut sgd = Sgd::new(&options).unwrap();
        let mut param = Param::constant("weight", 1, 1, 1.0);
        [1.0, 2.0, -1.0]
            .map(|g| {
                param.grad.view_mut().host()[0] = g;
                sgd.begin(0.1);
                sgd.update(&Reference, 0, &mut param, decay);
                param.value.view().host()[0]
            })
            .to_vec()
    }

    fn close(got: Vec<f32>, expected: [f64; 3]) {
        for (got, expected) in got.iter().zip(expected) {
            assert!((f64::from(*got) - expected).abs() < 1e-6, "{got} instead of {expected}");
        }
    }

    #[test]
    fn plain_sgd_subtracts_the_scaled_gradient() {
        close(run(SgdOptions { momentum: 0.0, nesterov: false }, 0.0), [0.9, 0.7, 0.8]);
    }

    #[test]
    fn momentum_accumulates_a_velocity() {
        // velocities 1, 0.5 + 2, 1.25 - 1
        let options = SgdOptions { momentum: 0.5, nesterov: false };
        close(run(options, 0.0), [0.9, 0.65, 0.625]);
    }

    #[test]
    fn nesterov_adds_the_gradient_to_the_scaled_velocity() {
        // steps 1 + 0.5, 2 + 1.25, -1 + 0.125
        let options = SgdOptions { momentum: 0.5, nesterov: true };
        close(run(options, 0.0), [0.85, 0.525, 0.6125]);
    }

    #[test]
    fn weight_decay_is_an_l2_penalty() {
        // g = 1 + 0.5, 2 + 0.5 * 0.85, -1 + 0.5 * 0.6075
        close(run(SgdOptions { momentum: 0.0, nesterov: false }, 0.5), [0.85, 0.6075, 0.677_125]);
    }
}
