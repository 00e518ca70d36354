//! Builder of the book.
//!
//! - `graphmill-book check` builds the book into `target/book`, checks all links and anchors,
//!   compares the generated pages with the program and runs the commands of the pages. Names of
//!   pages after it (`tutorials/first-run`) run the commands of these pages alone.
//! - `graphmill-book write` writes the generated pages, and output that differs from that of the
//!   commands of the pages. Lines with `...` stay if they still match.
//! - `graphmill-book build` only builds the book, with `llms.txt` and `llms-full.txt` beside the
//!   pages.
//!
//! `--without PROGRAM` after `check` skips blocks that need a program, also if it is installed. The
//! program `graphmill` is the one beside this program: `cargo xtask book` builds both.

#![forbid(unsafe_code)]

mod book;
mod console;
mod help;
mod html;
mod links;
mod llms;
mod page;
mod pattern;
mod reference;

use std::{
    env,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use graphmill_core::signals;

use crate::{book::Book, console::Scope, page::Fault};

/// Forms of the command.
const USAGE: &str = "usage: graphmill-book build | write | check [--without PROGRAM] [PAGE ...]";

fn main() -> ExitCode {
    signals::end_on_closed_pipe();
    let words: Vec<String> = env::args().skip(1).collect();
    match run(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<()> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("the workspace has no root")?;
    match *words {
        ["build"] => html::build(&root.join("book"), &html_dir(root)),
        ["write"] => write(root),
        ["check", "--without", missing, ref names @ ..] => check(root, Some(missing), names),
        ["check", ref names @ ..] => check(root, None, names),
        _ => bail!(USAGE),
    }
}

/// Writes the generated pages and the output of all commands.
///
/// # Errors
/// A command failed, or a page cannot be written.
fn write(root: &Path) -> Result<()> {
    let program = program()?;
    reference::write(root, &program)?;
    let scope = Scope { collects_updates: true, ..Scope::default() };
    let run = console::run(&Book::read(root)?.pages, &program, scope)?;
    console::apply(root, run.updates)?;
    report(&run.faults)
}

/// Checks the book, or runs the commands of the named pages alone, and lists every fault.
///
/// # Errors
/// A fault was found, a page is unknown, or a file cannot be read.
fn check(root: &Path, missing: Option<&str>, names: &[&str]) -> Result<()> {
    let program = program()?;
    let mut book = Book::read(root)?;
    let mut faults = Vec::new();
    if names.is_empty() {
        faults = book.faults();
        faults.extend(links::faults(root, &book)?);
        // mdbook reports only the first missing page.
        if faults.is_empty() {
            html::build(&root.join("book"), &html_dir(root))?;
        }
        faults.extend(reference::faults(root, &program)?);
    } else {
        let path = |name: &str| format!("book/src/{name}.md");
        if let Some(name) = names.iter().find(|name| !book.has(&path(name))) {
            bail!("unknown page '{name}'; name a file of book/src without its ending");
        }
        book.pages.retain(|page| names.iter().any(|name| page.path == path(name)));
    }
    let started = Instant::now();
    let run = console::run(&book.pages, &program, Scope { missing, ..Scope::default() })?;
    faults.extend(run.faults);
    eprintln!("── book: {} commands run in {:.1} s", run.commands, started.elapsed().as_secs_f64());
    run.skipped.iter().for_each(|skipped| eprintln!("   not run: {skipped}"));
    if run.shell_blocks > 0 {
        eprintln!("   not run: {} blocks of shell commands that are not marked `console`", run.shell_blocks);
    }
    report(&faults)
}

/// Prints the faults.
///
/// # Errors
/// A fault exists.
fn report(faults: &[Fault]) -> Result<()> {
    faults.iter().for_each(|fault| eprintln!("{fault}"));
    if faults.is_empty() { Ok(()) } else { bail!("{} faults in the book", faults.len()) }
}

/// Path of the `graphmill` program, beside this one.
fn program() -> Result<PathBuf> {
    let own = env::current_exe().context("the path of this program is unknown")?;
    let program = own.with_file_name(format!("graphmill{}", env::consts::EXE_SUFFIX));
    if !program.is_file() {
        bail!("{} does not exist; run `cargo build -p graphmill`, or `cargo xtask book`", program.display());
    }
    Ok(program)
}

/// Directory of the built book.
fn html_dir(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("book")
}
