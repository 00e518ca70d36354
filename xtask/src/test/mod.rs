//! `cargo xtask test [--soak]`: everything that a change must pass, and a table of the time it
//! took.
//!
//! ```text
//!   formatting ─► house ─► voice ─► release ─► lints ─► build ─► package
//!                                           └► kernels, packages      │
//!                                              (own processes)        │
//!   ┌─────────────────────────────────────────────────────────────────┘
//!   └► tests ────────────────────────► doctests ─► package tests
//!    └► documentation (own process)             └► book, faults (own processes)
//! ```
//!
//! Steps run one after the other and the first failure ends the run. Five of them run beside the
//! others because they leave a core idle: the download of Python's packages, which waits for the
//! network, and the kernels' compiler, which has one thread, beside lints and build; the
//! documentation, beside the tests, which [`groups`] runs without cargo; and the book and the
//! injected faults, beside the package's tests, which have one thread most of the time.
//!
//! One set of features serves all steps, so crates are compiled once, and once more without code
//! for lints and documentation. Cargo leaves out what development dependencies enable unless a
//! target asks for them, as examples do: steps that build no tests therefore name `--examples`. If
//! MPI or Python is not installed, its tests are skipped.

mod background;
mod groups;
mod table;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use self::{background::Background, table::Table};
use crate::{book, cargo, house, mpi, python, release, target_dir, voice};

/// Feature of training over MPI.
const MPI: &str = "graphmill/mpi";
/// Feature of the Python package. A program of it cannot be linked without Python, so that its Rust
/// tests are built with [`BINDINGS`].
const PYTHON: &str = "graphmill-python/python";
/// Feature of the Python package's dependencies alone.
const BINDINGS: &str = "graphmill-python/bindings";
/// Feature of tables in object storage.
const STORAGE: &str = "graphmill/object-storage";
/// Feature of predictions over HTTP.
const SERVE: &str = "graphmill/serve";
/// Environment variable that names the interpreter of the tests' environment.
const INTERPRETER: &str = "GRAPHMILL_PYTHON";
/// Features that only the lints of a soak run need: the fuzzer's programs.
const FUZZER: &str = "graphmill-fuzz/targets";
/// Environment variable that asks the tests for their long counts.
pub(crate) const SOAK: &str = "GRAPHMILL_SOAK";

/// Runs all steps and prints the table, also if a step failed.
pub(crate) fn run(soak: bool) -> Result<()> {
    let mut table = Table::default();
    let result = steps(soak, &mut table);
    eprintln!("\n{table}");
    result
}

/// Runs the steps up to the first that fails.
fn steps(soak: bool, table: &mut Table) -> Result<()> {
    let has_mpi = mpi::is_there();
    if !has_mpi {
        eprintln!("── MPI is not installed, so its tests are skipped: cargo xtask setup installs it");
    }
    let has_python = python::find_python().is_some();
    let with = |feature: &'static str, wanted: bool| wanted.then_some(feature);
    let scratch = scratch_dir()?;

    table.time("formatting", || cargo_step("formatting", &["fmt", "--all", "--check"]))?;
    table.time("house", house::check)?;
    table.time("voice", voice::check)?;
    table.time("release, check", release::check)?;
    let own = env::current_exe().context("the path of xtask is unknown")?;
    let mut packages = Command::new(&own);
    packages.args(["setup", "python"]);
    let packages =
        has_python.then(|| Background::start("python packages", &mut packages, &scratch)).transpose()?;
    let kernels = Background::start("kernels", Command::new(&own).args(["cuda", "check"]), &scratch)?;
    let lints =
        [with(MPI, has_mpi), with(PYTHON, has_python), with(FUZZER, soak), Some(STORAGE), Some(SERVE)];
    table.time("lints", || {
        let arguments = [&["clippy", "--workspace", "--all-targets"], &features(&lints)[..]].concat();
        cargo_step("lints", &[&arguments[..], &["--", "-D", "warnings"]].concat())
    })?;

    let shared = features(&[with(MPI, has_mpi), with(BINDINGS, has_python), Some(STORAGE), Some(SERVE)]);
    let tests = [&["test", "--workspace"], &shared[..]].concat();
    let groups = table.time("tests, build", || groups::build(&tests))?;
    let library = if has_python {
        let wanted = features(&[with(MPI, has_mpi), Some(PYTHON), Some(STORAGE), Some(SERVE)]);
        Some(table.time("package, build", || python::build_library(&wanted))?)
    } else {
        None
    };
    kernels.finish(table)?;

    let mut command = Command::new(cargo());
    command.args(["doc", "--workspace", "--no-deps", "--lib", "--bin", "xtask", "--examples"]);
    command.args(&shared).env("RUSTDOCFLAGS", "-D warnings");
    let documentation = Background::start("documentation", &mut command, &scratch)?;
    packages.map(|packages| packages.finish(table)).transpose()?;
    let interpreter = python::environment();
    let mut variables: Vec<(&str, &Path)> = Vec::new();
    variables.extend(interpreter.as_deref().map(|path| (INTERPRETER, path)));
    variables.extend(soak.then_some((SOAK, Path::new("1"))));
    let times = table.time("tests", || groups::run(&groups, &variables, &scratch))?;
    table.add_groups(&times);
    documentation.finish(table)?;
    table.time("doctests", || cargo_step("doctests", &[&tests[..], &["--doc"]].concat()))?;
    let book = Background::start("book", &mut book::builder(&["check"]), &scratch)?;
    let faults = Background::start("faults", &mut faults(&own, soak), &scratch)?;
    if soak {
        table.time("wheel and its tests", || python::test_wheel(&[]))?;
    } else {
        table.time("package, tests", || python::test_library(library.as_deref()))?;
    }
    faults.finish(table)?;
    book.finish(table)
}

/// Audit of the program that the tests built, by `own`.
fn faults(own: &Path, soak: bool) -> Command {
    let mut command = Command::new(own);
    command.arg("faults").arg(target_dir().join("debug/graphmill"));
    if !soak {
        command.arg("--short");
    }
    command
}

/// Directory of the steps' output, under cargo's.
fn scratch_dir() -> Result<PathBuf> {
    let directory = target_dir().join("xtask");
    fs::create_dir_all(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
    Ok(directory)
}

/// Arguments that enable features.
fn features<'a>(wanted: &[Option<&'a str>]) -> Vec<&'a str> {
    wanted.iter().flatten().flat_map(|feature| ["--features", feature]).collect()
}

/// Runs cargo and fails if it does.
fn cargo_step(name: &str, arguments: &[&str]) -> Result<()> {
    eprintln!("── {name}: cargo {}", arguments.join(" "));
    let status = Command::new(cargo()).args(arguments).status();
    if !status.with_context(|| format!("cannot run cargo for {name}"))?.success() {
        bail!("{name} failed");
    }
    Ok(())
}
