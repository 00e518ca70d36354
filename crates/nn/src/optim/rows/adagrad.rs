//! Adagrad on rows.
//!
//! # Algorithm
//!
//! `s += g^2; value -= lr g / (sqrt(s) + eps)` with `eps = 1e-10`, as in PyTorch.
//!
//! # Source
//!
//! Duchi, Hazan and Singer, *Adaptive subgradient methods for online learning and stochastic
//! optimization*, JMLR 12, 2011, figure 1.
//!
//! # Cost
//!
//! Proportional to the rows of the batch.
//!
//! # Memory
//!
//! A matrix per table.

use super::RowRule;

const EPS: f32 = 1e-10;

/// The rule, with the current learning rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Adagrad {
    lr: f32,
}

impl RowRule<1> for Adagrad {
    const KINDS: [&'static str; 1] = ["sum"];

    fn begin(&mut self, lr: f32, _: u64) {
        self.lr = lr;
    }

    fn step(&self, grad: &[f32], [sum]: [&mut [f32]; 1], value: &mut [f32]) {
        for ((x, sum), &g) in value.iter_mut().zip(sum).zip(grad) {
            *sum += g * g;
            *x -= self.lr * g / (sum.sqrt() + EPS);
        }
    }
}
