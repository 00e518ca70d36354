//! `cargo xtask ranks DATASET [curves] [bytes] [cache] [network] [--epochs N] [--links MBIT,...]
//! [--methods NAME,...] [OPTION VALUE ...]`: comparison of training over several processes with a
//! single one, and with predictions.
//!
//! - `curves`: losses and validation scores of 4 processes beside those of one, for three models,
//!   without dropout.
//! - `bytes`: bytes on the wire beside the prediction of `graphmill plan`, by partition method and
//!   number of processes.
//! - `cache`: rows and bytes from other processes, by the share of all rows that each process
//!   caches.
//! - `network`: seconds of an epoch in network namespaces with links of several speeds beside the
//!   plan's, and both efficiencies.
//!
//! `DATASET` is a dataset directory. `--links` and `--methods` select the links and partition
//! methods of `network`. `OPTION VALUE` pairs are `graphmill train`'s. Needs MPI (`cargo xtask
//! setup`); `network` needs root, `ip` and `tc`.

mod network;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{cargo, graphmill, mpi};

const MODES: [&str; 4] = ["curves", "bytes", "cache", "network"];

/// Default training options of all modes.
const DEFAULTS: &str = "--layers 2 --hidden 128 --fanout 15,10 --batch-size 1024 --dropout 0 --fused off \
    --sparse off --lr 0.003";

/// Options of the command.
struct Options {
    dataset: PathBuf,
    epochs: usize,
    /// Links of `network`, in megabits a second.
    links: Vec<u32>,
    /// Partition methods of `network`.
    methods: Vec<String>,
    /// Words of `graphmill train`.
    train: Vec<String>,
    /// Directory of partitions and runs.
    dir: PathBuf,
}

/// Prints the tables.
pub(crate) fn run(dataset: &Path, words: &[&str]) -> Result<()> {
    ensure!(mpi::is_there(), "MPI is not installed; run cargo xtask setup");
    let (mut modes, mut epochs) = (Vec::new(), 5);
    let (mut links, mut methods) = (network::SPEEDS.to_vec(), ["random", "bgl"].map_strings());
    let mut train: Vec<String> = DEFAULTS.split(' ').map(str::to_string).collect();
    let mut rest = words.iter();
    while let Some(&word) = rest.next() {
        if MODES.contains(&word) {
            modes.push(word);
            continue;
        }
        let value = rest
            .next()
            .with_context(|| format!("{word}: an option with a value, or {}", MODES.join(", ")))?;
        if word == "--epochs" {
            epochs = value.parse().context("--epochs N")?;
        } else if word == "--links" {
            links = value.split(',').map(str::parse).collect::<Result<_, _>>().context("--links MBIT,...")?;
        } else if word == "--methods" {
            methods = value.split(',').map(str::to_string).collect();
        } else if let Some(at) = train.iter().position(|given| given == word) {
            train[at + 1] = value.to_string();
        } else {
            train.extend([word.to_string(), value.to_string()]);
        }
    }
    let status = Command::new(cargo())
        .args(["build", "--release", "-p", "graphmill", "--features", "mpi"])
        .status()?;
    ensure!(status.success(), "the build failed");
    let dir = PathBuf::from("target/ranks");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    let (dataset, dir) = (fs::canonicalize(dataset)?, fs::canonicalize(dir)?);
    let options = Options { dataset, epochs, links, methods, train, dir };
    for mode in if modes.is_empty() { MODES.to_vec() } else { modes } {
        match mode {
            "curves" => curves(&options)?,
            "bytes" => bytes(&options)?,
            "cache" => cache(&options)?,
            _ => network::run(&options)?,
        }
        println!();
    }
    fs::remove_dir_all(&options.dir)?;
    Ok(())
}

impl Options {
    /// Dataset partitioned into `parts` parts.
    fn partitioned(&self, method: &str, parts: usize) -> Result<PathBuf> {
        let dir = self.dir.join(format!("{method}-{parts}"));
        if !dir.exists() {
            let count = parts.to_string();
            let words =
                [text(&self.dataset)?, text(&dir)?, "--method", method, "--parts", &count, "--batches", "1"];
            graphmill(&[&["partition"], &words[..]].concat().map_strings())?;
        }
        Ok(dir)
    }

    /// Words of a training run.
    fn words(&self, dataset: &Path, more: &[&str]) -> Result<Vec<String>> {
        let out = self.dir.join("run");
        let _ = fs::remove_dir_all(&out);
        let epochs = self.epochs.to_string();
        let words = ["train", text(dataset)?, "--out", text(&out)?, "--epochs", &epochs, "--json", "--quiet"];
        let mut words = words.map_strings();
        words.extend(self.train.iter().cloned());
        words.extend(more.map_strings());
        Ok(words)
    }
}

/// Words as strings.
trait Strings {
    fn map_strings(&self) -> Vec<String>;
}

impl Strings for [&str] {
    fn map_strings(&self) -> Vec<String> {
        self.iter().map(|word| word.to_string()).collect()
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is UTF-8")
}

/// Command built with MPI.
fn binary() -> Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    Ok(fs::canonicalize(target.join("release/graphmill"))?)
}

