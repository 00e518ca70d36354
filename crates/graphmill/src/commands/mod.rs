//! One file per command, and the table of them.

mod bench;
mod datasets;
mod eval;
mod export;
mod generate;
mod hotness;
mod import;
mod info;
mod partition;
mod plan;
mod predict;
mod reorder;
mod report;
mod train;

use clap::{ArgMatches, Command};

/// A command: its arguments, and what it does.
struct Entry {
    command: fn() -> Command,
    run: fn(&ArgMatches) -> anyhow::Result<()>,
}

/// Every command there is.
const TABLE: &[Entry] = &[
    Entry { command: train::command, run: train::run },
    Entry { command: datasets::command, run: datasets::run },
    Entry { command: import::command, run: import::run },
    Entry { command: export::command, run: export::run },
    Entry { command: generate::command, run: generate::run },
    Entry { command: reorder::command, run: reorder::run },
    Entry { command: partition::command, run: partition::run },
    Entry { command: info::command, run: info::run },
    Entry { command: eval::command, run: eval::run },
    Entry { command: predict::command, run: predict::run },
    Entry { command: report::command, run: report::run },
    Entry { command: hotness::command, run: hotness::run },
    Entry { command: plan::command, run: plan::run },
    Entry { command: bench::command, run: bench::run },
];

/// The whole command line.
pub(crate) fn cli() -> Command {
    Command::new("graphmill")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Trains graph neural networks on graphs larger than the accelerator's memory")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(TABLE.iter().map(|entry| (entry.command)()))
}

/// Runs the command that was asked for.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let (name, matches) = matches.subcommand().expect("clap requires a command");
    let entry =
        TABLE.iter().find(|entry| (entry.command)().get_name() == name).expect("clap knows only the table's");
    (entry.run)(matches)
}
