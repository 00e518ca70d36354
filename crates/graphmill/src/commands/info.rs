//! `graphmill info DATASET`: statistics of a dataset.

use std::path::Path;

use clap::{ArgMatches, Command};
use graphmill_data::{
    Dataset, stats,
    typed::{self, Verify},
};

use crate::{args, output};

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    Command::new("info")
        .about("Show a dataset's sizes, degrees, homophily and components")
        .after_long_help("Examples:\n  graphmill info data\n  graphmill info data --verify --json")
        .arg(args::dataset().required(true))
        .arg(args::flag(
            "verify",
            "Read every byte and compare the checksums",
            "Opening a dataset verifies all files but features larger than a quarter of the memory, of which \
             the first read of a row verifies its part. Use this option after a copy or a disk failure: it \
             reads those, too, and writes features_checksums.npy if it is missing",
        ))
        .arg(args::threads())
        .arg(args::json())
}

/// Opens the dataset and prints its statistics.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let path = args::required_path(matches, "dataset");
    let verify = matches.get_flag("verify");
    if typed::is_typed(path) {
        return print_typed(path, if verify { Verify::All } else { Verify::Once }, matches.get_flag("json"));
    }
    let dataset = if verify { Dataset::open_verified(path)? } else { args::open_dataset(path)? };
    let info = stats::info(&dataset);
    if matches.get_flag("json") { output::json(&info) } else { output::text(&info.to_string()) }
}

/// Prints the types and tasks of a dataset of format 2; of one type, also all statistics of its
/// graph.
fn print_typed(path: &Path, verify: Verify, json: bool) -> anyhow::Result<()> {
    let data = typed::open(path, verify)?;
    let types = typed::info(&data);
    let graph = if data.is_one_type() { Some(stats::info(&args::open_dataset(path)?)) } else { None };
    if !json {
        let text = graph.map_or(format!("{}\n", types.name), |graph| graph.to_string());
        return output::text(&format!("{text}{types}"));
    }
    let mut document = serde_json::to_value(&types)?;
    if let (Some(all), serde_json::Value::Object(fields)) =
        (document.as_object_mut(), serde_json::to_value(&graph)?)
    {
        // The statistics of the graph have the size of each part, and the same counts.
        all.extend(fields);
    }
    output::json(&document)
}
