//! Speed-ups over numbers of threads, measured and by the model of [`threads`](crate::threads).

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::{
    definition::{MEASURES, PARAMETERS, Speedup},
    record::{CurveRecord, CurveRow, PointRecord, Record},
    threads::{Machine, Rates, Work, predict},
};

/// Speed-ups of all cases of a record.
///
/// # Errors
/// A point lacks a parameter, or a case was not measured on one thread.
pub(crate) fn curves(record: &Record, of: &Speedup) -> Result<Vec<CurveRecord>> {
    let [case, ..] = PARAMETERS;
    let mut names: Vec<&str> = Vec::new();
    for point in &record.points {
        let name = parameter(point, case)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut measured = BTreeMap::new();
    for point in &record.points {
        let [.., join, memory] = MEASURES.map(|name| value(record, point, &of.machine, name));
        if let (Some(join), Some(memory)) = (join, memory) {
            measured.insert(threads(point)?, Rates { join: 1e-6 * join, memory: 1e9 * memory });
        }
    }
    let curve = |name: &str| -> Result<CurveRecord> {
        let points =
            record.points.iter().filter(|point| point.parameters.get(case).is_some_and(|of| of == name));
        let curve = self::curve(record, of, &points.collect::<Vec<_>>(), &measured);
        Ok(CurveRecord {
            case: name.to_string(),
            rows: curve.with_context(|| format!("speed-ups of {name}"))?,
        })
    };
    names.into_iter().map(curve).collect()
}

/// Speed-ups of the case at these points.
fn curve(
    record: &Record,
    of: &Speedup,
    points: &[&PointRecord],
    measured: &BTreeMap<usize, Rates>,
) -> Result<Vec<CurveRow>> {
    let [_, _, joins, bytes, features, hidden, larger] = PARAMETERS;
    let [time, ..] = MEASURES;
    let mut times = BTreeMap::new();
    for point in points {
        if let Some(time) = value(record, point, &of.side, time) {
            times.insert(threads(point)?, (time, *point));
        }
    }
    let one = times.get(&1).filter(|_| measured.contains_key(&1));
    let &(time, point) = one.context("no time or no rates of one thread; measure 1 thread, too")?;
    let [_, stages, edges, bottom, ..] = MEASURES.map(|name| value(record, point, &of.side, name));
    let bytes = match parameter(point, bytes)? {
        "" => {
            let (edges, bottom) = (edges.unwrap_or(0.0), bottom.unwrap_or(0.0));
            // a feature row for each bottom edge, a hidden row and its gradient for each other one
            4.0 * number(point, features)? * bottom + 8.0 * number(point, hidden)? * (edges - bottom)
        }
        _ => number(point, bytes)?,
    };
    let work = Work {
        seconds: 1e-3 * time,
        serial: 1e-3 * stages.map_or(0.0, |stages| (time - stages).max(0.0)),
        joins: number(point, joins)?,
        bytes,
    };
    let larger = Some(1e9 * number(point, larger)?).filter(|&rate| rate > 0.0);
    let machine = Machine { measured: measured.clone(), larger };

    let most = times.keys().next_back().copied().unwrap_or(1);
    let beyond = of.simulated.iter().copied().filter(|&threads| threads > most);
    let rows = times.keys().copied().chain(beyond).map(|threads| {
        let measured = times.get(&threads).map(|(time, _)| *time);
        let speedup = measured.map(|measured| time / measured);
        let predicted = 1e3 * predict(work, &machine, threads);
        CurveRow {
            threads,
            time: measured,
            speedup,
            efficiency: speedup.map(|speedup| speedup / threads as f64),
            predicted,
            predicted_speedup: time / predicted,
        }
    });
    Ok(rows.collect())
}

/// Value of a measure of a side at a point.
fn value(record: &Record, point: &PointRecord, side: &str, measure: &str) -> Option<f64> {
    let values = point.sides.iter().find(|of| of.name == side)?.values(measure);
    (!values.is_empty()).then(|| record.statistic.of(&values))
}

/// Parameter of a point.
fn parameter<'p>(point: &'p PointRecord, name: &str) -> Result<&'p str> {
    point.parameters.get(name).map(String::as_str).with_context(|| format!("a point has no parameter {name}"))
}

/// Parameter of a point that is a number from 0.
fn number(point: &PointRecord, name: &str) -> Result<f64> {
    let text = parameter(point, name)?;
    let number: f64 = text.parse().with_context(|| format!("{name} = {text} is not a number"))?;
    ensure!(number >= 0.0, "{name} = {text} is below 0");
    Ok(number)
}

