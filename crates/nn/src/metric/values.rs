//! Metrics of real values: mean absolute error, root mean squared error, R² and Spearman's rank
//! correlation. With several targets, each is the mean over the targets for which it is defined.
//!
//! # Source
//!
//! Spearman, *The Proof and Measurement of Association between Two Things*, American Journal of
//! Psychology 15, 1904: the correlation of ranks, where equal values share their mean rank.

use graphmill_core::table::{Entry, Table};
use rayon::prelude::*;

use super::{Input, Metric, Truth};

/// Mean absolute error.
const MAE: Entry<Metric> = Entry {
    name: "mae",
    summary: "mean absolute error, in the unit of the target; smaller is better",
    source: "",
    options: &[],
    make: mae,
};

/// Root of the mean squared error.
const RMSE: Entry<Metric> = Entry {
    name: "rmse",
    summary: "root of the mean squared error, in the unit of the target; smaller is better",
    source: "",
    options: &[],
    make: rmse,
};

/// Share of the variance that is explained; 0 for predicting the mean, below 0 if worse.
const R2: Entry<Metric> = Entry {
    name: "r2",
    summary: "explained share of the variance, at most 1",
    source: "scikit-learn's r2_score",
    options: &[],
    make: r2,
};

/// Correlation of ranks.
const SPEARMAN: Entry<Metric> = Entry {
    name: "spearman",
    summary: "correlation of the ranks of predictions and targets, -1 to 1",
    source: "Spearman, American Journal of Psychology 1904",
    options: &[],
    make: spearman,
};

/// Table of the metrics of real values.
pub static TABLE: Table<Metric> = Table::new("metric of values", &[MAE, RMSE, R2, SPEARMAN]);

/// Default metric of real values.
pub const DEFAULT: &str = RMSE.name;

/// Returns true if smaller values of the metric `name` are better.
pub fn is_error(name: &str) -> bool {
    name == MAE.name || name == RMSE.name
}

/// Mean over the targets of `f`, which takes pairs of a prediction and its target.
fn mean_over_targets(input: &Input, f: fn(&[(f64, f64)]) -> Option<f64>) -> Option<f64> {
    let Truth::Values(truth) = input.truth else { return None };
    let (width, rows) = (input.num_classes(), input.num_rows());
    let mut sum = (0.0, 0u32);
    for c in 0..width {
        let pair = |i: usize| {
            let (score, row) = input.row(i);
            let value = f64::from(truth[row * width + c]);
            (!value.is_nan()).then(|| (f64::from(input.scores[score * width + c]), value))
        };
        let pairs: Vec<(f64, f64)> = (0..rows).filter_map(pair).collect();
        if pairs.iter().any(|(score, _)| score.is_nan()) {
            return None;
        }
        if let Some(value) = Some(pairs).filter(|pairs| !pairs.is_empty()).and_then(|pairs| f(&pairs)) {
            sum = (sum.0 + value, sum.1 + 1);
        }
    }
    (sum.1 > 0).then(|| sum.0 / f64::from(sum.1))
}

fn mae(input: &Input) -> Option<f64> {
    mean_over_targets(input, |pairs| {
        Some(pairs.iter().map(|(x, y)| (x - y).abs()).sum::<f64>() / pairs.len() as f64)
    })
}

/// Sum of the squared errors.
fn squares(pairs: &[(f64, f64)]) -> f64 {
    pairs.iter().map(|(x, y)| (x - y) * (x - y)).sum()
}

fn rmse(input: &Input) -> Option<f64> {
    mean_over_targets(input, |pairs| Some((squares(pairs) / pairs.len() as f64).sqrt()))
}

fn r2(input: &Input) -> Option<f64> {
    mean_over_targets(input, |pairs| {
        let mean = pairs.iter().map(|(_, y)| y).sum::<f64>() / pairs.len() as f64;
        let all: f64 = pairs.iter().map(|(_, y)| (y - mean) * (y - mean)).sum();
        (all > 0.0).then(|| 1.0 - squares(pairs) / all)
    })
}

fn spearman(input: &Input) -> Option<f64> {
    mean_over_targets(input, |pairs| {
        let x = ranks(pairs.iter().map(|pair| pair.0).collect());
        let y = ranks(pairs.iter().map(|pair| pair.1).collect());
        // the mean of the ranks 1 to n
        let mean = (pairs.len() as f64 + 1.0) / 2.0;
        let product =
            |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum() };
        let scale = (product(&x, &x) * product(&y, &y)).sqrt();
        (scale > 0.0).then(|| (product(&x, &y) / scale).clamp(-1.0, 1.0))
    })
}

/// Ranks of the values from 1; equal values share their mean rank.
fn ranks(values: Vec<f64>) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.par_sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]).then(a.cmp(&b)));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for run in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = first as f64 + (run.len() as f64 + 1.0) / 2.0;
        run.iter().for_each(|&i| ranks[i] = rank);
        first += run.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, scores: &[f32], truth: &[f32], width: usize) -> Option<f64> {
        (TABLE.find(name).unwrap().make)(&Input::new(scores, width, Truth::Values(truth)))
    }

    #[test]
    fn metrics_match_scikit_learn_and_scipy() {
        // the examples of sklearn.metrics.r2_score and mean_absolute_error
        let (truth, scores) = ([3.0, -0.5, 2.0, 7.0], [2.5, 0.0, 2.0, 8.0]);
        assert_eq!(of("mae", &scores, &truth, 1), Some(0.5));
        assert_eq!(of("rmse", &scores, &truth, 1), Some(0.375f64.sqrt()));
        assert!((of("r2", &scores, &truth, 1).unwrap() - 0.948_608_137_044_967_9).abs() < 1e-12);
        // scipy.stats.spearmanr([1, 2, 3, 4, 5], [5, 6, 7, 8, 7])
        let rho = of("spearman", &[1.0, 2.0, 3.0, 4.0, 5.0], &[5.0, 6.0, 7.0, 8.0, 7.0], 1).unwrap();
        assert!((rho - 0.820_782_681_668_123_3).abs() < 1e-12, "{rho}");
    }

    #[test]
    fn missing_targets_are_excluded_and_several_are_averaged() {
        let truth = [1.0, 10.0, f32::NAN, 20.0];
        assert_eq!(of("mae", &[2.0, 10.0, 9.0, 26.0], &truth, 2), Some((1.0 + 3.0) / 2.0));
    }

    #[test]
    fn undefined_metrics_are_none() {
        for entry in &TABLE {
            assert_eq!(of(entry.name, &[1.0], &[f32::NAN], 1), None, "{}", entry.name);
            assert_eq!(of(entry.name, &[f32::NAN], &[1.0], 1), None, "{}", entry.name);
            assert_eq!(of(entry.name, &[], &[], 1), None, "{}", entry.name);
            let classes = Input::new(&[1.0], 1, Truth::Single(&[0]));
            assert_eq!((entry.make)(&classes), None, "{}", entry.name);
        }
        assert_eq!(
            (of("r2", &[1.0, 2.0], &[1.0, 1.0], 1), of("spearman", &[1.0, 1.0], &[1.0, 2.0], 1)),
            (None, None)
        );
    }

    #[test]
    fn errors_are_better_if_smaller() {
        assert!(is_error("mae") && is_error(DEFAULT) && !is_error("r2") && !is_error("accuracy"));
    }
}
