//! Precision, recall and F1 by the probability from which a label is predicted.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{sigmoid, softmax};
use crate::metric::{Label, Row};

/// Number of intervals of the curve.
const STEPS: usize = 100;

/// Scores by threshold: of the rarer class if there are two, or over all pairs of a node and a
/// label (micro average).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThresholdCurve {
    /// Number of the class that is predicted from the threshold on; `None` with several labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<usize>,
    /// The threshold with the largest F1 among all probabilities.
    pub best: ThresholdPoint,
    /// Scores at thresholds from 0 to 1 in steps of 0.01.
    pub points: Vec<ThresholdPoint>,
}

/// Scores at one threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThresholdPoint {
    /// Probability from which on the label is predicted.
    pub threshold: f64,
    /// Share of the predictions that are correct; `None` without predictions.
    pub precision: Option<f64>,
    /// Share of the labels that are predicted; `None` without labels.
    pub recall: Option<f64>,
    /// Harmonic mean of both.
    pub f1: Option<f64>,
}

impl ThresholdCurve {
    /// Curve of `rows` with `classes` classes, of two classes that of `positive`; `None` with one
    /// label per node among more than two classes, or without a true label.
    pub(super) fn new(rows: &[Row], classes: usize, positive: usize) -> Option<Self> {
        let is_single = rows.iter().all(|row| matches!(row.label, Label::Class(_)));
        if is_single && classes != 2 {
            return None;
        }
        let mut pairs: Vec<(f64, bool)> = match is_single {
            true => rows.par_iter().map(|row| (softmax(row.logits, positive), row.is(positive))).collect(),
            false => {
                let of = |row: &Row| -> Vec<(f64, bool)> {
                    (0..classes).map(|c| (sigmoid(row.logits[c]), row.is(c))).collect()
                };
                rows.par_iter().flat_map_iter(of).collect()
            }
        };
        // the largest first
        pairs.par_sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        let all = pairs.iter().filter(|pair| pair.1).count() as u64;
        if all == 0 {
            return None;
        }
        let mut points: Vec<ThresholdPoint> = Vec::with_capacity(STEPS + 1);
        let mut best = ThresholdPoint::default();
        let (mut hit, mut at) = (0u64, 0usize);
        // thresholds of the curve, descending: each is passed before smaller probabilities
        let mut next = (0..=STEPS).rev().map(|step| step as f64 / STEPS as f64).peekable();
        while at < pairs.len() {
            let threshold = pairs[at].0;
            while let Some(step) = next.next_if(|&step| step > threshold) {
                points.push(point(step, hit, at as u64, all));
            }
            while at < pairs.len() && pairs[at].0 == threshold {
                hit += u64::from(pairs[at].1);
                at += 1;
            }
            let here = point(threshold, hit, at as u64, all);
            if here.f1 > best.f1 {
                best = here;
            }
        }
        points.extend(next.map(|step| point(step, hit, at as u64, all)));
        points.reverse();
        Some(Self { class: is_single.then_some(positive), best, points })
    }

    /// Scores at the largest threshold of the curve that does not exceed `threshold`.
    pub fn at(&self, threshold: f64) -> Option<&ThresholdPoint> {
        self.points.iter().rev().find(|point| point.threshold <= threshold)
    }
}

/// Scores of `hit` correct among `predicted` predictions, of `all` true labels.
fn point(threshold: f64, hit: u64, predicted: u64, all: u64) -> ThresholdPoint {
    let share = |of: u64| (of > 0).then(|| hit as f64 / of as f64);
    let f1 = (predicted + all > 0).then(|| 2.0 * hit as f64 / (predicted + all) as f64);
    ThresholdPoint { threshold, precision: share(predicted), recall: share(all), f1 }
}

#[cfg(test)]
mod tests {
    use crate::metric::{Input, Truth, diagnostics::Diagnostics};

    /// Logits of two classes with these probabilities of the second.
    fn logits(probabilities: &[f64]) -> Vec<f32> {
        probabilities.iter().flat_map(|p| [0.0, (p / (1.0 - p)).ln() as f32]).collect()
    }

    #[test]
    fn curves_match_scikit_learn() {
        // the example of sklearn.metrics.precision_recall_curve
        let logits = logits(&[0.1, 0.4, 0.35, 0.8]);
        let input = Input::new(&logits, 2, Truth::Single(&[0, 0, 1, 1]));
        let curve = Diagnostics::new("valid", &input).unwrap().thresholds.unwrap();
        assert_eq!((curve.class, curve.points.len()), (Some(1), 101));
        let at = |threshold: f64| {
            let point = curve.at(threshold).unwrap();
            (point.precision, point.recall)
        };
        assert_eq!(at(0.05), (Some(0.5), Some(1.0)));
        assert_eq!(at(0.3), (Some(2.0 / 3.0), Some(1.0)));
        assert_eq!(at(0.38), (Some(0.5), Some(0.5)));
        assert_eq!(at(0.7), (Some(1.0), Some(0.5)));
        assert_eq!(at(0.9), (None, Some(0.0)));
        assert!((curve.best.threshold - 0.35).abs() < 1e-6 && curve.best.f1 == Some(0.8), "{:?}", curve.best);
        let grid: Vec<f64> = curve.points.iter().map(|point| point.threshold).collect();
        assert!(grid.is_sorted() && grid[0] == 0.0 && grid[100] == 1.0);
    }

    #[test]
    fn several_labels_are_pooled_and_many_classes_have_no_curve() {
        let input = Input::new(&[2.0, -1.0, 1.0, -2.0], 2, Truth::Multi(&[1, 1, 1, 0]));
        let curve = Diagnostics::new("test", &input).unwrap().thresholds.unwrap();
        assert_eq!((curve.class, curve.best.f1), (None, Some(1.0)));
        let single = Input::new(&[2.0, 1.0, 0.0], 3, Truth::Single(&[0]));
        assert_eq!(Diagnostics::new("test", &single).unwrap().thresholds, None);
        let none = Input::new(&[2.0, 1.0], 2, Truth::Single(&[0]));
        assert_eq!(Diagnostics::new("test", &none).unwrap().thresholds, None, "no node of the rarer class");
        let rare = Input::new(&[2.0, 1.0, 0.0, 3.0, 0.0, 1.0], 2, Truth::Single(&[0, 1, 1]));
        assert_eq!(Diagnostics::new("test", &rare).unwrap().thresholds.unwrap().class, Some(0));
    }
}
