//! Development commands of the project.
//!
//! - `cargo xtask test` runs everything that a change must pass, and prints the duration of each
//!   step; `--soak` repeats the tests with long counts; `cargo xtask test python` builds and tests
//!   only the Python package's wheel.
//! - `cargo xtask house` checks the structure of the sources and the paths in the documentation.
//! - `cargo xtask voice [MEMBER]` checks the wording of comments, messages and names.
//! - `cargo xtask book [build|write|check]` builds the book, writes its generated pages, or checks
//!   its links, commands and generated pages.
//! - `cargo xtask setup` installs MPI and its build dependencies, on Debian.
//! - `cargo xtask accuracy DATASETS [NAME ...]` recomputes the accuracy table of
//!   `book/src/results/all.md`.
//! - `cargo xtask bench-peers PEERS_DIR [OPTION ...]` compares the speed with other libraries.
//! - `cargo xtask cuda compile` compiles the CUDA kernels to the bundle of PTX in the repository;
//!   `cargo xtask cuda check` compares.
//! - `cargo xtask cuda pack` builds the programs that `scripts/gpu-check` runs on a machine with a
//!   device.
//! - `cargo xtask fuzz [--seconds N] [TARGET ...]` runs the fuzzing targets, each for N seconds.
//! - `cargo xtask golden record|check|compare ...` compares the results of two builds of
//!   `graphmill` bit for bit.
//! - `cargo xtask graphsaint DATASETS MODE [OPTION ...]` compares subgraph training with its peers.
//! - `cargo xtask layered DATASETS MODE [OPTION ...]` compares reused bottom-layer rows with exact
//!   training.
//! - `cargo xtask partition DATASETS [WORD ...]` compares the partitioning methods.
//! - `cargo xtask ranks DATASET [MODE ...] [OPTION ...]` compares training over several processes
//!   with a single one, and with the plan.
//! - `cargo xtask scaling [OPTION ...]` measures the time of a batch against its parameters, and
//!   plots it beside the cost model.
//! - `cargo xtask scale [OPTION ...]` measures a batch's time on graphs of 2^20 to 2^25 nodes.
//! - `cargo xtask strategies [--rounds N] OPTION ... [-- OPTION ...] ...` measures epochs by
//!   several strategies.
//! - `cargo xtask subgraph-scaling [OPTION ...]` measures an iteration of subgraph training against
//!   size, depth and degree.

mod accuracy;
mod bench_peers;
mod book;
mod cuda;
mod fuzz;
mod golden;
mod graphs;
mod graphsaint;
mod house;
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
mod voice;

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};

/// Forms of the command.
const USAGE: &[&str] = &[
    "setup",
    "house",
    "book [build | write | check [PAGE ...]]",
    "voice [MEMBER]",
    "test [--soak | python [--site SITE_PACKAGES] [--torch] [PYTEST_OPTION ...]]",
    "accuracy DATASETS [NAME ...]",
    "bench-peers PEERS_DIR [--quick] [--data DIR] [WORD ...]",
    "cuda compile|check|pack",
    "fuzz [--seconds N] [--sanitizer none|address] [TARGET ...]",
    "golden record BINARY FILE|check BINARY FILE|compare OLD_BINARY NEW_BINARY [--threads N] [--work DIR] \
     [ROW ...]",
    "graphsaint DATASETS accuracy|time|speed [--pyg PYTHON] [--runs N] [WORD ...]",
    "layered DATASETS accuracy|speed|chain|sizes [--runs N] [--batches N] [WORD ...]",
    "partition DATASETS [quality] [time] [linear] [parts=K] [batches=N] [to=S]",
    "ranks DATASET [curves] [bytes] [cache] [network] [--epochs N] [--links MBIT,...] [--methods NAME,...] \
     [OPTION VALUE ...]",
    "scaling [--quick] [--threads N] [--out DIR] [NAME ...]",
    "scale [--from S] [--to S] [--generator NAME] [--rounds N] [--threads N] [--dim F] [--data DIR] [--out \
     FILE]",
    "strategies [--rounds N] OPTION ... [-- OPTION ...] ...",
    "subgraph-scaling [OPTION VALUE ...] [size] [depth] [degree]",
];

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test::run(false),
        ["test", "--soak"] => test::run(true),
        ["house"] => house::check(),
        ["book", ref words @ ..] => book::run(words),
        ["voice"] => voice::check(),
        ["voice", member] => voice::list(member),
        ["time-test", log, program, ref words @ ..] => test::timer::run(log.as_ref(), program, words),
        ["setup"] => mpi::setup(),
        ["test", "python", ref words @ ..] => python::test(words),
        ["accuracy", datasets, ref names @ ..] => accuracy::run(datasets.as_ref(), names),
        ["bench-peers", ref words @ ..] => bench_peers::run(words),
        ["cuda", "compile"] => cuda::compile(),
        ["cuda", "check"] => cuda::check(),
        ["cuda", "pack"] => pack::pack(),
        ["fuzz", ref words @ ..] => fuzz::run(words),
        ["golden", mode, first, second, ref words @ ..] => golden::run(mode, [first, second], words),
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

/// Cargo program that runs us.
fn cargo() -> std::ffi::OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Directory of all build outputs.
fn target_dir() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
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
    let output = Command::new(target_dir().join("release/graphmill")).args(arguments).output()?;
    if !output.status.success() {
        bail!("graphmill {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
