//! Text of diagnostics: calibration, the best threshold, scores by column of classes, and
//! residuals.

use std::fmt::Write;

use graphmill_engine::{record::ScoredRows, saved::PartScores};
use graphmill_nn::metric::{
    classes::ClassReport,
    diagnostics::{Calibration, Diagnostics, ThresholdCurve, ThresholdPoint},
};

/// Lines about calibration and thresholds, or a table of the columns of classes or of residuals;
/// empty without diagnostics. The rows of the parts are `what`.
pub(super) fn text(parts: &[PartScores], what: ScoredRows) -> String {
    let of = |name: &str| parts.iter().find(|part| part.part == name)?.diagnostics.as_ref();
    let (valid, test) = (of("valid"), of("test"));
    let mut text = calibration(test.and_then(|test| test.calibration.as_ref()), "calibration");
    let report = parts.iter().find_map(|part| part.by_class.as_ref());
    let curves = [valid, test].map(|of| of.and_then(|of| of.thresholds.as_ref()));
    text += &threshold(curves, report, "");
    let all: Vec<&Diagnostics> = parts.iter().filter_map(|part| part.diagnostics.as_ref()).collect();
    text += &columns(&all, what);
    for column in test.iter().flat_map(|test| &test.columns) {
        let name = &column.name;
        text += &calibration(column.calibration.as_ref(), &format!("{name}: calibration"));
        let of_valid = valid.and_then(|valid| valid.columns.iter().find(|of| of.name == *name));
        let curves = [of_valid, Some(column)].map(|of| of.and_then(|of| of.thresholds.as_ref()));
        text += &threshold(curves, Some(&column.by_class), &format!("{name}: "));
    }
    text + &residuals(&all, what)
}

/// Line about the calibration on the test nodes.
fn calibration(of: Option<&Calibration>, what: &str) -> String {
    of.map_or(String::new(), |calibration| {
        format!(
            "\n{what} (test): expected calibration error {:.4}; mean confidence {:.4}, accuracy {:.4}\n",
            calibration.expected_error, calibration.confidence, calibration.accuracy
        )
    })
}

/// Table of the scores of each part and column of classes.
fn columns(parts: &[&Diagnostics], what: ScoredRows) -> String {
    let Some(first) = parts.iter().find_map(|of| of.columns.first()) else { return String::new() };
    let mut text = format!("\n{:<10}{:>16}{what:>8}", "columns", "target");
    let names: Vec<&String> = first.scores.keys().collect();
    names.iter().for_each(|name| text += &format!("{name:>20}"));
    text.push('\n');
    for of in parts {
        for column in &of.columns {
            let _ = write!(text, "{:<10}{:>16}{:>8}", of.part, column.name, column.count);
            for name in &names {
                let score = column.scores.get(*name).copied().flatten();
                let score = score.map_or("-".to_string(), |score| format!("{score:.4}"));
                let _ = write!(text, "{score:>20}");
            }
            text.push('\n');
        }
    }
    text + "(the scores of a part are the means of its columns)\n"
}

/// The best threshold, chosen on the validation nodes if there are any, after `what`.
fn threshold(
    [valid, test]: [Option<&ThresholdCurve>; 2],
    report: Option<&ClassReport>,
    what: &str,
) -> String {
    let number = |x: Option<f64>| x.map_or("-".to_string(), |x| format!("{x:.4}"));
    let Some((curve, part)) = valid.map(|curve| (curve, "valid")).or_else(|| Some((test?, "test"))) else {
        return String::new();
    };
    let class = curve.class.and_then(|class| Some(format!(" of class {}", report?.name(class))));
    let class = class.unwrap_or_default();
    let ThresholdPoint { threshold, precision, recall, f1 } = curve.best;
    let mut text = format!(
        "{what}best threshold{class} ({part}): {threshold:.4}; precision {}, recall {}, F1 {}",
        number(precision),
        number(recall),
        number(f1)
    );
    if let Some(test) = test.filter(|_| part == "valid") {
        let at = |threshold: f64| number(test.at(threshold).and_then(|point| point.f1));
        let _ = write!(text, "; F1 on test {} there, {} at 0.5", at(threshold), at(0.5));
    }
    text + "\n"
}

/// Table of the residuals of each part and target.
fn residuals(parts: &[&Diagnostics], what: ScoredRows) -> String {
    if parts.iter().all(|of| of.residuals.is_empty()) {
        return String::new();
    }
    let mut text = format!(
        "\n{:<10}{:>16}{what:>8}{:>12}{:>12}{:>9}{:>12}{:>12}{:>12}{:>12}{:>12}\n",
        "residuals", "target", "mae", "rmse", "r2", "mean", "deviation", "5 %", "median", "95 %"
    );
    for of in parts {
        for residuals in &of.residuals {
            let at = |q: usize| residuals.quantiles.get(q).copied().unwrap_or(f64::NAN);
            let _ = write!(text, "{:<10}{:>16}{:>8}", of.part, residuals.label(), residuals.count);
            let r2 = residuals.r2.map_or("-".to_string(), |x| format!("{x:.4}"));
            let _ = write!(text, "{:>12.4}{:>12.4}{r2:>9}", residuals.mae, residuals.rmse);
            for value in [residuals.mean, residuals.deviation, at(5), at(50), at(95)] {
                let _ = write!(text, "{value:>12.4}");
            }
            text.push('\n');
        }
    }
    text + "(prediction minus target)\n"
}
