//! `cargo xtask bench-peers PEERS_DIR [OPTION ...] [WORD ...]`: ours against DGL and PyTorch Geometric, as a Markdown
//! table of ratios.
//!
//! `PEERS_DIR` holds `peers.py`, which times a peer and writes a line of JSON for each measurement, and `gen.py`, which
//! makes the workloads W1 (R-MAT) and W2 (block model). Each comparison runs ours and theirs in turn, several times,
//! on the same graph; a peer that is not installed gives rows that say so. `WORD`s choose the rows whose name has one.
//!
//! Options, with their defaults:
//!
//! - `--data DIR`: where the workloads are, or are made (`target/bench-peers`)
//! - `--dgl PYTHON`, `--pyg PYTHON`: interpreters with the peers (`$VENV_DGL/bin/python`, `$VENV_PEERS/bin/python`)
//! - `--threads LIST`: numbers of threads (`1,2`)
//! - `--rounds N`: turns of each comparison (`3`)
//! - `--quick`: one short turn, to see that all of it works; the figures say nothing

use std::{
    collections::{HashMap, HashSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// What stands before the table.
const NOTES: &str = "\
Ratios above 1: ours is faster. Medians over the rounds (least .. most); each round's figure is a median itself.
Sampling is relabelled on both sides, ours one batch per thread, as training draws them. DGL's allocator is at its best
setting in epochs and aggregation (`--malloc thp`).
";

/// What the command line says.
struct Options {
    peers: PathBuf,
    data: PathBuf,
    /// Interpreters that were named.
    named: HashMap<Place, PathBuf>,
    /// Interpreters of the peers that are installed.
    python: HashMap<Peer, PathBuf>,
    threads: Vec<usize>,
    rounds: usize,
    quick: bool,
    words: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Peer {
    Dgl,
    Pyg,
    /// PyTorch alone, of either environment: PyG's is the newer.
    Torch,
}

impl Peer {
    const ALL: [Self; 3] = [Self::Dgl, Self::Pyg, Self::Torch];

    fn name(self) -> &'static str {
        match self {
            Self::Dgl => "DGL",
            Self::Pyg => "PyG",
            Self::Torch => "PyTorch",
        }
    }

    /// Its name among the versions that `peers.py` reports.
    fn package(self) -> &'static str {
        match self {
            Self::Dgl => "dgl",
            Self::Pyg => "torch_geometric",
            Self::Torch => "torch",
        }
    }

    /// What its interpreter must be able to import.
    fn import(self) -> &'static str {
        match self {
            Self::Dgl => "import dgl, dgl.graphbolt",
            Self::Pyg => "import torch_geometric, torch_sparse",
            Self::Torch => "import torch",
        }
    }

    /// The environments to look in.
    fn places(self) -> &'static [Place] {
        match self {
            Self::Dgl => &[Place::Dgl],
            Self::Pyg => &[Place::Pyg],
            Self::Torch => &[Place::Pyg, Place::Dgl],
        }
    }
}

/// A Python environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Dgl,
    Pyg,
}

/// One process of a peer's against ours.
struct Duel {
    peer: Peer,
    /// Arguments of `peers.py`.
    theirs: Vec<String>,
    rows: Vec<Row>,
}

