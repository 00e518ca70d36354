//! `cargo xtask accuracy DATASETS [NAME ...]`: trains every experiment of `configs/accuracy.toml` whose name
//! contains one of the `NAME`s, over its seeds or splits, with the `graphmill` command, and prints a
//! Markdown table of means and standard deviations beside the published figures.
//!
//! `DATASETS` is a directory of raw datasets as their sources publish them; imports and runs go to `target/accuracy`.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context, Result};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    experiment: Vec<Experiment>,
}

/// One row of the table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Experiment {
    /// What to call it: dataset, model, kind of sampling.
    name: String,
    /// Import format.
    format: String,
    /// Source, below `DATASETS`.
    source: String,
    /// Options of the import; `{run}` stands for the number of the run.
    #[serde(default)]
    import: Vec<String>,
    /// Recipe, below `configs`.
    config: String,
    /// Options of the training over the recipe's.
    #[serde(default)]
    train: Vec<String>,
    /// How many runs.
    runs: usize,
    /// The published figure, as text.
    #[serde(default)]
    published: String,
}

/// Runs the experiments.
pub(crate) fn run(datasets: &Path, names: &[&str]) -> Result<()> {
    let plan = fs::read_to_string("configs/accuracy.toml").context("run this from the repository's root")?;
    let plan: Plan = toml::from_str(&plan)?;
    super::build_release()?;
    let work = PathBuf::from("target/accuracy");
    fs::create_dir_all(&work)?;
    println!("| experiment | metric | runs | mean ± std | published | seconds a run |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for experiment in
        plan.experiment.iter().filter(|e| names.is_empty() || names.iter().any(|n| e.name.contains(n)))
    {
        let clock = Instant::now();
        let reports = all(experiment, datasets, &work)?;
        let metric = reports[0]["test"]["metric"].as_str().unwrap_or_default().to_string();
        let scores: Vec<f64> = reports
            .iter()
            .map(|report| {
                Ok(100.0 * report["test"]["score"].as_f64().context("the summary has no test score")?)
            })
            .collect::<Result<_>>()?;
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        let squares: f64 = scores.iter().map(|s| (s - mean).powi(2)).sum();
        let std = (squares / (scores.len().max(2) - 1) as f64).sqrt();
        println!(
            "| {} | {metric} | {} | {mean:.2} ± {std:.2} | {} | {:.1} |",
            experiment.name,
            scores.len(),
            experiment.published,
            clock.elapsed().as_secs_f64() / scores.len() as f64
        );
    }
    Ok(())
}

/// Every run of an experiment, as many at once as there are cores, one thread each: the numbers do
/// not depend on it.
fn all(experiment: &Experiment, datasets: &Path, work: &Path) -> Result<Vec<serde_json::Value>> {
    let next = AtomicUsize::new(0);
    let reports: Mutex<Vec<Option<serde_json::Value>>> = Mutex::new(vec![None; experiment.runs]);
    let worker = || -> Result<()> {
        loop {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= experiment.runs {
                return Ok(());
            }
            let report = one(experiment, run, datasets, work)
                .with_context(|| format!("{} run {run}", experiment.name))?;
            eprintln!(
                "{} run {run}: {} (best epoch {})",
                experiment.name, report["test"]["score"], report["best"]["epoch"]
            );
            reports.lock().expect("no worker panics while it holds the lock")[run] = Some(report);
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker returns its errors"))
    })?;
    let reports = reports.into_inner().expect("the workers are gone");
    reports.into_iter().map(|report| report.context("a run is missing")).collect()
}

/// Held while a dataset is imported.
static IMPORTING: Mutex<()> = Mutex::new(());

/// One run: import (unless an earlier run has), train, read the summary.
fn one(experiment: &Experiment, run: usize, datasets: &Path, work: &Path) -> Result<serde_json::Value> {
    let fill = |word: &String| word.replace("{run}", &run.to_string());
    let import: Vec<String> = experiment.import.iter().map(fill).collect();
    let key: String = format!("{}-{}-{}", experiment.format, experiment.source, import.join(" "))
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { '_' })
        .collect();
    let data = work.join(key);
    // runs on the same data wait for whoever imports it
    let importing = IMPORTING.lock().expect("no worker panics while it holds the lock");
    if !data.exists() {
        let source = datasets.join(&experiment.source);
        super::graphmill(
            &[&["import".into(), experiment.format.clone(), text(&source), text(&data)], &import[..]]
                .concat(),
        )?;
    }
    drop(importing);
    let out = work.join(format!("run-{run}"));
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let config = Path::new("configs").join(&experiment.config);
    let train: Vec<String> = experiment.train.iter().map(fill).collect();
    let fixed = [
        "train",
        &text(&data),
        "--config",
        &text(&config),
        "--out",
        &text(&out),
        "--seed",
        &run.to_string(),
        "--threads",
        "1",
        "--json",
    ]
    .map(String::from);
    let json = super::graphmill(&[&fixed[..], &train[..]].concat())?;
    Ok(serde_json::from_str(&json)?)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
