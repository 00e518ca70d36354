//! `cargo xtask bench-peers PEERS_DIR [OPTION ...] [WORD ...]`: comparison with DGL and PyTorch
//! Geometric, as a Markdown table of ratios.
//!
//! `PEERS_DIR` holds `peers.py`, which times a peer and writes a line of JSON for each measurement,
//! and `gen.py`, which generates the workloads W1 (R-MAT) and W2 (block model). Each comparison
//! alternates between both sides several times on the same graph; rows of peers that are not
//! installed say so. `WORD`s select rows by a part of their names.
//!
//! Options, with their defaults:
//!
//! - `--data DIR`: directory of the workloads, which are generated if they are missing
//!   (`target/bench-peers`)
//! - `--dgl PYTHON`, `--pyg PYTHON`: interpreters with the peers (`$VENV_DGL/bin/python`,
//!   `$VENV_PEERS/bin/python`)
//! - `--threads LIST`: numbers of threads (`1,2`)
//! - `--rounds N`: rounds of each comparison (`3`)
//! - `--quick`: one short round as a smoke test; its figures are meaningless

mod duels;
mod options;
mod workload;

use std::{
    collections::{HashMap, HashSet},
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::{
    duels::{Duel, Row, Take, duels},
    options::{Options, Peer, imports, parse},
    workload::{imported, prepare},
};

/// Text above the table.
const NOTES: &str = "\
Ratios above 1: ours is faster. Medians over the rounds (least .. most); each round's figure is a median \
itself.
Sampling is relabelled on both sides, ours one batch per thread, as training draws them. DGL's allocator is \
at its best
setting in epochs and aggregation (`--malloc thp`).

Not like for like (book/src/results/fairness.md):

- Aggregation: DGL's block numbers sources by global id, ours as first seen. Do not quote its
  ratios.
- Sampling: our graph lies in huge pages, and the peers have the default allocator. DGL has 64-bit
  ids and, with one thread, an unfused path. torch-sparse (`pyg-ts`) samples on one thread and is
  not the sampler that PyG recommends.
- Products have 100,000 rows, which training batches do not have. If MKL does not use AVX-512, as
  on AMD processors, that slows these products and DGL's epochs.
- Gather: `index_select` allocates its result in every call, ours does not.
- Epochs: DGL's are extrapolated from some batches with 64-bit ids, ours are whole. Scoring and
  copies at start-up are not counted.
";

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

/// Runs both sides alternately, then prints the rows.
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
        // Compared as text, because some fields are numbers.
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

/// Formats the median with its range, with three digits each.
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

/// Runs `peers.py` and returns its lines.
fn peer(options: &Options, duel: &Duel) -> Result<Vec<Value>> {
    let script = options.peers.join("peers.py");
    eprintln!("{}: peers.py {}", duel.peer.name(), duel.theirs.join(" "));
    let output = Command::new(&options.python[&duel.peer])
        .arg(script)
        .args(&duel.theirs)
        .env("BENCH_DATA", &options.data)
        .env("BENCH_LOCK", options.data.join("lock"))
        // Both sides meet the same noise: the peer does not repeat disturbed measurements and gets
        // no priority.
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
