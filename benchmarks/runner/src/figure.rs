//! Figures in JSON documents.
//!
//! A path is a JSON pointer (`~1` for a slash) whose parts may also select several values: `*` all
//! elements of a list, `2:` those from the third on, `-1` the last one, `case=copy` those whose
//! field `case` is `copy`, `case=copy*` those where it begins so; `sample+train` at the end is the
//! sum of two fields. A word before the path reduces several numbers to one: `min`, `max`,
//! `median`, `mean`, `sum`; without it there must be exactly one. Figures and numbers can be added
//! and divided: `sum /hops/* + /rows / 8` is the sum of all hops and of rows, divided by 8.

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use crate::{
    definition::Reach,
    statistics::{mean, median},
};

/// Evaluates an expression in a document.
///
/// # Errors
/// The document does not have the figure, or the expression is malformed.
pub(crate) fn evaluate(text: &str, document: &Value) -> Result<f64> {
    let mut factors = text.split(" / ").map(|sum| {
        let terms = sum.split(" + ").map(|text| term(text, document));
        terms.sum::<Result<f64>>()
    });
    let first = factors.next().unwrap_or(Ok(f64::NAN))?;
    factors.try_fold(first, |quotient, divisor| Ok(quotient / divisor?))
}

/// Evaluates `[REDUCTION] PATH` or a number.
fn term(text: &str, document: &Value) -> Result<f64> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let (reduction, path) = text.split_once(' ').filter(|_| !text.starts_with('/')).unwrap_or(("", text));
    let values = numbers(path, document);
    ensure!(!values.is_empty(), "{path}: not in the output");
    Ok(match reduction {
        "" => {
            ensure!(values.len() == 1, "{path}: {} values; select one, or reduce them", values.len());
            values[0]
        }
        "min" => values.into_iter().fold(f64::INFINITY, f64::min),
        "max" => values.into_iter().fold(f64::NEG_INFINITY, f64::max),
        "sum" => values.iter().sum(),
        "mean" => mean(&values),
        "median" => median(&values),
        other => bail!("no reduction {other}; known: min, max, median, mean, sum"),
    })
}

/// Numbers at a path; `a+b` at its end adds up two fields.
pub(crate) fn numbers(path: &str, document: &Value) -> Vec<f64> {
    let (parent, last) = path.rsplit_once('/').unwrap_or_default();
    if last.contains('+') && !last.contains('=') {
        let sum = |value: &Value| last.split('+').map(|field| value[field].as_f64()).sum::<Option<f64>>();
        return select(parent, document).into_iter().filter_map(sum).collect();
    }
    select(path, document).into_iter().filter_map(Value::as_f64).collect()
}

/// Values at a path.
fn select<'d>(path: &str, document: &'d Value) -> Vec<&'d Value> {
    let mut values = vec![document];
    for part in path.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        values = values.into_iter().flat_map(|value| step(value, &part)).collect();
    }
    values
}

/// Values that one part of a path selects.
fn step<'d>(value: &'d Value, part: &str) -> Vec<&'d Value> {
    if let Some((field, wanted)) = part.split_once('=') {
        let fits = |value: &&Value| match &value[field] {
            Value::String(text) => match wanted.strip_suffix('*') {
                Some(prefix) => text.starts_with(prefix),
                None => text == wanted,
            },
            Value::Null => false,
            Value::Bool(flag) => wanted.parse() == Ok(*flag),
            other => other.as_f64().is_some() && other.as_f64() == wanted.parse().ok(),
        };
        return match value {
            Value::Array(elements) => elements.iter().filter(fits).collect(),
            value => Some(value).filter(fits).into_iter().collect(),
        };
    }
    let Value::Array(elements) = value else { return value.get(part).into_iter().collect() };
    let from = part.strip_suffix(':').and_then(|from| from.parse::<usize>().ok());
    match (part, from) {
        ("*", _) => elements.iter().collect(),
        ("-1", _) => elements.last().into_iter().collect(),
        (_, Some(from)) => elements.iter().skip(from).collect(),
        (part, None) => part.parse::<usize>().ok().and_then(|at| elements.get(at)).into_iter().collect(),
    }
}

