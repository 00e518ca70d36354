//! `cargo xtask graphsaint DATASETS accuracy|time|speed [--pyg PYTHON] [--runs N] [WORD ...]`:
//! comparison of subgraph training with neighbour sampling and with PyTorch Geometric's GraphSAINT
//! samplers, with equal settings.
//!
//! - `accuracy`: test scores over `N` seeds (5), with and without normalization, one thread per
//!   run, as many concurrent runs as cores.
//! - `time`: seconds of training, single-threaded and one run at a time, to within 0.0025 of the
//!   best validation score that neighbour sampling or PyTorch Geometric reaches with the same seed;
//!   evaluation and preparatory counting are excluded.
//! - `speed`: subgraphs a second from the sampler's first draw to gathered features, on a generated
//!   graph.
//!
//! `DATASETS` is a directory of raw datasets as published by their sources; imports and runs go to
//! `target/accuracy`. `PYTHON` has PyTorch Geometric (`xtask/peers/graphsaint.py`); without it its
//! columns stay empty. `WORD`s select rows by the name of their dataset or sampler.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{
    graphs::{median, number},
    runs,
};

/// Dataset with the settings of both sides.
struct Case {
    name: &'static str,
    /// Words of `graphmill import`, the source below `DATASETS` second.
    import: &'static str,
    /// Settings shared by a neighbour sampler and subgraph samplers.
    model: &'static str,
    neighbor: &'static str,
    subgraphs: &'static str,
    /// Settings that only our side has.
    own: &'static str,
    metrics: &'static [&'static str],
    /// True if PyTorch Geometric's edge sampler is fast enough: it draws a number per edge of the
    /// graph for each edge that it selects.
    edge: bool,
}

/// Initial weights like those of PyTorch's dense layers.
const INIT: &str = "--init fan-in";

const SMALL: &str = "--hidden 128 --lr 0.01 --dropout 0.1 --clip 5";

const CASES: &[Case] = &[
    Case {
        name: "computers",
        import: "npz shchur_npz/amazon_electronics_computers.npz --undirected --split random:0.6,0.2,0.2",
        model: SMALL,
        neighbor: "--fanout 15,10 --batch-size 512 --epochs 20",
        subgraphs: "--batch-size 2000 --epochs 40",
        own: "--frontier-size 250",
        metrics: &["accuracy"],
        edge: false,
    },
    Case {
        name: "pubmed",
        import: "planetoid planetoid/ind.pubmed --split random:0.6,0.2,0.2",
        model: SMALL,
        neighbor: "--fanout 15,10 --batch-size 512 --epochs 20",
        subgraphs: "--batch-size 2000 --epochs 40",
        own: "--frontier-size 250",
        metrics: &["accuracy"],
        edge: false,
    },
    Case {
        name: "human_go",
        import: "edges human_go --undirected",
        model: SMALL,
        neighbor: "--fanout 15,10 --batch-size 256 --epochs 40",
        subgraphs: "--batch-size 1500 --epochs 100",
        own: "--frontier-size 200",
        metrics: &["average-precision", "f1-micro"],
        edge: true,
    },
    Case {
        name: "fb100",
        import: "graphsaint fb100_large_graphsaint --normalize standard",
        model: "--layers 3 --hidden 64 --residual linear --lr 0.01 --schedule cosine --dropout 0.1 --clip 5 \
            --eval-every 4",
        neighbor: "--fanout 20,10,10 --batch-size 2048 --epochs 12",
        subgraphs: "--batch-size 100000 --epochs 200",
        own: "--frontier-size 16000",
        metrics: &["accuracy"],
        edge: false,
    },
];

/// Samplers of both sides; false for those that only one side has.
const SAMPLERS: &[(&str, bool)] = &[
    ("neighbor", false),
    ("saint-node", true),
    ("saint-edge", true),
    ("saint-rw", true),
    ("frontier", false),
];

/// Timed samplers of the peer.
const THEIRS: &[&str] = &["saint-node", "saint-rw"];

/// Origin of a run's figures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Ours,
    Pyg,
}

/// Result of a run.
struct Outcome {
    test: f64,
    /// Seconds of training, and the validation score at that time.
    history: Vec<(f64, f64)>,
}

struct Options {
    datasets: PathBuf,
    pyg: Option<PathBuf>,
    runs: usize,
    words: Vec<String>,
}

impl Options {
    fn wants(&self, case: &str, sampler: &str) -> bool {
        let named = |names: &[&str]| {
            let mut named = self.words.iter().filter(|w| names.contains(&w.as_str())).peekable();
            named.peek().is_none().then_some(true)
        };
        let cases: Vec<&str> = CASES.iter().map(|c| c.name).collect();
        let samplers: Vec<&str> = SAMPLERS.iter().map(|s| s.0).collect();
        let has = |word: &str| self.words.iter().any(|w| w == word);
        named(&cases).unwrap_or_else(|| has(case)) && named(&samplers).unwrap_or_else(|| has(sampler))
    }
}

