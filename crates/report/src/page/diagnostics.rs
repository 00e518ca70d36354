//! Sections on calibration and thresholds of classes, and on residuals of values.

use std::fmt::Write;

use graphmill_core::units::{count, digits};
use graphmill_engine::record::{ScoredRows, Summary};
use graphmill_nn::metric::{
    classes::ClassReport,
    diagnostics::{Calibration, ColumnScores, Diagnostics, Residuals, ThresholdCurve, ThresholdPoint},
};

use super::{
    diagram::{Curve, Diagram},
    section::{section, section_with_legend},
    text::{escape, percent, score},
};

/// A score at a threshold.
type Value = fn(&ThresholdPoint) -> Option<f64>;

/// Number of targets that have diagrams.
const MAX_TARGETS: usize = 6;

/// Renders the sections; empty for a run without diagnostics.
pub(super) fn diagnostics(summary: &Summary) -> String {
    let part = |part: &str| summary.diagnostics.iter().find(|of| of.part == part);
    let (valid, test) = (part("valid"), part("test"));
    let of = |of: &Diagnostics| OfClasses {
        name: None,
        report: summary.by_class.clone(),
        calibration: of.calibration.clone(),
        thresholds: of.thresholds.clone(),
    };
    let what = summary.scored_rows;
    let mut out = classes(valid.map(of), test.map(of), what);
    for column in test.iter().flat_map(|test| &test.columns).take(MAX_TARGETS) {
        let same = |part: &Diagnostics| {
            part.columns.iter().find(|of| of.name == column.name).map(OfClasses::of_column)
        };
        out += &classes(valid.and_then(same), Some(OfClasses::of_column(column)), what);
    }
    out + &values(&summary.diagnostics, what)
}

/// Calibration and thresholds of the classes of one target on one part.
struct OfClasses {
    /// Name of the column, if there are several.
    name: Option<String>,
    report: Option<ClassReport>,
    calibration: Option<Calibration>,
    thresholds: Option<ThresholdCurve>,
}

impl OfClasses {
    fn of_column(column: &ColumnScores) -> Self {
        Self {
            name: Some(column.name.clone()),
            report: Some(column.by_class.clone()),
            calibration: column.calibration.clone(),
            thresholds: column.thresholds.clone(),
        }
    }

    /// End of a title.
    fn title(&self) -> String {
        self.name.as_ref().map_or(String::new(), |name| format!(" of {}", escape(name)))
    }
}

/// Sections of the classes of one target: calibration on the test rows, and thresholds chosen on
/// the validation rows if there are any.
fn classes(valid: Option<OfClasses>, test: Option<OfClasses>, what: ScoredRows) -> String {
    let mut pair = String::new();
    if let Some((test, calibration)) = test.as_ref().and_then(|test| Some((test, test.calibration.as_ref()?)))
    {
        pair += &reliability(calibration, &test.title(), what);
    }
    let chosen = valid.as_ref().filter(|valid| valid.thresholds.is_some()).map(|valid| (valid, "validation"));
    if let Some((of, part)) = chosen.or_else(|| Some((test.as_ref()?, "test"))) {
        let on_test = test.as_ref().and_then(|test| test.thresholds.as_ref());
        let of_curve = |curve: &ThresholdCurve| thresholds(of, curve, (part, what), on_test);
        pair += &of.thresholds.as_ref().map_or(String::new(), of_curve);
    }
    if pair.is_empty() { pair } else { format!("<div class=pair>\n{pair}</div>\n") }
}

/// Reliability diagram.
fn reliability(calibration: &Calibration, title: &str, what: ScoredRows) -> String {
    let mut diagram = Diagram::new("reliability diagram", (0.0, 1.0), (0.0, 1.0));
    for bin in &calibration.bins {
        let title = format!(
            "confidence {} to {}: {} predictions, {} right, mean confidence {}",
            score(bin.low),
            score(bin.high),
            count(bin.count),
            percent(bin.accuracy),
            percent(bin.confidence)
        );
        diagram.bar("sample", (bin.low, bin.high), bin.accuracy, &title);
    }
    diagram.reference((0.0, 0.0), (1.0, 1.0));
    let how = match calibration.confidence - calibration.accuracy {
        x if x > 0.02 => "the model is too sure of itself",
        x if x < -0.02 => "the model is less sure than it could be",
        _ => "confidence and accuracy agree on average",
    };
    let note = format!(
        "Share of correct predictions by confidence, on the test {what}; calibrated bars end at the dashed \
         line. Expected calibration error {}: mean confidence {}, accuracy {}, so {how}.",
        score(calibration.expected_error),
        percent(calibration.confidence),
        percent(calibration.accuracy)
    );
    section(&format!("Calibration{title}"), &note, &diagram.finish())
}

