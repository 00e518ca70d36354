//! `cargo xtask bench ...` and `cargo xtask papers ...`: builds and starts the runner of
//! `benchmarks/runner`.

use std::process::Command;

use anyhow::{Result, ensure};

/// Builds the runner together with `graphmill`, so that both have the same dependencies, and passes
/// the words on.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let status = super::cargo()
        .args(["build", "--release", "-p", "graphmill", "-p", "graphmill-benchmarks"])
        .status()?;
    ensure!(status.success(), "the build failed");
    let status =
        Command::new(super::target_dir().join("release/graphmill-benchmarks")).args(words).status()?;
    ensure!(status.success(), "the benchmarks failed");
    Ok(())
}

/// Measures the figures and tables of the papers that the words name, or all of them: the
/// definitions of the group `papers`.
pub(crate) fn papers(words: &[&str]) -> Result<()> {
    let named = words.first().is_some_and(|word| !word.starts_with('-'));
    if named { run(words) } else { run(&[&["papers"], words].concat()) }
}
