//! `cargo xtask bench`: runs the benchmarks of `benchmarks/definitions` and draws their charts.
//!
//! - `cargo xtask bench list` lists the definitions and groups.
//! - `cargo xtask bench setup [dgl] [pyg]` creates the peers' Python environments in
//!   `target/peers`. `GRAPHMILL_PEERS_DGL` and `GRAPHMILL_PEERS_PYG` name other interpreters.
//! - `cargo xtask bench NAME...` measures definitions or groups, prints a Markdown table of each
//!   and writes `benchmarks/record/NAME.json`.
//! - `cargo xtask bench show [NAME...]` prints the tables of records.
//! - `cargo xtask bench charts [NAME...]` draws `book/src/figures/*.svg` from the records.

#![forbid(unsafe_code)]

mod charts;
mod definition;
mod figure;
mod network;
mod peers;
mod process;
mod record;
mod run;
mod speedup;
mod statistics;
mod table;
mod threads;

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use graphmill_core::signals;

use self::{
    definition::{Definition, Variant, load, root},
    process::Programs,
    record::Record,
    run::Options,
};

/// Runs declared benchmarks, alternating between the sides, and records the results
#[derive(Parser, Debug)]
#[command(name = "cargo xtask bench")]
struct Arguments {
    /// list, setup, show, charts, or the names of definitions or groups
    #[arg(required = true)]
    words: Vec<String>,
    /// Run tiny graphs once as a smoke test; the figures are meaningless. With setup: leave out
    /// extensions that are compiled
    #[arg(long)]
    quick: bool,
    /// Run the shorter variants
    #[arg(long, conflicts_with = "quick")]
    short: bool,
    /// Rounds of each comparison [default: the definition's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Directory of raw datasets as their sources publish them
    #[arg(long, value_name = "DIR")]
    datasets: Option<PathBuf>,
    /// Measure only points whose parameter contains this text
    #[arg(long, value_name = "PARAMETER=TEXT")]
    only: Vec<String>,
    /// Value of a constant of the definition, or values of a sweep, separated by commas
    #[arg(long, value_name = "CONSTANT=VALUE")]
    set: Vec<String>,
    /// Measure only these sides
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    sides: Vec<String>,
    /// File of the record, of one definition [default: benchmarks/record/NAME.json]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// graphmill command to measure [default: built in release mode]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

fn main() -> ExitCode {
    signals::end_on_closed_pipe();
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut arguments: Arguments) -> Result<()> {
    let words = std::mem::take(&mut arguments.words);
    match words[0].as_str() {
        "list" => list(),
        "setup" => peers::setup(&words[1..], !arguments.quick),
        "show" => show(&words[1..]),
        "charts" => charts::draw(&words[1..]),
        _ => measure(&words, &arguments),
    }
}

fn list() -> Result<()> {
    for definition in load(&[])? {
        let groups = definition.groups.join(", ");
        println!("{:<22} {:<60} {groups}", definition.name, definition.title);
    }
    Ok(())
}

fn show(names: &[String]) -> Result<()> {
    for definition in load(names)? {
        let path = Record::path(&definition.name);
        if path.exists() {
            println!("{}", table::markdown(&Record::read(&path)?));
        } else if !names.is_empty() {
            eprintln!("{}: no record; run `cargo xtask bench {}`", path.display(), definition.name);
        }
    }
    Ok(())
}

fn measure(names: &[String], arguments: &Arguments) -> Result<()> {
    let definitions = load(names)?;
    ensure!(arguments.out.is_none() || definitions.len() == 1, "--out: name one definition");
    let variant = match (arguments.quick, arguments.short) {
        (true, _) => Variant::Quick,
        (_, true) => Variant::Short,
        _ => Variant::Full,
    };
    let (only, set) = (pairs(&arguments.only, "--only")?, pairs(&arguments.set, "--set")?);
    let partial = !(only.is_empty() && set.is_empty() && arguments.sides.is_empty());
    let mut failed = Vec::new();
    for definition in &definitions {
        let options = Options {
            variant,
            rounds: arguments.rounds.map(usize::from),
            datasets: arguments.datasets.as_ref().map(fs::canonicalize).transpose().context("--datasets")?,
            only: only.clone(),
            set: set.clone(),
            sides: arguments.sides.clone(),
            out: run::output(arguments.out.as_deref(), &definition.name, variant, partial),
            programs: programs(arguments, definition)?,
        };
        let record = run::measure(definition, &options)?;
        println!("{}", table::markdown(&record));
        if record.points.iter().flat_map(|point| &point.sides).any(|side| !side.errors.is_empty()) {
            failed.push(definition.name.as_str());
        }
    }
    if !failed.is_empty() {
        bail!("runs failed: {}; the tables list their errors", failed.join(", "));
    }
    Ok(())
}

/// Pairs of a name and a value.
fn pairs(texts: &[String], option: &str) -> Result<Vec<(String, String)>> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=').with_context(|| format!("{option} {text}: NAME=VALUE"))?;
        Ok((name.to_string(), value.to_string()))
    };
    texts.iter().map(pair).collect()
}

/// Our programs: those beside the runner, built with the definition's features.
fn programs(arguments: &Arguments, definition: &Definition) -> Result<Programs> {
    let here = env::current_exe()?;
    let kernels = here.with_file_name("graphmill-kernels");
    if let Some(graphmill) = &arguments.binary {
        return Ok(Programs { graphmill: fs::canonicalize(graphmill).context("--binary")?, kernels });
    }
    let features: Vec<String> =
        definition.features.iter().map(|feature| format!("graphmill/{feature}")).collect();
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(root())
        .args(["build", "--release", "-p", "graphmill", "-p", env!("CARGO_PKG_NAME"), "--features"])
        .arg(features.join(","))
        .status()?;
    ensure!(status.success(), "the build failed");
    Ok(Programs { graphmill: here.with_file_name("graphmill"), kernels })
}
