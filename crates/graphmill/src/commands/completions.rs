//! `graphmill completions SHELL`: completions of commands and options for a shell.

use clap::{Arg, ArgMatches, Command, builder::EnumValueParser};
use clap_complete::{Shell, generate};

use crate::output;

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    Command::new("completions")
        .about("Print the completions of a shell")
        .after_long_help(
            "Examples:\n  \
             graphmill completions bash > ~/.local/share/bash-completion/completions/graphmill\n  \
             graphmill completions zsh > ~/.zfunc/_graphmill\n  \
             graphmill completions fish > ~/.config/fish/completions/graphmill.fish",
        )
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(EnumValueParser::<Shell>::new())
                .hide_possible_values(true)
                .help("Shell: bash, elvish, fish, powershell or zsh"),
        )
}

/// Prints the completions.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let shell = *matches.get_one::<Shell>("shell").expect("clap rejects a command line without it");
    let mut script = Vec::new();
    generate(shell, &mut super::cli(), "graphmill", &mut script);
    output::text(std::str::from_utf8(&script)?)
}
