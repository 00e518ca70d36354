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
        .subcommands(TABLE.iter().map(|entry| with_short_help((entry.command)())))
}

/// Characters of an option's text in the short help.
const SHORT: usize = 70;

/// Gives the arguments whose text is long a short one for `-h`; `--help` has both.
fn with_short_help(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let text = arg.get_help().map(ToString::to_string).unwrap_or_default();
        if arg.get_long_help().is_some() || text.len() <= SHORT {
            return arg;
        }
        arg.help(first_sentence(&text)).long_help(text)
    });
    command.mut_subcommands(with_short_help)
}

/// The first sentence or clause of a text, at most [`SHORT`] characters long.
fn first_sentence(text: &str) -> String {
    let end = [". ", "; ", ": "].iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
    let sentence = text[..end].split(" [default: ").next().unwrap_or_default();
    if sentence.len() <= SHORT {
        return sentence.into();
    }
    let clauses = sentence.match_indices([',', '(']).map(|(at, _)| at);
    let words = sentence.match_indices(' ').map(|(at, _)| at);
    let fits = |at: &usize| (SHORT / 3..SHORT).contains(at);
    let cut = clauses.rev().find(fits).or_else(|| words.rev().find(fits)).unwrap_or(sentence.len());
    sentence[..cut].trim_end().into()
}

/// Runs the command that was asked for.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let (name, matches) = matches.subcommand().expect("clap requires a command");
    let entry =
        TABLE.iter().find(|entry| (entry.command)().get_name() == name).expect("clap knows only the table's");
    (entry.run)(matches)
}
