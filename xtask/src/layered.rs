//! `cargo xtask layered DATASETS accuracy|speed|chain|sizes [--runs N] [--batches N] [WORD ...]`: what reusing bottom-layer rows
//! costs in accuracy and saves in time (NeutronOrch).
//!
//! - `accuracy`: test scores over `N` seeds (5), one thread a run, as many runs at once as there are cores; a plot of validation
//!   scores for each dataset and model.
//! - `speed`: seconds of an epoch and bottom-layer edges, on graphs of high and of low degree.
//! - `chain`: one part of the method after the other, on a device with a link and a budget (figure 12).
//! - `sizes`: two to five layers, batches of 256 to 10,000 (tables 5 and 6).
//!
//! The last three take turns for `N` rounds (3), epochs of `--batches` minibatches (32), on graphs that are generated and go
//! afterwards. `DATASETS` is a directory of raw datasets as their sources publish them; imports, runs and plots go to
//! `target/accuracy`. `WORD`s choose datasets, graphs, models and variants by their names.

mod accuracy;
mod chain;
mod curves;
mod rounds;
mod sizes;
mod speed;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};

use crate::graphs::command;

/// A dataset: its name, and the words of `graphmill import` with the source below `DATASETS` second.
struct Source {
    name: &'static str,
    import: &'static str,
}

const COMPUTERS: Source = Source {
    name: "computers",
    import: "npz shchur_npz/amazon_electronics_computers.npz --undirected --split random:0.6,0.2,0.2",
};
const PUBMED: Source =
    Source { name: "pubmed", import: "planetoid planetoid/ind.pubmed --split random:0.6,0.2,0.2" };
const FB100: Source =
    Source { name: "fb100", import: "graphsaint fb100_large_graphsaint --normalize standard" };

/// The block model of the peers' benchmarks, which `cargo xtask bench-peers` makes (`w2-graphmill` there): to be put into `DATASETS`.
const W2: Source = Source { name: "w2", import: "" };

/// A graph that is generated: its name, and the words of `graphmill generate`.
struct Generated {
    name: &'static str,
    generate: &'static str,
}

/// Of high degree, and as wide as Reddit's.
const WIDE: Generated = Generated {
    name: "wide",
    generate: "kronecker --scale 18 --degree 64 --feature-dim 602 --classes 41 --split 0.2,0.005,0.005",
};

struct Options {
    datasets: PathBuf,
    runs: Option<usize>,
    /// Minibatches of an epoch that is timed.
    batches: usize,
    words: Vec<String>,
}

impl Options {
    /// Whether `name` is among the words, or none of `names` is.
    fn wants<'n>(&self, name: &str, names: impl IntoIterator<Item = &'n str>) -> bool {
        let has = |name: &str| self.words.iter().any(|word| word == name);
        has(name) || !names.into_iter().any(has)
    }

    fn rounds(&self) -> usize {
        self.runs.unwrap_or(3)
    }
}

/// Runs a mode.
pub(crate) fn run(datasets: &Path, mode: &str, words: &[&str]) -> Result<()> {
    let mut options = Options { datasets: datasets.into(), runs: None, batches: 32, words: Vec::new() };
    let mut rest = words.iter().copied();
    while let Some(word) = rest.next() {
        match word {
            "--runs" => options.runs = Some(rest.next().context("--runs N")?.parse()?),
            "--batches" => options.batches = rest.next().context("--batches N")?.parse()?,
            _ => options.words.push(word.into()),
        }
    }
    ensure!(options.runs != Some(0) && options.batches > 0, "--runs and --batches: 1 or more");
    super::build_release()?;
    match mode {
        "accuracy" => accuracy::run(&options),
        "speed" => speed::run(&options),
        "chain" => chain::run(&options),
        "sizes" => sizes::run(&options),
        _ => bail!("{mode}: accuracy, speed, chain or sizes"),
    }
}

/// Where imports, runs and plots go.
fn work() -> Result<PathBuf> {
    let work = PathBuf::from("target/accuracy");
    fs::create_dir_all(&work)?;
    Ok(work)
}

/// A dataset, imported where it is missing; `DATASETS` may hold it as an import has made it, too.
fn imported(datasets: &Path, source: &Source) -> Result<PathBuf> {
    let there = datasets.join(source.name);
    if there.join("graphmill.json").exists() {
        return Ok(there);
    }
    let data = work()?.join(format!("layered-data-{}", source.name));
    if !data.exists() {
        let (format, rest) = source.import.split_once(' ').context("an import has a format")?;
        let (raw, options) = rest.split_once(' ').unwrap_or((rest, ""));
        command(&format!("import {format} {options}"), &[&datasets.join(raw), &data])?;
    }
    Ok(data)
}

/// A graph, generated in `room` where it is missing.
fn generated(room: &Path, graph: &Generated) -> Result<PathBuf> {
    let data = room.join(graph.name);
    if !data.exists() {
        command(&format!("generate {} --seed 1", graph.generate), &[&data])?;
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_choose_among_names_of_their_kind() {
        let words = vec!["gcn".to_string(), "fb100".to_string()];
        let options = Options { datasets: PathBuf::new(), runs: None, batches: 1, words };
        let models = ["gcn", "sage"];
        assert!(options.wants("gcn", models) && !options.wants("sage", models));
        assert!(options.wants("sequential", ["sequential", "layered"]), "no word is of this kind");
    }
}
