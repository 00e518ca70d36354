//! What each part of the method gains (figure 12 of the paper): on one device that is made up, with a link, and with room for a part
//! of the features.

use anyhow::Result;

use super::{Options, WIDE, generated, rounds::in_turn};
use crate::graphs::{in_room, number};

const LINKS: [&str; 2] = ["12G,10us", "2G,10us"];

/// The device's memory: a training step (0.6 GB), two tables of rows of all nodes (0.57 GB, where the whole layer is the
/// processor's), the topology, and about a third of the features.
const BUDGET: &str = "1500M";

/// Every step, with what it adds to the one before: rows of the bottom layer are computed by the processor for every batch; those of
/// hot nodes alone, once for a super-batch; what memory is left caches features; rows are made during the super-batch before.
const CHAIN: &[(&str, &str)] = &[
    ("time-sharing", "--strategy time-sharing --cache-ratio 0"),
    ("+L", "--strategy layered --super-batch 1 --hot-ratio 1 --hot-ahead off --cache-ratio 0"),
    ("+HE", "--strategy layered --super-batch 8 --hot-ratio 0.3 --hot-ahead off --cache-ratio 0"),
    (
        "+HH",
        "--strategy layered --super-batch 8 --hot-ratio 0.3 --hot-ahead off --cache-ratio auto --hot-split auto",
    ),
    (
        "+S",
        "--strategy layered --super-batch 8 --hot-ratio 0.3 --hot-ahead on --cache-ratio auto --hot-split auto",
    ),
];

/// Prints a table of both links.
pub(super) fn run(options: &Options) -> Result<()> {
    println!(
        "| link | | epoch, s | rounds | first / this | link, MB | seconds taken | hit rate | staleness |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    in_room(None, |room| {
        let graph = generated(room, &WIDE)?;
        for link in LINKS.iter().filter(|link| options.wants(link, LINKS)) {
            let common = format!(
                "--model gcn --layers 3 --fanout 25,10,5 --epochs 4 --max-batches {} --devices virtual:1 --link {link} \
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
