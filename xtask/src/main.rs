//! Development commands of the project.
//!
//! - `cargo xtask test` runs everything that a change must pass, and prints the duration of each
//!   step; `--soak` repeats the tests with long counts; `cargo xtask test python` builds and tests
//!   only the Python package's wheel.
//! - `cargo xtask house` checks the structure of the sources and the paths in the documentation.
//! - `cargo xtask voice [MEMBER]` checks the wording of comments, messages and names.
//! - `cargo xtask book [build|write|check]` builds the book, writes its generated pages, or checks
//!   its links, commands and generated pages.
//! - `cargo xtask setup` installs MPI and its build dependencies, on Debian; `cargo xtask setup
//!   python` the packages of the Python tests, under the target directory.
//! - `cargo xtask bench list|setup|show|charts|NAME...` runs the benchmarks that
//!   `benchmarks/definitions` declares, and draws their charts.
//! - `cargo xtask scaling-threads [--threads 1,2,4] [--out FILE]` measures training, sampling and
//!   products on several numbers of threads, and draws the speed-ups beside those of a model.
//! - `cargo xtask cuda compile` compiles the CUDA kernels to the bundle of PTX in the repository;
//!   `cargo xtask cuda check` compares.
//! - `cargo xtask cuda pack` builds the programs that `scripts/gpu-check` runs on a machine with a
//!   device.
//! - `cargo xtask fuzz [--seconds N] [TARGET ...]` runs the fuzzing targets, each for N seconds,
//!   and records the executions; `--record` prints their sums, `--minimize` minimizes the corpora.
//! - `cargo xtask faults BINARY [--short] [--only WORDS] [--attack WORDS]` lets every system call
//!   and allocation of the program's commands fail once, and kills them at every write.
//! - `cargo xtask audit miri|address|thread|mutants [--short] [NAME ...]` runs tests under Miri or
//!   a sanitizer, or changes the code and expects its tests to fail.
//! - `cargo xtask release --check|--files PROGRAM|--static|--dry-run [--offline]` checks what a
//!   release needs, or builds its files: those around a ready program, a program without shared
//!   libraries, or all.
//! - `cargo xtask golden record|check|compare ...` compares the results of two builds of
//!   `graphmill` bit for bit.

mod audit;
mod bench;
mod book;
mod compile;
mod cuda;
mod faults;
mod fuzz;
mod golden;
mod house;
mod mpi;
mod pack;
mod pipe;
mod python;
mod release;
mod test;
mod voice;

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};

/// Forms of the command.
const USAGE: &[&str] = &[
    "setup [python]",
    "house",
    "book [build | write | check [PAGE ...]]",
    "voice [MEMBER]",
    "test [--soak | python [--site SITE_PACKAGES] [--torch] [PYTEST_OPTION ...]]",
    "bench list|setup|show|charts|NAME... [--quick|--short] [--rounds N] [--datasets DIR] [--out FILE]",
    "papers [NAME ...] [--quick] [--rounds N]",
    "scaling-threads [--threads 1,2,4] [--rounds N] [--set larger=GB/s] [--out FILE]",
    "cuda compile|check|pack",
    "fuzz [--seconds N | --minimize | --record] [--sanitizer none|address] [--features LIST] [TARGET ...]",
    "faults BINARY [--short] [--only WORDS] [--attack WORDS]",
    "audit miri|address|thread|mutants [--short] [NAME ...]",
    "release --check|--files PROGRAM|--static|--dry-run [--offline]",
    "golden record BINARY FILE|check BINARY FILE|compare OLD_BINARY NEW_BINARY [--threads N] [--work DIR] \
     [ROW ...]",
];

fn main() -> ExitCode {
    pipe::end_when_closed();
    if compile::is_asked() {
        return compile::run();
    }
    match command() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:?}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command that the arguments name.
fn command() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test::run(false),
        ["test", "--soak"] => test::run(true),
        ["house"] => house::check(),
        ["book", ref words @ ..] => book::run(words),
        ["voice"] => voice::check(),
        ["voice", member] => voice::list(member),
        ["setup"] => mpi::setup(),
        ["setup", "python"] => python::setup(),
        ["test", "python", ref words @ ..] => python::test(words),
        ["bench", ref words @ ..] => bench::run(words),
        ["papers", ref words @ ..] => bench::papers(words),
        ["scaling-threads", ref words @ ..] => bench::scaling_threads(words),
        ["cuda", "compile"] => cuda::compile(),
        ["cuda", "check"] => cuda::check(),
        ["cuda", "pack"] => pack::pack(),
        ["fuzz", ref words @ ..] => fuzz::run(words),
        ["faults", binary, ref words @ ..] => faults::run(binary.as_ref(), words),
        ["audit", ref words @ ..] => audit::run(words),
        ["release", ref words @ ..] => release::run(words),
        ["golden", mode, first, second, ref words @ ..] => golden::run(mode, [first, second], words),
        _ => bail!("usage: cargo xtask {}", USAGE.join(" | ")),
    }
}

/// Command of the cargo program that runs us, without what it says of our package: build scripts
/// that read it would run again after a build from the command line, and with them whatever needs
/// their crates.
fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let is_ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| is_ours(name)).for_each(|name| {
        cargo.env_remove(name);
    });
    cargo
}

/// Directory of all build outputs.
fn target_dir() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace");
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Name of the platform that cargo builds for.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc -vV")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}
