//! `cargo xtask test python`: builds the wheel, installs it into a virtual environment under the
//! target directory and runs its tests. `cargo xtask test` runs the same tests on the package's
//! directory with a library from the workspace's own build ([`build_library`], [`library_tests`]),
//! because maturin builds only with the package's features and therefore recompiles most crates.
//!
//! Torch is large and not installed by default: `--site DIR` makes the packages of another
//! environment (its `site-packages`) available to the tests, `--torch` installs torch and
//! torch_geometric. Tests that need them are skipped otherwise and say so.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::target_dir;

/// Packages of the environment beside ours, with their versions and the hashes of their files.
const PINNED: &str = "xtask/python-tests.txt";
/// Packages that `--torch` adds, in an environment of its own.
const TORCH: &[&str] = &["torch", "torch_geometric"];

/// Lints and tests the package with these words: `--site DIR`, `--torch`, and options of pytest.
pub(crate) fn test(words: &[&str]) -> Result<()> {
    if find_python().is_some() {
        let words = "clippy -p graphmill-python --features python --all-targets -- -D warnings";
        let words: Vec<_> = words.split(' ').map(OsStr::new).collect();
        step("lints", super::cargo().get_program(), &words, &root()?)?;
    }
    test_wheel(words)
}

/// Root of the repository.
fn root() -> Result<PathBuf> {
    Ok(fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))?)
}

/// Tests the wheel as [`test()`] does, without lints.
pub(crate) fn test_wheel(words: &[&str]) -> Result<()> {
    let Some(python) = find_python() else {
        eprintln!("── python: skipped: there is no python3 of 3.10 or later on the PATH");
        return Ok(());
    };
    let (mut site, mut with_torch, mut rest) = (None, false, words);
    while let [first, others @ ..] = rest {
        match (*first, others) {
            ("--torch", _) => with_torch = true,
            ("--site", [dir, ..]) => site = Some(*dir),
            _ => break,
        }
        rest = if *first == "--site" { &others[1..] } else { others };
    }
    let root = root()?;
    let own = if with_torch {
        let own = prepare_pinned(&python, &home().join("torch"), site)?;
        let install = ["-m", "pip", "install", "--quiet"].iter().chain(TORCH).map(OsStr::new);
        step("torch", own.as_os_str(), &install.collect::<Vec<_>>(), &root)?;
        own
    } else {
        prepare_pinned(&python, &home(), site)?
    };
    let wheel = wheel(&own)?;
    let install = ["-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall"].map(OsStr::new);
    step("install", own.as_os_str(), &[&install[..], &[wheel.as_os_str()]].concat(), &root)?;
    run_pytest(&own, rest)
}

/// Builds the wheel for the tests with the maturin beside the interpreter `own`; returns its path.
///
/// The profile is that of the other tests: their crates are already built, and debug assertions
/// stay enabled.
fn wheel(own: &Path) -> Result<PathBuf> {
    let wheels = home().join("wheels");
    // Wheels of earlier versions would also be found.
    let _ = fs::remove_dir_all(&wheels);
    let maturin = own.with_file_name("maturin");
    let build = ["build", "--profile", "dev", "--out"].map(OsStr::new);
    let package = root()?.join("crates/python");
    step("wheel", maturin.as_os_str(), &[&build[..], &[wheels.as_os_str()]].concat(), &package)?;
    Ok(fs::read_dir(&wheels)?.next().context("maturin has built no wheel")??.path())
}

/// Interpreter of the tests' environment, which also serves tests in Rust (a server of object
/// storage); `None` if Python is not installed or the environment cannot be made.
pub(crate) fn environment() -> Option<PathBuf> {
    let made = prepare_pinned(&find_python()?, &home(), None);
    made.inspect_err(|error| eprintln!("── python: {error}: tests that need it are skipped")).ok()
}

/// Makes the tests' environment, if Python is installed. If it cannot be made, says so: the tests
/// that need it are skipped.
pub(crate) fn setup() -> Result<()> {
    environment();
    Ok(())
}

/// Directory of the environment and of the built packages.
fn home() -> PathBuf {
    target_dir().join("python")
}

/// Runs the package's tests.
fn run_pytest(own: &Path, words: &[&str]) -> Result<()> {
    run("tests", pytest(own, words)?)
}

/// Pytest in the tests' own directory, so that the tested package is an installed one or that of
/// `PYTHONPATH`, and not the checkout's.
fn pytest(own: &Path, words: &[&str]) -> Result<Command> {
    let mut command = Command::new(own);
    command.args(["-m", "pytest", "-q", "-rs"]).args(words);
    command.current_dir(root()?.join("crates/python/tests"));
    Ok(command)
}

