//! `graphmill report RUN`: rewrites a run's `report.html`.

use clap::{ArgMatches, Command};
use graphmill_report::write_report;

use crate::{args, output};

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    Command::new("report")
        .about("Rewrite the report.html of a run or a sweep from its records")
        .long_about(
            "Rewrite the report.html of a run or a sweep from its records.\n\n\
             graphmill train writes the report at the end of a run. Use this command after an interruption, \
             or to draw an older run with this version.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill report runs/cora\n  \
             graphmill report sweep              a directory that graphmill sweep wrote",
        )
        .arg(args::run_dir())
        .arg(args::json())
}

/// Writes the report and prints its path.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let path = write_report(args::required_path(matches, "run"))?;
    if matches.get_flag("json") {
        output::json(&serde_json::json!({ "report": path }))
    } else {
        output::text(&format!("{}\n", path.display()))
    }
}
