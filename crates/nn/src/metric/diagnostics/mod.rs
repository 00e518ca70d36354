//! Diagnostics of predictions beyond a score: calibration of probabilities, precision and recall by
//! threshold, scores of each of several columns of classes, and residuals of values.

mod calibration;
mod columns;
mod residuals;
mod thresholds;

use std::collections::BTreeMap;

use graphmill_core::table::Entry;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

pub use calibration::{Bin, Calibration};
pub use columns::ColumnScores;
pub use residuals::{Residuals, VALUE_POINTS};
pub use thresholds::{ThresholdCurve, ThresholdPoint};

use super::{Input, Metric, Truth, values};

/// Diagnostics of one part of the split.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Diagnostics {
    /// "train", "valid" or "test".
    pub part: String,
    /// Calibration of probabilities, of a run that learned a class or a set of classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// Scores by threshold, with two classes or several labels per node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<ThresholdCurve>,
    /// Scores of each column, of a run that learned several columns of classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ColumnScores>,
    /// Metrics by name, of a run that learned values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, Option<f64>>,
    /// Residuals of each target, of a run that learned values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub residuals: Vec<Residuals>,
}

impl Diagnostics {
    /// Diagnostics of the logits, or values, of `input`, the nodes of `part`; `None` if no row is
    /// labelled or an output is NaN. Costs O(rows C log rows) time, and memory for a copy of the
    /// probabilities with two classes or several labels.
    pub fn new(part: &str, input: &Input) -> Option<Self> {
        let part = part.to_string();
        if matches!(input.truth, Truth::Values(_)) {
            let residuals = Residuals::of_targets(input);
            let score = |row: &Entry<Metric>| (row.name.to_string(), (row.make)(input));
            let scores = values::TABLE.iter().map(score).collect();
            return (!residuals.is_empty()).then(|| Self { part, residuals, scores, ..Self::default() });
        }
        if matches!(input.truth, Truth::Columns(..)) {
            let columns = ColumnScores::of_columns(input);
            return (!columns.is_empty()).then(|| Self { part, columns, ..Self::default() });
        }
        let rows = input.rows()?;
        let calibration = Calibration::new(&rows);
        let thresholds = ThresholdCurve::new(&rows, input.num_classes(), positive(input));
        Some(Self { part, calibration, thresholds, ..Self::default() })
    }
}

/// The rarer of two classes in all labels, the second among equals: the one that thresholds are
/// about. It is the same for all parts of the split.
fn positive(input: &Input) -> usize {
    // of several columns, every so many classes from the first of the column on
    let (class, first, step) = match (input.truth, input.column) {
        (Truth::Single(class), _) => (class, 0, 1),
        (Truth::Columns(class, columns), Some((k, _))) => (class, k, columns.len()),
        _ => return 1,
    };
    let count = |c: i32| class.par_iter().skip(first).step_by(step).filter(|&&of| of == c).count();
    usize::from(count(1) <= count(0))
}

/// Probability of the largest of the `logits`, and of class `c`, by softmax.
fn softmax(logits: &[f32], c: usize) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from(x - most).exp()).sum();
    f64::from(logits[c] - most).exp() / sum
}

/// Logistic function.
fn sigmoid(x: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(x)).exp())
}