/// Runs `mpirun` with these words.
fn mpirun(words: &[&str], arguments: &[String]) -> Result<Value> {
    let mut command = Command::new("mpirun");
    command.args(words).arg(binary()?).args(arguments);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let output = command.output().context("mpirun")?;
    if !output.status.success() {
        bail!("mpirun: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Runs `count` processes on this machine.
fn processes(count: usize, arguments: &[String]) -> Result<Value> {
    mpirun(&["--oversubscribe", "-n", &count.to_string()], arguments)
}

/// Values of a field in every epoch.
fn of_epochs(run: &Value, name: &str) -> Vec<f64> {
    let epochs = run["epochs"].as_array().map_or(&[][..], Vec::as_slice);
    epochs.iter().map(|epoch| epoch[name].as_f64().unwrap_or(f64::NAN)).collect()
}

/// Values of a field, summed over the ranks and averaged over the epochs.
fn of_ranks(run: &Value, name: &str) -> f64 {
    let epochs = run["epochs"].as_array().map_or(&[][..], Vec::as_slice);
    let sum = |epoch: &Value| -> f64 {
        let ranks = epoch["ranks"].as_array().map_or(&[][..], Vec::as_slice);
        ranks.iter().filter_map(|rank| rank[name].as_f64()).sum()
    };
    epochs.iter().map(sum).sum::<f64>() / epochs.len().max(1) as f64
}

/// Losses of four processes beside those of one.
fn curves(options: &Options) -> Result<()> {
    println!(
        "| model | epoch | loss, one process | loss, 4 processes | largest difference so far | valid, one | \
         valid, 4 |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let parts = options.partitioned("bgl", 4)?;
    for model in ["gcn", "sage", "gat"] {
        let one: Value =
            serde_json::from_str(&graphmill(&options.words(&options.dataset, &["--model", model])?)?)?;
        let four = processes(4, &options.words(&parts, &["--model", model])?)?;
        let (a, b) = (of_epochs(&one, "loss"), of_epochs(&four, "loss"));
        let (x, y) = (of_epochs(&one, "valid_score"), of_epochs(&four, "valid_score"));
        let mut largest = 0.0f64;
        for epoch in 0..a.len() {
            largest = largest.max(((a[epoch] - b[epoch]) / a[epoch]).abs());
            println!(
                "| {model} | {} | {:.6} | {:.6} | {largest:.1e} | {:.4} | {:.4} |",
                epoch + 1,
                a[epoch],
                b[epoch],
                x[epoch],
                y[epoch]
            );
        }
    }
    Ok(())
}

/// Bytes of a minibatch predicted by `plan`: for neighbours, rows and sums.
fn predicted(plan: &Value) -> [f64; 3] {
    let wire = &plan["wire"];
    let hops = wire["hops"].as_array().map_or(0.0, |hops| hops.iter().filter_map(Value::as_f64).sum());
    [hops, wire["rows"].as_f64().unwrap_or(f64::NAN), wire["sums"].as_f64().unwrap_or(f64::NAN)]
}

/// Plan for these parts.
fn plan(options: &Options, parts: &Path, network: &str, threads: &str) -> Result<Value> {
    let given: Vec<&str> = options.train.iter().map(String::as_str).collect();
    // The plan does not model the fast path of a single process.
    let kept = given.chunks(2).filter(|pair| pair[0] != "--fused").flatten().copied();
    let mut words =
        ["plan", text(&options.dataset)?, "--partition", text(parts)?, "--network", network, "--json"]
            .map_strings();
    words.extend(kept.map(str::to_string));
    words.extend(["--threads", threads].map_strings());
    Ok(serde_json::from_str(&graphmill(&words)?)?)
}

/// Counted bytes beside predicted ones.
fn bytes(options: &Options) -> Result<()> {
    println!("| processes | parts | | predicted, MB a batch | counted | off by |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for count in [2, 4] {
        for method in ["random", "bgl"] {
            let parts = options.partitioned(method, count)?;
            let run = processes(count, &options.words(&parts, &[])?)?;
            let seeds = run["dataset"]["train"].as_f64().context("training nodes")?;
            let size: f64 = run["config"]["batch_size"].as_f64().context("a batch size")?;
            let batches = (seeds / size).ceil();
            let counted =
                ["sample_bytes", "feature_bytes", "sum_bytes"].map(|name| of_ranks(&run, name) / batches);
            let predictions = predicted(&plan(options, &parts, "12.5G,20us", "1")?);
            let all = |of: [f64; 3]| of.iter().sum::<f64>();
            let rows = ["neighbours", "rows", "sums"].into_iter().zip(predictions).zip(counted);
            let rows = rows.map(|((name, predictions), counted)| (name, predictions, counted));
            for (name, predictions, counted) in rows.chain([("all", all(predictions), all(counted))]) {
                let off = 100.0 * (predictions / counted - 1.0);
                println!(
                    "| {count} | {method} | {name} | {:.3} | {:.3} | {off:+.1} % |",
                    predictions / 1e6,
                    counted / 1e6
                );
            }
        }
    }
    Ok(())
}

/// Effect of a cache before the wire.
fn cache(options: &Options) -> Result<()> {
    println!("| policy | rows kept, % of all | remote rows an epoch | MB for rows an epoch | of no cache |");
    println!("| --- | --- | --- | --- | --- |");
    let parts = options.partitioned("bgl", 4)?;
    let mut all = f64::NAN;
    for (policy, ratio) in [
        ("none", "auto"),
        ("posterior:2", "0.05"),
        ("posterior:2", "0.1"),
        ("posterior:2", "0.2"),
        ("posterior:2", "0.4"),
        ("degree", "0.1"),
        ("lru", "0.1"),
    ] {
        let name = if policy == "none" { "auto" } else { policy };
        let run = processes(4, &options.words(&parts, &["--cache", name, "--cache-ratio", ratio])?)?;
        let (rows, bytes) = (of_ranks(&run, "remote_rows"), of_ranks(&run, "feature_bytes"));
        if policy == "none" {
            all = bytes;
        }
        println!("| {policy} | {ratio} | {rows:.0} | {:.1} | {:.1} % |", bytes / 1e6, 100.0 * bytes / all);
    }
    Ok(())
}
