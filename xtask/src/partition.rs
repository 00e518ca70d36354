//! `cargo xtask partition DATASETS [quality] [time] [linear]`: comparison of the partitioning
//! methods.
//!
//! `DATASETS` is a directory of dataset directories. `quality`: edge cut and remote requests of
//! each method, and the balance of its parts. `time`: seconds of `bgl` and of METIS, the best of
//! three alternating runs. `linear`: seconds of `bgl` on Kronecker graphs of growing size, and per
//! edge; these are generated one after the other and removed.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{
    build_release, graphmill,
    graphs::{generated, number, with_directory},
};

const MODES: [&str; 3] = ["quality", "time", "linear"];
/// Number of runs, of which the best counts.
const RUNS: usize = 3;
/// Edges per node of a Kronecker graph, before duplicates are dropped.
const DEGREE: usize = 16;

/// Prints the tables selected by `words`: all, or some of [`MODES`]; `parts=K`, `batches=N` and
/// `to=S` (the largest Kronecker scale) change the defaults.
pub(crate) fn run(datasets: &Path, words: &[&str]) -> Result<()> {
    let (mut parts, mut batches, mut to) = (4, 50, 22);
    let mut modes = Vec::new();
    for word in words {
        match word.split_once('=') {
            Some(("parts", value)) => parts = value.parse().context("parts=K")?,
            Some(("batches", value)) => batches = value.parse().context("batches=N")?,
            Some(("to", value)) => to = value.parse().context("to=S")?,
            _ if MODES.contains(word) => modes.push(*word),
            _ => bail!("no {word}; known: {}, parts=K, batches=N, to=S", MODES.join(", ")),
        }
    }
    if modes.is_empty() {
        modes = MODES.to_vec();
    }
    build_release()?;
    for mode in modes {
        match mode {
            "quality" => quality(datasets, parts, batches)?,
            "time" => time(datasets, parts)?,
            _ => linear(parts, to)?,
        }
        println!();
    }
    Ok(())
}

/// Names of the dataset directories in a directory.
fn all(datasets: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(datasets).with_context(|| format!("cannot look into {}", datasets.display()))? {
        let path = entry?.path();
        if path.join("graphmill.json").exists() {
            found.push(path.to_string_lossy().into_owned());
        }
    }
    if found.is_empty() {
        bail!("{} holds no dataset directory", datasets.display());
    }
    found.sort_unstable();
    Ok(found)
}

/// Report of the command about methods on a dataset.
fn partition(dataset: &str, method: &str, parts: u16, batches: u64) -> Result<Value> {
    let line = format!(
        "--method {method} --parts {parts} --batches {batches} --batch-size 1000 --fanout 15,10,5 --json"
    );
    let words = ["partition", dataset].into_iter().chain(line.split(' ')).map(String::from);
    Ok(serde_json::from_str(&graphmill(&words.collect::<Vec<_>>())?)?)
}

fn quality(datasets: &Path, parts: u16, batches: u64) -> Result<()> {
    println!("{parts} parts, fanout 15,10,5, minibatches of 1000\n");
    println!(
        "| dataset | method | edge cut | nodes | training nodes | 2 hops inside | requests | remote rows | \
         seconds |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for dataset in all(datasets)? {
        let report = partition(&dataset, "all", parts, batches)?;
        let results = report["results"].as_array().context("results")?;
        let asked = |result: &Value, field: &str| number(&result["cross_requests"][field]);
        let base = (asked(&results[0], "per_epoch")?, asked(&results[0], "rows_per_epoch")?);
        for result in results {
            let change = |value: f64, base: f64| 100.0 * (value / base - 1.0);
            println!(
                "| {} | {} | {:.2} % | {:.3} | {:.3} | {:.1} % | {:.0} ({:+.1} %) | {:.0} ({:+.1} %) | {:.3} \
                 |",
                report["dataset"].as_str().unwrap_or_default(),
                result["method"].as_str().unwrap_or_default(),
                100.0 * number(&result["edge_cut"])?,
                number(&result["balance"]["nodes"])?,
                number(&result["balance"]["train"])?,
                100.0 * number(&result["locality"][1])?,
                asked(result, "per_epoch")?,
                change(asked(result, "per_epoch")?, base.0),
                asked(result, "rows_per_epoch")?,
                change(asked(result, "rows_per_epoch")?, base.1),
                number(&result["seconds"])?,
            );
        }
    }
    Ok(())
}

/// Seconds of each of `methods`: the minimum of [`RUNS`] alternating runs.
fn seconds<const N: usize>(dataset: &str, methods: [&str; N], parts: u16) -> Result<[f64; N]> {
    let mut least = [f64::INFINITY; N];
    for _ in 0..RUNS {
        for (least, method) in least.iter_mut().zip(methods) {
            *least = least.min(number(&partition(dataset, method, parts, 1)?["seconds"])?);
        }
    }
    Ok(least)
}

fn time(datasets: &Path, parts: u16) -> Result<()> {
    println!("{parts} parts, the best of {RUNS} runs in turn\n");
    println!("| dataset | metis, s | bgl, s | metis / bgl |");
    println!("| --- | --- | --- | --- |");
    for dataset in all(datasets)? {
        let [metis, bgl] = seconds(&dataset, ["metis", "bgl"], parts)?;
        let name = Path::new(&dataset).file_name().unwrap_or_default().to_string_lossy().into_owned();
        println!("| {name} | {metis:.3} | {bgl:.3} | {:.1} |", metis / bgl);
    }
    Ok(())
}

fn linear(parts: u16, to: u32) -> Result<()> {
    println!("{parts} parts, Kronecker, {DEGREE} edges a node drawn, the best of {RUNS} runs\n");
    println!("| nodes | edges | bgl, s | ns an edge |");
    println!("| --- | --- | --- | --- |");
    for scale in (16..=to).step_by(2) {
        with_directory(None, |dir| {
            let graph = generated(dir, "kronecker", scale, DEGREE, 1)?;
            let graph = graph.to_string_lossy();
            let info = graphmill(&["info".into(), graph.to_string(), "--json".into()])?;
            let edges = number(&serde_json::from_str::<Value>(&info)?["edges"])?;
            let [bgl] = seconds(&graph, ["bgl"], parts)?;
            println!("| 2^{scale} | {edges:.0} | {bgl:.2} | {:.1} |", 1e9 * bgl / edges);
            Ok(())
        })?;
    }
    Ok(())
}
