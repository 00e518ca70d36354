//! `cargo xtask audit TOOL [--short] [NAME ...]`: checks of the code that other tests cannot see.
//!
//! | tool | finds | by |
//! | --- | --- | --- |
//! | `miri` | undefined behaviour of Rust code | interpreting the tests |
//! | `address` | accesses outside allocations and after their end, leaks | AddressSanitizer |
//! | `thread` | data races | ThreadSanitizer |
//! | `mutants` | code that no test asserts | changing it and running its tests (cargo-mutants) |
//!
//! The first three run the rows of [`suites`], the last those of [`mutants::MODULES`]. A row states
//! its tests and their reason. Each tool has its own build directory below `target/audit`, prints a
//! table of its rows, and ends with status 1 if it found something. It installs nothing; it reports
//! missing tools.

mod mutants;
mod report;
mod suites;

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};

use self::{report::Report, suites::Suite};
use crate::target_dir;

/// Target that sanitizers are built for: its name separates tests from build scripts, which run
/// without a sanitizer.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A tool that runs the tests of [`Suite`]s.
struct Tool {
    name: &'static str,
    suites: &'static [Suite],
    /// Words of cargo before the package.
    cargo: &'static [&'static str],
    /// Environment, beside that of the suite.
    variables: &'static [(&'static str, &'static str)],
    /// Program that must succeed, and how to install it.
    needs: (&'static [&'static str], &'static str),
}

/// Flags of Miri:
///
/// - `-Zmiri-disable-isolation`: tests make temporary files and read the clock.
/// - `-Zmiri-ignore-leaks`: rayon's threads and the records of `core::maps` live until the process
///   ends.
/// - `-Zmiri-tree-borrows`: crossbeam-epoch, below rayon, makes references to list nodes in a way
///   that Stacked Borrows rejects and Tree Borrows, its successor, accepts.
/// - `-Zmiri-permissive-provenance`: it also makes pointers of integers; Miri would warn of each.
const MIRI_FLAGS: &str =
    "-Zmiri-disable-isolation -Zmiri-ignore-leaks -Zmiri-tree-borrows -Zmiri-permissive-provenance";

/// Build with a sanitizer, also of the standard library. The crates that tests optimise fully are
/// optimised less, because compiling them takes longer than running their tests.
const SANITIZED_BUILD: &[&str] = &[
    "test",
    "-Zbuild-std",
    "--target",
    TARGET,
    "--config=profile.dev.package.graphmill-core.opt-level=1",
    "--config=profile.dev.package.graphmill-loader.opt-level=1",
    "--config=profile.dev.package.graphmill-nn.opt-level=1",
];

/// Sanitizers refuse allocations that no machine has, as the system's allocator does: tests ask for
/// some, and expect an error. By default, they end the process.
const REFUSALS: &str = "allocator_may_return_null=1";

/// Tools but cargo-mutants.
const TOOLS: &[Tool] = &[
    Tool {
        name: "miri",
        suites: suites::MIRI,
        cargo: &["miri", "test"],
        // two threads are enough to interleave; cases of random tests take seconds each
        variables: &[("MIRIFLAGS", MIRI_FLAGS), ("RAYON_NUM_THREADS", "2"), ("PROPTEST_CASES", "2")],
        needs: (&["cargo", "miri", "--version"], "rustup component add miri rust-src --toolchain nightly"),
    },
    Tool {
        name: "address",
        suites: suites::SANITIZED,
        cargo: SANITIZED_BUILD,
        variables: &[
            ("RUSTFLAGS", "-Zsanitizer=address"),
            ("ASAN_OPTIONS", REFUSALS),
            ("PROPTEST_CASES", "32"),
        ],
        needs: (&["rustc", "--version"], suites::NIGHTLY),
    },
    Tool {
        name: "thread",
        suites: suites::SANITIZED,
        cargo: SANITIZED_BUILD,
        // the standard library is instrumented too (`-Zbuild-std`), or its locks are invisible
        variables: &[
            ("RUSTFLAGS", "-Zsanitizer=thread"),
            ("TSAN_OPTIONS", "halt_on_error=0:allocator_may_return_null=1"),
            ("RAYON_NUM_THREADS", "4"),
            ("PROPTEST_CASES", "32"),
        ],
        needs: (&["rustc", "--version"], suites::NIGHTLY),
    },
];

