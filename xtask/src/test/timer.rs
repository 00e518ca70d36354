//! Times of test binaries: cargo runs each of them under `xtask time-test LOG BINARY ARGUMENT ...`.

use std::{
    env,
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, exit},
    time::Instant,
};

use anyhow::{Context, Result};

/// Name of the log: a line for each binary when it starts and one when it has ended.
pub(super) const LOG: &str = "tests.log";
/// Line of a binary that starts.
const STARTS: &str = "starts";

/// Copies this program to a path that the tests' build does not replace, and removes the last log.
///
/// # Errors
/// The copy fails.
pub(super) fn install(directory: &Path) -> Result<PathBuf> {
    let _ = fs::remove_file(directory.join(LOG));
    let copy = directory.join("timer");
    let own = env::current_exe().context("the path of xtask is unknown")?;
    fs::copy(&own, &copy).with_context(|| format!("{} cannot be copied", own.display()))?;
    Ok(copy)
}

/// Reports whether a test binary runs or has run.
pub(super) fn has_begun(log: &Path) -> bool {
    fs::metadata(log).is_ok_and(|file| file.len() > 0)
}

/// Runs a test binary, adds its seconds to the log and exits as it did.
///
/// # Errors
/// The binary does not start, or the log cannot be written.
pub(crate) fn run(log: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    let append = |line: String| -> Result<()> {
        let file = OpenOptions::new().create(true).append(true).open(log);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .with_context(|| format!("{} cannot be written", log.display()))
    };
    append(format!("{STARTS}\n"))?;
    let started = Instant::now();
    let status = Command::new(program).args(arguments).status();
    let status = status.with_context(|| format!("{program} does not start"))?;
    let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
    append(format!("{:.3} {package} {}\n", started.elapsed().as_secs_f64(), label(program, &package)))?;
    exit(status.code().unwrap_or(1));
}

/// Name of a test binary without the hash that cargo adds.
fn label(program: &str, package: &str) -> String {
    let stem = Path::new(program).file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into());
    let name = match stem.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => &stem,
    };
    match name {
        "rust_out" => "doctests".into(),
        name if name == package.replace('-', "_") => "unit tests".into(),
        name => name.into(),
    }
}

/// Reads the log: names of binaries with their seconds, the slowest first.
///
/// # Errors
/// The log cannot be read.
pub(super) fn read(log: &Path) -> Result<Vec<(String, f64)>> {
    let text = fs::read_to_string(log).with_context(|| format!("{} cannot be read", log.display()))?;
    let mut found: Vec<(String, f64)> = text.lines().filter_map(parse).collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(found)
}

fn parse(line: &str) -> Option<(String, f64)> {
    let (seconds, name) = line.split_once(' ')?;
    Some((name.trim().to_owned(), seconds.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_are_named_without_their_hash() {
        assert_eq!(label("/t/debug/deps/graphmill_data-00a2d7df07dfcbdd", "graphmill-data"), "unit tests");
        assert_eq!(label("/t/debug/deps/reuse-00a2d7df07dfcbdd", "graphmill-nn"), "reuse");
        assert_eq!(label("/tmp/rustdoctestX/rust_out", "graphmill-nn"), "doctests");
        assert_eq!(label("as-one", "graphmill-nn"), "as-one");
    }

    #[test]
    fn the_slowest_binary_is_first_and_starts_are_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join(LOG);
        assert!(!has_begun(&log));
        fs::write(&log, "starts\n0.500 graphmill-nn reuse\nstarts\n12.000 graphmill-data unit tests\n")
            .unwrap();
        assert!(has_begun(&log));
        let expected =
            [("graphmill-data unit tests".to_owned(), 12.0), ("graphmill-nn reuse".to_owned(), 0.5)];
        assert_eq!(read(&log).unwrap(), expected);
    }
}