/// Scores by epoch: the seconds until each was known, and the score.
fn history(reach: &Reach, document: &Value) -> Vec<(f64, f64)> {
    let scores = select(&reach.scores, document);
    let seconds: Vec<Vec<f64>> = reach.seconds.iter().map(|path| numbers(path, document)).collect();
    let mut elapsed = 0.0;
    let mut found = Vec::new();
    for (epoch, score) in scores.iter().enumerate() {
        elapsed += seconds.iter().filter_map(|part| part.get(epoch)).sum::<f64>();
        found.extend(score.as_f64().map(|score| (elapsed, score)));
    }
    found
}

/// Seconds until a document's scores reach the target, or `None` if they never do. Without a fixed
/// `target` it is derived from the best score of `others`.
pub(crate) fn reach(reach: &Reach, document: &Value, target: Option<f64>, others: &[&Value]) -> Option<f64> {
    let best = || {
        let scores = others.iter().flat_map(|document| history(reach, document)).map(|(_, score)| score);
        scores.fold(f64::NEG_INFINITY, f64::max) - reach.below
    };
    let target = target.unwrap_or_else(best);
    Some(history(reach, document).into_iter().find(|&(_, score)| score >= target)?.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_select_fields_elements_slices_and_matches() {
        let document = json!({
            "results": [
                {"case": "a", "unit": "edges/s", "median": 7.0},
                {"case": "a", "unit": "seeds/s", "median": 3.0},
                {"case": "back", "unit": "GB/s", "median": 1.0, "n": 4},
            ],
            "epochs": [{"s": 5.0}, {"s": 2.0}, {"s": 4.0}, {"s": null}],
        });
        let value = |text: &str| evaluate(text, &document);
        assert_eq!(value("/results/case=a/unit=seeds~1s/median").unwrap(), 3.0);
        assert_eq!(value("/results/n=4/median").unwrap(), 1.0);
        assert_eq!(value("/results/case=b*/median").unwrap(), 1.0);
        assert!(value("/results/case=b/median").is_err());
        assert_eq!(value("min /epochs/1:/s").unwrap(), 2.0);
        assert_eq!(value("median /epochs/*/s").unwrap(), 4.0);
        assert_eq!(value("sum /epochs/*/s").unwrap(), 11.0);
        assert_eq!(value("sum /epochs/*/s + /epochs/0/s / 2 / /epochs/1/s").unwrap(), 4.0);
        assert_eq!(value("8 / max /epochs/*/s").unwrap(), 1.6);
        assert_eq!(value("/epochs/1/s").unwrap(), 2.0);
        assert_eq!(value("/results/case=back/median+n").unwrap(), 5.0);
        assert!(value("/epochs/-1/s").is_err(), "null is not a number");
        assert!(value("/results/case=a/median").unwrap_err().to_string().contains("2 values"));
        assert!(value("/x").is_err() && value("most /epochs/*/s").is_err());
        // A list of lines at the root.
        assert_eq!(evaluate("/op=x/v", &json!([{"op": "y", "v": 1}, {"op": "x", "v": 2}])).unwrap(), 2.0);
        assert_eq!(evaluate("/op=x/v", &json!({"op": "x", "v": 2})).unwrap(), 2.0);
    }

    #[test]
    fn time_to_a_score_adds_the_seconds_of_all_epochs_before() {
        let rule = Reach {
            scores: "/e/*/score".into(),
            seconds: vec!["/e/*/train".into(), "/e/*/eval".into()],
            target: None,
            best_of: Vec::new(),
            below: 0.1,
        };
        let epoch = |score: Value| json!({"score": score, "train": 1.0, "eval": 0.5});
        let document = json!({"e": [epoch(json!(0.5)), epoch(Value::Null), epoch(json!(0.8))]});
        let other = json!({"e": [epoch(json!(0.85))]});
        assert_eq!(reach(&rule, &document, Some(0.6), &[]), Some(4.5));
        assert_eq!(reach(&rule, &document, None, &[&other]), Some(4.5));
        assert_eq!(reach(&rule, &document, None, &[]), Some(1.5), "any score passes");
        assert_eq!(reach(&rule, &document, Some(0.9), &[]), None);
    }
}
