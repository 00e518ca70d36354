//! `cargo xtask strategies [--rounds N] OPTION ... [-- OPTION ...] ...`: epochs of the same run by
//! several strategies, alternating.
//!
//! Words before the first `--` are passed to every run of `graphmill train`, words after each `--`
//! to one of them; by default these are `sequential`, `pipelined` and `pipelined --allocation
//! naive`. Rounds alternate, so that a slowdown of the machine affects all of them. An epoch's
//! seconds are the minimum of all epochs except the first two, which fill caches and find
//! allocations.

use std::env::temp_dir;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Strategies that are compared by default.
const STRATEGIES: [&str; 3] =
    ["--strategy sequential", "--strategy pipelined", "--strategy pipelined --allocation naive"];
/// Number of epochs that are not counted.
const FIRST: usize = 2;

/// Result of one strategy.
#[derive(Default)]
struct Row {
    /// Minimum seconds of an epoch in each round.
    seconds: Vec<f64>,
    /// Summary of the last round.
    last: Value,
}

/// Runs the comparison.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let (mut rounds, mut words) = (3, words);
    if let ["--rounds", n, rest @ ..] = words {
        (rounds, words) = (n.parse().context("--rounds wants a number")?, rest);
    }
    let mut parts = words.split(|&word| word == "--");
    let common = parts.next().unwrap_or_default();
    let mut variants: Vec<Vec<&str>> = parts.map(<[&str]>::to_vec).collect();
    if variants.is_empty() {
        variants = STRATEGIES.iter().map(|words| words.split(' ').collect()).collect();
    }
    super::build_release()?;
    let out = temp_dir().join(format!("graphmill-strategies-{}", std::process::id()));
    let mut rows: Vec<Row> = variants.iter().map(|_| Row::default()).collect();
    for _ in 0..rounds {
        for (variant, row) in variants.iter().zip(&mut rows) {
            let dir = out.to_str().context("the temporary directory's path is UTF-8")?;
            let fixed =
                ["train", "--quiet", "--json", "--out", dir, "--eval-every", "1000", "--eval-nodes", "500"];
            let line: Vec<String> =
                fixed.iter().chain(common).chain(variant).map(|word| word.to_string()).collect();
            let summary: Value = serde_json::from_str(&super::graphmill(&line)?)?;
            std::fs::remove_dir_all(&out)?;
            let epochs = summary["epochs"].as_array().context("a summary has epochs")?;
            ensure!(epochs.len() > FIRST, "--epochs must be more than {FIRST}");
            let seconds = epochs[FIRST..].iter().filter_map(|epoch| epoch["seconds"].as_f64());
            row.seconds.push(seconds.fold(f64::INFINITY, f64::min));
            row.last = epochs[epochs.len() - 1].clone();
        }
    }
    println!("| | epoch, s | rounds | first / this | loss | stages, s | hit rate | link, MB |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let least = |row: &Row| row.seconds.iter().copied().fold(f64::INFINITY, f64::min);
    for (variant, row) in variants.iter().zip(&rows) {
        let each: Vec<String> = row.seconds.iter().map(|s| format!("{s:.3}")).collect();
        let stage =
            |name: &str| format!("{name} {:.2}", row.last["stages"][name].as_f64().unwrap_or(f64::NAN));
        let devices = row.last["devices"].as_array().map_or(&[][..], Vec::as_slice);
        let link = devices
            .iter()
            .filter_map(|device| device["link_bytes"].as_f64())
            .fold(0.0, |sum, bytes| sum + bytes);
        println!(
            "| {} | {:.3} | {} | {:.2} | {:.6} | {} | {:.1} % | {:.0} |",
            variant.join(" "),
            least(row),
            each.join(", "),
            least(&rows[0]) / least(row),
            row.last["loss"].as_f64().unwrap_or(f64::NAN),
            ["sample", "extract", "train"].map(stage).join(", "),
            100.0 * row.last["hit_rate"].as_f64().unwrap_or(f64::NAN),
            link / 1e6
        );
    }
    Ok(())
}
