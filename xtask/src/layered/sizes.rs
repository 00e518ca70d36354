//! Deep models and large batches: memory, and whether the advantage persists.

use anyhow::Result;

use super::{Options, WIDE, generated, rounds::in_turn};
use crate::graphs::{number, with_directory};

const DEPTHS: &[(&str, &str)] = &[
    ("2", "--layers 2 --fanout 25,10"),
    ("3", "--layers 3 --fanout 25,10,5"),
    ("4", "--layers 4 --fanout 10,10,5,5"),
    ("5", "--layers 5 --fanout 10,5,5,5,5"),
];

const BATCHES: [&str; 4] = ["256", "1024", "4096", "10000"];

const STRATEGIES: [&str; 2] = ["sequential", "layered"];

/// Prints both tables.
pub(super) fn run(options: &Options) -> Result<()> {
    with_directory(None, |dir| {
        let graph = generated(dir, &WIDE)?;
        let table = |name: &str, rows: &[(&str, String)]| -> Result<()> {
            println!(
                "| {name} | sequential: epoch, s | GB | layered: epoch, s | GB | sequential / layered | \
                 batches reuse |"
            );
            println!("| --- | --- | --- | --- | --- | --- | --- |");
            for (value, line) in rows {
                let common = format!("--model gcn --epochs 3 --max-batches {} {line}", options.batches);
                let lines = STRATEGIES.map(|name| format!("--strategy {name}"));
                let timed = in_turn(&graph, &common, &lines, options.rounds())?;
                let cells = timed.iter().map(|this| {
                    let memory = number(&this.summary["peak_rss_bytes"])? / 1e9;
                    Ok(format!("{:.3} | {memory:.2}", this.least()))
                });
                println!(
                    "| {value} | {} | {:.2} | {:.1} |",
                    cells.collect::<Result<Vec<_>>>()?.join(" | "),
                    timed[0].least() / timed[1].least(),
                    timed[1].epoch()?["reuse"]["super_batch"].as_f64().unwrap_or(1.0),
                );
            }
            println!();
            Ok(())
        };
        if options.wants("depth", ["depth", "batch"]) {
            let rows: Vec<_> = DEPTHS.iter().map(|&(depth, line)| (depth, line.to_string())).collect();
            table("layers", &rows)?;
        }
        if options.wants("batch", ["depth", "batch"]) {
            let line = |batch| format!("{} --batch-size {batch}", DEPTHS[1].1);
            table("batch", &BATCHES.map(|batch| (batch, line(batch))))?;
        }
        Ok(())
    })
}
