//! `cargo xtask bench ...`: builds and starts the runner of `benchmarks/runner`.

use std::process::Command;

use anyhow::{Result, ensure};

/// Builds the runner together with `graphmill`, so that both have the same dependencies, and passes
/// the words on.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let status = Command::new(super::cargo())
        .args(["build", "--release", "-p", "graphmill", "-p", "graphmill-benchmarks"])
        .status()?;
    ensure!(status.success(), "the build failed");
    let status =
        Command::new(super::target_dir().join("release/graphmill-benchmarks")).args(words).status()?;
    ensure!(status.success(), "the benchmarks failed");
    Ok(())
}
