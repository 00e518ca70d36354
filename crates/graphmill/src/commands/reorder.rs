//! `graphmill reorder DATASET DST --by NAME`: renumbers the nodes of a dataset.

use std::time::Instant;

use clap::{Arg, ArgMatches, Command};
use graphmill_core::memory;
use graphmill_data::{
    Dataset, TypedDataset,
    dataset::{Work, native},
    reorder,
};
use graphmill_engine::{
    Error, hotness,
    node_order::{self, NodeOrder},
    typed,
};
use serde_json::json;

use crate::{args, output, work};

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    let by = Arg::new("by").long("by").value_name("NAME").required(true);
    let command = Command::new("reorder")
        .about("Renumber nodes so that rows read together lie together")
        .long_about(
            "Renumber nodes so that rows read together lie together.\n\n\
             Features on disk are then read in fewer and longer pieces. The dataset keeps the original ids: \
             graphmill predict --original-ids answers in them. Of several node types, each keeps its place, \
             and its nodes are renumbered.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill reorder data hot --by presc:1 --fanout 15,10   hottest rows first\n  \
             graphmill reorder data bfs --by bfs                      neighbours close together",
        )
        .arg(args::dataset().required(true))
        .arg(
            args::path("dst", "DST", "Dataset directory to write; may be DATASET with --force")
                .required(true),
        )
        .arg(args::explain_names(
            by,
            "Order of the nodes",
            reorder::TABLE,
            &format!(
                "Or a hotness metric, hottest nodes first, by what training with the options below reads: {}",
                hotness::metrics()
            ),
        ))
        .arg(args::option(
            "seed",
            "N",
            "Seed of --by random and of sampled hotness [default: 0]",
            "A whole number from 0",
        ))
        .arg(args::force())
        .arg(args::memory())
        .arg(args::threads())
        .arg(args::json());
    args::when_used(command, |command| args::with_training_options(command, &options()))
}

/// Options of a run that hotness reads; `--task` chooses one of a dataset of several types.
fn options() -> Vec<&'static str> {
    node_order::options().into_iter().chain(["task"]).collect()
}

/// Reorders the dataset and prints its sizes.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let by = matches.get_one::<String>("by").expect("required");
    let seed = seed(matches)?;
    let (mut train, mut given) = args::training_options(matches, &options())?;
    given.extend(seed.map(|_| "seed"));
    let seed = seed.unwrap_or_default();
    let dst = args::required_path(matches, "dst");
    let work = Work {
        memory: args::get_memory(matches)?,
        replace: matches.get_flag("force"),
        progress: work::on_stderr(matches.get_flag("json")),
    };
    native::check_target(dst, work.replace)?;
    let began = Instant::now();
    let path = args::required_path(matches, "dataset");
    let of_types = typed::open_beyond_one_type(path)?;
    if of_types.is_some() {
        train.dataset = path.to_string_lossy().into_owned();
        train.derive_options(&given)?;
    }
    let order = NodeOrder::new(by, seed, train, &given)?;
    let what = format!("{by}, seed {seed}");
    let (mut document, text, opened, seconds) = match of_types {
        Some(data) => {
            let opened = began.elapsed().as_secs_f64();
            let of_types = |data: &TypedDataset| order.of_types(data);
            let (made, seconds) = reorder::reorder_types_to(&data, dst, &what, of_types, work)?;
            (output::type_counts(&made), made.to_string(), opened, seconds)
        }
        None => {
            let data = args::open_dataset(path)?;
            let opened = began.elapsed().as_secs_f64();
            let of_dataset = |data: &Dataset| order.of_dataset(data);
            let (made, seconds) = reorder::reorder_to(&data, dst, &what, of_dataset, work)?;
            (output::counts(&made), made.to_string(), opened, seconds)
        }
    };
    if !matches.get_flag("json") {
        return output::text(&format!("{text}\n"));
    }
    document["by"] = json!(by);
    document["seconds"] = json!(began.elapsed().as_secs_f64());
    let mut stages = json!(seconds);
    stages["open"] = json!(opened);
    document["stages"] = stages;
    document["peak_rss_bytes"] = json!(memory::peak());
    output::json(&document)
}

/// The value of `--seed`, if it was given.
fn seed(matches: &ArgMatches) -> Result<Option<u64>, Error> {
    let Some(word) = matches.get_one::<String>("seed") else { return Ok(None) };
    word.parse().map(Some).map_err(|_| Error::usage(format!("--seed: '{word}' is not a whole number from 0")))
}
