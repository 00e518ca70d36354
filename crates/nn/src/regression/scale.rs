//! Scale of the targets that a model learns.
//!
//! # Algorithm
//!
//! A target passes through the curve of its [`TargetTransform`], then its mean is subtracted and it
//! is divided by its deviation; both are over the training rows. Outputs take the inverse way. The
//! curve of `quantile` is piecewise linear through quantiles of the training rows ([`Quantiles`]).
//!
//! # Source
//!
//! John and Draper, *An Alternative Family of Transformations*, Applied Statistics 29(2), 1980, for
//! the curve of `log`: the modulus transformation with lambda = 0. `quantile` has its own source.
//!
//! # Cost
//!
//! O(1) for each value, O(log K) with K quantiles; O(N log N) for the quantiles.

use clap::ValueEnum;
use graphmill_core::by_name;
use serde::{Deserialize, Serialize};

use super::quantiles::Quantiles;

/// Transform of the targets before the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetTransform {
    /// The targets as they are
    None,
    /// Minus the mean, divided by the deviation
    #[default]
    Standard,
    /// ln(1 + y), of negative targets -ln(1 - y), then as standard
    Log,
    /// The normal distribution, by quantiles
    Quantile,
}

by_name!(TargetTransform);

impl TargetTransform {
    /// Returns true for the default.
    fn is_standard(&self) -> bool {
        *self == Self::Standard
    }
}

/// Transform of each target with its statistics over the training rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetScale {
    /// Transform of all targets.
    #[serde(default, skip_serializing_if = "TargetTransform::is_standard")]
    pub transform: TargetTransform,
    /// Mean of each target, after the curve of the transform.
    pub mean: Vec<f64>,
    /// Standard deviation of each target after the curve; 1 for a constant target.
    pub deviation: Vec<f64>,
    /// Quantiles of each target, for [`TargetTransform::Quantile`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<Quantiles>,
}

impl TargetScale {
    /// Standardisation of `rows` of the targets `values` (`N x width`); NaN is missing.
    pub fn of(values: &[f32], width: usize, rows: &[u32]) -> Self {
        Self::fit(TargetTransform::Standard, values, width, rows)
    }

    /// Scale of `rows` of the targets `values` (`N x width`) by `transform`; NaN is missing. Sums
    /// are serial, so that their bits do not depend on threads.
    pub fn fit(transform: TargetTransform, values: &[f32], width: usize, rows: &[u32]) -> Self {
        let known = |c: usize| {
            let value = move |&row: &u32| f64::from(values[row as usize * width + c]);
            rows.iter().map(value).filter(|x| !x.is_nan())
        };
        let mut scale = Self { transform, ..Self::default() };
        match transform {
            TargetTransform::None | TargetTransform::Quantile => {
                (scale.mean, scale.deviation) = (vec![0.0; width], vec![1.0; width]);
                if transform == TargetTransform::Quantile {
                    scale.quantiles = (0..width).map(|c| Quantiles::of(known(c).collect())).collect();
                }
            }
            TargetTransform::Standard => {
                (scale.mean, scale.deviation) = (0..width).map(|c| moments(known(c))).unzip();
            }
            TargetTransform::Log => {
                (scale.mean, scale.deviation) = (0..width).map(|c| moments(known(c).map(log))).unzip();
            }
        }
        scale
    }

    /// Number of targets.
    pub fn width(&self) -> usize {
        self.mean.len()
    }

    /// Transforms rows of targets in place.
    pub fn apply(&self, rows: &mut [f32]) {
        self.map(rows, |x, c| (self.curve(x, c) - self.mean[c]) / self.deviation[c]);
    }

    /// Returns rows of outputs to the scale of the targets, in place.
    pub fn undo(&self, rows: &mut [f32]) {
        self.map(rows, |x, c| self.inverse(x * self.deviation[c] + self.mean[c], c));
    }

    /// The curve of target `c` at `x`.
    fn curve(&self, x: f64, c: usize) -> f64 {
        match self.transform {
            TargetTransform::None | TargetTransform::Standard => x,
            TargetTransform::Log => log(x),
            TargetTransform::Quantile => self.quantiles[c].normal(x),
        }
    }

    /// The inverse of [`TargetScale::curve`].
    fn inverse(&self, x: f64, c: usize) -> f64 {
        match self.transform {
            TargetTransform::None | TargetTransform::Standard => x,
            // no finite output leads beyond f32
            TargetTransform::Log => (x.abs().exp_m1().min(f32::MAX.into())).copysign(x),
            TargetTransform::Quantile => self.quantiles[c].value(x),
        }
    }