/// Builds the package's library within the workspace, with the features of all members and with
/// environment variables.
///
/// # Errors
/// The build fails.
pub(crate) fn build_library(features: &[&str], variables: &[(&str, &Path)]) -> Result<PathBuf> {
    let arguments = [&["build", "--workspace", "--lib", "--examples"], features].concat();
    eprintln!("── package: cargo {}", arguments.join(" "));
    let mut command = super::cargo();
    command.args(&arguments).args(["--message-format", "json-render-diagnostics"]);
    command.envs(variables.iter().copied());
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo for the package")?;
    if !output.status.success() {
        bail!("the package's library cannot be built");
    }
    let messages = String::from_utf8(output.stdout)?;
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let libraries = messages.filter(|message| message["target"]["name"] == "graphmill_python");
    let is_library = |path: &&str| path.ends_with(".so") || path.ends_with(".dylib");
    let mut found = libraries.filter_map(|message| {
        let files = message["filenames"].as_array()?;
        files.iter().filter_map(Value::as_str).find(is_library).map(PathBuf::from)
    });
    found.next_back().context("cargo has built no library of the package")
}

/// Assembles the package with a library of [`build_library`]; returns the command that tests it.
///
/// # Errors
/// The package cannot be assembled, or its environment.
pub(crate) fn library_tests(library: &Path) -> Result<Command> {
    let python = find_python().context("python3 of 3.10 or later is not on the PATH")?;
    let own = prepare_pinned(&python, &home(), None)?;
    let packages = home().join("package");
    // Modules of an earlier version would also be found.
    let _ = fs::remove_dir_all(&packages);
    let package = packages.join("graphmill");
    fs::create_dir_all(&package)?;
    for entry in fs::read_dir(root()?.join("crates/python/python/graphmill"))? {
        let path = entry?.path();
        if let (true, Some(name)) = (path.is_file(), path.file_name()) {
            fs::copy(&path, package.join(name))?;
        }
    }
    fs::copy(library, package.join("_graphmill.abi3.so"))?;
    let mut command = pytest(&own, &[])?;
    command.env("PYTHONPATH", packages);
    Ok(command)
}

/// Finds a sufficiently new Python.
pub(crate) fn find_python() -> Option<PathBuf> {
    let new_enough = "import sys, venv; sys.exit(sys.version_info < (3, 10))";
    let works = |name: &&&str| {
        Command::new(name).args(["-c", new_enough]).status().is_ok_and(|status| status.success())
    };
    ["python3", "python"].iter().find(works).map(PathBuf::from)
}

/// Returns the interpreter of an environment with the [pinned](PINNED) packages.
fn prepare_pinned(python: &Path, home: &Path, site: Option<&str>) -> Result<PathBuf> {
    let pinned = root()?.join(PINNED);
    let file = pinned.to_str().context("the path of the repository is not UTF-8")?;
    prepare(python, home, &["--require-hashes", "-r", file], site)
}

/// Returns the environment's interpreter; an environment with other packages, or another text of a
/// file of packages, is recreated.
pub(crate) fn prepare(python: &Path, home: &Path, packages: &[&str], site: Option<&str>) -> Result<PathBuf> {
    let (venv, stamp) = (home.join("venv"), home.join("packages.txt"));
    let own = venv.join("bin/python");
    let files = packages.iter().filter_map(|package| fs::read_to_string(package).ok());
    let files = files.collect::<String>();
    let wanted = format!("{}\n{}\n{files}", packages.join("\n"), site.unwrap_or_default());
    if own.exists() && fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(own);
    }
    fs::create_dir_all(home)?;
    let make = [OsStr::new("-m"), OsStr::new("venv"), OsStr::new("--clear"), venv.as_os_str()];
    step("environment", python.as_os_str(), &make, home)?;
    if let Some(site) = site {
        let code = "import sysconfig; print(sysconfig.get_paths()['purelib'])";
        let output = Command::new(&own).args(["-c", code]).output()?;
        let packages = PathBuf::from(String::from_utf8(output.stdout)?.trim());
        fs::write(packages.join("others.pth"), fs::canonicalize(site)?.to_string_lossy().as_bytes())?;
    }
    let install = ["-m", "pip", "install", "--quiet"].iter().chain(packages).map(OsStr::new);
    step("packages", own.as_os_str(), &install.collect::<Vec<_>>(), home)?;
    fs::write(stamp, wanted)?;
    Ok(own)
}

/// Runs a program in a directory and fails if it does.
pub(crate) fn step(name: &str, program: &OsStr, arguments: &[&OsStr], directory: &Path) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory);
    run(name, command)
}

/// Runs a command and fails if it does.
fn run(name: &str, mut command: Command) -> Result<()> {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let program = Path::new(command.get_program()).display().to_string();
    eprintln!("── python {name}: {program} {}", words.join(" "));
    command.env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    let status = command.status().with_context(|| format!("cannot run {program} for {name}"))?;
    if !status.success() {
        bail!("python {name} failed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name of a package, without its version, extras and markers.
    fn name(line: &str) -> &str {
        line.split(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c))).next().unwrap_or_default()
    }

    #[test]
    fn every_package_of_the_tests_is_pinned_with_hashes() {
        let root = root().unwrap();
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        let text = read(PINNED).replace("\\\n", " ");
        let pins: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        for pin in &pins {
            assert!(pin.contains("==") && pin.contains("--hash=sha256:"), "{pin}");
        }
        for wanted in read("xtask/python-tests.in").lines().filter(|line| !line.starts_with('#')) {
            assert!(pins.iter().any(|pin| name(pin) == name(wanted)), "{wanted} is not in {PINNED}");
        }
    }
}
