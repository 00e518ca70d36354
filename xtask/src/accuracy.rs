//! `cargo xtask accuracy DATASETS [NAME ...]`: trains every experiment of `configs/accuracy.toml`
//! whose name contains one of the `NAME`s, over its seeds or splits, with the `graphmill` command,
//! and prints a Markdown table of means and standard deviations beside the published figures.
//!
//! `DATASETS` is a directory of raw datasets as their sources publish them; imports and runs go to
//! `target/accuracy`.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::Instant,
};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::runs;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    experiment: Vec<Experiment>,
}

/// One row of the table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Experiment {
    /// Name of the experiment: dataset, model, kind of sampling.
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
    /// Number of runs.
    runs: usize,
    /// Published score, as text.
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
        println!(
            "| {} | {metric} | {} | {} | {} | {:.1} |",
            experiment.name,
            scores.len(),
            runs::mean_and_deviation(&scores),
            experiment.published,
            clock.elapsed().as_secs_f64() / scores.len() as f64
        );
    }
    Ok(())
}

/// Executes every run of an experiment, single-threaded.
fn all(experiment: &Experiment, datasets: &Path, work: &Path) -> Result<Vec<serde_json::Value>> {
    runs::side_by_side(experiment.runs, &|run| {
        let report =
            one(experiment, run, datasets, work).with_context(|| format!("{} run {run}", experiment.name))?;
        eprintln!(
            "{} run {run}: {} (best epoch {})",
            experiment.name, report["test"]["score"], report["best"]["epoch"]
        );
        Ok(report)
    })
}

/// Locked while a dataset is imported.
static IMPORTING: Mutex<()> = Mutex::new(());

/// Executes one run: import (unless an earlier run has), training, and reading of the summary.
fn one(experiment: &Experiment, run: usize, datasets: &Path, work: &Path) -> Result<serde_json::Value> {
    let fill = |word: &String| word.replace("{run}", &run.to_string());
    let import: Vec<String> = experiment.import.iter().map(fill).collect();
    let key: String = format!("{}-{}-{}", experiment.format, experiment.source, import.join(" "))
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { '_' })
        .collect();
    let data = work.join(key);
    // Runs on the same data wait for the run that imports it.
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
