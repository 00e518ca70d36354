//! Calibration: whether predictions with a probability of 0.8 are right in 8 of 10 cases.
//!
//! # Algorithm
//!
//! Predictions are binned by their confidence. The error of a bin is the distance between its mean
//! confidence and its accuracy; the expected error is their mean, weighted by the predictions.
//!
//! # Source
//!
//! Guo, Pleiss, Sun and Weinberger, *On Calibration of Modern Neural Networks*, ICML 2017, section
//! 2: the reliability diagram and the expected calibration error (equations 2, 3 and 5).
//!
//! # Cost
//!
//! O(rows C), parallel.
//!
//! # Deviations
//!
//! With several labels per node, each pair of a node and a label is a prediction: its confidence is
//! the probability of the label, and it is right if the node has the label.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{sigmoid, softmax};
use crate::metric::{Label, MIN_TASK_LEN, Row};

/// Number of bins, as in the source.
const BINS: usize = 15;

/// Reliability diagram and calibration error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Calibration {
    /// Mean distance between confidence and accuracy, weighted by the predictions of each bin.
    pub expected_error: f64,
    /// Largest distance of a bin.
    pub maximum_error: f64,
    /// Mean confidence of all predictions.
    pub confidence: f64,
    /// Share of all predictions that are right.
    pub accuracy: f64,
    /// Bins of equal width, without empty ones.
    pub bins: Vec<Bin>,
}

/// Predictions whose confidence lies in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bin {
    /// Lower end of the interval, exclusive except for 0.
    pub low: f64,
    /// Upper end, inclusive.
    pub high: f64,
    /// Number of predictions.
    pub count: u64,
    /// Mean confidence.
    pub confidence: f64,
    /// Share that is right.
    pub accuracy: f64,
}

/// Sums of one bin.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    right: u64,
    confidence: f64,
}

impl Calibration {
    /// Calibration of the predictions of `rows`; `None` without predictions.
    pub(super) fn new(rows: &[Row]) -> Option<Self> {
        // the chunks do not depend on the threads, so neither do the bits of the sums
        let chunks: Vec<[Sum; BINS]> = rows.par_chunks(MIN_TASK_LEN).map(sums).collect();
        let mut bins = [Sum::default(); BINS];
        for chunk in &chunks {
            for (bin, of) in bins.iter_mut().zip(chunk) {
                bin.count += of.count;
                bin.right += of.right;
                bin.confidence += of.confidence;
            }
        }
        let all = bins.iter().fold(Sum::default(), |sum, bin| Sum {
            count: sum.count + bin.count,
            right: sum.right + bin.right,
            confidence: sum.confidence + bin.confidence,
        });
        if all.count == 0 {
            return None;
        }
        let bin = |(i, sum): (usize, &Sum)| Bin {
            low: i as f64 / BINS as f64,
            high: (i + 1) as f64 / BINS as f64,
            count: sum.count,
            confidence: sum.confidence / sum.count as f64,
            accuracy: sum.right as f64 / sum.count as f64,
        };
        let bins: Vec<Bin> = bins.iter().enumerate().filter(|(_, sum)| sum.count > 0).map(bin).collect();
        let total = all.count as f64;
        let distance = |bin: &Bin| (bin.confidence - bin.accuracy).abs();
        Some(Self {
            expected_error: bins.iter().map(|bin| distance(bin) * bin.count as f64 / total).sum(),
            maximum_error: bins.iter().map(distance).fold(0.0, f64::max),
            confidence: all.confidence / total,
            accuracy: all.right as f64 / total,
            bins,
        })
    }
}

/// Sums of the bins over some rows.
fn sums(rows: &[Row]) -> [Sum; BINS] {
    let mut bins = [Sum::default(); BINS];
    let mut add = |confidence: f64, is_right: bool| {
        let bin = &mut bins[((confidence * BINS as f64).ceil() as usize).clamp(1, BINS) - 1];
        bin.count += 1;
        bin.right += u64::from(is_right);
        bin.confidence += confidence;
    };
    for row in rows {
        match row.label {
            Label::Class(class) => {
                let predicted = row.argmax();
                add(softmax(row.logits, predicted), predicted == class);
            }
            Label::Set(member) => {
                row.logits.iter().zip(member).for_each(|(&x, &is)| add(sigmoid(x), is != 0));
            }
        }
    }
    bins
}

#[cfg(test)]
mod tests {
    use crate::metric::{Input, Truth, diagnostics::Diagnostics};

    #[test]
    fn the_error_is_the_distance_of_confidence_and_accuracy() {
        // a probability of 0.8 for class 0 in ten rows, of which six are right
        let logit = 4f32.ln();
        let logits: Vec<f32> = (0..10).flat_map(|_| [logit, 0.0]).collect();
        let class: Vec<i32> = (0..10).map(|i| i32::from(i >= 6)).collect();
        let of = Diagnostics::new("test", &Input::new(&logits, 2, Truth::Single(&class))).unwrap();
        let calibration = of.calibration.unwrap();
        assert!((calibration.expected_error - 0.2).abs() < 1e-6, "{calibration:?}");
        assert_eq!((calibration.bins.len(), calibration.bins[0].count), (1, 10));
        assert!((calibration.confidence - 0.8).abs() < 1e-6 && (calibration.accuracy - 0.6).abs() < 1e-12);
    }

    #[test]
    fn every_label_of_a_node_is_a_prediction() {
        let logits = [30.0, -30.0, 30.0, -30.0];
        let of = Diagnostics::new("test", &Input::new(&logits, 2, Truth::Multi(&[1, 0, 0, 1]))).unwrap();
        let calibration = of.calibration.unwrap();
        assert_eq!(calibration.bins.iter().map(|bin| bin.count).collect::<Vec<_>>(), [2, 2]);
        assert!((calibration.expected_error - 0.5).abs() < 1e-6, "{calibration:?}");
    }
}
