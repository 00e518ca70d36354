//! Standardisation of targets.

use serde::{Deserialize, Serialize};

/// Mean and deviation of each target over the training rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetScale {
    /// Mean of each target.
    pub mean: Vec<f64>,
    /// Standard deviation of each target; 1 for a constant target.
    pub deviation: Vec<f64>,
}

impl TargetScale {
    /// Scale of `rows` of the targets `values` (`N x width`); NaN is missing. Sums are serial, so
    /// that their bits do not depend on threads.
    pub fn of(values: &[f32], width: usize, rows: &[u32]) -> Self {
        let column = |c: usize| {
            let known = move || {
                let value = move |&row: &u32| f64::from(values[row as usize * width + c]);
                rows.iter().map(value).filter(|x| !x.is_nan())
            };
            let count = known().count().max(1) as f64;
            let mean = known().sum::<f64>() / count;
            let variance = known().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
            let deviation = if variance > 0.0 { variance.sqrt() } else { 1.0 };
            (mean, deviation)
        };
        let (mean, deviation) = (0..width).map(column).unzip();
        Self { mean, deviation }
    }

    /// Number of targets.
    pub fn width(&self) -> usize {
        self.mean.len()
    }

    /// Standardises rows of targets in place.
    pub fn apply(&self, rows: &mut [f32]) {
        self.map(rows, |x, mean, deviation| (x - mean) / deviation);
    }

    /// Returns rows of outputs to the scale of the targets, in place.
    pub fn undo(&self, rows: &mut [f32]) {
        self.map(rows, |x, mean, deviation| x * deviation + mean);
    }

    fn map(&self, rows: &mut [f32], f: impl Fn(f64, f64, f64) -> f64) {
        for row in rows.chunks_mut(self.width().max(1)) {
            for ((x, &mean), &deviation) in row.iter_mut().zip(&self.mean).zip(&self.deviation) {
                *x = f(f64::from(*x), mean, deviation) as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn missing_and_constant_targets_have_a_scale() {
        let values = [1.0, 5.0, 3.0, 5.0, f32::NAN, 5.0, 100.0, 5.0];
        let scale = TargetScale::of(&values, 2, &[0, 1, 2]);
        assert_eq!(scale, TargetScale { mean: vec![2.0, 5.0], deviation: vec![1.0, 1.0] });
        let none = TargetScale::of(&values, 2, &[]);
        assert_eq!(none.deviation, [1.0, 1.0]);
    }

    proptest! {
        #[test]
        fn outputs_return_to_the_scale_of_the_targets(values in prop::collection::vec(-1e3f32..1e3, 4..40)) {
            let rows: Vec<u32> = (0..values.len() as u32).collect();
            let scale = TargetScale::of(&values, 1, &rows);
            let mut there = values.clone();
            scale.apply(&mut there);
            scale.undo(&mut there);
            for (a, b) in values.iter().zip(&there) {
                prop_assert!((a - b).abs() <= 1e-3 * (1.0 + a.abs()), "{a} {b}");
            }
        }
    }
}