/// Runs a mode.
pub(crate) fn run(datasets: &Path, mode: &str, words: &[&str]) -> Result<()> {
    let mut options = Options { datasets: datasets.into(), pyg: None, runs: 5, words: Vec::new() };
    let mut rest = words.iter().copied();
    while let Some(word) = rest.next() {
        match word {
            "--pyg" => options.pyg = Some(rest.next().context("--pyg PYTHON")?.into()),
            "--runs" => options.runs = rest.next().context("--runs N")?.parse()?,
            _ => options.words.push(word.into()),
        }
    }
    ensure!(options.runs > 0, "--runs 0: 1 or more");
    super::build_release()?;
    fs::create_dir_all(work())?;
    match mode {
        "accuracy" => accuracy(&options),
        "time" => time(&options),
        "speed" => speed(&options),
        _ => bail!("{mode}: accuracy, time or speed"),
    }
}

fn work() -> PathBuf {
    "target/accuracy".into()
}

fn accuracy(options: &Options) -> Result<()> {
    println!("| dataset, metric | sampler | ours | without normalisation | PyG | without normalisation |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for case in CASES {
        for metric in case.metrics {
            for &(sampler, theirs) in SAMPLERS.iter().filter(|s| options.wants(case.name, s.0)) {
                let cell = |side, coverage| -> Result<String> {
                    let there = if side == Side::Ours {
                        sampler != "neighbor" || coverage == 50
                    } else {
                        theirs
                            && options.pyg.is_some()
                            && (sampler != "saint-edge" || (case.edge && coverage == 50))
                    };
                    if !there {
                        return Ok(String::new());
                    }
                    let tests: Vec<f64> = runs::side_by_side(options.runs, &|seed| {
                        Ok(100.0 * one(options, case, metric, side, sampler, coverage, seed)?.test)
                    })?;
                    Ok(runs::mean_and_deviation(&tests))
                };
                let (a, b) = (cell(Side::Ours, 50)?, cell(Side::Ours, 0)?);
                let (c, d) = (cell(Side::Pyg, 50)?, cell(Side::Pyg, 0)?);
                println!("| {}, {metric} | {sampler} | {a} | {b} | {c} | {d} |", case.name);
            }
        }
    }
    Ok(())
}

fn time(options: &Options) -> Result<()> {
    println!("| dataset | seed | baselines' best | to reach 0.0025 below it: {} |", {
        let ours = SAMPLERS.iter().map(|s| s.0.to_string());
        let theirs = THEIRS.iter().map(|s| format!("PyG {s}"));
        ours.chain(theirs).collect::<Vec<_>>().join(" | ")
    });
    println!("| --- | --- | --- |{}", " --- |".repeat(SAMPLERS.len() + THEIRS.len()));
    for case in CASES.iter().filter(|case| options.wants(case.name, "neighbor")) {
        for seed in 0..options.runs {
            let get = |side, sampler| one(options, case, case.metrics[0], side, sampler, 50, seed);
            let ours = SAMPLERS.iter().map(|s| get(Side::Ours, s.0)).collect::<Result<Vec<_>>>()?;
            let theirs = THEIRS.iter().filter(|_| options.pyg.is_some());
            let theirs = theirs.map(|s| get(Side::Pyg, s)).collect::<Result<Vec<_>>>()?;
            let baselines = ours[..1].iter().chain(&theirs);
            let best = baselines.flat_map(|o| &o.history).map(|h| h.1).fold(0.0, f64::max);
            let reached = |o: &Outcome| {
                let first = o.history.iter().find(|h| h.1 >= best - 0.0025);
                first.map_or("never".to_string(), |h| format!("{:.2} s", h.0))
            };
            let cells: Vec<String> = ours.iter().chain(&theirs).map(reached).collect();
            println!("| {} | {seed} | {best:.4} | {} |", case.name, cells.join(" | "));
        }
    }
    Ok(())
}

