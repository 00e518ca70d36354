//! `graphmill man DIR`: manual pages of the program and of its commands.

use std::fs;

use anyhow::Context;
use clap::{ArgMatches, Command};
use clap_mangen::Man;
use graphmill_data::atomic;

use crate::{args, output};

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    Command::new("man")
        .about("Write the manual pages of all commands")
        .after_long_help("Examples:\n  graphmill man ~/.local/share/man/man1\n  man graphmill-train")
        .arg(
            args::explain(
                args::path("dir", "DIR", ""),
                "Directory of the pages",
                "It is created if it does not exist. Pages of the same names are replaced",
            )
            .required(true),
        )
}

/// Writes a page for the program, and one for each command and each command of a command.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let dir = args::required_path(matches, "dir");
    fs::create_dir_all(dir).with_context(|| format!("{}: cannot be created", dir.display()))?;
    let mut cli = super::cli().disable_help_subcommand(true);
    cli.build();
    let mut pages = vec![&cli];
    while let Some(page) = pages.pop() {
        pages.extend(page.get_subcommands());
        let name = page.get_display_name().unwrap_or_else(|| page.get_name()).to_string();
        let path = dir.join(format!("{name}.1"));
        let mut text = Vec::new();
        Man::new(page.clone().name(name)).render(&mut text)?;
        atomic::write(&path, |file| file.write_all(&text))?;
        output::text(&format!("{}\n", path.display()))?;
    }
    Ok(())
}