/// One figure of both.
struct Row {
    what: String,
    threads: usize,
    unit: &'static str,
    /// Fields that tell the peer's line from its others.
    line: Vec<(&'static str, String)>,
    /// Where the figure stands in it.
    figure: &'static str,
    /// Arguments of `graphmill bench`.
    ours: Vec<String>,
    /// Our cases.
    cases: Vec<String>,
    take: Take,
}

/// How our figure is made from our cases.
#[derive(Clone, Copy)]
enum Take {
    /// The median of the one in this unit: more is better.
    Rate(&'static str),
    /// So many things in the seconds of the case: more is better.
    Per(f64),
    /// Seconds of all cases together, times this: less is better.
    Seconds(f64),
}

/// Runs the comparisons.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let mut options = parse(words)?;
    for peer in Peer::ALL {
        let mut named = peer.places().iter().filter_map(|place| options.named.get(place));
        match named.find(|python| imports(python, peer.import())).cloned() {
            Some(python) => drop(options.python.insert(peer, python)),
            None => eprintln!("{} is not installed: see --dgl and --pyg", peer.name()),
        }
    }
    super::build_release()?;
    let chosen = |row: &Row| {
        options.words.is_empty() || options.words.iter().any(|word| row.what.contains(word.as_str()))
    };
    let mut duels = duels(&options);
    duels.iter_mut().for_each(|duel| duel.rows.retain(chosen));
    duels.retain(|duel| !duel.rows.is_empty());
    println!("{NOTES}");
    println!("| what | threads | ours | peer | theirs | ratio |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut ready = HashSet::new();
    for duel in &duels {
        if !options.python.contains_key(&duel.peer) {
            for row in &duel.rows {
                println!("| {} | {} | | {} | not installed | |", row.what, row.threads, duel.peer.name());
            }
            continue;
        }
        for name in ["w1", "w2"] {
            if duel.theirs.iter().any(|word| word == name) && ready.insert(name) {
                prepare(&options, duel.peer, name)?;
            }
        }
        fight(&options, duel)?;
    }
    Ok(())
}

fn parse(words: &[&str]) -> Result<Options> {
    let mut options = Options {
        peers: PathBuf::new(),
        data: "target/bench-peers".into(),
        named: HashMap::new(),
        python: HashMap::new(),
        threads: vec![1, 2],
        rounds: 3,
        quick: false,
        words: Vec::new(),
    };
    for (place, variable) in [(Place::Dgl, "VENV_DGL"), (Place::Pyg, "VENV_PEERS")] {
        if let Some(venv) = env::var_os(variable) {
            options.named.insert(place, Path::new(&venv).join("bin/python"));
        }
    }
    let mut rest = words.iter().copied();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{word} wants a value"));
        match word {
            "--data" => options.data = value()?.into(),
            "--dgl" => drop(options.named.insert(Place::Dgl, value()?.into())),
            "--pyg" => drop(options.named.insert(Place::Pyg, value()?.into())),
            "--rounds" => options.rounds = value()?.parse().context("--rounds wants a number")?,
            "--threads" => {
                let list = value()?.split(',').map(str::parse).collect::<Result<_, _>>();
                options.threads = list.context("--threads wants numbers, such as 1,2")?;
            }
            "--quick" => options.quick = true,
            _ if word.starts_with('-') => bail!("no option {word}: see the top of xtask/src/bench_peers.rs"),
            _ if options.peers.as_os_str().is_empty() => options.peers = word.into(),
            _ => options.words.push(word.to_string()),
        }
    }
    let script = options.peers.join("peers.py");
    ensure!(
        script.is_file(),
        "{} is missing: PEERS_DIR is the directory of peers.py and gen.py",
        script.display()
    );
    ensure!(options.rounds > 0, "--rounds: at least 1");
    if options.quick {
        options.rounds = 1;
    }
    Ok(options)
}

/// Whether the interpreter is there and runs this.
fn imports(python: &Path, import: &str) -> bool {
    let output = Command::new(python).args(["-c", import]).env("DGLBACKEND", "pytorch").output();
    output.is_ok_and(|output| output.status.success())
}

/// Every comparison.
fn duels(options: &Options) -> Vec<Duel> {
    let mut duels = Vec::new();
    for &threads in &options.threads {
        for peer in [Peer::Dgl, Peer::Pyg] {
            duels.push(sampling(options, peer, threads));
        }
        for (workload, model, fanout) in [
            ("w1", "sage", "10,25"),
            ("w1", "gcn", "15,10,5"),
            ("w1", "gat", "10,25"),
            ("w2", "sage", "10,25"),
        ] {
            duels.push(epoch(options, workload, model, fanout, threads));
        }
        duels.push(products(options, threads));
        duels.push(gather(options, threads));
        for dim in [100, 256] {
            duels.push(aggregation(options, dim, threads));
        }
    }
    duels
}

/// Words of a command line.
fn split(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_string).collect()
}

