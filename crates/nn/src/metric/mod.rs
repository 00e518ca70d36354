//! Metrics: scores of predictions against labels or values, and the tables of metrics.
//!
//! Metrics of labels ([`TABLE`]) are between 0 and 1, larger is better, and they read logits. A
//! single-label prediction is the row's largest logit (the first among equals); a multi-label
//! prediction is every class with a logit above 0 (a probability above one half). A metric is never
//! NaN: it is `None` if undefined (no labelled rows, no class with both positives and negatives, a
//! NaN score).

#![forbid(unsafe_code)]

pub mod classes;
mod confusion;
pub mod diagnostics;
pub(crate) mod ranking;
pub mod values;

use graphmill_core::{ClassColumn, NodeId, Result, table::Table};
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
    /// One class per row in each of `K` columns: `rows x K`, row-major, -1 if unknown. A row of
    /// logits has those of the first column, then those of the next; metrics are of one column
    /// ([`Input::column`]) or their mean ([`Input::score`]).
    Columns(&'a [i32], &'a [ClassColumn]),
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
    /// Number and first class of the column of [`Truth::Columns`] that is scored.
    column: Option<(usize, usize)>,
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
        Self { scores, classes, truth, selection: Selection::All, column: None }
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

    /// The columns of classes; empty unless the truth has several.
    pub fn columns(&self) -> &'a [ClassColumn] {
        match self.truth {
            Truth::Columns(_, columns) => columns,
            Truth::Single(_) | Truth::Multi(_) | Truth::Values(_) => &[],
        }
    }

    /// Restricts the input to the logits and classes of column `k`.
    ///
    /// # Panics
    /// The truth has no such column: a bug in the caller.
    pub fn column(self, k: usize) -> Self {
        let first = self.columns()[..k].iter().map(|column| column.classes).sum();
        Self { classes: self.columns()[k].classes, column: Some((k, first)), ..self }
    }

    /// Value of `metric`; of several columns of classes the mean over those for which it is
    /// defined.
    pub fn score(&self, metric: Metric) -> Option<f64> {
        if self.columns().is_empty() || self.column.is_some() {
            return metric(self);
        }
        let each: Vec<f64> = (0..self.columns().len()).filter_map(|k| metric(&self.column(k))).collect();
        (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
    }

    /// Number of classes, `C`.
    pub fn num_classes(&self) -> usize {
        self.classes
    }

    /// Number of logits of a row.
    fn width(&self) -> usize {
        match self.truth {
            Truth::Columns(_, columns) => columns.iter().map(|column| column.classes).sum(),
            Truth::Single(_) | Truth::Multi(_) | Truth::Values(_) => self.classes,
        }
    }

    /// Number of selected rows, including unlabelled ones.
    ///
    /// # Panics
    /// Logits and truth differ in length: a bug in the caller.
    fn num_rows(&self) -> usize {
        let width = self.width();
        let rows = self.scores.len().checked_div(width).unwrap_or(0);
        assert_eq!(rows * width, self.scores.len(), "logits are not rows of {width}");
        let truths = match self.truth {
            Truth::Single(class) => class.len(),
            Truth::Multi(member) => member.len().checked_div(self.classes).unwrap_or(0),
            Truth::Columns(class, columns) => class.len().checked_div(columns.len()).unwrap_or(0),
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
        let (c, width) = (self.classes, self.width());
        let (k, first) = self.column.unwrap_or_default();
        let labelled = |i| {
            let (score, truth) = self.row(i);
            let label = match self.truth {
                Truth::Single(class) if class[truth] < 0 => return None,
                Truth::Single(class) => Label::Class(class[truth] as usize),
                Truth::Multi(member) => Label::Set(&member[truth * c..(truth + 1) * c]),
                Truth::Columns(class, columns) => {
                    self.column?;
                    Label::Class(usize::try_from(class[truth * columns.len() + k]).ok()?)
                }
                Truth::Values(_) => return None,
            };
            Some(Row { logits: &self.scores[score * width + first..][..c], label })
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
    fn columns_are_scored_by_their_own_logits_and_by_their_mean() {
        let columns = [("sector", 2), ("region", 3)];
        let columns = columns.map(|(name, classes)| ClassColumn { name: name.into(), classes });
        let logits = [2.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 5.0, 1.0, 3.0, 0.0, 9.0, 0.0, 0.0];
        let class = [0, 2, 1, -1, 1, 1];
        let input = Input::new(&logits, 5, Truth::Columns(&class, &columns));
        for entry in &TABLE {
            let of = |scores: &[f32], classes, class: &[i32]| {
                (entry.make)(&Input::new(scores, classes, Truth::Single(class)))
            };
            let sector = of(&[2.0, 1.0, 0.0, 1.0, 3.0, 0.0], 2, &[0, 1, 1]);
            let region = of(&[0.0, 0.0, 1.0, 0.0, 5.0, 1.0, 9.0, 0.0, 0.0], 3, &[2, -1, 1]);
            assert_eq!((entry.make)(&input.column(0)), sector, "{}", entry.name);
            assert_eq!((entry.make)(&input.column(1)), region, "{}", entry.name);
            let mean = (sector.unwrap() + region.unwrap()) / 2.0;
            assert_eq!(input.score(entry.make), Some(mean), "{}", entry.name);
            assert_eq!((entry.make)(&input), None, "logits of several columns are no scores of one");
            // the mean is over the columns with labels
            let nodes = [1];
            let one = Input::new(&logits[5..10], 5, Truth::Columns(&class, &columns)).against(&nodes);
            assert_eq!(one.score(entry.make), (entry.make)(&one.column(0)));
        }
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
