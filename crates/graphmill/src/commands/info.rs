//! `graphmill info DATASET`: what is in a dataset.

use clap::{Arg, ArgAction, ArgMatches, Command};
use graphmill_data::{Dataset, stats};

use crate::{args, output};

/// The arguments.
pub(crate) fn command() -> Command {
    Command::new("info")
        .about("Show a dataset's sizes, degrees, homophily and components")
        .arg(args::path("dataset", "DATASET", "Directory of the dataset").required(true))
        .arg(
            Arg::new("verify")
                .long("verify")
                .action(ArgAction::SetTrue)
                .help("Read and verify every byte, features larger than a quarter of the memory included"),
        )
        .arg(args::threads())
        .arg(args::json())
}

/// Shows.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let path = args::required(matches, "dataset");
    let dataset =
        if matches.get_flag("verify") { Dataset::open_verified(path)? } else { args::open_dataset(path)? };
    let info = stats::info(&dataset);
    if matches.get_flag("json") { output::json(&info) } else { output::text(&info.to_string()) }
}