/// How long the peer measures.
fn patience(options: &Options) -> &'static str {
    if options.quick { "--runs 1 --seconds 0.05" } else { "--runs 5 --seconds 0.6" }
}

/// Runs of each of our cases.
fn repeat(options: &Options, runs: usize) -> usize {
    if options.quick { 1 } else { runs }
}

fn sampling(options: &Options, peer: Peer, threads: usize) -> Duel {
    let system = match peer {
        Peer::Dgl => "dgl",
        // without pyg-lib PyG samples by torch-sparse
        _ if options.python.get(&peer).is_some_and(|python| imports(python, "import pyg_lib")) => "pyg",
        _ => "pyg-ts",
    };
    let sizes = [("15,10,5", 1024), ("15,10,5", 8000), ("10,25", 1024), ("10,25", 8000)];
    let row = |(fanout, batch): (&str, usize)| Row {
        what: format!("sample {fanout}, batch {batch}, against {system}"),
        threads,
        unit: "seeds/s",
        line: vec![("fanout", fanout.into()), ("batch", batch.to_string())],
        figure: "/seeds_per_s/median",
        ours: split(&format!(
            "sample w1 --fanout {fanout} --batch-size {batch} --threads {threads} --repeat {}",
            repeat(options, 5)
        )),
        cases: vec!["relabelled, one batch per thread".into()],
        take: Take::Rate("seeds/s"),
    };
    let theirs = format!(
        "sample --system {system} --workload w1 --fanout 15,10,5:10,25 --batch 1024,8000 --threads {threads} {}",
        patience(options)
    );
    Duel { peer, theirs: split(&theirs), rows: sizes.map(row).into() }
}

fn epoch(options: &Options, workload: &str, model: &str, fanout: &str, threads: usize) -> Duel {
    let batches = if options.quick { 5 } else { 40 };
    let activation = if model == "gat" { "--activation elu" } else { "" };
    let row = Row {
        what: format!("epoch {model} {fanout} on {workload}"),
        threads,
        unit: "s",
        line: Vec::new(),
        figure: "/epoch_s",
        ours: split(&format!(
            "epoch {workload} --model {model} --fanout {fanout} {activation} --threads {threads} --repeat {}",
            repeat(options, 2)
        )),
        cases: vec![format!("{model} {fanout} hidden 256: epoch")],
        take: Take::Seconds(1.0),
    };
    let theirs = format!(
        "epoch --system dgl --workload {workload} --model {model} --fanout {fanout} --threads {threads} --malloc thp \
         --batches {batches}"
    );
    Duel { peer: Peer::Dgl, theirs: split(&theirs), rows: vec![row] }
}

fn products(options: &Options, threads: usize) -> Duel {
    let ours = split(&format!("gemm w1 --threads {threads} --repeat {}", repeat(options, 5)));
    let row = |theirs: String, case: String| Row {
        what: format!("product {case}"),
        threads,
        unit: "GFLOP/s",
        line: vec![("op", theirs)],
        figure: "/gflop_s/median",
        ours: ours.clone(),
        cases: vec![case],
        take: Take::Rate("GFLOP/s"),
    };
    let shapes = [(100, 256), (256, 256), (256, 47)];
    let rows = shapes.iter().flat_map(|(k, n)| {
        let plain = row(format!("mm 100000x{k}x{n}"), format!("100000 x {k} x {n}"));
        let op = format!("mm_tn {k}x100000x{n} (weight gradient)");
        [plain, row(op, format!("{k} x 100000 x {n}, weight gradient"))]
    });
    let theirs = format!("gemm --workload w1 --threads {threads} {}", patience(options));
    Duel { peer: Peer::Torch, rows: rows.collect(), theirs: split(&theirs) }
}