/// Number of threads of a point.
fn threads(point: &PointRecord) -> Result<usize> {
    let [_, name, ..] = PARAMETERS;
    let text = parameter(point, name)?;
    let threads = text.parse().ok().filter(|&threads: &usize| threads > 0);
    threads.with_context(|| format!("threads = {text} is not a number from 1"))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Record of a case of training and one of a kernel with one and two threads.
    fn record() -> Record {
        let side =
            |name: &str, values: serde_json::Value| json!({"name": name, "command": "c", "values": values});
        let machine = |join: f64, memory: f64| {
            side("machine", json!({"fork-join": [[join], [join]], "memory": [[memory], [memory]]}))
        };
        let point = |case: &str, threads: &str, bytes: &str, ours: serde_json::Value| {
            let rates = if threads == "1" { machine(0.5, 10.0) } else { machine(5.0, 18.0) };
            json!({
                "parameters": {
                    "case": case, "threads": threads, "joins": "30", "bytes": bytes, "features": "100",
                    "hidden": "256", "larger": "0",
                },
                "sides": [side("graphmill", ours), rates],
            })
        };
        let trained = |time: f64| {
            json!({
                "time": [[time - 1.0], [time], [time + 1.0]], "stages": [[time - 0.5]], "edges": [[115e3]],
                "bottom edges": [[105e3]],
            })
        };
        serde_json::from_value(json!({
            "name": "scaling-threads", "title": "t", "claim": "c", "fairness": [], "command": "c",
            "commit": "abc",
            "date": "2026-01-02T03:04:05Z",
            "machine": {
                "cpu": "CPU", "cores": 2, "memory_bytes": 1, "kernel": "6.1", "governor": "unknown",
                "transparent_hugepage": "madvise", "load": 0.0,
            },
            "versions": {}, "variant": "full", "rounds": 3, "statistic": "median", "ratio": null,
            "measures": [],
            "points": [
                point("SAGE", "1", "", trained(20.0)),
                point("SAGE", "2", "", trained(12.5)),
                point("product", "1", "142.4e6", json!({"time": [[40.0]]})),
                point("product", "2", "142.4e6", json!({"time": [[20.0]]})),
            ],
        }))
        .unwrap()
    }

    fn rule() -> Speedup {
        Speedup { side: "graphmill".into(), machine: "machine".into(), simulated: vec![2, 64] }
    }

    /// Speed-ups of the record of the tests.
    pub(crate) fn curves() -> Vec<CurveRecord> {
        super::curves(&record(), &rule()).unwrap()
    }

    #[test]
    fn speed_ups_and_efficiencies_are_those_of_the_medians() {
        let curves = curves();
        assert_eq!(curves.iter().map(|curve| &*curve.case).collect::<Vec<_>>(), ["SAGE", "product"]);
        let [one, two, simulated] = &curves[0].rows[..] else { panic!("{curves:?}") };
        assert_eq!((one.time, one.speedup, one.efficiency), (Some(20.0), Some(1.0), Some(1.0)));
        assert!((one.predicted - 20.0).abs() < 1e-9 && (one.predicted_speedup - 1.0).abs() < 1e-9);
        assert_eq!((two.threads, two.speedup, two.efficiency), (2, Some(1.6), Some(0.8)));
        assert_eq!((simulated.threads, simulated.time, simulated.speedup), (64, None, None));
        // 0.5 ms serial, 150 us of fork-joins, 62.5 MB of rows: 6.25 ms of one thread
        let computation = 20.0 - 0.5 - 30.0 * 0.5e-3 - 6.248;
        let expected = 0.5 + 30.0 * 5e-3 + computation / 2.0 + 6.248 * 10.0 / 18.0;
        let bytes = 4.0 * 100.0 * 105e3 + 8.0 * 256.0 * 10e3;
        assert!((bytes - 62.48e6_f64).abs() < 1.0 && (two.predicted - expected).abs() < 1e-3, "{two:?}");
        assert!(simulated.predicted < two.predicted && simulated.predicted > 6.248 / 1.8);
        let product = &curves[1].rows[1];
        assert_eq!(product.speedup, Some(2.0), "no stages: nothing is serial");
    }

    #[test]
    fn curves_are_part_of_the_record() {
        let mut record = record();
        let text = serde_json::to_string(&record).unwrap();
        assert!(!text.contains("speedup"), "records of other definitions stay as they are");
        record.speedup = curves();
        let file = tempfile::NamedTempFile::new().unwrap();
        record.write(file.path()).unwrap();
        assert_eq!(Record::read(file.path()).unwrap().speedup, curves());
    }

    #[test]
    fn a_model_needs_one_thread() {
        let mut record = record();
        record.points.retain(|point| point.parameters["threads"] != "1");
        let error = format!("{:#}", super::curves(&record, &rule()).unwrap_err());
        assert!(error.contains("speed-ups of SAGE") && error.contains("measure 1 thread"), "{error}");
        let mut record = self::record();
        record.points[0].parameters.insert("threads".into(), "0".into());
        assert!(super::curves(&record, &rule()).is_err());
    }
}