/// Curves of precision, recall and F1 on a part, with the best threshold; the rows of the part are
/// `rows`.
fn thresholds(
    of: &OfClasses,
    curve: &ThresholdCurve,
    (part, rows): (&str, ScoredRows),
    test: Option<&ThresholdCurve>,
) -> String {
    let mut diagram = Diagram::new("scores by threshold", (0.0, 1.0), (0.0, 1.0));
    let kinds: [(&str, &str, Value); 3] = [
        ("loss", "precision", |point| point.precision),
        ("other-hue", "recall", |point| point.recall),
        ("valid", "F1", |point| point.f1),
    ];
    let mut legend = String::from("<ul class=legend>");
    for (class, name, value) in kinds {
        let _ = write!(legend, "<li class={class}><i class=swatch></i>{name}</li>");
        let title =
            |point: &ThresholdPoint, y: f64| format!("{name} {} from {}", score(y), score(point.threshold));
        let points = curve.points.iter().filter_map(|point| {
            let y = value(point)?;
            Some((point.threshold, y, title(point, y)))
        });
        diagram.curve(&Curve { class, points: points.collect() });
    }
    legend += "</ul>";
    let best = curve.best;
    let number = |x: Option<f64>| x.map_or("–".to_string(), score);
    let f1 = best.f1.unwrap_or(0.0);
    diagram.mark((best.threshold, f1), &format!("best: F1 {} from {}", score(f1), score(best.threshold)));
    let what = match curve.class.and_then(|class| of.report.as_ref()?.classes.get(class)) {
        Some(class) => format!("class {}", escape(&class.class)),
        None if curve.class.is_some() => "the rarer class".to_string(),
        None => "all labels together".to_string(),
    };
    let mut note = format!(
        "Scores of {what} if it is predicted from a probability on, on the {part} {rows}. The best threshold \
         is {}: precision {}, recall {}, F1 {}.",
        score(best.threshold),
        number(best.precision),
        number(best.recall),
        number(best.f1)
    );
    if let Some(test) = test.filter(|_| part != "test") {
        let at = |threshold: f64| number(test.at(threshold).and_then(|point| point.f1));
        let _ = write!(
            note,
            " On the test {rows} F1 is {} there, and {} from 0.5 on.",
            at(best.threshold),
            at(0.5)
        );
    }
    section_with_legend(&format!("Thresholds{}", of.title()), &legend, &note, &diagram.finish())
}

/// Sections on values: metrics and residuals by part, and diagrams of each target.
fn values(all: &[Diagnostics], what: ScoredRows) -> String {
    let parts: Vec<&Diagnostics> = all.iter().filter(|of| !of.residuals.is_empty()).collect();
    let Some(test) = parts.last() else { return String::new() };
    let mut out = table(&parts, what);
    for residuals in test.residuals.iter().take(MAX_TARGETS) {
        let target = residuals.target;
        let of_part = |of: &&Diagnostics| {
            let residuals = of.residuals.iter().find(|residuals| residuals.target == target)?;
            Some((of.part.clone(), residuals.clone()))
        };
        let each: Vec<(String, Residuals)> = parts.iter().filter_map(of_part).collect();
        let name = if test.residuals.len() > 1 {
            format!(" of {}", escape(&title(residuals)))
        } else {
            String::new()
        };
        let _ = write!(
            out,
            "<div class=pair>\n{}{}</div>\n",
            predicted(residuals, &name, what),
            histogram(&each, &name, what)
        );
    }
    if test.residuals.len() > MAX_TARGETS {
        let more = test.residuals.len() - MAX_TARGETS;
        out += &section("More targets", &format!("{more} more have no diagrams; summary.json has them."), "");
    }
    out
}

/// Name of a target in a title.
fn title(residuals: &Residuals) -> String {
    if residuals.name.is_empty() {
        format!("target {}", residuals.target + 1)
    } else {
        residuals.name.clone()
    }
}

