//! Groups of tests: cargo builds their programs, and workers run one group after the other. There
//! is one worker more than there are cores, because ranks and commands wait for each other.
//!
//! Cargo itself runs one program at a time, and in most of them a single test lasts longest: a
//! core was idle for a third of the time. The tests of a crate's public parts are one program,
//! because linking takes long, and each module of it is a group; all other programs are one group.
//! A group is a process with one test thread, and the slowest start first.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Test program whose modules are groups.
const BY_MODULE: &str = "main";

/// Groups that start first.
const SLOWEST: &[&str] = &[
    "graphmill cuda",
    "graphmill mpi",
    "graphmill-data unit tests",
    "graphmill-engine options",
    "graphmill import",
    "graphmill-engine unit tests",
    "graphmill errors",
    "graphmill-engine strategies",
    "graphmill-loader unit tests",
    "graphmill-cuda backend",
    "graphmill-nn backend_cpu",
    "graphmill-data native",
];

/// Tests that run in one process.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TestGroup {
    /// Package, and name of the module or program.
    pub(super) label: String,
    path: PathBuf,
    /// Working directory: that of the package.
    directory: PathBuf,
    /// Names of the tests; all of the program if there are none.
    tests: Vec<String>,
}

impl TestGroup {
    /// Its process.
    fn command(&self, variables: &[(&str, &Path)]) -> Command {
        let mut command = Command::new(&self.path);
        if !self.tests.is_empty() {
            command.arg("--exact").args(&self.tests);
        }
        command.current_dir(&self.directory).env("RUST_TEST_THREADS", "1").envs(variables.iter().copied());
        command
    }
}

/// A process that a core runs, with the name of what it tests.
pub(super) type Job = (String, Command);

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

/// Builds all test programs with the arguments of cargo and environment variables, and returns
/// their groups.
///
/// # Errors
/// The build fails, or a program does not list its tests.
pub(super) fn build(arguments: &[&str], variables: &[(&str, &Path)]) -> Result<Vec<TestGroup>> {
    eprintln!("── build: cargo {}", arguments.join(" "));
    let mut command = crate::cargo();
    command.args(arguments).args(["--message-format", "json-render-diagnostics"]);
    command.envs(variables.iter().copied());
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo for the tests")?;
    if !output.status.success() {
        bail!("the tests cannot be built");
    }
    let mut found = Vec::new();
    for (program, is_split) in String::from_utf8(output.stdout)?.lines().filter_map(program) {
        if is_split { found.extend(modules(&program)?) } else { found.push(program) }
    }
    found.sort_by_key(|TestGroup { label, .. }| {
        (SLOWEST.iter().position(|slow| slow == label).unwrap_or(SLOWEST.len()), label.clone())
    });
    Ok(found)
}

/// Test program that a line of cargo's output names, and whether its modules are groups.
fn program(line: &str) -> Option<(TestGroup, bool)> {
    let message: Message = serde_json::from_str(line).ok()?;
    let (path, directory) = (message.executable?, message.manifest_path.parent()?.to_owned());
    let manifest = fs::read_to_string(&message.manifest_path).ok()?;
    let manifest: toml::Table = manifest.parse().ok()?;
    let package = manifest.get("package")?.get("name")?.as_str()?;
    let is_test = message.target.kind.iter().any(|kind| kind == "test");
    let is_split = is_test && message.target.name == BY_MODULE;
    let label = match (is_split, is_test) {
        (true, _) => package.to_owned(),
        (_, true) => format!("{package} {}", message.target.name),
        _ => format!("{package} unit tests"),
    };
    let is_tests = message.profile.test && !message.target.kind.iter().any(|kind| kind == "bench");
    is_tests.then(|| (TestGroup { label, path, directory, tests: Vec::new() }, is_split))
}

/// Groups of a program's modules.
fn modules(program: &TestGroup) -> Result<Vec<TestGroup>> {
    let mut command = Command::new(&program.path);
    command.args(["--list", "--format", "terse"]).current_dir(&program.directory);
    let output = command.output().with_context(|| format!("{} does not start", program.path.display()))?;
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let listed = String::from_utf8(output.stdout)?;
    for test in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
        let module = test.split_once("::").map_or("tests", |(module, _)| module);
        groups.entry(module).or_default().push(test.to_owned());
    }
    if !output.status.success() || groups.is_empty() {
        bail!("{} lists no tests", program.path.display());
    }
    let of = |(module, tests)| TestGroup {
        label: format!("{} {module}", program.label),
        tests,
        ..program.clone()
    };
    Ok(groups.into_iter().map(of).collect())
}

