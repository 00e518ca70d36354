//! Map of values to the normal distribution by quantiles.
//!
//! # Algorithm
//!
//! At most [`MAX`] quantiles `q` of the known values, at evenly spaced ranks. A value has the rank
//! at which the line through the quantiles takes it, for equal quantiles the mean of their ranks.
//! Rank `r` of `K` becomes the normal quantile of `(r + 1/2) / K`.
//!
//! # Source
//!
//! Conover and Iman, *Rank Transformations as a Bridge Between Parametric and Nonparametric
//! Statistics*, The American Statistician 35(3), 1981 (normal scores). Marsaglia, *Evaluating the
//! Normal Distribution*, Journal of Statistical Software 11(4), 2004, for the distribution.
//! Wichura, *Algorithm AS 241*, Applied Statistics 37(3), 1988 (`PPND7`), and a step of Newton's
//! method, for its inverse.
//!
//! # Cost
//!
//! O(N log N) for N values, O(log K) for each map.

use serde::{Deserialize, Serialize};

/// Most quantiles.
const MAX: usize = 1000;
/// Distance from the mean beyond which the normal distribution is 0 or 1.
const FAR: f64 = 8.0;

/// Quantiles of the values of a target, ascending.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quantiles(pub Vec<f64>);

impl Quantiles {
    /// Quantiles of the values; a single 0 if there are none.
    pub(super) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let Some(last) = values.len().checked_sub(1) else { return Self(vec![0.0]) };
        let count = values.len().min(MAX);
        let at = |i: usize| between(&values, i as f64 * last as f64 / (count - 1).max(1) as f64);
        Self((0..count).map(at).collect())
    }

    /// Normal score of a value.
    pub(super) fn normal(&self, x: f64) -> f64 {
        let Self(quantiles) = self;
        let last = quantiles.len() - 1;
        let (first, end) = (quantiles.partition_point(|&q| q < x), quantiles.partition_point(|&q| q <= x));
        let rank = if first < end {
            (first + end - 1) as f64 / 2.0
        } else if first == 0 || first > last {
            first.min(last) as f64
        } else {
            let (low, high) = (quantiles[first - 1], quantiles[first]);
            (first - 1) as f64 + (x - low) / (high - low)
        };
        inverse((rank + 0.5) / quantiles.len() as f64)
    }

    /// Value of a normal score: the inverse of [`Quantiles::normal`] within the quantiles.
    pub(super) fn value(&self, score: f64) -> f64 {
        let count = self.0.len() as f64;
        between(&self.0, (distribution(score) * count - 0.5).clamp(0.0, count - 1.0))
    }
}

/// Value of the line through `sorted` at a rank from 0 to its last.
fn between(sorted: &[f64], rank: f64) -> f64 {
    let low = rank.floor() as usize;
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (rank - low as f64) * (sorted[high] - sorted[low])
}

/// Density of the standard normal distribution.
fn density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The standard normal distribution.
fn distribution(x: f64) -> f64 {
    if x.abs() >= FAR {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    loop {
        n += 2.0;
        term *= x * x / n;
        if sum + term == sum {
            return 0.5 + density(x) * sum;
        }
        sum += term;
    }
}

/// Inverse of the standard normal distribution, for `p` above 0 and below 1.
fn inverse(p: f64) -> f64 {
    let x = approximate_inverse(p);
    x - (distribution(x) - p) / density(x)
}

/// Inverse of the standard normal distribution to about seven digits.
fn approximate_inverse(p: f64) -> f64 {
    let q = p - 0.5;
    let ratio = |over: &[f64], under: &[f64], r: f64| {
        let of = |factors: &[f64]| factors.iter().rev().fold(0.0, |sum, factor| sum * r + factor);
        of(over) / of(under)
    };
    if q.abs() <= 0.425 {
        let over = [3.387_132_717_9, 50.434_271_938, 159.291_132_02, 59.109_374_720];
        let under = [1.0, 17.895_169_469, 78.757_757_664, 67.187_563_600];
        return q * ratio(&over, &under, 0.180_625 - q * q);
    }
    let r = (-p.min(1.0 - p).ln()).sqrt();
    let x = if r <= 5.0 {
        let over = [1.423_437_277_7, 2.756_815_390_0, 1.306_728_481_6, 0.170_238_211_03];
        ratio(&over, &[1.0, 0.737_001_642_50, 0.120_211_329_75], r - 1.6)
    } else {
        let over = [6.657_905_115_0, 3.081_226_386_0, 0.428_682_943_37, 0.017_337_203_997];
        ratio(&over, &[1.0, 0.241_978_942_25, 0.012_258_202_635], r - 5.0)
    };
    x.copysign(q)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_distribution_has_its_tabulated_values() {
        for (x, p) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_542_9),
            (-1.959_963_984_540_054, 0.025),
            (3.090_232_306_167_813, 0.999),
            (-4.753_424_308_822_899, 1e-6),
        ] {
            assert!((distribution(x) - p).abs() < 1e-14, "{x}: {}", distribution(x));
            assert!((inverse(p) - x).abs() < 1e-8, "{p}: {}", inverse(p));
            assert!((approximate_inverse(p) - x).abs() < 1e-6, "{p}: {}", approximate_inverse(p));
        }
        assert_eq!((distribution(9.0), distribution(-9.0)), (1.0, 0.0));
    }

    #[test]
    fn skewed_values_become_normal_scores_and_return() {
        let values: Vec<f64> = (0..5000).map(|i| (f64::from(i) / 500.0).exp()).collect();
        let quantiles = Quantiles::of(values.clone());
        assert_eq!((quantiles.0.len(), quantiles.0[0], quantiles.0[MAX - 1]), (MAX, values[0], values[4999]));
        let scores: Vec<f64> = values.iter().map(|&x| quantiles.normal(x)).collect();
        let within = scores.iter().filter(|score| score.abs() < 1.0).count();
        assert!((within as f64 / 5000.0 - 0.682_7).abs() < 0.002, "{within}");
        for (value, score) in values.iter().zip(scores) {
            assert!((quantiles.value(score) - value).abs() < 1e-9 * value, "{value}");
        }
        assert_eq!([quantiles.value(-50.0), quantiles.value(50.0)], [values[0], values[4999]]);
        let tied = Quantiles::of(vec![1.0, 2.0, 2.0, 2.0, 3.0]);
        assert_eq!((tied.normal(2.0), tied.value(0.0)), (0.0, 2.0));
    }
}
