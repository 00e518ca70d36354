//! `graphmill version`: version, parts that the program was built with, and the processor.

use clap::{ArgMatches, Command};
use graphmill_engine::doctor::processor;

use super::doctor;
use crate::args;

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    Command::new("version")
        .about("Show the version, what it is built with, and the processor")
        .long_about(
            "Show the version, the system and the optional parts that the program is built for and with, and \
             the vector instructions that it uses on this processor: two lines of graphmill doctor.",
        )
        .after_long_help("Examples:\n  graphmill version\n  graphmill version --json")
        .arg(args::json())
}

/// Prints both lines.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    doctor::print(matches, &[doctor::version(), processor()])
}