/// Runs jobs, then the groups, one more than there are cores at a time, and prints the output of
/// each when it has ended. Returns the seconds of each, the slowest first.
///
/// # Errors
/// A program does not start or a test fails; the others run all the same.
pub(super) fn run(
    jobs: Vec<Job>,
    groups: &[TestGroup],
    variables: &[(&str, &Path)],
    scratch: &Path,
) -> Result<Vec<(String, f64)>> {
    let of = |group: &TestGroup| (group.label.clone(), group.command(variables));
    let left = Mutex::new(jobs.into_iter().chain(groups.iter().map(of)));
    let ended = Mutex::new(Vec::new());
    let take = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = |worker: usize| {
        while let Some((label, command)) = take() {
            let started = Instant::now();
            let log = scratch.join(format!("tests-{worker}.log"));
            let result = run_one(command, &log);
            let seconds = started.elapsed().as_secs_f64();
            // the lock also keeps the outputs of two jobs apart
            let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
            println!("── {label}, {seconds:.1} s");
            print!("{}", String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()));
            ended.push((label, seconds, result));
        }
    };
    thread::scope(|scope| {
        for worker in 0..=thread::available_parallelism().map_or(1, usize::from) {
            let work = &work;
            scope.spawn(move || work(worker));
        }
    });
    let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    let failed: Vec<String> = ended
        .iter()
        .filter_map(|(label, _, result)| Some(format!("{label} ({})", result.as_ref().err()?)))
        .collect();
    if !failed.is_empty() {
        bail!("{} of {} groups of tests failed: {}", failed.len(), ended.len(), failed.join(", "));
    }
    let mut times: Vec<(String, f64)> =
        ended.into_iter().map(|(label, seconds, _)| (label, seconds)).collect();
    times.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(times)
}

/// Runs a process with its output in a file.
fn run_one(mut command: Command, log: &Path) -> Result<()> {
    let file = File::create(log).with_context(|| format!("{} cannot be written", log.display()))?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = command.status().context("does not start")?;
    if !status.success() {
        bail!("{status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    #[test]
    fn test_programs_are_read_from_the_messages_of_cargo() {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let line = |kind: &str, name: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"x","manifest_path":"{manifest}",
                "target":{{"kind":["{kind}"],"name":"{name}"}},"profile":{{"test":{test}}},
                "executable":{executable}}}"#
            )
        };
        let found = |kind: &str, name: &str| program(&line(kind, name, true, "\"/t/reuse-00\"")).unwrap();
        assert_eq!(found("test", "reuse").0.label, "xtask reuse");
        assert_eq!(found("lib", "reuse").0.label, "xtask unit tests");
        assert_eq!(found("lib", "main").0.directory, Path::new(env!("CARGO_MANIFEST_DIR")));
        assert_eq!([found("lib", "main").1, found("test", "reuse").1], [false; 2]);
        assert!(found("test", "main").1);
        assert_eq!(program(&line("bin", "graphmill", false, "\"/t/graphmill\"")), None);
        assert_eq!(program(&line("lib", "reuse", true, "null")), None);
        assert_eq!(program(&line("bench", "kernels", true, "\"/t/kernels-00\"")), None);
        assert_eq!(program("   Compiling graphmill"), None);
    }

    fn group(directory: &Path, label: &str, program: impl Into<PathBuf>) -> TestGroup {
        let (label, directory) = (label.into(), directory.to_owned());
        TestGroup { label, path: program.into(), directory, tests: Vec::new() }
    }

    #[test]
    fn a_program_is_split_by_module_and_each_group_runs_its_own_tests() {
        let directory = tempfile::tempdir().unwrap();
        let whole = group(directory.path(), "xtask", env::current_exe().unwrap());
        let groups = modules(&whole).unwrap();
        let own = groups.iter().find(|group| group.label == "xtask test").unwrap();
        assert!(groups.len() > 1 && own.tests.iter().all(|test| test.starts_with("test::")));

        let quick = "test::groups::tests::test_programs_are_read_from_the_messages_of_cargo";
        let one = TestGroup { tests: vec![quick.into()], ..own.clone() };
        run(Vec::new(), &[one], &[], directory.path()).unwrap();
        // the log of whichever worker took the group
        let log = fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
        let log = fs::read_to_string(log).unwrap();
        assert!(log.contains("1 passed"), "{log}");
        assert!(modules(&group(directory.path(), "x", "true")).is_err());
    }

    #[test]
    fn a_failed_group_is_named_and_the_others_run() {
        let directory = tempfile::tempdir().unwrap();
        let marker = directory.path().join("marker");
        let of = |label: &str, program: &str| group(directory.path(), label, program);
        let failing = [of("a", "false"), of("b", "true"), of("c", "/no/such/program")];
        let error =
            run(Vec::new(), &failing, &[("MARKER", &marker)], directory.path()).unwrap_err().to_string();
        assert!(error.contains("2 of 3") && error.contains("a (exit status: 1)"), "{error}");
        assert!(error.contains("c (does not start)"), "{error}");
        let job = ("d".to_owned(), Command::new("true"));
        let times = run(vec![job], &failing[1..2], &[], directory.path()).unwrap();
        let mut labels: Vec<_> = times.iter().map(|(label, _)| &**label).collect();
        labels.sort_unstable();
        assert_eq!(labels, ["b", "d"]);
    }
}
