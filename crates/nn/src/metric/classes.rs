//! Scores of each class and the confusion matrix.
//!
//! With `tp`, `fp` and `fn` the true positives, false positives and false negatives of a class,
//! precision is `tp / (tp + fp)`, recall `tp / (tp + fn)` and F1 their harmonic mean (van
//! Rijsbergen, *Information Retrieval*, 1979, chapter 7). Averages are those of scikit-learn's
//! `classification_report`, where an undefined score of a class counts as 0.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Input, Label, Row};

/// Largest number of classes for which the whole matrix is stored.
pub const MATRIX_CLASSES: usize = 100;

/// Number of the most frequent confusions that a report lists.
pub const TOP_CONFUSIONS: usize = 20;

/// Scores of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassScore {
    /// Name of the class, or its number.
    pub class: String,
    /// Number of rows of the class.
    pub support: u64,
    /// Number of rows predicted as the class.
    pub predicted: u64,
    /// Share of the predictions that are correct; `None` if the class is never predicted.
    pub precision: Option<f64>,
    /// Share of the rows that are predicted; `None` if no row has the class.
    pub recall: Option<f64>,
    /// Harmonic mean of both; `None` if the class is neither true nor predicted.
    pub f1: Option<f64>,
}

/// Mean of the classes' scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Average {
    /// Mean precision.
    pub precision: f64,
    /// Mean recall.
    pub recall: f64,
    /// Mean F1.
    pub f1: f64,
}

/// Rows of one class that are predicted as another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confusion {
    /// Number of the true class.
    pub truth: usize,
    /// Number of the predicted class.
    pub predicted: usize,
    /// Number of rows.
    pub count: u64,
}

/// Scores of all classes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassReport {
    /// Scores of each class, in the order of their numbers.
    pub classes: Vec<ClassScore>,
    /// Mean over the classes that are true or predicted.
    pub macro_average: Average,
    /// Mean over the classes, weighted by their rows.
    pub weighted_average: Average,
    /// Confusion matrix: number of rows by true class (outer) and predicted class. `None` with
    /// several labels per node, or more than [`MATRIX_CLASSES`] classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confusion_matrix: Option<Vec<Vec<u64>>>,
    /// Most frequent confusions, the largest first. Empty with several labels per node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub top_confusions: Vec<Confusion>,
}

/// Counts of one class.
#[derive(Clone, Copy, Default)]
struct Counts {
    hit: u64,
    support: u64,
    predicted: u64,
}

impl ClassReport {
    /// Scores of the classes in `input`, called `names` if there is a name for each; `None` if no
    /// row is labelled or a logit is NaN. Costs O(rows C + rows log rows).
    pub fn new(input: &Input, names: &[String]) -> Option<Self> {
        let (rows, classes) = (input.rows()?, input.num_classes());
        let is_single = rows.iter().all(|row| matches!(row.label, Label::Class(_)));
        if !is_single {
            return Some(Self::of_counts(&count_sets(&rows, classes), names));
        }
        let mut pairs: Vec<(usize, usize)> = rows.par_iter().filter_map(pair).collect();
        pairs.par_sort_unstable();
        let cells: Vec<Confusion> = pairs
            .chunk_by(|a, b| a == b)
            .map(|run| Confusion { truth: run[0].0, predicted: run[0].1, count: run.len() as u64 })
            .collect();
        let mut counts = vec![Counts::default(); classes];
        for cell in &cells {
            counts[cell.truth].support += cell.count;
            counts[cell.predicted].predicted += cell.count;
            if cell.truth == cell.predicted {
                counts[cell.truth].hit += cell.count;
            }
        }
        let matrix = (classes <= MATRIX_CLASSES).then(|| {
            let mut matrix = vec![vec![0; classes]; classes];
            cells.iter().for_each(|cell| matrix[cell.truth][cell.predicted] = cell.count);
            matrix
        });
        let mut wrong: Vec<Confusion> =
            cells.into_iter().filter(|cell| cell.truth != cell.predicted).collect();
        // a stable sort: equal counts stay in the order of the classes
        wrong.sort_by_key(|cell| std::cmp::Reverse(cell.count));
        wrong.truncate(TOP_CONFUSIONS);
        Some(Self { confusion_matrix: matrix, top_confusions: wrong, ..Self::of_counts(&counts, names) })
    }

    fn of_counts(counts: &[Counts], names: &[String]) -> Self {
        let named = names.len() == counts.len();
        let name = |c: usize| if named { names[c].clone() } else { c.to_string() };
        let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let classes: Vec<ClassScore> = counts
            .iter()
            .enumerate()
            .map(|(c, &Counts { hit, support, predicted })| ClassScore {
                class: name(c),
                support,
                predicted,
                precision: share(hit, predicted),
                recall: share(hit, support),
                f1: share(2 * hit, support + predicted),
            })
            .collect();
        let mean = |weight: &dyn Fn(&ClassScore) -> f64| {
            let of = |value: fn(&ClassScore) -> Option<f64>| -> f64 {
                classes.iter().map(|class| weight(class) * value(class).unwrap_or(0.0)).sum()
            };
            let whole: f64 = classes.iter().map(weight).sum::<f64>().max(f64::MIN_POSITIVE);
            let (precision, recall, f1) = (of(|c| c.precision), of(|c| c.recall), of(|c| c.f1));
            Average { precision: precision / whole, recall: recall / whole, f1: f1 / whole }
        };
        let macro_average = mean(&|class| f64::from(u8::from(class.support + class.predicted > 0)));
        let weighted_average = mean(&|class| class.support as f64);
        Self { classes, macro_average, weighted_average, ..Self::default() }
    }

