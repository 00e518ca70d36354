//! Gain of each part of the method (figure 12 of the paper), on one simulated device with a link
//! and memory for a part of the features.

use anyhow::Result;

use super::{Options, WIDE, generated, rounds::in_turn};
use crate::graphs::{number, with_directory};

const LINKS: [&str; 2] = ["12G,10us", "2G,10us"];

/// Memory of the device: a training step (0.6 GB), two tables of rows of all nodes (0.57 GB, used
/// if the processor computes the whole layer), the topology, and about a third of the features.
const BUDGET: &str = "1500M";

/// Steps, each with its addition to the previous one: the processor computes bottom-layer rows for
/// every batch; only those of hot nodes, once per super-batch; the remaining memory caches
/// features; rows are computed during the previous super-batch.
const CHAIN: &[(&str, &str)] = &[
    ("time-sharing", "--strategy time-sharing --cache-ratio 0"),
    ("+L", "--strategy layered --super-batch 1 --hot-ratio 1 --hot-ahead off --cache-ratio 0"),
    ("+HE", "--strategy layered --super-batch 8 --hot-ratio 0.3 --hot-ahead off --cache-ratio 0"),
    (
        "+HH",
        "--strategy layered --super-batch 8 --hot-ratio 0.3 --hot-ahead off --cache-ratio auto --hot-split \
         auto",
    ),
    (
        "+S",
        "--strategy layered --super-batch 8 --hot-ratio 0.3 --hot-ahead on --cache-ratio auto --hot-split \
         auto",
    ),
];

/// Prints a table of both links.
pub(super) fn run(options: &Options) -> Result<()> {
    println!(
        "| link | | epoch, s | rounds | first / this | link, MB | seconds taken | hit rate | staleness |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    with_directory(None, |dir| {
        let graph = generated(dir, &WIDE)?;
        for link in LINKS.iter().filter(|link| options.wants(link, LINKS)) {
            let common = format!(
                "--model gcn --layers 3 --fanout 25,10,5 --epochs 4 --max-batches {} --devices virtual:1 \
                 --link {link} \
                 --device-budget {BUDGET}",
                options.batches
            );
            let lines: Vec<String> = CHAIN.iter().map(|(_, line)| line.to_string()).collect();
            let timed = in_turn(&graph, &common, &lines, options.rounds())?;
            for ((name, _), this) in CHAIN.iter().zip(&timed) {
                let device = &this.epoch()?["devices"][0];
                println!(
                    "| {link} | {name} | {:.3} | {} | {:.2} | {:.0} | {:.3} | {:.1} % | {} |",
                    this.least(),
                    this.all(),
                    timed[0].least() / this.least(),
                    number(&device["link_bytes"])? / 1e6,
                    number(&device["link_seconds"])?,
                    100.0 * device["hit_rate"].as_f64().unwrap_or(0.0),
                    this.summary["staleness"]["max"],
                );
            }
        }
        Ok(())
    })
}
