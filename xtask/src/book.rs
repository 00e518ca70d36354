//! `cargo xtask book [build|write|check] [PAGE ...]`: builds, generates or checks the book with the
//! program `graphmill-book`, which xtask does not link because it depends on mdbook.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{cargo, mpi, target_dir};

/// Builds the command and the builder of the book, and runs the builder; by default it checks.
///
/// # Errors
/// The build fails, or the builder does.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let mut build = cargo();
    build.args(["build", "-p", "graphmill", "-p", "graphmill-book"]);
    if mpi::is_there() {
        build.args(["--features", "graphmill/mpi"]);
    }
    if !build.status().context("cannot run cargo for the book")?.success() {
        bail!("the book's builder cannot be built");
    }
    let mut builder = builder(if words.is_empty() { &["check"] } else { words });
    if !builder.status().context("cannot run the book's builder")?.success() {
        bail!("the book has faults");
    }
    Ok(())
}

/// The builder's command. Pages over MPI are left out if the tests are.
pub(crate) fn builder(words: &[&str]) -> Command {
    let mut command = Command::new(target_dir().join("debug/graphmill-book"));
    command.args(&words[..1]);
    if words[0] == "check" && !mpi::is_there() {
        command.args(["--without", "mpirun"]);
    }
    command.args(&words[1..]);
    command
}