/// Metrics and residuals of each part.
fn table(parts: &[&Diagnostics], what: ScoredRows) -> String {
    let number = |x: Option<f64>| x.map_or("–".to_string(), score);
    let names: Vec<&String> = parts[0].scores.keys().collect();
    let mut body = format!("<div class=scroll><table>\n<thead><tr><th>part<th>target<th>{what}");
    names.iter().for_each(|name| {
        let _ = write!(body, "<th>{}", escape(name));
    });
    body += "<th>mean residual<th>deviation<th>5 %<th>median<th>95 %</tr></thead>\n<tbody>\n";
    for of in parts {
        for residuals in &of.residuals {
            let _ = write!(
                body,
                "<tr><td>{}<td>{}<td>{}",
                of.part,
                escape(&residuals.label()),
                count(residuals.count)
            );
            for name in &names {
                let value = match &name[..] {
                    _ if of.residuals.len() == 1 => of.scores.get(*name).copied().flatten(),
                    "mae" => Some(residuals.mae),
                    "rmse" => Some(residuals.rmse),
                    "r2" => residuals.r2,
                    // a mean over the targets
                    _ => None,
                };
                let _ = write!(body, "<td>{}", number(value));
            }
            let at = |q: usize| residuals.quantiles.get(q).map_or("–".to_string(), |&x| short(x));
            let (mean, deviation) = (short(residuals.mean), short(residuals.deviation));
            let _ = writeln!(body, "<td>{mean}<td>{deviation}<td>{}<td>{}<td>{}</tr>", at(5), at(50), at(95));
        }
    }
    let note = "Best epoch, at the scale of the targets. A residual is the prediction minus the target.";
    section("Metrics and residuals", note, &(body + "</tbody></table></div>\n"))
}

/// Number with its sign and few digits.
fn short(x: f64) -> String {
    match x.abs() {
        0.0 => "0".to_string(),
        y if y < 1e6 => format!("{}{}", if x < 0.0 { "−" } else { "" }, digits(y)),
        _ => format!("{x:.2e}"),
    }
}

/// Predictions beside their targets.
fn predicted(residuals: &Residuals, name: &str, what: ScoredRows) -> String {
    let all = residuals.points.iter().flat_map(|&(truth, predicted)| [truth, predicted]);
    let (low, high) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
    let mut diagram = Diagram::new("predictions by target", (low, high), (low, high));
    diagram.reference((low, low), (high, high));
    diagram.scatter("other", residuals.points.iter().copied());
    let shown = residuals.points.len() as u64;
    let which = if shown < residuals.count {
        format!("{} of {}", count(shown), count(residuals.count))
    } else {
        count(shown)
    };
    let note =
        format!("Prediction (upwards) by target of {which} test {what}; exact ones lie on the dashed line.");
    section(&format!("Predictions{name}"), &note, &diagram.finish())
}

/// Shares of the residuals by their size, a curve for each part.
fn histogram(each: &[(String, Residuals)], name: &str, what: ScoredRows) -> String {
    // one row in a hundred at each end would make the others narrow
    let end = |q: usize| each.iter().filter_map(move |(_, residuals)| residuals.quantiles.get(q).copied());
    let (low, high) = (end(1).fold(f64::INFINITY, f64::min), end(99).fold(f64::NEG_INFINITY, f64::max));
    if high <= low {
        let note = "All residuals are equal.";
        return section(&format!("Residuals{name}"), note, "");
    }
    // the rule of Rice: 2 n^(1/3) intervals, for the smallest part
    let rows = each.iter().map(|(_, residuals)| residuals.count).min().unwrap_or(0);
    let bars = (2.0 * (rows as f64).cbrt()).clamp(5.0, 40.0) as usize;
    let step = (high - low) / bars as f64;
    let shares = |residuals: &Residuals| -> Vec<(f64, f64)> {
        (0..bars)
            .map(|i| {
                let (from, to) = (low + i as f64 * step, low + (i + 1) as f64 * step);
                (from + step / 2.0, residuals.below(to) - residuals.below(from))
            })
            .collect()
    };
    let curves: Vec<(&str, Vec<(f64, f64)>)> =
        each.iter().map(|(part, residuals)| (&part[..], shares(residuals))).collect();
    let most = curves.iter().flat_map(|(_, shares)| shares).map(|share| share.1).fold(0.0, f64::max);
    let mut diagram = Diagram::new("residuals", (low, high), (0.0, most));
    diagram.reference((0.0f64.clamp(low, high), 0.0), (0.0f64.clamp(low, high), most));
    let mut legend = String::from("<ul class=legend>");
    for (part, shares) in &curves {
        let (class, shown) = match *part {
            "train" => ("fit", "training"),
            "valid" => ("valid", "validation"),
            _ => ("loss", "test"),
        };
        let _ = write!(legend, "<li class={class}><i class=swatch></i>{shown}</li>");
        let title = |at: f64, share: f64| format!("{shown}: {} around {}", percent(share), short(at));
        let points = shares.iter().map(|&(at, share)| (at, share, title(at, share))).collect();
        diagram.curve(&Curve { class, points });
    }
    legend += "</ul>";
    let note = format!(
        "Share of the {what} by prediction minus target, without the outermost hundredth at each end. Curves \
         that differ show overfitting; a peak beside the dashed line shows a bias."
    );
    section_with_legend(&format!("Residuals{name}"), &legend, &note, &diagram.finish())
}