fn gather(options: &Options, threads: usize) -> Duel {
    let row = Row {
        what: "gather 300000 rows of 100, against torch index_select".into(),
        threads,
        unit: "rows/s",
        line: vec![("op", "index_select".into())],
        figure: "/rows_per_s/median",
        ours: split(&format!("gather w1 --threads {threads} --repeat {}", repeat(options, 5))),
        cases: vec!["f32 F=100".into()],
        take: Take::Per(300_000.0),
    };
    let theirs =
        format!("gather --system torch --workload w1 --threads {threads} --malloc thp {}", patience(options));
    Duel { peer: Peer::Torch, theirs: split(&theirs), rows: vec![row] }
}

/// On a block of 60000 training nodes with 10 neighbours each, drawn by each side for itself.
fn aggregation(options: &Options, dim: usize, threads: usize) -> Duel {
    let ours = format!(
        "aggregate w1 --fanout 10 --batch-size 60000 --dim {dim} --threads {threads} --repeat {}",
        repeat(options, 5)
    );
    let row = |what: &str, op: &str, cases: &[&str]| Row {
        what: format!("aggregate mean F={dim}{what}"),
        threads,
        unit: "ms",
        line: vec![("op", op.into())],
        figure: "/ms/median",
        ours: split(&ours),
        cases: cases.iter().map(|case| format!("{case} f32 F={dim}")).collect(),
        take: Take::Seconds(1e3),
    };
    let rows = vec![
        row("", "copy_u_mean", &["local"]),
        row(", forward and backward", "copy_u_mean fwd+bwd", &["local", "transposed"]),
    ];
    let theirs = format!(
        "spmm --system dgl --workload w1 --dim {dim} --threads {threads} --malloc thp {}",
        patience(options)
    );
    Duel { peer: Peer::Dgl, theirs: split(&theirs), rows }
}

/// Both in turn, then the rows.
fn fight(options: &Options, duel: &Duel) -> Result<()> {
    let mut figures = vec![(Vec::new(), Vec::new()); duel.rows.len()];
    let mut name = duel.peer.name().to_string();
    for _ in 0..options.rounds {
        let mut reports: HashMap<&[String], Value> = HashMap::new();
        for (row, (ours, _)) in duel.rows.iter().zip(&mut figures) {
            if !reports.contains_key(&row.ours[..]) {
                reports.insert(&row.ours, bench(options, &row.ours)?);
            }
            ours.push(row.our_figure(&reports[&row.ours[..]])?);
        }
        let lines = match peer(options, duel) {
            Ok(lines) => lines,
            Err(error) => {
                eprintln!("{}: {error:#}", duel.peer.name());
                break;
            }
        };
        if let Some(version) = lines.first().and_then(|line| line["versions"][duel.peer.package()].as_str()) {
            name = format!("{} {version}", duel.peer.name());
        }
        for (row, (_, theirs)) in duel.rows.iter().zip(&mut figures) {
            theirs.extend(row.their_figure(&lines));
        }
    }
    for (row, (ours, theirs)) in duel.rows.iter().zip(&mut figures) {
        let unit = row.unit;
        if theirs.is_empty() {
            println!("| {} | {} | {} {unit} | {name} | failed | |", row.what, row.threads, shown(ours));
            continue;
        }
        let ratio = match row.take {
            Take::Seconds(_) => median(theirs) / median(ours),
            Take::Rate(_) | Take::Per(_) => median(ours) / median(theirs),
        };
        println!(
            "| {} | {} | {} {unit} | {name} | {} {unit} | {ratio:.2} |",
            row.what,
            row.threads,
            shown(ours),
            shown(theirs)
        );
    }
    Ok(())
}

