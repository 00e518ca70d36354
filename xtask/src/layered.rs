//! `cargo xtask layered DATASETS accuracy|speed|chain|sizes [--runs N] [--batches N] [WORD ...]`:
//! accuracy cost and time savings of reusing bottom-layer rows (NeutronOrch).
//!
//! - `accuracy`: test scores over `N` seeds (5), one thread per run, as many concurrent runs as
//!   cores; a plot of validation scores for each dataset and model.
//! - `speed`: seconds of an epoch and bottom-layer edges, on graphs of high and of low degree.
//! - `chain`: the parts of the method, added one by one, on a device with a link and a budget
//!   (figure 12).
//! - `sizes`: two to five layers, batches of 256 to 10,000 (tables 5 and 6).
//!
//! The last three alternate for `N` rounds (3) over epochs of `--batches` minibatches (32), on
//! generated graphs that are removed afterwards. `DATASETS` is a directory of raw datasets as
//! published by their sources; imports, runs and plots go to `target/accuracy`. `WORD`s select
//! datasets, graphs, models and variants by name.

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

/// Dataset: its name, and the words of `graphmill import` with the source below `DATASETS` second.
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

/// Block model of the peers' benchmarks, which `cargo xtask bench-peers` generates
/// (`w2-graphmill`); it must be copied to `DATASETS`.
const W2: Source = Source { name: "w2", import: "" };

/// Generated graph: its name, and the words of `graphmill generate`.
struct Generated {
    name: &'static str,
    generate: &'static str,
}

/// Graph of high degree and with as many features as Reddit.
const WIDE: Generated = Generated {
    name: "wide",
    generate: "kronecker --scale 18 --degree 64 --feature-dim 602 --classes 41 --split 0.2,0.005,0.005",
};

struct Options {
    datasets: PathBuf,
    runs: Option<usize>,
    /// Minibatches of a timed epoch.
    batches: usize,
    words: Vec<String>,
}

impl Options {
    /// Returns true if `name` is among the words, or no element of `names` is.
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

/// Directory of imports, runs and plots.
fn work() -> Result<PathBuf> {
    let work = PathBuf::from("target/accuracy");
    fs::create_dir_all(&work)?;
    Ok(work)
}

/// Dataset, imported if it is missing; `DATASETS` may also contain it already imported.
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

/// Graph in `dir`, generated if it is missing.
fn generated(dir: &Path, graph: &Generated) -> Result<PathBuf> {
    let data = dir.join(graph.name);
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
