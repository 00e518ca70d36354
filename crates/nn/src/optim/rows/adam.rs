//! Adam on rows: [`crate::optim::SparseAdam`] without gathers of the state.

use super::RowRule;
use crate::optim::AdamOptions;

/// The rule, with the factors of the current update.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Adam {
    options: AdamOptions,
    /// Learning rate divided by the correction of the first moment.
    rate: f32,
    /// Reciprocal of the correction of the second moment.
    scale: f32,
}

impl RowRule<2> for Adam {
    const KINDS: [&'static str; 2] = ["m", "v"];

    fn begin(&mut self, lr: f32, step: u64) {
        let correction = |beta: f32| 1.0 - f64::from(beta).powf(step as f64);
        self.rate = (f64::from(lr) / correction(self.options.beta1)) as f32;
        self.scale = correction(self.options.beta2).recip() as f32;
    }

    fn step(&self, grad: &[f32], [m, v]: [&mut [f32]; 2], value: &mut [f32]) {
        let AdamOptions { beta1, beta2, eps } = self.options;
        for (((x, m), v), &g) in value.iter_mut().zip(m).zip(v).zip(grad) {
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
            *x -= self.rate * *m / ((*v * self.scale).sqrt() + eps);
        }
    }
}
