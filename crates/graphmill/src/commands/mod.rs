//! The table of subcommands; each has a file.

#[cfg(feature = "tables")]
mod append;
mod bench;
mod completions;
mod datasets;
mod doctor;
mod embed;
mod eval;
mod export;
mod export_model;
mod generate;
mod hotness;
mod import;
mod info;
mod man;
mod partition;
mod plan;
mod predict;
mod propagate;
mod reorder;
mod report;
mod runs;
mod serve;
mod sweep;
mod train;
mod version;

use clap::{ArgMatches, Command};

/// A subcommand.
struct Entry {
    /// Builds the subcommand with its arguments.
    command: fn() -> Command,
    /// Runs it.
    run: fn(&ArgMatches) -> anyhow::Result<()>,
}

/// The subcommands by purpose, in the order of the help.
const TABLE: &[(&str, &[Entry])] = &[
    (
        "Data",
        &[
            Entry { command: datasets::command, run: datasets::run },
            Entry { command: import::command, run: import::run },
            #[cfg(feature = "tables")]
            Entry { command: append::command, run: append::run },
            Entry { command: export::command, run: export::run },
            Entry { command: generate::command, run: generate::run },
            Entry { command: reorder::command, run: reorder::run },
            Entry { command: partition::command, run: partition::run },
            Entry { command: info::command, run: info::run },
        ],
    ),
    (
        "Training",
        &[
            Entry { command: train::command, run: train::run },
            Entry { command: sweep::command, run: sweep::run },
            Entry { command: eval::command, run: eval::run },
            Entry { command: predict::command, run: predict::run },
            Entry { command: serve::command, run: serve::run },
            Entry { command: embed::command, run: embed::run },
            Entry { command: export_model::command, run: export_model::run },
        ],
    ),
    (
        "Inspection",
        &[
            Entry { command: report::command, run: report::run },
            Entry { command: runs::command, run: runs::run },
            Entry { command: bench::command, run: bench::run },
            Entry { command: doctor::command, run: doctor::run },
            Entry { command: version::command, run: version::run },
        ],
    ),
    (
        "Planning",
        &[
            Entry { command: hotness::command, run: hotness::run },
            Entry { command: plan::command, run: plan::run },
        ],
    ),
    (
        "Shell",
        &[
            Entry { command: completions::command, run: completions::run },
            Entry { command: man::command, run: man::run },
        ],
    ),
];

/// All subcommands.
fn entries() -> impl Iterator<Item = &'static Entry> {
    TABLE.iter().flat_map(|(_, entries)| *entries)
}

/// List of the commands by purpose, which clap itself cannot print.
fn listing() -> String {
    let mut text = String::new();
    for (purpose, entries) in TABLE {
        text += &format!("{purpose} commands:\n");
        for entry in *entries {
            let command = (entry.command)();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            text += &format!("  {:<14} {about}\n", command.get_name());
        }
        text.push('\n');
    }
    text
}

/// Adds the first two examples of the long help to the short one.
fn with_examples(command: Command) -> Command {
    let command = command.mut_subcommands(with_examples);
    let Some(long) = command.get_after_long_help().map(ToString::to_string) else { return command };
    let examples: Vec<&str> = long.lines().take_while(|line| !line.is_empty()).take(3).collect();
    let more = command.get_after_help().map(|more| format!("\n\n{more}")).unwrap_or_default();
    command.after_help(format!("{}{more}", examples.join("\n")))
}

/// The whole command line.
pub(crate) fn cli() -> Command {
    Command::new("graphmill")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Train graph neural networks on graphs larger than memory")
        .help_template(format!(
            "{{about-with-newline}}\nUsage: {{usage}}\n\n{}Options:\n{{options}}{{after-help}}",
            listing()
        ))
        .after_help(
            "Start with:\n  \
             graphmill train                      train on a built-in demo graph\n  \
             graphmill datasets                   list public datasets\n  \
             graphmill import tables --help       import your own tables\n\n\
             graphmill COMMAND -h lists the common options of a command, --help explains all",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(entries().map(|entry| with_examples((entry.command)())))
}

/// Runs the given subcommand.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let (name, matches) = matches.subcommand().expect("clap rejects a command line without a subcommand");
    let entry = entries()
        .find(|entry| (entry.command)().get_name() == name)
        .expect("clap rejects subcommands outside the table");
    (entry.run)(matches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::SHORT_HELP;

    /// Arguments of a command and its subcommands, by the name of their command.
    fn arguments(command: &Command) -> Vec<(String, clap::Arg)> {
        let own = command.get_arguments().map(|arg| (command.get_name().to_string(), arg.clone()));
        own.chain(command.get_subcommands().flat_map(arguments)).collect()
    }

    /// Names of the commands, at any depth, that do not take `--json`.
    fn without_json(command: &Command) -> Vec<String> {
        let own = command.get_arguments().all(|arg| arg.get_id() != "json");
        let own = (own && !command.has_subcommands()).then(|| command.get_name().to_string());
        own.into_iter().chain(command.get_subcommands().flat_map(without_json)).collect()
    }

    #[test]
    fn every_command_takes_json_except_those_that_the_pages_name() {
        // named by the pages of commands and of features
        assert_eq!(without_json(&cli()), ["serve", "completions", "man"]);
    }

    #[test]
    fn every_short_help_fits_a_line() {
        let mut cli = cli();
        cli.build();
        for (command, arg) in arguments(&cli).iter().filter(|(_, arg)| !arg.is_hide_short_help_set()) {
            let id = arg.get_id();
            let help = arg.get_help().unwrap_or_else(|| panic!("{command} {id}: no help")).to_string();
            let line = help.split(" [default: ").next().unwrap_or_default();
            assert!(line.chars().count() <= SHORT_HELP && !line.contains('\n'), "{command} {id}: {line}");
            assert!(!line.is_empty() && !line.ends_with('.'), "{command} {id}: {line}");
        }
        for command in cli.get_subcommands() {
            let about = command.get_about().expect("a summary").to_string();
            assert!(about.chars().count() <= SHORT_HELP, "{}: {about}", command.get_name());
        }
    }
}
