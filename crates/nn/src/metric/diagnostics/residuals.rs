//! Residuals of values: predictions beside targets, and the spread of their differences.

use serde::{Deserialize, Serialize};

use crate::metric::{Input, Truth};

/// Largest number of pairs of target and prediction that are stored.
pub const VALUE_POINTS: usize = 1000;

/// Number of residual quantiles, besides the ends.
const QUANTILES: usize = 100;

/// Residuals (prediction minus target) of one target, at its scale.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Residuals {
    /// Number of the target.
    pub target: usize,
    /// Name of the target; empty if it has none.
    pub name: String,
    /// Number of rows with a known target.
    pub count: u64,
    /// Mean absolute residual.
    pub mae: f64,
    /// Root of the mean square residual.
    pub rmse: f64,
    /// Coefficient of determination; `None` if all targets are equal.
    pub r2: Option<f64>,
    /// Mean residual: the bias.
    pub mean: f64,
    /// Standard deviation of the residuals.
    pub deviation: f64,
    /// Quantiles of the residuals in steps of 0.01, from the smallest to the largest, from which
    /// histograms of any width follow.
    pub quantiles: Vec<f64>,
    /// Targets and predictions of at most [`VALUE_POINTS`] rows at equal distances.
    pub points: Vec<(f64, f64)>,
}

impl Residuals {
    /// Residuals of each target with known values; empty if an output is NaN.
    pub(super) fn of_targets(input: &Input) -> Vec<Self> {
        let width = input.num_classes();
        let of = |target: usize| Self::new(target, &pairs(input, target)?);
        (0..width).filter_map(of).collect()
    }

    /// Residuals of pairs of a target and its prediction.
    fn new(target: usize, pairs: &[(f64, f64)]) -> Option<Self> {
        if pairs.is_empty() || pairs.iter().any(|(_, predicted)| predicted.is_nan()) {
            return None;
        }
        let mut residuals: Vec<f64> = pairs.iter().map(|(truth, predicted)| predicted - truth).collect();
        let count = residuals.len() as f64;
        let mean = residuals.iter().sum::<f64>() / count;
        let squares: f64 = residuals.iter().map(|x| (x - mean) * (x - mean)).sum();
        let errors: f64 = residuals.iter().map(|x| x * x).sum();
        let center = pairs.iter().map(|(truth, _)| truth).sum::<f64>() / count;
        let spread: f64 = pairs.iter().map(|(truth, _)| (truth - center) * (truth - center)).sum();
        residuals.sort_unstable_by(f64::total_cmp);
        let quantile = |q: usize| {
            // linear between neighbours, as NumPy's default
            let at = (residuals.len() - 1) as f64 * q as f64 / QUANTILES as f64;
            let (low, part) = (at.floor() as usize, at.fract());
            let high = residuals[(low + 1).min(residuals.len() - 1)];
            residuals[low] + part * (high - residuals[low])
        };
        let every = pairs.len().div_ceil(VALUE_POINTS);
        Some(Self {
            target,
            name: String::new(),
            count: pairs.len() as u64,
            mae: residuals.iter().map(|x| x.abs()).sum::<f64>() / count,
            rmse: (errors / count).sqrt(),
            r2: (spread > 0.0).then(|| 1.0 - errors / spread),
            mean,
            deviation: (squares / count).sqrt(),
            quantiles: (0..=QUANTILES).map(quantile).collect(),
            points: pairs.iter().step_by(every).copied().collect(),
        })
    }

    /// Name of the target, or its number from 1.
    pub fn label(&self) -> String {
        if self.name.is_empty() { (self.target + 1).to_string() } else { self.name.clone() }
    }

    /// Share of the residuals below `x`, linear between the quantiles.
    pub fn below(&self, x: f64) -> f64 {
        let after = self.quantiles.partition_point(|&quantile| quantile < x);
        let (Some(&high), Some(low)) = (self.quantiles.get(after), after.checked_sub(1)) else {
            return if after == 0 { 0.0 } else { 1.0 };
        };
        let (from, steps) = (self.quantiles[low], (self.quantiles.len() - 1) as f64);
        let part = if high > from { (x - from) / (high - from) } else { 0.0 };
        (low as f64 + part) / steps
    }
}

/// Known targets of the rows, with their predictions.
fn pairs(input: &Input, target: usize) -> Option<Vec<(f64, f64)>> {
    let Truth::Values(truth) = input.truth else { return None };
    let width = input.num_classes();
    let pair = |i: usize| {
        let (score, row) = input.row(i);
        let value = f64::from(truth[row * width + target]);
        (!value.is_nan()).then(|| (value, f64::from(input.scores[score * width + target])))
    };
    Some((0..input.num_rows()).filter_map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::diagnostics::Diagnostics;

    #[test]
    fn residuals_have_the_scale_of_their_target() {
        let truth = [1.0, f32::NAN, 2.0, 10.0, 3.0, 20.0];
        let scores = [2.0, 5.0, 2.0, 12.0, 2.0, 18.0];
        let of = Diagnostics::new("test", &Input::new(&scores, 2, Truth::Values(&truth))).unwrap();
        let [first, second] = &of.residuals[..] else { panic!("{:?}", of.residuals) };
        assert_eq!((first.count, first.mean, first.points[0]), (3, 0.0, (1.0, 2.0)));
        assert!((first.deviation - (2.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!((first.quantiles[0], first.quantiles[50], first.quantiles[100]), (-1.0, 0.0, 1.0));
        assert_eq!((second.count, second.mean, second.deviation), (2, 0.0, 2.0));
        assert_eq!((first.mae, first.r2, second.rmse, second.mae), (2.0 / 3.0, Some(0.0), 2.0, 2.0));
        assert_eq!(second.r2, Some(0.84));
        let broken = Input::new(&[f32::NAN], 1, Truth::Values(&[1.0]));
        assert_eq!(Diagnostics::new("test", &broken), None);
    }

    #[test]
    fn shares_follow_from_quantiles() {
        let pairs: Vec<(f64, f64)> = (0..=1000).map(|i| (0.0, f64::from(i))).collect();
        let of = Residuals::new(0, &pairs).unwrap();
        assert_eq!(
            [-1.0, 0.0, 250.0, 505.0, 1000.0, 2000.0].map(|x| of.below(x)),
            [0.0, 0.0, 0.25, 0.505, 1.0, 1.0]
        );
        assert!(of.points.len() <= VALUE_POINTS);
    }
}
