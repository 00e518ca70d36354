//! Metrics of decisions: accuracy and F1.
//!
//! With `tp`, `fp` and `fn` the true positives, false positives and false negatives of a class,
//! `F1 = 2 tp / (2 tp + fp + fn)` (van Rijsbergen, *Information Retrieval*, 1979, chapter 7).

use graphmill_core::table::Entry;
use rayon::prelude::*;

use super::{Input, Label, MIN_TASK_LEN, Metric, Row};

/// Share of rows whose prediction is correct in every class: the usual accuracy for single labels,
/// the share of exactly predicted sets for multiple labels (scikit-learn's `accuracy_score`).
pub(super) const ACCURACY: Entry<Metric> = Entry {
    name: "accuracy",
    summary: "share of rows predicted correctly (for several labels, the exact set)",
    source: "",
    options: &[],
    make: accuracy,
};

/// F1 of the counts summed over the classes. Equals the accuracy for single labels.
pub(super) const F1_MICRO: Entry<Metric> = Entry {
    name: "f1-micro",
    summary: "F1 of the counts summed over the classes",
    source: "scikit-learn's f1_score(average='micro')",
    options: &[],
    make: f1_micro,
};

/// Unweighted mean of the classes' F1. A class that is neither true nor predicted in any row is
/// excluded (scikit-learn does the same for single labels, but counts such a class as 0 for
/// multiple labels).
pub(super) const F1_MACRO: Entry<Metric> = Entry {
    name: "f1-macro",
    summary: "mean of the classes' F1",
    source: "scikit-learn's f1_score(average='macro')",
    options: &[],
    make: f1_macro,
};

/// Counts of one class.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// True positives.
    hit: u64,
    /// False positives and false negatives together.
    wrong: u64,
}

impl Counts {
    fn f1(self) -> Option<f64> {
        let all = 2 * self.hit + self.wrong;
        (all > 0).then(|| (2 * self.hit) as f64 / all as f64)
    }
}

/// Returns true if class `c` is predicted.
fn predicted(row: &Row, argmax: usize, c: usize) -> bool {
    match row.label {
        Label::Class(_) => argmax == c,
        Label::Set(_) => row.logits[c] > 0.0,
    }
}

/// Counts of every class.
fn counts(rows: &[Row], classes: usize) -> Vec<Counts> {
    let add = |mut all: Vec<Counts>, more: Vec<Counts>| {
        for (all, more) in all.iter_mut().zip(more) {
            all.hit += more.hit;
            all.wrong += more.wrong;
        }
        all
    };
    let none = || vec![Counts::default(); classes];
    rows.par_chunks(MIN_TASK_LEN).map(|rows| count(rows, classes)).reduce(none, add)
}

fn count(rows: &[Row], classes: usize) -> Vec<Counts> {
    let mut counts = vec![Counts::default(); classes];
    for row in rows {
        let argmax = row.argmax();
        for (c, count) in counts.iter_mut().enumerate() {
            match (row.is(c), predicted(row, argmax, c)) {
                (true, true) => count.hit += 1,
                (false, false) => {}
                _ => count.wrong += 1,
            }
        }
    }
    counts
}

fn accuracy(input: &Input) -> Option<f64> {
    let rows = input.rows()?;
    let right = rows
        .par_iter()
        .with_min_len(MIN_TASK_LEN)
        .filter(|row| match row.label {
            Label::Class(class) => row.argmax() == class,
            Label::Set(_) => (0..input.classes).all(|c| row.is(c) == predicted(row, 0, c)),
        })
        .count();
    Some(right as f64 / rows.len() as f64)
}

fn f1_micro(input: &Input) -> Option<f64> {
    let mut all = Counts::default();
    for count in counts(&input.rows()?, input.classes) {
        all.hit += count.hit;
        all.wrong += count.wrong;
    }
    all.f1()
}

fn f1_macro(input: &Input) -> Option<f64> {
    let f1: Vec<f64> = counts(&input.rows()?, input.classes).into_iter().filter_map(Counts::f1).collect();
    (!f1.is_empty()).then(|| f1.iter().sum::<f64>() / f1.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::super::Truth;
    use super::*;

    /// Logits that predict these classes out of `classes`.
    fn one_hot(predicted: &[usize], classes: usize) -> Vec<f32> {
        predicted.iter().flat_map(|&p| (0..classes).map(move |c| f32::from(u8::from(c == p)))).collect()
    }

    #[test]
    fn single_label_scores_match_scikit_learn() {
        // scikit-learn's example: macro 0.2666..., micro 1/3
        let logits = one_hot(&[0, 2, 1, 0, 0, 1], 3);
        let input = Input::new(&logits, 3, Truth::Single(&[0, 1, 2, 0, 1, 2]));
        assert_eq!(accuracy(&input), Some(2.0 / 6.0));
        assert_eq!(f1_micro(&input), Some(2.0 / 6.0));
        // class 0: 2 hits, 1 wrong; classes 1 and 2: 0 hits
        assert!((f1_macro(&input).unwrap() - 0.8 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn unlabelled_rows_and_unseen_classes_are_excluded() {
        // class 2 of 4 is never true nor predicted, class 3 is predicted once, wrongly
        let logits = one_hot(&[0, 1, 3, 2], 4);
        let input = Input::new(&logits, 4, Truth::Single(&[0, 1, 1, -1]));
        assert_eq!(accuracy(&input), Some(2.0 / 3.0));
        // 1, 2/3 and 0
        assert!((f1_macro(&input).unwrap() - 5.0 / 9.0).abs() < 1e-12);
    }

    #[test]
    fn multiple_labels_are_thresholded_at_zero() {
        // predictions {0}, {0, 1}, {}, {2}; a logit of exactly 0 is negative
        let logits = [1.0, 0.0, -1.0, 2.0, 0.5, -1.0, -1.0, -2.0, -3.0, -1.0, -1.0, 0.1];
        let truth = [1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
        let input = Input::new(&logits, 3, Truth::Multi(&truth));
        assert_eq!(accuracy(&input), Some(0.5));
        // hits 2 + 0 + 1, wrong 0 + 2 + 0
        assert_eq!(f1_micro(&input), Some(6.0 / 8.0));
        assert_eq!(f1_macro(&input), Some(2.0 / 3.0));
    }

    #[test]
    fn ties_predict_the_first_class() {
        let input = Input::new(&[0.0, 0.0, 0.0, 0.0], 2, Truth::Single(&[0, 1]));
        assert_eq!(accuracy(&input), Some(0.5));
    }

    #[test]
    fn f1_without_positives_is_undefined() {
        let input = Input::new(&[-1.0, -1.0], 2, Truth::Multi(&[0, 0]));
        assert_eq!((f1_micro(&input), f1_macro(&input), accuracy(&input)), (None, None, Some(1.0)));
    }
}
