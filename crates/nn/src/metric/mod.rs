//! Scores of predictions: what is scored, and the table of the metrics there are.
//!
//! All metrics are between 0 and 1, larger is better, and read logits: a single-label prediction is
//! the row's largest logit (the first of equals), a multi-label one every class with a logit above
//! 0 (a probability above one half). None of them ever is NaN: where a metric is not defined (no
//! labelled row, no class with both kinds, a score that is NaN) there is none.

mod confusion;
mod ranking;

use graphmill_core::{NodeId, Result, table::Table};
use rayon::prelude::*;

/// Rows that one task looks at. Rows are counted in whole numbers or summed in pieces that do not
/// depend on the threads.
const TASK: usize = 1 << 12;

/// The labels to score against.
#[derive(Clone, Copy, Debug)]
pub enum Truth<'a> {
    /// One class per row, -1 where unknown (such rows take no part).
    Single(&'a [i32]),
    /// A set of classes per row: `rows x C` zeros and ones, row-major.
    Multi(&'a [u8]),
}

/// What is scored: logits (`rows x C`, row-major) beside the truth.
///
/// ```
/// use graphmill_nn::metric::{self, Input, Truth};
/// let logits = [2.0, 1.0, 0.0, 1.0, -1.0, 1.0];
/// let input = Input::new(&logits, 2, Truth::Single(&[0, 0, 1]));
/// let accuracy = metric::by_name("accuracy").unwrap();
/// assert_eq!(accuracy(&input), Some(2.0 / 3.0));
/// assert_eq!(accuracy(&input.of(&[0, 2])), Some(1.0));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    scores: &'a [f32],
    classes: usize,
    truth: Truth<'a>,
    picked: Picked<'a>,
}

/// Which rows take part.
#[derive(Clone, Copy, Debug)]
enum Picked<'a> {
    /// All, in order.
    All,
    /// These of the scores and of the truth.
    Both(&'a [NodeId]),
    /// All of the scores, beside these of the truth.
    Truth(&'a [NodeId]),
}

impl<'a> Input<'a> {
    /// All rows: as many of logits as of truth.
    pub fn new(scores: &'a [f32], classes: usize, truth: Truth<'a>) -> Self {
        Self { scores, classes, truth, picked: Picked::All }
    }

    /// Only these rows, of the logits and of the truth: for logits of all nodes.
    pub fn of(self, rows: &'a [NodeId]) -> Self {
        Self { picked: Picked::Both(rows), ..self }
    }

    /// Row `i` of the logits belongs to row `nodes[i]` of the truth: for logits of these nodes
    /// only.
    pub fn against(self, nodes: &'a [NodeId]) -> Self {
        Self { picked: Picked::Truth(nodes), ..self }
    }

    /// `C`.
    pub fn num_classes(&self) -> usize {
        self.classes
    }

    /// How many rows are picked, unlabelled ones included.
    ///
    /// # Panics
    /// Logits and truth disagree in length: a bug in the caller.
    fn num_rows(&self) -> usize {
        let rows = self.scores.len().checked_div(self.classes).unwrap_or(0);
        assert_eq!(rows * self.classes, self.scores.len(), "logits are not rows of {}", self.classes);
        let truths = match self.truth {
            Truth::Single(class) => class.len(),
            Truth::Multi(member) => member.len().checked_div(self.classes).unwrap_or(0),
        };
        match self.picked {
            Picked::All => assert_eq!(rows, truths, "rows of logits and of truth"),
            Picked::Both(picked) => return picked.len(),
            Picked::Truth(nodes) => assert_eq!(rows, nodes.len(), "rows of logits and nodes"),
        }
        rows
    }

    /// The rows of logits and of truth of the `i`-th picked row.
    fn row(&self, i: usize) -> (usize, usize) {
        match self.picked {
            Picked::All => (i, i),
            Picked::Both(picked) => (picked[i] as usize, picked[i] as usize),
            Picked::Truth(nodes) => (i, nodes[i] as usize),
        }
    }

    /// The labelled rows, each with its logits; `None` where there are none or a logit is NaN.
    fn rows(&self) -> Option<Vec<Row<'a>>> {
        let c = self.classes;
        let labelled = |i| {
            let (score, truth) = self.row(i);
            let label = match self.truth {
                Truth::Single(class) if class[truth] < 0 => return None,
                Truth::Single(class) => Label::Class(class[truth] as usize),
                Truth::Multi(member) => Label::Set(&member[truth * c..(truth + 1) * c]),
            };
            Some(Row { logits: &self.scores[score * c..(score + 1) * c], label })
        };
        let all = (0..self.num_rows()).into_par_iter().with_min_len(TASK);
        let rows: Vec<Row> = all.filter_map(labelled).collect();
        let nan = |row: &Row| row.logits.iter().any(|x| x.is_nan());
        let broken = rows.par_iter().with_min_len(TASK).any(nan);
        (!rows.is_empty() && !broken).then_some(rows)
    }
}