/// Runs the command.
///
/// # Errors
/// A tool is missing, a row cannot be built, or something was found; findings are reported after
/// all rows have run.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let [tool, words @ ..] = words else { bail!("name a tool: {}, mutants", names().join(", ")) };
    let short = words.contains(&"--short");
    let chosen: Vec<&str> = words.iter().copied().filter(|word| *word != "--short").collect();
    if *tool == "mutants" {
        return mutants::run(&chosen, short);
    }
    let tool = TOOLS.iter().find(|row| row.name == *tool);
    let tool = tool.with_context(|| format!("tools: {}, mutants", names().join(", ")))?;
    let suites = choose(tool.suites, |suite| (suite.name, suite.is_short), &chosen, short)?;
    check(tool.needs)?;
    println!("| tests of | passed | findings | seconds |");
    println!("| --- | ---: | ---: | ---: |");
    let mut findings = Vec::new();
    for suite in suites {
        let started = Instant::now();
        let report = run_suite(tool, suite)?;
        let Report { passed, findings: found } = report;
        println!("| {} | {passed} | {} | {:.0} |", suite.name, found.len(), started.elapsed().as_secs_f64());
        findings.extend(found.into_iter().map(|finding| format!("{}: {finding}", suite.name)));
    }
    ensure!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
    Ok(())
}

/// Names of the tools.
fn names() -> Vec<&'static str> {
    TOOLS.iter().map(|tool| tool.name).collect()
}

/// Rows with the chosen names; without names all rows, or the short ones.
///
/// # Errors
/// No row has a name.
fn choose<'r, R>(
    rows: &'r [R],
    row: impl Fn(&R) -> (&'static str, bool),
    chosen: &[&str],
    short: bool,
) -> Result<Vec<&'r R>> {
    for name in chosen {
        let known: Vec<&str> = rows.iter().map(|r| row(r).0).collect();
        ensure!(known.contains(name), "no row '{name}'; known: {}", known.join(", "));
    }
    let is_chosen = |r: &&R| match row(r) {
        (name, _) if !chosen.is_empty() => chosen.contains(&name),
        (_, is_short) => is_short || !short,
    };
    Ok(rows.iter().filter(is_chosen).collect())
}

/// Fails if a program of the nightly toolchain is missing.
fn check((program, install): (&[&str], &str)) -> Result<()> {
    let status = Command::new("rustup")
        .args(["run", "nightly"])
        .args(program)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    ensure!(status.is_ok_and(|status| status.success()), "{} is missing: {install}", program.join(" "));
    Ok(())
}

/// Runs a suite and passes its output on.
fn run_suite(tool: &Tool, suite: &Suite) -> Result<Report> {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).args(tool.cargo).args(["-p", suite.package]);
    command.args(suite.options).arg("--").args(suite.filters);
    command.args(suite.skipped.iter().flat_map(|(test, _)| ["--skip", test]));
    command.env("CARGO_TARGET_DIR", target_dir().join("audit").join(tool.name));
    for (name, value) in tool.variables.iter().chain(suite.variables) {
        // cargo of the running toolchain sets its own
        command.env(name, value).env_remove("RUSTC").env_remove("CARGO");
    }
    eprintln!("── {}: {}", tool.name, suite.name);
    // both streams in one pipe, so that a finding stands below its test
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("cannot run rustup")?;
    drop(command);
    let mut text = String::new();
    for line in BufReader::new(reader).lines() {
        let line = line.unwrap_or_default();
        eprintln!("{line}");
        text.push_str(&line);
        text.push('\n');
    }
    let status = child.wait()?;
    let mut report = report::read(&text);
    if !status.success() && report.findings.is_empty() {
        report.findings.push(format!("it ended with {status}"));
    }
    if status.success() && report.passed == 0 {
        report.findings.push("no test has these names".to_owned());
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_name_or_by_length() {
        let rows = [("a", true), ("b", false)];
        let names = |chosen: &[&str], short| -> Result<Vec<&str>> {
            Ok(choose(&rows, |row| *row, chosen, short)?.iter().map(|row| row.0).collect())
        };
        assert_eq!(names(&[], false).unwrap(), ["a", "b"]);
        assert_eq!(names(&[], true).unwrap(), ["a"]);
        assert_eq!(names(&["b"], true).unwrap(), ["b"]);
        assert!(names(&["c"], false).is_err_and(|e| e.to_string().contains("known: a, b")));
    }

    #[test]
    fn tools_are_named_if_none_or_another_is_given() {
        for words in [&[][..], &["valgrind"]] {
            assert!(run(words).is_err_and(|e| e.to_string().contains("miri, address, thread, mutants")));
        }
    }
}
