//! `graphmill info DATASET`: statistics of a dataset.

use clap::{ArgMatches, Command};
use graphmill_data::{Dataset, stats};

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
            "Opening a dataset verifies all files but features larger than a quarter of the memory. Use this \
             option after a copy or a disk failure: it reads those, too",
        ))
        .arg(args::threads())
        .arg(args::json())
}

/// Opens the dataset and prints its statistics.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let path = args::required_path(matches, "dataset");
    let dataset =
        if matches.get_flag("verify") { Dataset::open_verified(path)? } else { args::open_dataset(path)? };
    let info = stats::info(&dataset);
    if matches.get_flag("json") { output::json(&info) } else { output::text(&info.to_string()) }
}