fn speed(options: &Options) -> Result<()> {
    let data = work().join("graphsaint-speed");
    if !data.exists() {
        let words = "generate kronecker DATA --scale 20 --degree 16 --dim 100 --classes 47 --seed 1";
        super::graphmill(&split(words, &data))?;
    }
    println!("| sampler | ours: subgraphs/s | nodes | edges | PyG: subgraphs/s | nodes | edges | ratio |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for &(sampler, theirs) in SAMPLERS.iter().filter(|s| s.0 != "neighbor" && options.wants("", s.0)) {
        let words = format!(
            "train DATA --sampler {sampler} --coverage 0 --batch-size 8000 --frontier-size 1000 \
             --max-batches 64 --epochs 5 \
             --layers 2 --hidden 16 --eval-every 99 --threads 1 --seed 0 --json --quiet"
        );
        let out = work().join("run-speed");
        let _ = fs::remove_dir_all(&out);
        let json = super::graphmill(&[split(&words, &data), split("--out DATA", &out)].concat())?;
        let epochs: Value = serde_json::from_str(&json)?;
        let rows = epochs["epochs"].as_array().context("the summary has no epochs")?;
        let of = |f: &dyn Fn(&Value) -> Option<f64>| median(rows[1..].iter().filter_map(f).collect());
        let ours = of(&|e| Some(64.0 / (e["stages"]["sample"].as_f64()? + e["stages"]["extract"].as_f64()?)));
        let nodes = of(&|e| Some(e["traffic"]["host"]["rows"].as_f64()? / 64.0));
        let edges = of(&|e| Some(e["sampled_edges"].as_f64()? / 64.0));
        let mut row = format!("| {sampler} | {ours:.0} | {nodes:.0} | {edges:.0} |");
        match &options.pyg {
            Some(python) if theirs && sampler != "saint-edge" => {
                let words = format!("DATA --sampler {sampler} --batch-size 8000 --speed 5");
                let pyg = peer(python, &split(&words, &data))?;
                let get = |name: &str| pyg[name].as_f64().unwrap_or(f64::NAN);
                let rate = get("subgraphs_per_second");
                row +=
                    &format!(" {rate:.1} | {:.0} | {:.0} | {:.1} |", get("nodes"), get("edges"), ours / rate);
            }
            _ => row += " | | | |",
        }
        println!("{row}");
    }
    Ok(())
}

/// Executes one run of one side.
fn one(
    options: &Options,
    case: &Case,
    metric: &str,
    side: Side,
    sampler: &str,
    coverage: usize,
    seed: usize,
) -> Result<Outcome> {
    let data = import(options, case)?;
    let settings = if sampler == "neighbor" { case.neighbor } else { case.subgraphs };
    let common =
        format!("DATA --sampler {sampler} --coverage {coverage} --seed {seed} --threads 1 {}", case.model);
    if side == Side::Pyg {
        let python = options.pyg.as_ref().expect("asked for where there is one");
        let arguments = split(&format!("{common} {settings}"), &data);
        let key = arguments.join(" ");
        // One run has all metrics.
        let known = PEERS.lock().expect("no worker panics while it holds the lock").get(&key).cloned();
        let all = match known {
            Some(all) => all,
            None => peer(python, &arguments)?,
        };
        PEERS.lock().expect("no worker panics while it holds the lock").insert(key, all.clone());
        let json = &all[metric];
        let pair = |h: &Value| Ok((number(&h[0])?, number(&h[1])?));
        let history = json["history"].as_array().context("no history")?.iter().map(pair);
        return Ok(Outcome { test: number(&json["test"])?, history: history.collect::<Result<_>>()? });
    }
    let out = work().join(format!("graphsaint-{}-{sampler}-{coverage}-{seed}", case.name));
    let _ = fs::remove_dir_all(&out);
    let words = format!(
        "train {common} {settings} {} {INIT} --norm layer --metric {metric} --json --quiet",
        case.own
    );
    let json = super::graphmill(&[split(&words, &data), split("--out DATA", &out)].concat())?;
    fs::remove_dir_all(&out)?;
    let json: Value = serde_json::from_str(&json)?;
    let mut spent = 0.0;
    let mut history = Vec::new();
    for epoch in json["epochs"].as_array().context("the summary has no epochs")? {
        spent += number(&epoch["seconds"])?;
        history.extend(epoch["valid_score"].as_f64().map(|score| (spent, score)));
    }
    Ok(Outcome { test: number(&json["test"]["score"])?, history })
}

/// Output of the peer, by its arguments.
static PEERS: Mutex<BTreeMap<String, Value>> = Mutex::new(BTreeMap::new());

/// Locked while a dataset is imported.
static IMPORTING: Mutex<()> = Mutex::new(());

fn import(options: &Options, case: &Case) -> Result<PathBuf> {
    let _one = IMPORTING.lock().expect("no worker panics while it holds the lock");
    let data = work().join(format!("graphsaint-data-{}", case.name));
    if !data.exists() {
        let mut words: Vec<String> = case.import.split_whitespace().map(String::from).collect();
        words[1] = options.datasets.join(&words[1]).display().to_string();
        words.insert(2, data.display().to_string());
        words.insert(0, "import".into());
        super::graphmill(&words)?;
    }
    Ok(data)
}

/// Words of a command, with a path for `DATA`.
fn split(words: &str, data: &Path) -> Vec<String> {
    let fill = |word: &str| if word == "DATA" { data.display().to_string() } else { word.into() };
    words.split_whitespace().map(fill).collect()
}

/// Line of JSON that the peer prints.
fn peer(python: &Path, arguments: &[String]) -> Result<Value> {
    let output = Command::new(python)
        .arg("xtask/peers/graphsaint.py")
        .args(arguments)
        .env("OMP_NUM_THREADS", "1")
        .output()
        .with_context(|| format!("cannot run {}", python.display()))?;
    ensure!(output.status.success(), "the peer: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}
