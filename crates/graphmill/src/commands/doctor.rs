//! `graphmill doctor`: what of this machine works, what does not, and what to install.

use std::{env, path::Path};

use clap::{ArgMatches, Command};
use graphmill_engine::doctor::{self, Finding, State};
use serde_json::json;

use crate::{args, output};

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    Command::new("doctor")
        .about("Show what works on this machine, and what to install")
        .long_about(
            "Show what works on this machine, what does not, and what to install. Run it in the directory \
             of your data, and add its table to bug reports.\n\n\
             The exit status is 1 if something makes runs fail, and 0 otherwise.",
        )
        .after_long_help("Examples:\n  graphmill doctor\n  graphmill doctor --json")
        .arg(args::json())
}

/// Examines the machine and prints the table.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let mut findings = vec![version(), mpi()];
    findings.extend(doctor::examine(Path::new(".")));
    print(matches, &findings)?;
    let faults = findings.iter().filter(|of| of.state == State::Fault);
    let faults: Vec<String> = faults.map(|of| format!("{}: {}", of.part, of.found)).collect();
    if faults.is_empty() {
        return Ok(());
    }
    output::note(&format!("error: runs will fail: {}", faults.join("; ")));
    std::process::exit(1)
}

/// Prints findings as a table, or as a document with `--json`.
pub(super) fn print(matches: &ArgMatches, findings: &[Finding]) -> anyhow::Result<()> {
    if matches.get_flag("json") {
        return output::json(&json!({ "version": env!("CARGO_PKG_VERSION"), "findings": findings }));
    }
    output::text(&findings.iter().map(Finding::to_string).collect::<String>())
}

/// Version of the program and the features that it was built with.
pub(super) fn version() -> Finding {
    let features = [
        ("cuda", cfg!(feature = "cuda")),
        ("mpi", cfg!(feature = "mpi")),
        ("object-storage", cfg!(feature = "object-storage")),
        ("serve", cfg!(feature = "serve")),
        ("tables", cfg!(feature = "tables")),
    ];
    doctor::version(&features, "cargo install with --features adds them")
}

/// Launcher of several processes.
fn mpi() -> Finding {
    let part = "MPI";
    let path = env::var_os("PATH").unwrap_or_default();
    let launcher = env::split_paths(&path).map(|dir| dir.join("mpirun")).find(|file| file.is_file());
    match (cfg!(feature = "mpi"), launcher) {
        (true, Some(launcher)) => Finding::good(part, launcher.display().to_string()),
        (true, None) => Finding::note(part, "no mpirun on the PATH", "for several machines install Open MPI"),
        (false, _) => Finding::note(
            part,
            "this program trains on one machine",
            "for several machines install Open MPI and build with --features mpi",
        ),
    }
}
