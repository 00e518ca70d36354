//! `cargo xtask test [--soak]`: everything that a change must pass, and a table of the time it
//! took.
//!
//! ```text
//!   formatting ─► house ─► voice ─► lints ─► build ─► package ─► tests ─────────► package tests
//!                             └► kernels (own process)             │            └► book, faults (own processes)
//!                                                                  └► documentation (own process)
//! ```
//!
//! Steps run one after the other and the first failure ends the run. Four of them run beside the
//! others because they leave a core idle: the kernels' compiler, which has one thread; the
//! documentation, which starts when cargo has released its lock and the tests run; and the book and
//! the injected faults, beside the package's tests, which have one thread most of the time.
//!
//! One set of features serves all steps, so crates are compiled once, and once more without code
//! for lints and documentation. Cargo leaves out what development dependencies enable unless a
//! target asks for them, as examples do: steps that build no tests therefore name `--examples`. If
//! MPI or Python is not installed, its tests are skipped.

mod background;
mod table;
pub(crate) mod timer;

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use self::{background::Background, table::Table};
use crate::{book, cargo, house, mpi, python, target_dir, voice};

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

    table.time("formatting", || cargo_step("formatting", &["fmt", "--all", "--check"], &[]))?;
    table.time("house", house::check)?;
    table.time("voice", voice::check)?;
    let own = env::current_exe().context("the path of xtask is unknown")?;
    let kernels = Background::start("kernels", Command::new(&own).args(["cuda", "check"]), &scratch)?;
    let lints =
        [with(MPI, has_mpi), with(PYTHON, has_python), with(FUZZER, soak), Some(STORAGE), Some(SERVE)];
    table.time("lints", || {
        let arguments = [&["clippy", "--workspace", "--all-targets"], &features(&lints)[..]].concat();
        cargo_step("lints", &[&arguments[..], &["--", "-D", "warnings"]].concat(), &[])
    })?;

    let shared = features(&[with(MPI, has_mpi), with(BINDINGS, has_python), Some(STORAGE), Some(SERVE)]);
    let tests = [&["test", "--workspace"], &shared[..]].concat();
    table.time("tests, build", || cargo_step("tests", &[&tests[..], &["--no-run"]].concat(), &[]))?;
    let library = if has_python {
        let wanted = features(&[with(MPI, has_mpi), Some(PYTHON), Some(STORAGE)]);
        Some(table.time("package, build", || python::build_library(&wanted))?)
    } else {
        None
    };
    kernels.finish(table)?;

    let documentation = table.time("tests", || run_tests(&tests, &shared, soak, &scratch))?;
    table.add_binaries(&timer::read(&scratch.join(timer::LOG))?);
    documentation.finish(table)?;
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
fn cargo_step(name: &str, arguments: &[&str], config: &[OsString]) -> Result<()> {
    eprintln!("── {name}: cargo {}", arguments.join(" "));
    let status = Command::new(cargo()).args(config).args(arguments).status();
    if !status.with_context(|| format!("cannot run cargo for {name}"))?.success() {
        bail!("{name} failed");
    }
    Ok(())
}

/// Runs the tests, each binary under the timer, and starts the documentation once the first of them
/// runs: cargo has released its lock by then.
fn run_tests(arguments: &[&str], shared: &[&str], soak: bool, scratch: &Path) -> Result<Background> {
    let log = scratch.join(timer::LOG);
    let runner = timer::install(scratch)?;
    let config = format!("target.{}.runner = [{:?}, \"time-test\", {:?}]", host()?, runner, log);
    eprintln!("── tests: cargo {}", arguments.join(" "));
    let mut command = Command::new(cargo());
    command.args(["--config", &config]).args(arguments);
    if soak {
        command.env(SOAK, "1");
    }
    if let Some(interpreter) = python::environment() {
        command.env(INTERPRETER, interpreter);
    }
    let mut tests = command.spawn().context("cannot run cargo for the tests")?;
    let ended = loop {
        if let Some(status) = tests.try_wait()? {
            break Some(status);
        }
        if timer::has_begun(&log) {
            break None;
        }
        thread::sleep(Duration::from_millis(200));
    };
    let mut documentation = Command::new(cargo());
    documentation
        .args(["doc", "--workspace", "--no-deps", "--lib", "--bin", "xtask", "--examples"])
        .args(shared);
    documentation.env("RUSTDOCFLAGS", "-D warnings");
    let documentation = Background::start("documentation", &mut documentation, scratch)?;
    let status = ended.map_or_else(|| tests.wait(), Ok)?;
    if !status.success() {
        bail!("tests failed");
    }
    Ok(documentation)
}

/// Name of the platform that cargo builds for.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc -vV")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}
