//! Programs of the fuzzer: their build with counters of coverage, and their command lines.
//!
//! The flags are those of cargo-fuzz. A stable compiler accepts all of them, because coverage is a
//! pass of LLVM; only a sanitizer needs features that are not stable.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use super::Options;
use crate::{cargo, host, target_dir};

/// Flags of the compiler on every system.
const FLAGS: &[&str] = &[
    "--cfg fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];
/// Further flag on Linux: the depth of the stack counts as coverage.
const STACK_DEPTH: &str = "-Cllvm-args=-sanitizer-coverage-stack-depth";
/// Flags of the fuzzer that limit an input. `-max_len`: a directory of small files, and as long as
/// a mutation of the tests. `-rss_limit_mb`: MiB of the process, well above the declared limit of
/// any input (fuzz/README.md).
const LIMITS: &[&str] = &["-max_len=16384", "-rss_limit_mb=4096", "-timeout=20"];

/// Built programs.
pub(super) struct Programs {
    dir: PathBuf,
}

impl Programs {
    /// Builds the programs of the targets.
    ///
    /// # Errors
    /// The C++ compiler is missing, or a program cannot be built.
    pub(super) fn build(options: &Options) -> Result<Self> {
        let works = Command::new("c++").arg("--version").output().is_ok_and(|out| out.status.success());
        ensure!(works, "a C++ compiler is missing (libFuzzer is written in C++): install g++ or clang++");
        let host = host()?;
        let name = if options.sanitizer == "none" { "fuzz" } else { "fuzz-sanitized" };
        let target_dir = target_dir().join(name);
        let mut command = cargo();
        command.args(["build", "--release", "-p", "graphmill-fuzz"]);
        // with a target, build scripts and macros are built without these flags
        command.args(["--target", &host]);
        match &options.features {
            Some(features) => command.args(["--no-default-features", "--features", features]),
            None => command.args(["--features", "targets"]),
        };
        command.args(options.targets.iter().flat_map(|target| ["--bin", target]));
        command.env("CARGO_TARGET_DIR", &target_dir).env("RUSTFLAGS", flags(&host, &options.sanitizer));
        if options.sanitizer != "none" {
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        if !command.status().context("cannot run cargo")?.success() {
            bail!("the targets cannot be built");
        }
        Ok(Self { dir: target_dir.join(host).join("release") })
    }

    /// Command of the fuzzer with the limits of an input. New inputs go to the first of the
    /// directories, and those that are missing are left out.
    pub(super) fn command(&self, target: &str, dirs: &[&Path]) -> Command {
        let mut command = Command::new(self.dir.join(target));
        command.args(dirs.iter().filter(|dir| dir.is_dir())).args(LIMITS);
        // two copies of a constant are no fault of a reader
        command.env("ASAN_OPTIONS", "detect_odr_violation=0");
        command
    }
}

/// Flags of the compiler.
fn flags(host: &str, sanitizer: &str) -> String {
    let mut flags = FLAGS.to_vec();
    if host.contains("-linux-") {
        flags.push(STACK_DEPTH);
    }
    // overflow is a fault, too
    flags.push("-Cdebug-assertions");
    let sanitizer = format!("-Zsanitizer={sanitizer}");
    if sanitizer != "-Zsanitizer=none" {
        flags.push(&sanitizer);
    }
    flags.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_without_a_sanitizer_have_stable_flags() {
        let host = "x86_64-unknown-linux-gnu";
        assert!(!flags(host, "none").contains("-Z"));
        assert!(flags(host, "none").contains(STACK_DEPTH));
        assert!(flags(host, "address").ends_with("-Zsanitizer=address"));
        assert!(!flags("aarch64-apple-darwin", "none").contains(STACK_DEPTH));
    }

    #[test]
    fn missing_directories_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let programs = Programs { dir: "programs".into() };
        let command = programs.command("npy", &[dir.path(), &dir.path().join("missing")]);
        let words: Vec<_> = command.get_args().collect();
        assert_eq!(command.get_program(), "programs/npy");
        assert_eq!((words[0], words.len()), (dir.path().as_os_str(), 1 + LIMITS.len()));
    }
}
