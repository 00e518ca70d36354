//! `graphmill report RUN`: writes a run's `report.html` anew.

use clap::{ArgMatches, Command};
use graphmill_report::write_report;

use crate::{args, output};

/// The arguments.
pub(crate) fn command() -> Command {
    Command::new("report")
        .about("Write a run's report.html anew from what it recorded")
        .arg(args::path("run", "RUN", "Run directory").required(true))
        .arg(args::json())
}

/// Reports.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let path = write_report(args::required(matches, "run"))?;
    if matches.get_flag("json") {
        output::json(&serde_json::json!({ "report": path }))
    } else {
        output::text(&format!("{}\n", path.display()))
    }
}
