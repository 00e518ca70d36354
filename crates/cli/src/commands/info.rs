//! `graphmill info DATASET`: what is in a dataset.

use clap::{ArgMatches, Command};
use graphmill_graph::stats;

use crate::{args, output};

/// The arguments.
pub(crate) fn command() -> Command {
    Command::new("info")
        .about("Show a dataset's sizes, degrees, homophily and components")
        .arg(args::path("dataset", "DATASET", "Directory of the dataset").required(true))
        .arg(args::threads())
        .arg(args::json())
}

/// Shows.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let info = stats::info(&args::open_dataset(args::required(matches, "dataset"))?);
    if matches.get_flag("json") { output::json(&info) } else { output::text(&info.to_string()) }
}
