//! Markdown table of a record.

use std::collections::BTreeSet;

use crate::{
    definition::{Better, Statistic},
    record::{CurveRecord, MeasureRecord, PointRecord, Record, SideRecord},
};

/// Formats a record: title, machine, table, and the reasons for missing values.
pub(crate) fn markdown(record: &Record) -> String {
    let parameters = varying(record);
    let measures: Vec<&MeasureRecord> = record.measures.iter().filter(|measure| !measure.series).collect();
    let mut head: Vec<String> = parameters.iter().map(|name| name.to_string()).collect();
    head.push("side".into());
    for (at, measure) in measures.iter().enumerate() {
        head.push(match measure.unit.as_str() {
            "" => measure.name.clone(),
            unit => format!("{}, {unit}", measure.name),
        });
        if let Some(ratio) = record.ratio.iter().find(|_| at == 0) {
            head.push(ratio.clone());
        }
        head.extend(measure.minus.iter().map(|other| format!("minus {other}")));
    }
    let mut out = format!("## {}\n\n{}\n\n", record.title, record.claim);
    out += &format!(
        "{} rounds, {}. `{}`. {}. Load average before: {}.\n",
        record.rounds,
        match record.statistic {
            Statistic::Median => "median (min .. max)",
            Statistic::Mean => "mean ± standard deviation",
            Statistic::Min => "minimum (min .. max)",
        },
        record.command,
        record.caption(),
        record.machine.load
    );
    if !record.fairness.is_empty() {
        out += &format!("Fairness: {}.\n", record.fairness.join("; "));
    }
    out += &format!("\n{}{}", row(&head), row(&vec!["---".to_string(); head.len()]));
    let mut notes = BTreeSet::new();
    for point in &record.points {
        for side in &point.sides {
            let mut cells: Vec<String> = parameters
                .iter()
                .map(|name| point.parameters.get(*name).cloned().unwrap_or_default())
                .collect();
            cells.push(side.name.clone());
            for (at, measure) in measures.iter().enumerate() {
                let values = side.values(&measure.name);
                cells.push(cell(record, measure, side, &values));
                if let Some(ratio) = record.ratio.iter().find(|_| at == 0) {
                    cells.push(ratio_of(record, ratio, measure, point, side).unwrap_or_default());
                }
                if let Some(other) = &measure.minus {
                    cells.push(difference(record, measure, point, side, other).unwrap_or_default());
                }
            }
            out += &row(&cells);
            notes
                .extend(side.skipped.iter().chain(&side.errors).map(|text| format!("{}: {text}", side.name)));
        }
    }
    for note in notes {
        out += &format!("\n- {note}");
    }
    out += "\n";
    if !record.speedup.is_empty() {
        out += &format!("\n{}", speedups(&record.speedup));
    }
    out
}

/// Table of speed-ups over threads, beside those of the model.
fn speedups(curves: &[CurveRecord]) -> String {
    let head =
        ["case", "threads", "time, ms", "speed-up", "efficiency", "model, ms", "speed-up of the model"];
    let mut out = row(&head.map(String::from)) + &row(&head.map(|_| "---".to_string()));
    let two = |value: f64| format!("{value:.2}");
    for CurveRecord { case, rows } in curves {
        for of in rows {
            let simulated = if of.time.is_some() { "" } else { " (simulated)" };
            out += &row(&[
                case.clone(),
                format!("{}{simulated}", of.threads),
                of.time.map(two).unwrap_or_default(),
                of.speedup.map(two).unwrap_or_default(),
                of.efficiency.map(|share| format!("{:.0} %", 100.0 * share)).unwrap_or_default(),
                two(of.predicted),
                two(of.predicted_speedup),
            ]);
        }
    }
    out
}

