//! The project's own commands.
//!
//! - `cargo xtask test` runs everything a change must pass.
//! - `cargo xtask accuracy DATASETS [NAME ...]` reruns the accuracy table of docs/results.md.

mod accuracy;

use std::{env, process::Command};

use anyhow::{Context, Result, bail};

/// A step of `cargo xtask test`: what it is called, and cargo's arguments.
const STEPS: &[(&str, &[&str])] = &[
    ("formatting", &["fmt", "--all", "--check"]),
    ("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    ("documentation", &["doc", "--workspace", "--no-deps"]),
    ("tests", &["test", "--workspace"]),
];

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test(),
        ["accuracy", datasets, ref names @ ..] => accuracy::run(datasets.as_ref(), names),
        _ => bail!("usage: cargo xtask test | cargo xtask accuracy DATASETS [NAME ...]"),
    }
}

/// Formatting, lints, documentation, tests: stops at the first that fails.
fn test() -> Result<()> {
    for (name, arguments) in STEPS {
        eprintln!("── {name}: cargo {}", arguments.join(" "));
        let status = Command::new(cargo())
            .args(*arguments)
            .env("RUSTDOCFLAGS", "-D warnings")
            .status()
            .with_context(|| format!("cannot run cargo for {name}"))?;
        if !status.success() {
            bail!("{name} failed");
        }
    }
    Ok(())
}

/// The cargo that runs us.
fn cargo() -> std::ffi::OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
