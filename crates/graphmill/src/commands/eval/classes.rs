//! Text of scores by class: a table, and the confusion matrix or the most frequent confusions.

use std::fmt::Write;

use graphmill_engine::record::ScoredRows;
use graphmill_nn::metric::classes::{Average, ClassReport, ClassScore};

/// Number of classes up to which the table has a row for each.
const ALL: usize = 30;
/// Number of classes with the lowest F1 in a table of more classes.
const LOWEST: usize = 10;
/// Number of classes up to which the whole matrix is printed.
const MATRIX: usize = 10;
/// Number of confusions in a list.
const CONFUSIONS: usize = 5;

/// Scores by class of the part `part` of the split, whose rows are `what`.
pub(super) fn text(part: &str, report: &ClassReport, what: ScoredRows) -> String {
    let mut text = String::new();
    let width = report.classes.iter().map(|c| c.class.chars().count()).max().unwrap_or(0).clamp(16, 40);
    let number = |x: Option<f64>| x.map_or("-".to_string(), |x| format!("{x:.4}"));
    let _ = writeln!(
        text,
        "\n{:<width$}{what:>10}{:>11}{:>11}{:>9}{:>9}",
        format!("class ({part})"),
        "predicted",
        "precision",
        "recall",
        "f1"
    );
    let shown = shown(&report.classes);
    for ClassScore { class, support, predicted, precision, recall, f1 } in &shown {
        let (precision, recall, f1) = (number(*precision), number(*recall), number(*f1));
        let name = short(class, width);
        let _ = writeln!(text, "{name:<width$}{support:>10}{predicted:>11}{precision:>11}{recall:>9}{f1:>9}");
    }
    let mut average = |name: &str, of: &Average| {
        let Average { precision, recall, f1 } = of;
        let _ = writeln!(text, "{name:<width$}{:>21}{precision:>11.4}{recall:>9.4}{f1:>9.4}", "");
    };
    average("macro average", &report.macro_average);
    average("weighted average", &report.weighted_average);
    if shown.len() < report.classes.len() {
        let _ = writeln!(
            text,
            "({} of {} classes, those with the lowest F1; --json has all)",
            shown.len(),
            report.classes.len()
        );
    }
    text + &confusions(report, width, what)
}

/// Classes of the table: all, or of many those with the lowest F1.
fn shown(classes: &[ClassScore]) -> Vec<&ClassScore> {
    let mut shown: Vec<&ClassScore> = classes.iter().collect();
    if shown.len() > ALL {
        shown.retain(|class| class.f1.is_some());
        // a stable sort: equal scores stay in the order of the classes
        shown.sort_by(|a, b| a.f1.unwrap_or(0.0).total_cmp(&b.f1.unwrap_or(0.0)));
        shown.truncate(LOWEST);
    }
    shown
}

/// The confusion matrix of few classes, and the most frequent confusions of many.
fn confusions(report: &ClassReport, width: usize, what: ScoredRows) -> String {
    let mut text = String::new();
    match &report.confusion_matrix {
        Some(matrix) if matrix.len() <= MATRIX => {
            let _ = write!(text, "\n{:<width$}", "true \\ predicted");
            for c in 0..matrix.len() {
                let _ = write!(text, "{:>10}", short(report.name(c), 9));
            }
            text.push('\n');
            for (c, row) in matrix.iter().enumerate() {
                let _ = write!(text, "{:<width$}", short(report.name(c), width));
                for count in row {
                    let _ = write!(text, "{count:>10}");
                }
                text.push('\n');
            }
        }
        _ if !report.top_confusions.is_empty() => {
            text += "\nmost frequent confusions\n";
            for confusion in report.top_confusions.iter().take(CONFUSIONS) {
                let (truth, predicted) = (report.name(confusion.truth), report.name(confusion.predicted));
                let _ = writeln!(text, "{:>10} {what} of {truth} predicted as {predicted}", confusion.count);
            }
        }
        _ => {}
    }
    text
}

/// Name in at most `width` characters.
fn short(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_string();
    }
    name.chars().take(width - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use graphmill_nn::metric::classes::Confusion;

    use super::*;

    fn class(name: &str, f1: Option<f64>) -> ClassScore {
        ClassScore { class: name.into(), support: 2, predicted: 1, precision: None, recall: Some(0.5), f1 }
    }

    #[test]
    fn few_classes_have_a_matrix() {
        let report = ClassReport {
            classes: vec![class("mule", Some(0.5)), class("a very long name of a class", None)],
            confusion_matrix: Some(vec![vec![1, 1], vec![0, 2]]),
            ..ClassReport::default()
        };
        let text = text("test", &report, ScoredRows::Nodes);
        assert!(text.contains("mule"), "{text}");
        let last = text.lines().last().unwrap();
        assert_eq!(last.split_whitespace().rev().take(2).collect::<Vec<_>>(), ["2", "0"]);
        assert!(text.contains("true \\ predicted") && text.contains(" a very l…"), "{text}");
    }

    #[test]
    fn many_classes_are_reduced_to_the_lowest_scores_and_the_frequent_confusions() {
        let classes = (0..40).map(|i| class(&i.to_string(), (i > 0).then(|| 1.0 - f64::from(i) / 100.0)));
        let report = ClassReport {
            classes: classes.collect(),
            top_confusions: vec![Confusion { truth: 3, predicted: 4, count: 9 }],
            ..ClassReport::default()
        };
        let text = text("valid", &report, ScoredRows::Events);
        assert!(text.contains("(10 of 40 classes, those with the lowest F1"), "{text}");
        assert!(text.contains("\n39 ") && !text.contains("\n0 ") && !text.contains("\n1 "), "{text}");
        assert!(text.contains("9 events of 3 predicted as 4"), "{text}");
    }
}