/// Names of the chosen parameters, or of those that differ between the points.
fn varying(record: &Record) -> Vec<&str> {
    if !record.columns.is_empty() {
        return record.columns.iter().map(String::as_str).collect();
    }
    let names: BTreeSet<&str> =
        record.points.iter().flat_map(|point| point.parameters.keys()).map(String::as_str).collect();
    let varies = |name: &&str| {
        let values: BTreeSet<_> = record.points.iter().map(|point| point.parameters.get(*name)).collect();
        values.len() > 1
    };
    names.into_iter().filter(varies).collect()
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// Values of a measure, or the reason for missing ones.
fn cell(record: &Record, measure: &MeasureRecord, side: &SideRecord, values: &[f64]) -> String {
    let rounds = side.values.get(&measure.name).map_or(0, Vec::len);
    match (values, &side.skipped) {
        ([], Some(_)) => "skipped".into(),
        ([], None) if rounds > 0 => "never".into(),
        ([], None) if !side.errors.is_empty() => "failed".into(),
        ([], None) => String::new(),
        (values, _) if values.len() < rounds => {
            format!("{}, {} of {rounds} rounds", record.statistic.format(values), values.len())
        }
        (values, _) => record.statistic.format(values),
    }
}

/// Ratio `A / B`: how many times as good A is as B.
fn ratio_of(
    record: &Record,
    ratio: &str,
    measure: &MeasureRecord,
    point: &PointRecord,
    side: &SideRecord,
) -> Option<String> {
    let (first, second) = ratio.split_once(" / ")?;
    let of = |name: &str| {
        let side = if name == "side" { side } else { point.sides.iter().find(|side| side.name == name)? };
        let values = side.values(&measure.name);
        (!values.is_empty()).then(|| record.statistic.of(&values))
    };
    let (first, second) = (of(first)?, of(second)?);
    let ratio = if measure.better == Better::Lower { second / first } else { first / second };
    Some(format!("{ratio:.2}"))
}

/// Difference to another side in the same rounds.
fn difference(
    record: &Record,
    measure: &MeasureRecord,
    point: &PointRecord,
    side: &SideRecord,
    other: &str,
) -> Option<String> {
    let other = point.sides.iter().find(|side| side.name == other)?.values(&measure.name);
    let values = side.values(&measure.name);
    let pairs: Vec<f64> = values.iter().zip(&other).map(|(value, other)| value - other).collect();
    (!pairs.is_empty() && values.len() == other.len()).then(|| record.statistic.format(&pairs))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Record of two points with two sides each.
    pub(crate) fn record() -> Record {
        let side = |name: &str, values: &[f64]| {
            let rounds: Vec<Vec<f64>> = values.iter().map(|&value| vec![value]).collect();
            json!({"name": name, "command": "c", "values": {"epoch": rounds, "curve": [values, values]}})
        };
        let point = |model: &str, ours: &[f64], theirs: &[f64]| {
            let mut skipped = side("pyg", &[]);
            skipped["skipped"] = json!("not installed");
            json!({
                "parameters": {"model": model, "batch": "1024"},
                "sides": [side("graphmill", ours), side("dgl", theirs), skipped],
            })
        };
        let machine = json!({
            "cpu": "CPU", "cores": 2, "memory_bytes": 1u64 << 34, "kernel": "6.1", "governor": "unknown",
            "transparent_hugepage": "madvise", "load": 0.0,
        });
        serde_json::from_value(json!({
            "name": "epochs", "title": "Epochs", "claim": "Ours are fast.", "fairness": ["N5"],
            "command": "cargo xtask bench epochs", "commit": "abc", "date": "2026-01-02T03:04:05Z",
            "machine": machine, "versions": {}, "variant": "full", "rounds": 2, "statistic": "median",
            "ratio": "graphmill / side",
            "measures": [
                {"name": "epoch", "unit": "s", "better": "lower", "series": false, "minus": "dgl"},
                {"name": "curve", "unit": "", "better": "lower", "series": true, "minus": null},
            ],
            "points": [point("gcn", &[1.0, 3.0], &[4.0, 4.0]), point("sage", &[2.0], &[1.0, 1.0])],
        }))
        .unwrap()
    }

    #[test]
    fn speed_ups_follow_the_table_and_mark_the_simulation() {
        let mut record = record();
        assert!(!markdown(&record).contains("efficiency"));
        record.speedup = crate::speedup::tests::curves();
        let text = markdown(&record);
        assert!(text.contains("| SAGE | 1 | 20.00 | 1.00 | 100 % | 20.00 | 1.00 |"), "{text}");
        assert!(text.contains("| SAGE | 64 (simulated) |  |  |  | "), "{text}");
    }

    #[test]
    fn tables_have_varying_parameters_ratios_differences_and_reasons() {
        let mut record = record();
        record.points[1].sides[0].values.insert("epoch".into(), vec![Vec::new(), vec![2.0]]);
        record.points[1].sides[1].values.insert("epoch".into(), vec![Vec::new()]);
        let text = markdown(&record);
        let expected = [
            "| model | side | epoch, s | graphmill / side | minus dgl |",
            "| gcn | graphmill | 2.00 (1.00 .. 3.00) | 1.00 | -2.00 (-3.00 .. -1.00) |",
            "| gcn | dgl | 4.00 (4.00 .. 4.00) | 2.00 | 0.00 (0.00 .. 0.00) |",
            "| sage | graphmill | 2.00, 1 of 2 rounds | 1.00 |  |",
            "| sage | dgl | never |  |  |",
            "| sage | pyg | skipped |  |  |",
            "- pyg: not installed",
            "commit abc, 2026-01-02",
        ];
        for line in expected {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }
}
