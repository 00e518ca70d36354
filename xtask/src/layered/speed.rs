//! Seconds of an epoch, and the remaining bottom-layer aggregation.

use anyhow::Result;

use super::{
    FB100, Generated, Options, WIDE, generated, imported,
    rounds::{Timed, in_turn},
};
use crate::graphs::{number, with_directory};

/// Graphs besides [`WIDE`] and [`FB100`].
const GRAPHS: &[Generated] = &[
    WIDE,
    Generated {
        name: "kronecker",
        generate: "kronecker --scale 20 --degree 16 --feature-dim 100 --classes 47 --split 0.19,0.005,0.005",
    },
    Generated { name: "sbm", generate: "sbm --nodes 200000 --degree 48 --feature-dim 128 --classes 40" },
];

const RUN: &str = "--model gcn --layers 3 --fanout 25,10,5 --epochs 4";

/// Index of the baseline.
const PIPELINED: usize = 1;

/// Options of every run.
fn lines() -> Vec<String> {
    let mut lines = vec!["--strategy sequential".to_string(), "--strategy pipelined".to_string()];
    for n in [8, 16] {
        for ratio in ["0.2", "0.25", "0.3"] {
            lines.push(format!("--strategy layered --super-batch {n} --hot-ratio {ratio}"));
        }
    }
    lines.push("--strategy layered".to_string());
    lines
}

/// Prints the table.
pub(super) fn run(options: &Options) -> Result<()> {
    println!(
        "| graph | options | epoch, s | rounds | pipelined / this | bottom-layer edges, % of exact: computed \
         | made | saved | \
         rows reused, % | staleness |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let names = || GRAPHS.iter().map(|graph| graph.name).chain([FB100.name]);
    with_directory(None, |dir| {
        for name in names().filter(|name| options.wants(name, names())) {
            let graph = match GRAPHS.iter().find(|graph| graph.name == name) {
                Some(graph) => generated(dir, graph)?,
                None => imported(&options.datasets, &FB100)?,
            };
            let common = format!("{RUN} --max-batches {}", options.batches);
            let lines = lines();
            let timed = in_turn(&graph, &common, &lines, options.rounds())?;
            for (line, this) in lines.iter().zip(&timed) {
                row(name, line, this, &timed)?;
            }
            if name != FB100.name {
                std::fs::remove_dir_all(&graph)?;
            }
        }
        Ok(())
    })
}

fn row(name: &str, line: &str, this: &Timed, all: &[Timed]) -> Result<()> {
    let [exact, _] = all[0].bottom_edges()?;
    let part = this.bottom_edges()?.map(|edges| 100.0 * edges / exact);
    let reuse = &this.epoch()?["reuse"];
    let reused = match reuse.is_null() {
        true => String::new(),
        false => format!("{:.1}", 100.0 * number(&reuse["reused_rows"])? / number(&reuse["asked_rows"])?),
    };
    println!(
        "| {name} | {} | {:.3} | {} | {:.2} | {:.1} | {:.1} | {:.1} | {reused} | {} |",
        line.trim_start_matches("--strategy "),
        this.least(),
        this.all(),
        all[PIPELINED].least() / this.least(),
        part[0],
        part[1],
        100.0 - part[0] - part[1],
        this.summary["staleness"]["max"],
    );
    Ok(())
}
