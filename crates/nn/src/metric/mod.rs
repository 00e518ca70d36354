//! Metrics: scores of predictions against labels or values, and the tables of metrics.
//!
//! Metrics of labels ([`TABLE`]) are between 0 and 1, larger is better, and they read logits. A
//! single-label prediction is the row's largest logit (the first among equals); a multi-label
//! prediction is every class with a logit above 0 (a probability above one half). A metric is never
//! NaN: it is `None` if undefined (no labelled rows, no class with both positives and negatives, a
//! NaN score).

pub mod classes;
mod confusion;
pub mod diagnostics;
pub(crate) mod ranking;
pub mod values;

use graphmill_core::{NodeId, Result, table::Table};
use rayon::prelude::*;

/// Minimum number of rows per task. Rows are counted in integers, or summed in chunks that do not
/// depend on the number of threads.
const MIN_TASK_LEN: usize = 1 << 12;

/// Labels to score against.
#[derive(Clone, Copy, Debug)]
pub enum Truth<'a> {
    /// One class per row, -1 if unknown (such rows are ignored).
    Single(&'a [i32]),
    /// A set of classes per row: `rows x C` zeros and ones, row-major.
    Multi(&'a [u8]),
    /// Real values: `rows x C`, row-major, NaN if unknown.
    Values(&'a [f32]),
}

/// Logits (`rows x C`, row-major) with their true labels.
///
/// ```
/// use graphmill_nn::metric::{self, Input, Truth};
/// let logits = [2.0, 1.0, 0.0, 1.0, -1.0, 1.0];
/// let input = Input::new(&logits, 2, Truth::Single(&[0, 0, 1]));
/// let accuracy = metric::by_name("accuracy").unwrap();
/// assert_eq!(accuracy(&input), Some(2.0 / 3.0));
/// assert_eq!(accuracy(&input.select(&[0, 2])), Some(1.0));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    scores: &'a [f32],
    classes: usize,
    truth: Truth<'a>,
    selection: Selection<'a>,
}

/// Selection of the scored rows.
#[derive(Clone, Copy, Debug)]
enum Selection<'a> {
    /// All rows, in order.
    All,
    /// These rows of the scores and of the truth.
    Both(&'a [NodeId]),
    /// All rows of the scores, against these rows of the truth.
    Truth(&'a [NodeId]),
}

impl<'a> Input<'a> {
    /// Scores all rows; `scores` and `truth` have the same number of rows.
    pub fn new(scores: &'a [f32], classes: usize, truth: Truth<'a>) -> Self {
        Self { scores, classes, truth, selection: Selection::All }
    }

    /// Restricts the input to these rows of both logits and truth, for logits of all nodes.
    pub fn select(self, rows: &'a [NodeId]) -> Self {
        Self { selection: Selection::Both(rows), ..self }
    }

    /// Matches row `i` of the logits with row `nodes[i]` of the truth, for logits of these nodes
    /// only.
    pub fn against(self, nodes: &'a [NodeId]) -> Self {
        Self { selection: Selection::Truth(nodes), ..self }
    }

    /// Number of classes, `C`.
    pub fn num_classes(&self) -> usize {
        self.classes
    }

    /// Number of selected rows, including unlabelled ones.
    ///
    /// # Panics
    /// Logits and truth differ in length: a bug in the caller.
    fn num_rows(&self) -> usize {
        let rows = self.scores.len().checked_div(self.classes).unwrap_or(0);
        assert_eq!(rows * self.classes, self.scores.len(), "logits are not rows of {}", self.classes);
        let truths = match self.truth {
            Truth::Single(class) => class.len(),
            Truth::Multi(member) => member.len().checked_div(self.classes).unwrap_or(0),
            Truth::Values(values) => values.len().checked_div(self.classes).unwrap_or(0),
        };
        match self.selection {
            Selection::All => assert_eq!(rows, truths, "rows of logits and of truth"),
            Selection::Both(rows) => return rows.len(),
            Selection::Truth(nodes) => assert_eq!(rows, nodes.len(), "rows of logits and nodes"),
        }
        rows
    }

    /// Row numbers in logits and truth of the `i`-th selected row.
    fn row(&self, i: usize) -> (usize, usize) {
        match self.selection {
            Selection::All => (i, i),
            Selection::Both(rows) => (rows[i] as usize, rows[i] as usize),
            Selection::Truth(nodes) => (i, nodes[i] as usize),
        }
    }

    /// Labelled rows with their logits; `None` if there is no labelled row or a logit is NaN.
    fn rows(&self) -> Option<Vec<Row<'a>>> {
        let c = self.classes;
        let labelled = |i| {
            let (score, truth) = self.row(i);
            let label = match self.truth {
                Truth::Single(class) if class[truth] < 0 => return None,
                Truth::Single(class) => Label::Class(class[truth] as usize),
                Truth::Multi(member) => Label::Set(&member[truth * c..(truth + 1) * c]),
                Truth::Values(_) => return None,
            };
            Some(Row { logits: &self.scores[score * c..(score + 1) * c], label })
        };
        let all = (0..self.num_rows()).into_par_iter().with_min_len(MIN_TASK_LEN);
        let rows: Vec<Row> = all.filter_map(labelled).collect();
        let nan = |row: &Row| row.logits.iter().any(|x| x.is_nan());
        let broken = rows.par_iter().with_min_len(MIN_TASK_LEN).any(nan);
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
    /// Returns true if class `c` is true.
    fn is(&self, c: usize) -> bool {
        match self.label {
            Label::Class(class) => class == c,
            Label::Set(member) => member[c] != 0,
        }
    }

    /// Index of the first of the largest logits.
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

/// A metric: its value, or `None` if undefined. Costs O(rows C); the two ranking metrics O(C rows
/// log rows).
///
/// # Panics
/// Logits and truth differ in length, or a selected row is out of range: a bug in the caller.
pub type Metric = fn(&Input) -> Option<f64>;

/// Table of the metrics of labels.
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

/// The metric of labels called `name`.
///
/// # Errors
/// The name is unknown.
pub fn by_name(name: &str) -> Result<Metric> {
    Ok(TABLE.find(name)?.make)
}

/// Table of the metrics of labels, or of real values.
pub fn table(of_values: bool) -> &'static Table<Metric> {
    if of_values { &values::TABLE } else { &TABLE }
}

/// Default metric of a dataset: `accuracy`, or `f1-micro` if nodes have several labels.
pub fn default_name(multi_label: bool) -> &'static str {
    if multi_label { confusion::F1_MICRO.name } else { confusion::ACCURACY.name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_selected_in_both_or_in_the_truth() {
        let accuracy = by_name("accuracy").unwrap();
        let logits = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0];
        let truth = Truth::Single(&[0, 0, 0, 1]);
        assert_eq!(accuracy(&Input::new(&logits, 2, truth).select(&[0, 2])), Some(1.0));
        // row 0 is node 3, row 1 node 2, row 2 node 0
        assert_eq!(accuracy(&Input::new(&logits, 2, truth).against(&[3, 2, 0])), Some(1.0 / 3.0));
    }

    #[test]
    fn undefined_metrics_are_none_and_never_nan() {
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
    fn perfect_predictions_score_one_in_every_metric() {
        for entry in &TABLE {
            let single = Input::new(&[3.0, -1.0, -1.0, 3.0, 2.0, 0.0], 2, Truth::Single(&[0, 1, 0]));
            assert_eq!((entry.make)(&single), Some(1.0), "{}", entry.name);
            let multi = Input::new(&[3.0, 1.0, -1.0, 3.0, 2.0, -1.0], 2, Truth::Multi(&[1, 1, 0, 1, 1, 0]));
            assert_eq!((entry.make)(&multi), Some(1.0), "{}", entry.name);
        }
    }

    #[test]
    fn default_metrics_are_in_the_table() {
        assert_eq!((default_name(false), default_name(true)), ("accuracy", "f1-micro"));
        assert!(by_name(default_name(false)).is_ok() && by_name(default_name(true)).is_ok());
        assert_eq!(
            by_name("mrr").unwrap_err().to_string(),
            "unknown metric 'mrr'; known: accuracy, f1-micro, f1-macro, roc-auc, average-precision"
        );
    }
}