/// A labelled row.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    logits: &'a [f32],
    label: Label<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Label<'a> {
    Class(usize),
    Set(&'a [u8]),
}

impl Row<'_> {
    /// Whether class `c` is true.
    fn is(&self, c: usize) -> bool {
        match self.label {
            Label::Class(class) => class == c,
            Label::Set(member) => member[c] != 0,
        }
    }

    /// The first of the largest logits.
    fn argmax(&self) -> usize {
        let mut best = 0;
        for (c, x) in self.logits.iter().enumerate() {
            if *x > self.logits[best] {
                best = c;
            }
        }
        best
    }
}

/// A metric: its value, or none where it is not defined. O(rows C), the two by ranks O(C rows log
/// rows).
///
/// # Panics
/// Logits and truth disagree in length, or a picked row is outside: a bug in the caller.
pub type Metric = fn(&Input) -> Option<f64>;

/// The metrics.
pub static TABLE: Table<Metric> = Table::new(
    "metric",
    &[
        confusion::ACCURACY,
        confusion::F1_MICRO,
        confusion::F1_MACRO,
        ranking::ROC_AUC,
        ranking::AVERAGE_PRECISION,
    ],
);

/// The metric called `name`.
///
/// # Errors
/// No such name.
pub fn by_name(name: &str) -> Result<Metric> {
    Ok(TABLE.find(name)?.make)
}

/// The metric of a dataset that names none: `accuracy`, or `f1-micro` where nodes have several
/// labels.
pub fn default_name(multi_label: bool) -> &'static str {
    if multi_label { confusion::F1_MICRO.name } else { confusion::ACCURACY.name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_picked_from_both_or_from_the_truth() {
        let accuracy = by_name("accuracy").unwrap();
        let logits = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0];
        let truth = Truth::Single(&[0, 0, 0, 1]);
        assert_eq!(accuracy(&Input::new(&logits, 2, truth).of(&[0, 2])), Some(1.0));
        // row 0 is node 3, row 1 node 2, row 2 node 0
        assert_eq!(accuracy(&Input::new(&logits, 2, truth).against(&[3, 2, 0])), Some(1.0 / 3.0));
    }

    #[test]
    fn nothing_to_score_is_none_and_never_nan() {
        for entry in &TABLE {
            let metric = entry.make;
            assert_eq!(metric(&Input::new(&[], 2, Truth::Single(&[]))), None, "{}", entry.name);
            assert_eq!(metric(&Input::new(&[], 0, Truth::Multi(&[]))), None, "{}", entry.name);
            assert_eq!(metric(&Input::new(&[1.0, 0.0], 2, Truth::Single(&[-1]))), None, "{}", entry.name);
            let broken = Input::new(&[f32::NAN, 0.0, 1.0, 0.0], 2, Truth::Single(&[0, 1]));
            assert_eq!(metric(&broken), None, "{}", entry.name);
        }
    }

    #[test]
    fn perfect_predictions_score_one_everywhere() {
        for entry in &TABLE {
            let single = Input::new(&[3.0, -1.0, -1.0, 3.0, 2.0, 0.0], 2, Truth::Single(&[0, 1, 0]));
            assert_eq!((entry.make)(&single), Some(1.0), "{}", entry.name);
            let multi = Input::new(&[3.0, 1.0, -1.0, 3.0, 2.0, -1.0], 2, Truth::Multi(&[1, 1, 0, 1, 1, 0]));
            assert_eq!((entry.make)(&multi), Some(1.0), "{}", entry.name);
        }
    }

    #[test]
    fn defaults_are_in_the_table() {
        assert_eq!((default_name(false), default_name(true)), ("accuracy", "f1-micro"));
        assert!(by_name(default_name(false)).is_ok() && by_name(default_name(true)).is_ok());
        assert_eq!(
            by_name("mrr").unwrap_err().to_string(),
            "unknown metric 'mrr'; known: accuracy, f1-micro, f1-macro, roc-auc, average-precision"
        );
    }
}
