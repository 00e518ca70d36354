//! Losses of real values.
//!
//! # Algorithm
//!
//! With `e` the prediction minus the target: `e^2` (`mse`), `|e|` (`mae`), `e^2 / 2` up to the
//! delta and linear beyond (`huber`), and `q max(-e, 0) + (1 - q) max(e, 0)` (`quantile`).
//!
//! # Source
//!
//! Huber, *Robust Estimation of a Location Parameter*, Annals of Mathematical Statistics 35, 1964
//! (`huber`); Koenker and Bassett, *Regression Quantiles*, Econometrica 46, 1978 (`quantile`).
//!
//! # Cost
//!
//! O(rows).

use graphmill_core::table::{Entry, Table};

/// Loss of one prediction and its derivative, from the error (prediction minus target) and the
/// parameter of the loss.
pub type PointLoss = fn(f64, f64) -> (f64, f64);

/// Table of the losses.
pub static TABLE: Table<PointLoss> = Table::new(
    "loss of values",
    &[
        Entry {
            name: "mse",
            summary: "squared error; predicts means",
            source: "",
            options: &[],
            make: |error, _| (error * error, 2.0 * error),
        },
        Entry {
            name: "mae",
            summary: "absolute error; predicts medians, robust to outliers",
            source: "",
            options: &[],
            make: |error, _| (error.abs(), sign(error)),
        },
        Entry {
            name: "huber",
            summary: "squared up to --huber-delta and linear beyond",
            source: "Huber, Annals of Mathematical Statistics 1964",
            options: &[],
            make: huber,
        },
        Entry {
            name: "quantile",
            summary: "pinball loss; predicts the quantile --quantile",
            source: "Koenker and Bassett, Econometrica 1978",
            options: &[],
            make: pinball,
        },
    ],
);

/// Sign of `x`, 0 at 0.
fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

fn huber(error: f64, delta: f64) -> (f64, f64) {
    if error.abs() <= delta {
        (0.5 * error * error, error)
    } else {
        (delta * (error.abs() - 0.5 * delta), delta * sign(error))
    }
}

fn pinball(error: f64, quantile: f64) -> (f64, f64) {
    if error < 0.0 {
        (-quantile * error, -quantile)
    } else {
        ((1.0 - quantile) * error, if error == 0.0 { 0.0 } else { 1.0 - quantile })
    }
}

/// A loss of the table with its parameter.
#[derive(Clone, Copy, Debug)]
pub struct ValueLoss {
    /// Loss of one prediction.
    pub point: PointLoss,
    /// Parameter: the delta of `huber`, the quantile of `quantile`.
    pub parameter: f64,
}

impl ValueLoss {
    /// Sum of the losses of the `outputs` against the `targets` (`rows x width`, NaN if missing),
    /// times `scale` and the weight of each row (none for equal weights). Writes the gradient to
    /// `grad`. The sum is serial, so that its bits do not depend on threads.
    ///
    /// # Panics
    /// Lengths differ: a bug in the caller.
    pub fn run(
        &self,
        outputs: &[f32],
        targets: &[f32],
        width: usize,
        weight: &[f32],
        scale: f64,
        grad: &mut [f32],
    ) -> f64 {
        assert!(outputs.len() == targets.len() && outputs.len() == grad.len(), "one target per output");
        let mut sum = 0.0;
        let rows = outputs.chunks(width).zip(targets.chunks(width)).zip(grad.chunks_mut(width));
        for (r, ((outputs, targets), grad)) in rows.enumerate() {
            let factor = scale * weight.get(r).map_or(1.0, |&w| f64::from(w));
            for ((&output, &target), grad) in outputs.iter().zip(targets).zip(grad) {
                *grad = 0.0;
                if !target.is_nan() {
                    let (loss, slope) = (self.point)(f64::from(output) - f64::from(target), self.parameter);
                    sum += factor * loss;
                    *grad = (factor * slope) as f32;
                }
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn by_name(name: &str, parameter: f64) -> ValueLoss {
        ValueLoss { point: TABLE.find(name).unwrap().make, parameter }
    }

    #[test]
    fn losses_match_the_definitions_of_pytorch() {
        // torch.nn.functional.{mse_loss, l1_loss, huber_loss(delta=0.5)} of these rows
        let (outputs, targets, mut grad) = ([1.0, -2.0], [0.5, 0.0], [0.0; 2]);
        let mut of = |name, parameter| {
            let loss = by_name(name, parameter).run(&outputs, &targets, 1, &[], 0.5, &mut grad);
            (loss, grad)
        };
        assert_eq!(of("mse", 0.0), (2.125, [0.5, -2.0]));
        assert_eq!(of("mae", 0.0), (1.25, [0.5, -0.5]));
        assert_eq!(of("huber", 0.5), (0.5, [0.25, -0.25]));
        assert_eq!(of("quantile", 0.9), (0.5 * (0.1 * 0.5 + 0.9 * 2.0), [(0.5 * (1.0 - 0.9)) as f32, -0.45]));
    }

    #[test]
    fn missing_targets_have_no_loss_and_rows_have_weights() {
        let mut grad = [9.0; 4];
        let targets = [0.0, f32::NAN, 1.0, 1.0];
        let loss = by_name("mse", 0.0).run(&[1.0, 5.0, 1.0, 3.0], &targets, 2, &[1.0, 2.0], 1.0, &mut grad);
        assert_eq!((loss, grad), (1.0 + 2.0 * 4.0, [2.0, 0.0, 0.0, 8.0]));
    }

    proptest! {
        #[test]
        fn derivatives_match_differences(error in -3.0f64..3.0, parameter in 0.1f64..0.9) {
            const STEP: f64 = 1e-6;
            for entry in &TABLE {
                let slope = (entry.make)(error, parameter).1;
                let at = |x| (entry.make)(x, parameter).0;
                let difference = (at(error + STEP) - at(error - STEP)) / (2.0 * STEP);
                // no derivative at a kink
                if error.abs() > 1e-3 {
                    let name = entry.name;
                    prop_assert!((slope - difference).abs() < 1e-4, "{name}: {slope} {difference}");
                }
            }
        }
    }
}
