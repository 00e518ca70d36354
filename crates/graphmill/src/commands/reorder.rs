//! `graphmill reorder DATASET DST --by NAME`: the same dataset with its nodes renumbered.

use std::time::Instant;

use clap::{Arg, ArgAction, ArgMatches, Command};
use graphmill_core::{
    NodeId, memory, node_order,
    progress::Quiet,
    table::{self, Entry},
};
use graphmill_data::{
    dataset::{Work, native},
    reorder::{self, OrderKind},
};
use graphmill_engine::{Dataset, Error, TrainConfig, hotness};
use graphmill_loader::sampler::draws;
use serde_json::json;

use crate::{args, output, work};

/// The arguments.
pub(crate) fn command() -> Command {
    let orders: Vec<String> =
        reorder::TABLE.iter().map(|entry| format!("{}: {}", entry.name, entry.summary)).collect();
    let known = format!("{}; or the hottest first by {}", orders.join("; "), hotness::metrics());
    let command = Command::new("reorder")
        .about("Renumber a dataset's nodes so that what is read together lies together; the original ids are kept")
        .arg(args::path("dataset", "DATASET", "Directory of the dataset").required(true))
        .arg(args::path("dst", "DST", "Directory to write").required(true))
        .arg(Arg::new("by").long("by").value_name("NAME").required(true).help(known))
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("N")
                .allow_hyphen_values(true)
                .help("Seed of what is drawn (random) [default: 0]"),
        )
        .arg(
            Arg::new("force")
                .long("force")
                .action(ArgAction::SetTrue)
                .help("Replace a dataset that is there; it may be the one that is read"),
        )
        .arg(args::memory())
        .arg(args::threads())
        .arg(args::json());
    args::with_training_options(command, &draws())
}

/// Reorders.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let by = matches.get_one::<String>("by").expect("required");
    let seed = seed(matches)?;
    let (train, mut given) = args::training_options(matches, &draws())?;
    given.extend(seed.map(|_| "seed"));
    let seed = seed.unwrap_or_default();
    let order = order(by, seed, train, &given)?;
    let dst = args::required(matches, "dst");
    let work = Work {
        memory: args::get_memory(matches)?,
        replace: matches.get_flag("force"),
        progress: work::on_stderr(matches.get_flag("json")),
    };
    native::check_target(dst, work.replace)?;
    let began = Instant::now();
    let dataset = args::open_dataset(args::required(matches, "dataset"))?;
    let opened = began.elapsed().as_secs_f64();
    let what = format!("{by}, seed {seed}");
    let (reordered, seconds) = reorder::reorder_to(&dataset, dst, &what, order, work)?;
    if !matches.get_flag("json") {
        return output::text(&format!("{reordered}\n"));
    }
    let mut told = output::counts(&reordered);
    told["by"] = json!(by);
    told["seconds"] = json!(began.elapsed().as_secs_f64());
    let mut stages = json!(seconds);
    stages["open"] = json!(opened);
    told["stages"] = stages;
    told["peak_rss_bytes"] = json!(memory::peak());
    output::json(&told)
}

/// Makes an order of a dataset.
type Make = Box<dyn FnOnce(&Dataset) -> graphmill_core::Result<Vec<NodeId>>>;

/// What `--by` names: an order of the graph's own, or a hotness of what training with these options
/// reads.
fn order(by: &str, seed: u64, train: TrainConfig, given: &[&str]) -> Result<Make, Error> {
    if let Ok(entry) = table::find("order", reorder::TABLE, by) {
        let reads = |entry: &Entry<OrderKind>, option: &str| entry.make.is_random && option == "seed";
        if let Some(option) = given.iter().find(|option| !reads(entry, option)) {
            let readers = reorder::TABLE.iter().filter(|entry| reads(entry, option));
            let readers = readers.map(|entry| format!("--by {} or ", entry.name));
            return Err(Error::usage(format!(
                "--{}: --by {by} does not depend on it; use {}--by presc:1 for an order by what minibatches read, \
                 or leave it out",
                option.replace('_', "-"),
                readers.collect::<String>()
            )));
        }
        return Ok(Box::new(move |dataset| (entry.make.make)(&dataset.graph, seed)));
    }
    if !hotness::is_metric(by) {
        let orders = table::names(reorder::TABLE);
        let known = format!("{orders}; or the hottest first by {}", hotness::metrics());
        return Err(Error::usage(format!("unknown order '{by}'; known: {known}")));
    }
    hotness::refuse_unused(by, &train, given)?;
    let by = by.to_string();
    Ok(Box::new(move |dataset| {
        let train = TrainConfig { seed, ..train };
        let scores = hotness::scores(&by, &train, dataset, &Quiet)
            .map_err(|e| graphmill_core::Error::invalid(e.to_string()))?;
        node_order::by_scores(&scores)
    }))
}

/// The value of `--seed`, if it was given.
fn seed(matches: &ArgMatches) -> Result<Option<u64>, Error> {
    let Some(word) = matches.get_one::<String>("seed") else { return Ok(None) };
    word.parse().map(Some).map_err(|_| Error::usage(format!("--seed: '{word}' is not a possible number")))
}
