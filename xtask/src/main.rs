//! The project's own commands.
//!
//! - `cargo xtask test` runs everything a change must pass, what is made over MPI too where MPI is there; `cargo xtask test python` the
//!   Python package's part alone.
//! - `cargo xtask setup` installs what MPI needs, on Debian.
//! - `cargo xtask accuracy DATASETS [NAME ...]` reruns the accuracy table of docs/results.md.
//! - `cargo xtask bench-peers PEERS_DIR [OPTION ...]` measures ours against other libraries.
//! - `cargo xtask cuda compile` compiles the CUDA kernels to the PTX that is checked in; `cargo xtask cuda check` compares.
//! - `cargo xtask cuda pack` builds what `scripts/gpu-check` runs on a machine with a device.
//! - `cargo xtask fuzz [--seconds N] [TARGET ...]` runs the fuzzing targets, each for N seconds.
//! - `cargo xtask graphsaint DATASETS MODE [OPTION ...]` holds training on subgraphs against its peers.
//! - `cargo xtask layered DATASETS MODE [OPTION ...]` holds reused bottom-layer rows against exact training.
//! - `cargo xtask partition DATASETS [WORD ...]` holds the methods of partitioning against each other.
//! - `cargo xtask ranks DATASET [MODE ...] [OPTION ...]` holds training over several processes against one, and against the plan.
//! - `cargo xtask scaling [OPTION ...]` measures how a batch's time grows, and plots it beside the cost model.
//! - `cargo xtask scale [OPTION ...]` measures a batch's time on graphs of 2^20 to 2^25 nodes.
//! - `cargo xtask strategies [--rounds N] OPTION ... [-- OPTION ...] ...` measures epochs by several strategies.
//! - `cargo xtask subgraph-scaling [OPTION ...]` measures an iteration of subgraph training against size, depth and degree.

mod accuracy;
mod bench_peers;
mod cuda;
mod fuzz;
mod graphs;
mod graphsaint;
mod layered;
mod mpi;
mod pack;
mod partition;
mod plot;
mod python;
mod ranks;
mod runs;
mod scale;
mod scaling;
mod strategies;
mod subgraph_scaling;
mod test;

use std::{env, path::PathBuf, process::Command};

use anyhow::{Result, bail};

/// What `cargo xtask` can be told.
const USAGE: &[&str] = &[
    "setup",
    "test [python [--site SITE_PACKAGES] [--torch] [PYTEST_OPTION ...]]",
    "accuracy DATASETS [NAME ...]",
    "bench-peers PEERS_DIR [--quick] [--data DIR] [WORD ...]",
    "cuda compile|check|pack",
    "fuzz [--seconds N] [--sanitizer none|address] [TARGET ...]",
    "graphsaint DATASETS accuracy|time|speed [--pyg PYTHON] [--runs N] [WORD ...]",
    "layered DATASETS accuracy|speed|chain|sizes [--runs N] [--batches N] [WORD ...]",
    "partition DATASETS [quality] [time] [linear] [parts=K] [batches=N] [to=S]",
    "ranks DATASET [curves] [bytes] [cache] [network] [--epochs N] [--links MBIT,...] [--methods NAME,...] [OPTION VALUE ...]",
    "scaling [--quick] [--threads N] [--out DIR] [NAME ...]",
    "scale [--from S] [--to S] [--generator NAME] [--rounds N] [--threads N] [--dim F] [--data DIR] [--out FILE]",
    "strategies [--rounds N] OPTION ... [-- OPTION ...] ...",
    "subgraph-scaling [OPTION VALUE ...] [size] [depth] [degree]",
];

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test::run(),
        ["setup"] => mpi::setup(),
        ["test", "python", ref words @ ..] => python::test(words),
        ["accuracy", datasets, ref names @ ..] => accuracy::run(datasets.as_ref(), names),
        ["bench-peers", ref words @ ..] => bench_peers::run(words),
        ["cuda", "compile"] => cuda::compile(),
        ["cuda", "check"] => cuda::check(),
        ["cuda", "pack"] => pack::pack(),
        ["fuzz", ref words @ ..] => fuzz::run(words),
        ["graphsaint", datasets, mode, ref words @ ..] => graphsaint::run(datasets.as_ref(), mode, words),
        ["layered", datasets, mode, ref words @ ..] => layered::run(datasets.as_ref(), mode, words),
        ["partition", datasets, ref words @ ..] => partition::run(datasets.as_ref(), words),
        ["ranks", dataset, ref words @ ..] => ranks::run(dataset.as_ref(), words),
        ["scaling", ref words @ ..] => scaling::run(words),
        ["scale", ref words @ ..] => scale::run(words),
        ["strategies", ref words @ ..] => strategies::run(words),
        ["subgraph-scaling", ref words @ ..] => subgraph_scaling::run(words),
        _ => bail!("usage: cargo xtask {}", USAGE.join(" | ")),
    }
}

/// The cargo that runs us.
fn cargo() -> std::ffi::OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Builds the `graphmill` command for [`graphmill`].
fn build_release() -> Result<()> {
    let status = Command::new(cargo()).args(["build", "--release", "-p", "graphmill"]).status()?;
    if !status.success() {
        bail!("the build failed");
    }
    Ok(())
}

/// Runs the command and returns its standard output.
fn graphmill(arguments: &[String]) -> Result<String> {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let output = Command::new(target.join("release/graphmill")).args(arguments).output()?;
    if !output.status.success() {
        bail!("graphmill {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