impl Row {
    fn our_figure(&self, report: &Value) -> Result<f64> {
        let results = report["results"].as_array().context("a report has results")?;
        let find = |case: &String| {
            let fits = |row: &&Value| {
                let unit = if let Take::Rate(unit) = self.take { row["unit"] == unit } else { true };
                unit && row["bench"] != "machine" && row["case"] == case.as_str()
            };
            results.iter().find(fits).with_context(|| format!("graphmill bench has no case '{case}'"))
        };
        let mut seconds = 0.0;
        for case in &self.cases {
            let row = find(case)?;
            if let Take::Rate(_) = self.take {
                return row["median"].as_f64().context("a rate");
            }
            seconds += row["seconds"].as_f64().context("seconds")?;
        }
        Ok(match self.take {
            Take::Per(amount) => amount / seconds,
            Take::Rate(_) | Take::Seconds(_) if seconds <= 0.0 => bail!("{} took no time", self.what),
            Take::Rate(_) => unreachable!("returned above"),
            Take::Seconds(scale) => scale * seconds,
        })
    }

    fn their_figure(&self, lines: &[Value]) -> Option<f64> {
        // as text, for some fields are numbers
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
        let line =
            lines.iter().find(|line| self.line.iter().all(|(key, word)| text(&line[*key]) == *word))?;
        line.pointer(self.figure)?.as_f64()
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

/// The median with its range, three digits each.
fn shown(values: &mut [f64]) -> String {
    let middle = median(values);
    let (factor, suffix) = match middle {
        x if x >= 1e6 => (1e6, " M"),
        x if x >= 1e4 => (1e3, " k"),
        _ => (1.0, ""),
    };
    let digits = |value: f64| {
        let value = value / factor;
        let decimals = if value >= 100.0 { 0 } else { 2 };
        format!("{value:.decimals$}")
    };
    match values {
        [_] => format!("{}{suffix}", digits(middle)),
        values => {
            format!(
                "{} ({} .. {}){suffix}",
                digits(middle),
                digits(values[0]),
                digits(values[values.len() - 1])
            )
        }
    }
}

/// Runs `graphmill bench` on a workload.
fn bench(options: &Options, words: &[String]) -> Result<Value> {
    let words = words.iter().map(|word| match word.as_str() {
        "w1" | "w2" => imported(options, word).display().to_string(),
        _ => word.clone(),
    });
    let line: Vec<String> = ["bench".into(), "--json".into()].into_iter().chain(words).collect();
    eprintln!("graphmill {}", line.join(" "));
    let output = super::graphmill(&line)?;
    Ok(serde_json::from_str(&output)?)
}

/// Where the workload is in our format.
fn imported(options: &Options, name: &str) -> PathBuf {
    options.data.join(format!("{name}-graphmill"))
}

/// Runs `peers.py`; its lines.
fn peer(options: &Options, duel: &Duel) -> Result<Vec<Value>> {
    let script = options.peers.join("peers.py");
    eprintln!("{}: peers.py {}", duel.peer.name(), duel.theirs.join(" "));
    let output = Command::new(&options.python[&duel.peer])
        .arg(script)
        .args(&duel.theirs)
        .env("BENCH_DATA", &options.data)
        .env("BENCH_LOCK", options.data.join("lock"))
        // both sides meet the same noise: theirs is not measured again where it was disturbed, and gets no priority
        .env("BENCH_PATIENCE", "0")
        .env_remove("BENCH_NICE")
        .env_remove("PEERS_OUT")
        .output()?;
    if !output.status.success() {
        bail!("peers.py {}: {}", duel.theirs.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout)?;
    text.lines().filter(|line| line.starts_with('{')).map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Makes the workload with `gen.py` and imports it, unless both are there.
fn prepare(options: &Options, peer: Peer, name: &str) -> Result<()> {
    fs::create_dir_all(&options.data)?;
    let data = fs::canonicalize(&options.data)?;
    let (source, target) = (data.join(name), imported(options, name));
    let python = &options.python[&peer];
    let run = |command: &mut Command, what: &str| -> Result<()> {
        eprintln!("{name}: {what}");
        let output = command.env("BENCH_DATA", &data).output()?;
        ensure!(output.status.success(), "{name}: {what}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    // meta.json is written last
    if !source.join("meta.json").exists() {
        run(Command::new(python).arg(options.peers.join("gen.py")).arg(name), "generate")?;
    }
    if !target.exists() {
        let edges = source.join("edges.npy");
        run(Command::new(python).current_dir(&source).args(["-c", EDGES]), "write the edges as pairs")?;
        let part = |file: &str| source.join(file).display().to_string();
        let words = [
            "import",
            "edges",
            &edges.display().to_string(),
            &target.display().to_string(),
            "--name",
            name,
            "--features",
            &part("feat.npy"),
            "--labels",
            &part("label.npy"),
            "--train",
            &part("train_idx.npy"),
            "--valid",
            &part("val_idx.npy"),
            "--test",
            &part("test_idx.npy"),
            "--json",
        ]
        .map(String::from);
        eprintln!("{name}: import");
        let info: Value = serde_json::from_str(&super::graphmill(&words)?)?;
        fs::remove_file(&edges)?;
        let meta: Value = serde_json::from_str(&fs::read_to_string(source.join("meta.json"))?)?;
        for field in ["nodes", "edges", "train"] {
            let (ours, theirs) = (&info[field], &meta[field]);
            ensure!(
                ours == theirs,
                "{name}: {ours} {field} imported of {theirs}; remove {}",
                target.display()
            );
        }
    }
    Ok(())
}

/// From CSC arrays to pairs (source, destination).
const EDGES: &str = "\
import numpy as np
indptr, indices = np.load('indptr.npy'), np.load('indices.npy')
pairs = np.empty((2, len(indices)), np.uint32)
pairs[0] = indices
pairs[1] = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
np.save('edges.npy', pairs)
";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(take: Take, cases: &[&str]) -> Row {
        Row {
            what: "x".into(),
            threads: 1,
            unit: "s",
            line: vec![("batch", "1024".into()), ("fanout", "10,25".into())],
            figure: "/rate/median",
            ours: Vec::new(),
            cases: cases.iter().map(|case| case.to_string()).collect(),
            take,
        }
    }

    #[test]
    fn figures_are_found_in_both_reports() {
        let report = json!({"results": [
            {"bench": "sample", "case": "a", "unit": "edges/s", "median": 7.0, "seconds": 0.5},
            {"bench": "sample", "case": "a", "unit": "seeds/s", "median": 3.0, "seconds": 0.5},
            {"bench": "sample", "case": "b", "unit": "GB/s", "median": 1.0, "seconds": 0.25},
        ]});
        assert_eq!(row(Take::Rate("seeds/s"), &["a"]).our_figure(&report).unwrap(), 3.0);
        assert_eq!(row(Take::Per(10.0), &["b"]).our_figure(&report).unwrap(), 40.0);
        assert_eq!(row(Take::Seconds(1e3), &["a", "b"]).our_figure(&report).unwrap(), 750.0);
        assert!(row(Take::Rate("GB/s"), &["a"]).our_figure(&report).is_err());
        let lines = [
            json!({"batch": 8000, "fanout": "10,25", "rate": {"median": 1.0}}),
            json!({"batch": 1024, "fanout": "10,25", "rate": {"median": 2.0}}),
        ];
        assert_eq!(row(Take::Per(1.0), &[]).their_figure(&lines), Some(2.0));
        assert_eq!(row(Take::Per(1.0), &[]).their_figure(&lines[..1]), None);
    }

    #[test]
    fn spreads_are_short() {
        assert_eq!(shown(&mut [3.0, 1.0, 2.0]), "2.00 (1.00 .. 3.00)");
        assert_eq!(shown(&mut [1_234_567.0]), "1.23 M");
        assert_eq!(median(&mut [4.0, 1.0]), 2.5);
    }
}
