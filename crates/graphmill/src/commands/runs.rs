//! `graphmill runs DIR...`: compares runs in a table.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use graphmill_engine::{Error, RunDir, record::Summary};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{args, output};

/// Most options that the table has as columns.
const COLUMNS: usize = 6;
/// Options that differ without changing a result.
const IGNORED: &[&str] = &["dataset", "threads", "trace", "tensorboard"];

/// A run in the table.
#[derive(Debug, Serialize)]
struct Row {
    run: PathBuf,
    dataset: String,
    metric: String,
    epochs: usize,
    best_epoch: usize,
    valid: Option<f64>,
    test: Option<f64>,
    seconds: f64,
    /// Options in which the runs differ.
    options: Map<String, Value>,
}

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    let dirs = Arg::new("dirs")
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .action(ArgAction::Append)
        .num_args(1..)
        .required(true);
    Command::new("runs")
        .about("Compare runs in a table")
        .long_about(
            "Compare runs in a table.\n\n\
             Each DIR is a run, or a directory that holds runs. The table has the scores of each run and the \
             options in which the runs differ, the best validation score first.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill runs runs                     all runs in a directory\n  \
             graphmill runs runs/sage runs/gat --json",
        )
        .arg(args::explain(
            dirs,
            "Runs, or directories that hold runs",
            "Directories are searched two levels deep",
        ))
        .arg(args::json())
}

/// Reads the runs and prints the table.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for dir in matches.get_many::<PathBuf>("dirs").into_iter().flatten() {
        let before = found.len();
        find(dir, 2, &mut found)?;
        if found.len() == before {
            let message = "it is not a run and holds none; pass a directory that train --out wrote";
            return Err(Error::format(dir, "config.toml", message).into());
        }
    }
    found.dedup();
    let runs: Vec<(PathBuf, Summary)> = found
        .into_iter()
        .map(|dir| Ok((dir.clone(), RunDir::open(&dir)?.summary()?)))
        .collect::<Result<_, Error>>()?;
    let rows = compare(runs);
    if matches.get_flag("json") {
        return output::json(&serde_json::json!({ "runs": rows }));
    }
    output::text(&text(&rows))
}

/// Finds the runs in `dir`, at most `depth` levels below it, in the order of their names.
fn find(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    if RunDir::config_path(dir).is_file() {
        found.push(dir.to_path_buf());
        return Ok(());
    }
    let entries = std::fs::read_dir(dir).map_err(|error| Error::io(dir, "read", error))?;
    let mut below: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    below.sort();
    below.iter().filter(|_| depth > 0).try_for_each(|path| find(path, depth - 1, found))
}

/// Rows of the runs, the best validation score of each metric first.
fn compare(runs: Vec<(PathBuf, Summary)>) -> Vec<Row> {
    let names: Vec<String> = runs
        .first()
        .and_then(|(_, summary)| summary.config.as_object())
        .map_or(Vec::new(), |options| options.keys().cloned().collect());
    let differs = |name: &&String| {
        let mut values = runs.iter().map(|(_, summary)| summary.config.get(name.as_str()));
        let first = values.next().flatten();
        !IGNORED.contains(&name.as_str()) && values.any(|value| value != first)
    };
    let differing: Vec<String> = names.iter().filter(differs).cloned().collect();
    let mut rows: Vec<Row> = runs
        .into_iter()
        .map(|(run, summary)| Row {
            run,
            metric: summary.test.metric.clone(),
            epochs: summary.epochs.len(),
            best_epoch: summary.best.epoch,
            valid: summary.best.valid_score,
            test: summary.test.score,
            seconds: summary.seconds,
            options: differing
                .iter()
                .filter_map(|name| Some((name.clone(), summary.config.get(name)?.clone())))
                .collect(),
            dataset: summary.dataset.name,
        })
        .collect();
    // a stable sort: equal scores stay in the order of the directories
    rows.sort_by(|a, b| {
        let key =
            |row: &Row| row.valid.map_or(f64::NEG_INFINITY, |x| if is_error(&row.metric) { -x } else { x });
        a.metric.cmp(&b.metric).then(key(b).total_cmp(&key(a)))
    });
    rows
}

/// Returns true if smaller scores are better.
fn is_error(metric: &str) -> bool {
    graphmill_nn::metric::values::is_error(metric)
}

fn text(rows: &[Row]) -> String {
    let score = |x: Option<f64>| x.map_or("-".to_string(), |x| format!("{x:.4}"));
    let mut options: Vec<&String> = rows.iter().flat_map(|row| row.options.keys()).collect();
    options.dedup();
    let mut names: Vec<&String> = Vec::new();
    for name in options {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let more = names.len().saturating_sub(COLUMNS);
    names.truncate(COLUMNS);
    let mut table: Vec<Vec<String>> =
        vec![["run", "dataset", "metric", "valid", "test", "epoch", "seconds"].map(String::from).to_vec()];
    table[0].extend(names.iter().map(|name| name.replace('_', "-")));
    for row in rows {
        let mut cells = vec![
            row.run.display().to_string(),
            row.dataset.clone(),
            row.metric.clone(),
            score(row.valid),
            score(row.test),
            format!("{}/{}", row.best_epoch, row.epochs),
            format!("{:.1}", row.seconds),
        ];
        cells.extend(names.iter().map(|name| row.options.get(*name).map_or("-".into(), word)));
        table.push(cells);
    }
    let widths: Vec<usize> = (0..table[0].len())
        .map(|c| table.iter().map(|row| row[c].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &table {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    if more > 0 {
        text += &format!("(the runs differ in {more} more options; --json has them)\n");
    }
    text
}

/// Value of an option as the command line spells it.
fn word(value: &Value) -> String {
    match value {
        Value::String(word) => word.clone(),
        Value::Array(items) => items.iter().map(word).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use graphmill_engine::record::{Best, TestScore};
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_have_the_options_that_differ_and_the_best_first() {
        let run = |name: &str, metric: &str, valid: Option<f64>, lr: f64| {
            let summary = Summary {
                config: json!({"lr": lr, "hidden": 16, "threads": lr}),
                best: Best { epoch: 1, valid_score: valid },
                test: TestScore { metric: metric.into(), score: valid },
                ..Summary::default()
            };
            (PathBuf::from(name), summary)
        };
        let names = |rows: &[Row]| rows.iter().map(|row| row.run.display().to_string()).collect::<Vec<_>>();
        let rows = compare(vec![
            run("a", "accuracy", Some(0.5), 0.1),
            run("b", "accuracy", None, 0.1),
            run("c", "accuracy", Some(0.7), 0.2),
        ]);
        assert_eq!(names(&rows), ["c", "a", "b"]);
        assert_eq!(rows[0].options.keys().collect::<Vec<_>>(), ["lr"]);
        let text = text(&rows);
        assert!(text.starts_with("run  dataset  metric    valid   test    epoch  seconds  lr\nc "), "{text}");
        let errors = compare(vec![run("a", "rmse", Some(0.5), 0.1), run("b", "rmse", Some(0.1), 0.1)]);
        assert_eq!(names(&errors), ["b", "a"]);
    }
}
