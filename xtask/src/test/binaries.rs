//! Test binaries: cargo builds them, and each core runs one after the other.
//!
//! Cargo itself runs one binary at a time, and in most of them a single test lasts longest: a
//! core was idle for a third of the time. Binaries get one test thread each, and the slowest start
//! first.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Binaries that start first.
const SLOWEST: &[&str] = &[
    "graphmill-engine options",
    "graphmill-engine strategies",
    "graphmill-cuda cuda",
    "graphmill-data unit tests",
    "graphmill-engine unit tests",
    "graphmill determinism",
    "graphmill errors",
    "graphmill import",
];

/// Test binary of a package.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TestBinary {
    /// Package and name of the test.
    pub(super) label: String,
    path: PathBuf,
    /// Working directory: that of the package.
    directory: PathBuf,
}

/// Message of cargo about a finished target.
#[derive(Deserialize)]
struct Message {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds all test binaries with the arguments of `cargo test`.
///
/// # Errors
/// The build fails.
pub(super) fn build(arguments: &[&str]) -> Result<Vec<TestBinary>> {
    eprintln!("── tests: cargo {} --no-run", arguments.join(" "));
    let mut command = Command::new(crate::cargo());
    command.args(arguments).args(["--no-run", "--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo for the tests")?;
    if !output.status.success() {
        bail!("the tests cannot be built");
    }
    let mut found: Vec<_> = String::from_utf8(output.stdout)?.lines().filter_map(binary).collect();
    found.sort_by_key(|TestBinary { label, .. }| {
        (SLOWEST.iter().position(|slow| slow == label).unwrap_or(SLOWEST.len()), label.clone())
    });
    Ok(found)
}

/// Test binary that a line of cargo's output names.
fn binary(line: &str) -> Option<TestBinary> {
    let message: Message = serde_json::from_str(line).ok()?;
    let (path, directory) = (message.executable?, message.manifest_path.parent()?.to_owned());
    let manifest = fs::read_to_string(&message.manifest_path).ok()?;
    let manifest: toml::Table = manifest.parse().ok()?;
    let package = manifest.get("package")?.get("name")?.as_str()?;
    let is_test = message.target.kind.iter().any(|kind| kind == "test");
    let name = if is_test { &message.target.name } else { "unit tests" };
    message.profile.test.then(|| TestBinary { label: format!("{package} {name}"), path, directory })
}

/// Runs the binaries, one per core at a time, and prints the output of each when it has ended.
/// Returns the seconds of each, the slowest first.
///
/// # Errors
/// A binary does not start or fails; the others run all the same.
pub(super) fn run(
    binaries: &[TestBinary],
    variables: &[(&str, &Path)],
    scratch: &Path,
) -> Result<Vec<(String, f64)>> {
    let (next, ended) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let take = |worker: usize| {
        while let Some(binary) = binaries.get(next.fetch_add(1, Ordering::Relaxed)) {
            let started = Instant::now();
            let log = scratch.join(format!("tests-{worker}.log"));
            let result = run_one(binary, variables, &log);
            let seconds = started.elapsed().as_secs_f64();
            // the lock also keeps the outputs of two binaries apart
            let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
            println!("── {}, {seconds:.1} s", binary.label);
            print!("{}", String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()));
            ended.push((binary.label.clone(), seconds, result));
        }
    };
    thread::scope(|scope| {
        for worker in 0..thread::available_parallelism().map_or(1, usize::from) {
            let take = &take;
            scope.spawn(move || take(worker));
        }
    });
    let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    let failed: Vec<String> = ended
        .iter()
        .filter_map(|(label, _, result)| Some(format!("{label} ({})", result.as_ref().err()?)))
        .collect();
    if !failed.is_empty() {
        bail!("{} of {} test binaries failed: {}", failed.len(), ended.len(), failed.join(", "));
    }
    let mut times: Vec<(String, f64)> =
        ended.into_iter().map(|(label, seconds, _)| (label, seconds)).collect();
    times.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(times)
}

/// Runs a binary with its output in a file.
fn run_one(binary: &TestBinary, variables: &[(&str, &Path)], log: &Path) -> Result<()> {
    let file = File::create(log).with_context(|| format!("{} cannot be written", log.display()))?;
    let mut command = Command::new(&binary.path);
    command.current_dir(&binary.directory).env("RUST_TEST_THREADS", "1").envs(variables.iter().copied());
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = command.status().context("does not start")?;
    if !status.success() {
        bail!("{status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_are_read_from_the_messages_of_cargo() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let line = |kind: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"x","manifest_path":"{manifest}",
                "target":{{"kind":["{kind}"],"name":"reuse"}},"profile":{{"test":{test}}},
                "executable":{executable}}}"#
            )
        };
        let found = |kind: &str| binary(&line(kind, true, "\"/t/reuse-00\"")).unwrap();
        assert_eq!(found("test").label, "xtask reuse");
        assert_eq!(found("lib").label, "xtask unit tests");
        assert_eq!(found("lib").directory, Path::new(env!("CARGO_MANIFEST_DIR")));
        assert_eq!(binary(&line("bin", false, "\"/t/graphmill\"")), None);
        assert_eq!(binary(&line("lib", true, "null")), None);
        assert_eq!(binary("   Compiling graphmill"), None);
    }

    #[test]
    fn a_failed_binary_is_named_and_the_others_run() {
        let directory = tempfile::tempdir().unwrap();
        let marker = directory.path().join("marker");
        let of = |label: &str, program: &str| TestBinary {
            label: label.into(),
            path: program.into(),
            directory: directory.path().to_owned(),
        };
        let failing = [of("a", "false"), of("b", "true"), of("c", "/no/such/program")];
        let error = run(&failing, &[("MARKER", &marker)], directory.path()).unwrap_err().to_string();
        assert!(error.contains("2 of 3") && error.contains("a (exit status: 1)"), "{error}");
        assert!(error.contains("c (does not start)"), "{error}");
        let times = run(&failing[1..2], &[], directory.path()).unwrap();
        assert_eq!(times[0].0, "b");
    }
}