    /// Replaces each value of rows by `f` of it and of its column; NaN stays.
    fn map(&self, rows: &mut [f32], f: impl Fn(f64, usize) -> f64) {
        for row in rows.chunks_mut(self.width().max(1)) {
            for (c, x) in row.iter_mut().enumerate().take(self.width()) {
                if !x.is_nan() {
                    *x = f(f64::from(*x), c) as f32;
                }
            }
        }
    }
}

/// Logarithm of 1 + |x|, with the sign of x.
fn log(x: f64) -> f64 {
    x.abs().ln_1p().copysign(x)
}

/// Mean and standard deviation, which is 1 for a constant.
fn moments(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count().max(1) as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
    (mean, if variance > 0.0 { variance.sqrt() } else { 1.0 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [TargetTransform; 4] =
        [TargetTransform::None, TargetTransform::Standard, TargetTransform::Log, TargetTransform::Quantile];

    #[test]
    fn missing_and_constant_targets_have_a_scale() {
        let values = [1.0, 5.0, 3.0, 5.0, f32::NAN, 5.0, 100.0, 5.0];
        let scale = TargetScale::of(&values, 2, &[0, 1, 2]);
        assert_eq!((scale.mean, scale.deviation), (vec![2.0, 5.0], vec![1.0, 1.0]));
        let none = TargetScale::of(&values, 2, &[]);
        assert_eq!(none.deviation, [1.0, 1.0]);
        for transform in ALL {
            let scale = TargetScale::fit(transform, &values, 2, &[0, 1, 2]);
            let mut rows = [1.0, 5.0, f32::NAN, 5.0];
            scale.apply(&mut rows);
            assert!(rows[2].is_nan() && rows[3].is_finite(), "{transform}");
            scale.undo(&mut rows);
            assert!((rows[0] - 1.0).abs() < 1e-5 && (rows[1] - 5.0).abs() < 1e-5, "{transform}: {rows:?}");
            let nothing = TargetScale::fit(transform, &values, 2, &[]);
            let mut rows = [3.0, 4.0];
            nothing.apply(&mut rows);
            nothing.undo(&mut rows);
            assert!(rows.iter().all(|x| x.is_finite()), "{transform}: {rows:?}");
        }
    }

    #[test]
    fn a_scale_reads_only_its_rows_and_old_records() {
        let scale: TargetScale = serde_json::from_str(r#"{"mean":[2.0],"deviation":[4.0]}"#).unwrap();
        let mut rows = [10.0];
        scale.apply(&mut rows);
        assert_eq!(rows, [2.0]);
        assert_eq!(serde_json::to_string(&scale).unwrap(), r#"{"mean":[2.0],"deviation":[4.0]}"#);
        for transform in ALL {
            let fit = |other: f32| TargetScale::fit(transform, &[1.0, 7.0, other, -4.0], 1, &[0, 1, 3]);
            assert_eq!(fit(50.0), fit(-9e9), "{transform}");
            let text = serde_json::to_string(&fit(0.0)).unwrap();
            assert_eq!(serde_json::from_str::<TargetScale>(&text).unwrap(), fit(0.0), "{text}");
        }
    }

    #[test]
    fn logarithms_spread_amounts_evenly_and_stay_finite() {
        let values = [0.0, 9.0, 99.0, 999.0];
        let scale = TargetScale::fit(TargetTransform::Log, &values, 1, &[0, 1, 2, 3]);
        let mut rows = values;
        scale.apply(&mut rows);
        let steps: Vec<f32> = rows.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(steps.iter().all(|step| (step - steps[0]).abs() < 1e-5), "{steps:?}");
        let mut rows = [1e4, -1e4];
        scale.undo(&mut rows);
        assert_eq!(rows, [f32::MAX, -f32::MAX]);
    }

    proptest! {
        #[test]
        fn outputs_return_to_the_scale_of_the_targets(values in prop::collection::vec(-1e3f32..1e3, 4..40)) {
            let rows: Vec<u32> = (0..values.len() as u32).collect();
            for transform in ALL {
                let scale = TargetScale::fit(transform, &values, 1, &rows);
                let mut there = values.clone();
                scale.apply(&mut there);
                scale.undo(&mut there);
                for (a, b) in values.iter().zip(&there) {
                    prop_assert!((a - b).abs() <= 1e-3 * (1.0 + a.abs()), "{transform}: {a} {b}");
                }
            }
        }

        #[test]
        fn transforms_keep_the_order(values in prop::collection::vec(-1e3f32..1e3, 4..40)) {
            let rows: Vec<u32> = (0..values.len() as u32).collect();
            let mut sorted = values.clone();
            sorted.sort_by(f32::total_cmp);
            for transform in ALL {
                let scale = TargetScale::fit(transform, &values, 1, &rows);
                let mut there = sorted.clone();
                scale.apply(&mut there);
                prop_assert!(there.is_sorted(), "{transform}: {there:?}");
            }
        }
    }
}
