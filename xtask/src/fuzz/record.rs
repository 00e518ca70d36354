//! Record of the fuzzer's runs, `fuzz/record.toml`, and its sums.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// Executions over all targets that the project aims at.
const GOAL: u64 = 1_000_000_000;

/// All runs.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// Runs in their order.
    #[serde(default)]
    run: Vec<Run>,
}

/// Run of one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    pub(super) target: String,
    pub(super) executions: u64,
    /// Commit of the repository, abbreviated.
    pub(super) commit: String,
    /// Day in UTC, as `2026-11-22`.
    pub(super) date: String,
}

impl Record {
    /// Reads the record; a missing file is an empty one.
    ///
    /// # Errors
    /// The file cannot be read, or is not a record.
    pub(super) fn read(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not a record; restore it", path.display()))
    }

    /// Executions by target, in the order of their names, and over all: as a table.
    pub(super) fn sums(&self) -> String {
        let mut sums: BTreeMap<&str, (usize, u64, &str)> = BTreeMap::new();
        for run in &self.run {
            let (runs, executions, last) = sums.entry(&run.target).or_default();
            (*runs, *executions) = (*runs + 1, executions.saturating_add(run.executions));
            *last = (*last).max(&run.date);
        }
        let mut text =
            String::from("| target | runs | executions | last run |\n| --- | ---: | ---: | --- |\n");
        for (target, (runs, executions, last)) in &sums {
            let _ = writeln!(text, "| {target} | {runs} | {} | {last} |", grouped(*executions));
        }
        let total = sums.values().fold(0u64, |sum, (_, executions, _)| sum.saturating_add(*executions));
        let share = total as f64 / GOAL as f64 * 100.0;
        let _ = writeln!(text, "\n{} of {} executions ({share:.1} %)", grouped(total), grouped(GOAL));
        text
    }
}

/// Appends a run to the record at `path`.
///
/// # Errors
/// The file is not a record, or cannot be written.
pub(super) fn append(path: &Path, run: &Run) -> Result<()> {
    Record::read(path)?;
    let run =
        toml::to_string(&Record { run: vec![run.clone()] }).context("a run cannot be written as TOML")?;
    let file = fs::OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(format!("\n{run}").as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Abbreviated commit of the repository.
///
/// # Errors
/// Git is missing, or this is not a repository.
pub(super) fn commit() -> Result<String> {
    let output = Command::new("git").args(["rev-parse", "--short=8", "HEAD"]).output();
    let output = output.context("git is missing: install it, because the record names the commit")?;
    if !output.status.success() {
        bail!("git rev-parse HEAD: {}; run this in the repository", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Today in UTC.
pub(super) fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date(seconds / 86_400)
}

/// Day number `days` from 1 January 1970 in the Gregorian calendar.
fn date(mut days: u64) -> String {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= months[month] {
        days -= months[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, days + 1)
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(target: &str, executions: u64, date: &str) -> Run {
        Run { target: target.into(), executions, commit: "0123abcd".into(), date: date.into() }
    }

    #[test]
    fn appended_runs_are_summed_by_target() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.toml");
        fs::write(&path, "# Runs.\n").unwrap();
        let runs =
            [run("npz", 1_500_000, "2026-11-30"), run("npy", 20, "2026-11-22"), run("npz", 1, "2026-11-22")];
        runs.iter().for_each(|run| append(&path, run).unwrap());
        let record = Record::read(&path).unwrap();
        assert_eq!(record.run, runs);
        let sums = record.sums();
        assert!(
            sums.contains("| npy | 1 | 20 | 2026-11-22 |\n| npz | 2 | 1,500,001 | 2026-11-30 |"),
            "{sums}"
        );
        assert!(sums.contains("1,500,021 of 1,000,000,000 executions (0.2 %)"), "{sums}");
        assert!(fs::read_to_string(&path).unwrap().starts_with("# Runs.\n"));
    }

    #[test]
    fn damaged_records_are_not_extended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.toml");
        fs::write(&path, "[[run]]\ntarget = 3\n").unwrap();
        let error = append(&path, &run("npy", 1, "2026-11-22")).unwrap_err().to_string();
        assert!(error.contains("is not a record"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "[[run]]\ntarget = 3\n");
    }

    #[test]
    fn the_record_of_the_repository_is_read() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/record.toml");
        assert!(!Record::read(&path).unwrap().run.is_empty());
    }

    #[test]
    fn days_become_dates() {
        let expected = [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_787, "2026-11-30"),
        ];
        expected.into_iter().for_each(|(days, text)| assert_eq!(date(days), text));
    }
}