#[cfg(test)]
mod tests {
    use graphmill_core::ClassColumn;
    use graphmill_nn::metric::{Input, Truth};

    use super::*;

    /// Summary of a run with these outputs on all parts.
    fn summary(scores: &[f32], width: usize, truth: Truth) -> Summary {
        let of = |part: &&str| Diagnostics::new(part, &Input::new(scores, width, truth));
        Summary {
            diagnostics: ["train", "valid", "test"].iter().filter_map(of).collect(),
            ..Summary::default()
        }
    }

    #[test]
    fn classes_have_calibration_and_two_of_them_thresholds() {
        let page = diagnostics(&summary(&[2.0, 0.0, 0.0, 1.0, 0.5, 0.0], 2, Truth::Single(&[0, 1, 1])));
        assert!(page.contains("<h2>Calibration</h2>") && page.contains("<h2>Thresholds</h2>"), "{page}");
        assert!(page.contains("The best threshold is") && page.contains("On the test nodes F1 is"), "{page}");
        assert_eq!(page.matches("<svg").count(), 2);
        let three = diagnostics(&summary(&[2.0, 0.0, 0.0], 3, Truth::Single(&[0])));
        assert!(three.contains("Calibration") && !three.contains("Thresholds"));
        assert_eq!(diagnostics(&Summary::default()), "");
    }

    #[test]
    fn each_column_of_classes_has_calibration_and_those_of_two_classes_thresholds() {
        let columns = [("a<b", 2), ("region", 3)];
        let columns = columns.map(|(name, classes)| ClassColumn { name: name.into(), classes });
        let logits = [2.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 5.0, 1.0, 3.0, 0.0, 9.0, 0.0, 0.0];
        let page = diagnostics(&summary(&logits, 5, Truth::Columns(&[0, 2, 1, -1, 1, 1], &columns)));
        let titles = ["Calibration of a&lt;b", "Thresholds of a&lt;b", "Calibration of region"];
        for title in titles {
            assert_eq!(page.matches(&format!("<h2>{title}</h2>")).count(), 1, "{title}: {page}");
        }
        assert_eq!((page.matches("<h2>").count(), page.matches("<svg").count()), (3, 3));
        assert!(page.contains("On the test nodes F1 is"), "{page}");
    }

    #[test]
    fn values_have_metrics_and_diagrams_of_each_target() {
        let truth: Vec<f32> = (0..80).map(|i| i as f32).collect();
        let scores: Vec<f32> = truth.iter().enumerate().map(|(i, x)| x + (i % 7) as f32 - 3.0).collect();
        let page = diagnostics(&summary(&scores, 2, Truth::Values(&truth)));
        assert_eq!(page.matches("<svg").count(), 4);
        assert!(page.contains("<th>nodes") && page.contains(" test nodes"), "{page}");
        let of_events =
            Summary { scored_rows: ScoredRows::Events, ..summary(&scores, 2, Truth::Values(&truth)) };
        let of_events = diagnostics(&of_events);
        assert!(of_events.contains("<th>events") && !of_events.contains("nodes"), "{of_events}");
        assert!(
            page.contains("Predictions of target 2") && page.contains("<th>rmse") && !page.contains("NaN")
        );
        let exact = diagnostics(&summary(&truth, 1, Truth::Values(&truth)));
        assert!(exact.contains("All residuals are equal"), "{exact}");
    }
}
