//! `cargo xtask test python`: builds the wheel, installs it into a virtual environment under the target directory and runs its tests.
//!
//! Torch is large, so the environment has none unless it is given one: `--site DIR` lets the tests see the packages of another environment (its
//! `site-packages`), `--torch` installs torch and torch_geometric. What needs them is skipped otherwise, and says so.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

/// What is installed beside the wheel.
const NEEDED: &[&str] = &["maturin>=1.9,<2", "numpy", "pytest"];
/// What else there is to test with.
const TORCH: &[&str] = &["torch", "torch_geometric"];

/// The features of the package, by which its code is linted.
pub(crate) const FEATURES: [&str; 2] = ["--features", "graphmill-python/python"];

/// Lints and tests the package with these words: `--site DIR`, `--torch`, and what pytest is to be told.
pub(crate) fn test(words: &[&str]) -> Result<()> {
    if find_python().is_some() {
        let words = "clippy -p graphmill-python --features python --all-targets -- -D warnings";
        let words: Vec<_> = words.split(' ').map(OsStr::new).collect();
        step("lints", super::cargo().as_os_str(), &words, &root()?)?;
    }
    test_wheel(words)
}

/// The checkout.
fn root() -> Result<PathBuf> {
    Ok(fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))?)
}

/// As [`test()`], where lints were looked at.
pub(crate) fn test_wheel(words: &[&str]) -> Result<()> {
    let Some(python) = find_python() else {
        eprintln!("── python: skipped: there is no python3 of 3.10 or later on the PATH");
        return Ok(());
    };
    let (mut site, mut packages, mut rest) = (None, NEEDED.to_vec(), words);
    while let [first, others @ ..] = rest {
        match (*first, others) {
            ("--torch", _) => packages.extend(TORCH),
            ("--site", [dir, ..]) => site = Some(*dir),
            _ => break,
        }
        rest = if *first == "--site" { &others[1..] } else { others };
    }
    let root = root()?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let package = root.join("crates/python");

    let home = target.join("python");
    let own = prepare(&python, &home, &packages, site)?;
    let wheels = home.join("wheels");
    // wheels of earlier versions would be found, too
    let _ = fs::remove_dir_all(&wheels);
    let maturin = home.join("venv/bin/maturin");
    // the profile of the other tests: their crates are built by now, and the checks of a debug build stay
    let build = ["build", "--profile", "dev", "--out"].map(OsStr::new);
    step("wheel", maturin.as_os_str(), &[&build[..], &[wheels.as_os_str()]].concat(), &package)?;
    let wheel = fs::read_dir(&wheels)?.next().context("maturin has built no wheel")??.path();
    let install = ["-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall"].map(OsStr::new);
    step("install", own.as_os_str(), &[&install[..], &[wheel.as_os_str()]].concat(), &root)?;
    // from the tests' own directory: the package is the installed one, not the checkout's
    let mut arguments: Vec<&OsStr> = ["-m", "pytest", "-q", "-rs"].map(OsStr::new).to_vec();
    arguments.extend(rest.iter().map(OsStr::new));
    step("tests", own.as_os_str(), &arguments, &package.join("tests"))
}

/// A Python that is new enough.
pub(crate) fn find_python() -> Option<PathBuf> {
    let new_enough = "import sys, venv; sys.exit(sys.version_info < (3, 10))";
    let works = |name: &&&str| {
        Command::new(name).args(["-c", new_enough]).status().is_ok_and(|status| status.success())
    };
    ["python3", "python"].iter().find(works).map(PathBuf::from)
}

/// The environment's interpreter; the environment is made anew where it is not of these packages.
pub(crate) fn prepare(python: &Path, home: &Path, packages: &[&str], site: Option<&str>) -> Result<PathBuf> {
    let (venv, stamp) = (home.join("venv"), home.join("packages.txt"));
    let own = venv.join("bin/python");
    let wanted = format!("{}\n{}\n", packages.join("\n"), site.unwrap_or_default());
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

/// Runs a command of the test and stops where it fails.
pub(crate) fn step(name: &str, program: &OsStr, arguments: &[&OsStr], directory: &Path) -> Result<()> {
    let told: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    eprintln!("── python {name}: {} {}", Path::new(program).display(), told.join(" "));
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    let status = command
        .status()
        .with_context(|| format!("cannot run {} for {name}", Path::new(program).display()))?;
    if !status.success() {
        bail!("python {name} failed");
    }
    Ok(())
}