    /// Name of class number `c`.
    pub fn name(&self, c: usize) -> &str {
        self.classes.get(c).map_or("", |class| &class.class)
    }
}

/// True and predicted class of a row with one label.
fn pair(row: &Row) -> Option<(usize, usize)> {
    match row.label {
        Label::Class(class) => Some((class, row.argmax())),
        Label::Set(_) => None,
    }
}

/// Counts of every class of rows with several labels.
fn count_sets(rows: &[Row], classes: usize) -> Vec<Counts> {
    let mut counts = vec![Counts::default(); classes];
    for row in rows {
        for (c, count) in counts.iter_mut().enumerate() {
            let (is_true, is_predicted) = (row.is(c), row.logits[c] > 0.0);
            count.support += u64::from(is_true);
            count.predicted += u64::from(is_predicted);
            count.hit += u64::from(is_true && is_predicted);
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::Truth, *};

    /// Logits that predict these classes out of `classes`.
    fn one_hot(predicted: &[usize], classes: usize) -> Vec<f32> {
        predicted.iter().flat_map(|&p| (0..classes).map(move |c| f32::from(u8::from(c == p)))).collect()
    }

    #[test]
    fn scores_by_class_match_scikit_learn() {
        // classification_report([0, 1, 2, 2, 2], [0, 0, 2, 2, 1]), the example of its documentation
        let logits = one_hot(&[0, 0, 2, 2, 1], 3);
        let input = Input::new(&logits, 3, Truth::Single(&[0, 1, 2, 2, 2]));
        let names = ["a", "b", "c"].map(String::from);
        let report = ClassReport::new(&input, &names).unwrap();
        let [a, b, c] = &report.classes[..] else { panic!("three classes") };
        assert_eq!((a.precision, a.recall, a.f1, a.support), (Some(0.5), Some(1.0), Some(2.0 / 3.0), 1));
        assert_eq!((b.precision, b.recall, b.f1, b.support), (Some(0.0), Some(0.0), Some(0.0), 1));
        assert_eq!((c.precision, c.recall, c.f1, c.support), (Some(1.0), Some(2.0 / 3.0), Some(0.8), 3));
        let close = |x: f64, y: f64| (x - y).abs() < 1e-12;
        assert!(close(report.macro_average.f1, (2.0 / 3.0 + 0.8) / 3.0));
        assert!(close(report.weighted_average.precision, 0.7));
        assert_eq!(report.confusion_matrix, Some(vec![vec![1, 0, 0], vec![1, 0, 0], vec![0, 1, 2]]));
        let first = Confusion { truth: 1, predicted: 0, count: 1 };
        assert_eq!((&report.top_confusions[0], report.top_confusions.len()), (&first, 2));
        assert_eq!(report.name(2), "c");
    }

    #[test]
    fn several_labels_have_scores_but_no_matrix() {
        let input = Input::new(&[1.0, -1.0, 1.0, 1.0], 2, Truth::Multi(&[1, 0, 0, 1]));
        let report = ClassReport::new(&input, &[]).unwrap();
        assert_eq!((report.classes[0].precision, report.classes[0].recall), (Some(0.5), Some(1.0)));
        assert_eq!((report.classes[1].class.as_str(), report.classes[1].f1), ("1", Some(1.0)));
        assert!(report.confusion_matrix.is_none() && report.top_confusions.is_empty());
    }

    #[test]
    fn undefined_scores_are_none() {
        let unlabelled = Input::new(&[1.0, 0.0], 2, Truth::Single(&[-1]));
        assert_eq!(ClassReport::new(&unlabelled, &[]), None);
        let one = Input::new(&[1.0, 0.0, 0.0], 3, Truth::Single(&[1]));
        let report = ClassReport::new(&one, &[]).unwrap();
        let scores = |c: usize| (report.classes[c].precision, report.classes[c].recall, report.classes[c].f1);
        assert_eq!(scores(0), (Some(0.0), None, Some(0.0)));
        assert_eq!(scores(1), (None, Some(0.0), Some(0.0)));
        assert_eq!(scores(2), (None, None, None));
    }

    proptest! {
        #[test]
        fn weighted_recall_is_the_accuracy_and_the_matrix_counts_every_row(
            rows in prop::collection::vec((0usize..5, 0usize..5), 1..60),
        ) {
            let predicted: Vec<usize> = rows.iter().map(|row| row.1).collect();
            let truth: Vec<i32> = rows.iter().map(|row| row.0 as i32).collect();
            let logits = one_hot(&predicted, 5);
            let input = Input::new(&logits, 5, Truth::Single(&truth));
            let report = ClassReport::new(&input, &[]).unwrap();
            let accuracy = rows.iter().filter(|(t, p)| t == p).count() as f64 / rows.len() as f64;
            prop_assert!((report.weighted_average.recall - accuracy).abs() < 1e-12);
            let matrix = report.confusion_matrix.unwrap();
            prop_assert_eq!(matrix.iter().flatten().sum::<u64>(), rows.len() as u64);
            for (class, row) in report.classes.iter().zip(&matrix) {
                prop_assert_eq!(class.support, row.iter().sum::<u64>());
            }
        }
    }
}
