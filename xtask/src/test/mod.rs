//! `cargo xtask test [--soak]`: everything that a change must pass, and a table of the time it
//! took.
//!
//! ```text
//!   formatting ─► house ─► voice ─► release ─► build, with ─► package ─► tests, doctests,
//!                                           │  lints and                 package tests,
//!                                           │  documentation             book, faults,
//!                                           │                            release files
//!                                           └► kernels, packages (own processes)
//! ```
//!
//! Steps run one after the other and the first failure ends the run. Two of them run beside the
//! others because they leave a core idle: the download of Python's packages, which waits for the
//! network, and the kernels' compiler, which has one thread. The last step is a list of processes,
//! one more at a time than there are cores ([`groups`]), all of them even if one fails. The
//! temporary files of most are in memory ([`memory`]), except with `--soak`.
//!
//! One set of features serves all steps, and one compiler ([`compile`]), so that crates are
//! compiled once. Cargo leaves out what development dependencies enable unless a target asks for
//! them, as examples do: steps that build no tests therefore name `--examples`. If MPI or Python is
//! not installed, its tests are skipped. `--soak` also checks each crate alone, without its
//! features.

mod background;
mod groups;
mod memory;
mod table;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use self::{background::Background, groups::Job, table::Table};
use crate::{book, cargo, compile, house, mpi, python, release, target_dir, voice};

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
    table.time("release, check", release::check)?;
    let own = env::current_exe().context("the path of xtask is unknown")?;
    let mut packages = Command::new(&own);
    packages.args(["setup", "python"]);
    let packages =
        has_python.then(|| Background::start("python packages", &mut packages, &scratch)).transpose()?;
    let kernels = Background::start("kernels", Command::new(&own).args(["cuda", "check"]), &scratch)?;
    let compiler = compile::install(&scratch)?;
    let documentation = target_dir().join("doc");
    let checked = compile::variables(&compiler, &documentation);
    let shared = features(&[with(MPI, has_mpi), with(BINDINGS, has_python), Some(STORAGE), Some(SERVE)]);
    let all = [&["build", "--workspace", "--all-targets"], &shared[..]].concat();
    let groups = table.time("build, lints, documentation", || groups::build(&all, &checked))?;
    if soak {
        let fuzzer = ["clippy", "-p", "graphmill-fuzz", "--all-targets", "--features", FUZZER];
        table.time("fuzzer, lints", || {
            cargo_step("lints", &[&fuzzer[..], &["--", "-D", "warnings"]].concat(), &[])
        })?;
        table.time("crates without features", without_features)?;
    }
    let library = if has_python {
        let wanted = features(&[with(MPI, has_mpi), Some(PYTHON), Some(STORAGE), Some(SERVE)]);
        // documented above
        Some(table.time("package, build", || python::build_library(&wanted, &checked[..1]))?)
    } else {
        None
    };
    kernels.finish(table)?;
    packages.map(|packages| packages.finish(table)).transpose()?;

    let interpreter = python::environment();
    let mut variables: Vec<(&str, &Path)> = Vec::new();
    variables.extend(interpreter.as_deref().map(|path| (INTERPRETER, path)));
    variables.extend(soak.then_some((SOAK, Path::new("1"))));
    let memory = if soak { None } else { memory::directory() };
    let place = memory.as_ref().map(|made| (memory::VARIABLE, made.path()));
    variables.extend(place);
    let mut jobs: Vec<Job> = Vec::new();
    match library {
        Some(library) if !soak => {
            let mut package = python::library_tests(&library)?;
            package.envs(place);
            jobs.push(("package, tests".into(), package));
        }
        _ => {}
    }
    // on the disk, because containers in it have other memory
    jobs.push(("faults".into(), faults(&own, soak)));
    if cfg!(target_os = "linux") {
        let mut files = Command::new(&own);
        files.args(["release", "--files"]).arg(tested_program());
        jobs.push(("release, files".into(), files));
    }
    let mut doctests = cargo();
    doctests.args(["test", "--workspace", "--doc"]).args(&shared).envs(checked).envs(place);
    jobs.push(("doctests".into(), doctests));
    let mut book = book::builder(&["check"]);
    book.envs(place);
    jobs.push(("book".into(), book));
    let times = table.time("tests", || groups::run(jobs, &groups, &variables, &scratch))?;
    table.add_groups(&times);
    if soak {
        table.time("wheel and its tests", || python::test_wheel(&[]))?;
    }
    Ok(())
}

/// Program that the tests built.
fn tested_program() -> PathBuf {
    target_dir().join("debug/graphmill")
}

/// Audit of the program that the tests built, by `own`.
fn faults(own: &Path, soak: bool) -> Command {
    let mut command = Command::new(own);
    command.arg("faults").arg(tested_program());
    if !soak {
        command.arg("--short");
    }
    command
}

/// Checks each crate by itself, without its features. Every other step builds all crates at once,
/// and thereby each with the features that any of them enables.
fn without_features() -> Result<()> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut names = Vec::new();
    for entry in fs::read_dir(&crates).with_context(|| crates.display().to_string())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    for name in names {
        let package = if name == "graphmill" { name } else { format!("graphmill-{name}") };
        let check = ["clippy", "--no-default-features", "-p", &package, "--", "-D", "warnings"];
        cargo_step("crates without features", &check, &[])?;
    }
    Ok(())
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

/// Runs cargo with environment variables and fails if it does.
fn cargo_step(name: &str, arguments: &[&str], variables: &[(&str, &Path)]) -> Result<()> {
    eprintln!("── {name}: cargo {}", arguments.join(" "));
    let status = cargo().args(arguments).envs(variables.iter().copied()).status();
    if !status.with_context(|| format!("cannot run cargo for {name}"))?.success() {
        bail!("{name} failed");
    }
    Ok(())
}
