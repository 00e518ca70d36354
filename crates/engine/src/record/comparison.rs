//! Comparison of runs: their scores, and the options in which they differ.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::{Map, Value};

use super::{RunDir, Summary};
use crate::{Error, Result};

/// Options that differ without changing a result, or that the rows have anyway.
const IGNORED: &[&str] = &["dataset", "threads", "trace", "tensorboard", "metric"];

/// A run in a comparison.
#[derive(Debug, Serialize)]
pub struct RunRow {
    /// Directory of the run.
    pub run: PathBuf,
    /// Name of the dataset.
    pub dataset: String,
    /// Metric of the scores.
    pub metric: String,
    /// Number of epochs.
    pub epochs: usize,
    /// Best epoch, from 1.
    pub best_epoch: usize,
    /// Validation score of the best epoch.
    pub valid: Option<f64>,
    /// Test score of the best epoch.
    pub test: Option<f64>,
    /// Seconds of the run.
    pub seconds: f64,
    /// Options in which the runs differ.
    pub options: Map<String, Value>,
}

/// Compares the runs in these directories: runs, or directories that hold runs up to two levels
/// deep. The best validation score of each metric comes first.
///
/// # Errors
/// A directory holds no run, or a record cannot be read.
pub fn compare_runs<P: AsRef<Path>>(dirs: impl IntoIterator<Item = P>) -> Result<Vec<RunRow>> {
    let mut found = Vec::new();
    for dir in dirs {
        let (dir, before) = (dir.as_ref(), found.len());
        find(dir, 2, &mut found)?;
        if found.len() == before {
            let message = "it is not a run and holds none; pass a directory that train --out wrote";
            return Err(Error::format(dir, "config.toml", message));
        }
    }
    found.dedup();
    let summary = |dir: PathBuf| Ok((dir.clone(), RunDir::open(&dir)?.summary()?));
    Ok(compare(found.into_iter().map(summary).collect::<Result<_>>()?))
}

/// Finds the runs in `dir`, at most `depth` levels below it, in the order of their names.
fn find(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    if RunDir::config_path(dir).is_file() {
        found.push(dir.to_path_buf());
        return Ok(());
    }
    let entries = fs::read_dir(dir).map_err(|error| Error::io(dir, "read", error))?;
    let mut below: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    below.sort();
    below.iter().filter(|_| depth > 0).try_for_each(|path| find(path, depth - 1, found))
}

/// Rows of the runs, the best validation score of each metric first.
fn compare(runs: Vec<(PathBuf, Summary)>) -> Vec<RunRow> {
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
    let mut rows: Vec<RunRow> = runs
        .into_iter()
        .map(|(run, summary)| RunRow {
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
        let key = |row: &RunRow| {
            row.valid.map_or(f64::NEG_INFINITY, |x| if is_error(&row.metric) { -x } else { x })
        };
        a.metric.cmp(&b.metric).then(key(b).total_cmp(&key(a)))
    });
    rows
}

/// Returns true if smaller scores are better.
fn is_error(metric: &str) -> bool {
    graphmill_nn::metric::values::is_error(metric)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::{Best, TestScore},
        *,
    };

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
        let names =
            |rows: &[RunRow]| rows.iter().map(|row| row.run.display().to_string()).collect::<Vec<_>>();
        let rows = compare(vec![
            run("a", "accuracy", Some(0.5), 0.1),
            run("b", "accuracy", None, 0.1),
            run("c", "accuracy", Some(0.7), 0.2),
        ]);
        assert_eq!(names(&rows), ["c", "a", "b"]);
        assert_eq!(rows[0].options.keys().collect::<Vec<_>>(), ["lr"]);
        let errors = compare(vec![run("a", "rmse", Some(0.5), 0.1), run("b", "rmse", Some(0.1), 0.1)]);
        assert_eq!(names(&errors), ["b", "a"]);
    }
}
