//! `cargo xtask golden`: results of short runs, compared to the bit between two builds of
//! `graphmill`.
//!
//! - `record BINARY FILE` runs every row of `xtask/golden.toml` with BINARY and writes FILE.
//! - `check BINARY FILE` runs the rows again and prints each field that differs from FILE.
//! - `compare OLD_BINARY NEW_BINARY` does both in a temporary directory.
//!
//! Options: `--threads N` replaces the number of threads in `golden.toml`; `--work DIR` runs in DIR
//! and leaves the files there (`compare` in DIR/old and DIR/new). Further words select rows by
//! name; the rows that they read from run, too. The exit status is 1 if a field differs or a
//! command fails.
//!
//! A row is a list of `graphmill` commands, run in a separate directory. Its fields are the leaves
//! of the JSON documents that the commands print and a checksum of each file that they write.
//! Fields that depend on time, memory or the place of the run are left out; `golden.toml` lists
//! them with the reasons.
//!
//! Floating-point results depend on the processor's instruction set. FILE therefore names the
//! machine that recorded it, and only a check on the same machine means anything.

mod runner;
mod sources;
mod spec;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process,
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::{
    runner::{Runner, can_run_ranks},
    sources::write_sources,
    spec::Spec,
};

/// Values of a row, by field path.
type Fields = BTreeMap<String, Value>;

/// Results of all rows.
#[derive(Deserialize, Serialize)]
struct Recording {
    /// The machine that the rows ran on.
    machine: String,
    /// Fields by row; `None` for a row that needs MPI if the binary has none.
    rows: BTreeMap<String, Option<Fields>>,
}

/// Options of the command line.
struct Options<'a> {
    threads: Option<usize>,
    work: Option<PathBuf>,
    rows: Vec<&'a str>,
}

/// Runs `record`, `check` or `compare`.
pub(crate) fn run(mode: &str, [first, second]: [&str; 2], words: &[&str]) -> Result<()> {
    let options = options(words)?;
    match mode {
        "record" => {
            let recording = record(first.as_ref(), &options, "")?;
            fs::write(second, recording.to_text()?).with_context(|| format!("cannot write {second}"))?;
            Ok(())
        }
        "check" => {
            let text = fs::read_to_string(second).with_context(|| format!("cannot read {second}"))?;
            let before: Recording = serde_json::from_str(&text).with_context(|| second.to_string())?;
            report(&before, &record(first.as_ref(), &options, "")?, &options)
        }
        "compare" => {
            let before = record(first.as_ref(), &options, "old")?;
            report(&before, &record(second.as_ref(), &options, "new")?, &options)
        }
        _ => bail!("golden {mode}: unknown mode; use record, check or compare"),
    }
}

fn options<'a>(words: &[&'a str]) -> Result<Options<'a>> {
    let mut options = Options { threads: None, work: None, rows: Vec::new() };
    let mut rest = words.iter();
    while let Some(&word) = rest.next() {
        match word {
            "--threads" => {
                let value = rest.next().context("--threads needs a number")?;
                options.threads = Some(value.parse().with_context(|| format!("--threads {value}"))?);
            }
            "--work" => options.work = Some(rest.next().context("--work needs a directory")?.into()),
            _ if word.starts_with('-') => bail!("golden {word}: unknown option; known: --threads, --work"),
            _ => options.rows.push(word),
        }
    }
    Ok(options)
}

/// Prints the differing fields and exits with status 1 if there are any.
fn report(before: &Recording, after: &Recording, options: &Options) -> Result<()> {
    if before.machine != after.machine {
        eprintln!(
            "note: recorded on {}, this is {}: results may differ between machines; \
             use `golden compare` with both binaries here",
            before.machine, after.machine
        );
    }
    let selected = |row: &&String| options.rows.is_empty() || after.rows.contains_key(*row);
    let names: BTreeSet<&String> = before.rows.keys().filter(selected).chain(after.rows.keys()).collect();
    let (mut compared, mut fields, mut rows) = (0, 0, 0);
    for name in names {
        let differences = match (before.rows.get(name), after.rows.get(name)) {
            (Some(Some(before)), Some(Some(after))) => differences(before, after),
            (Some(None), Some(_)) | (Some(_), Some(None)) => {
                eprintln!("{name}: not compared: one of the binaries has no MPI");
                continue;
            }
            (None, _) => vec!["row: absent -> present".to_string()],
            (_, None) => vec!["row: present -> absent".to_string()],
        };
        compared += 1;
        fields += differences.len();
        rows += usize::from(!differences.is_empty());
        for difference in differences {
            println!("{name} {difference}");
        }
    }
    if fields > 0 {
        // not an error, whose backtrace would follow the list
        eprintln!("{fields} fields differ in {rows} of {compared} rows");
        process::exit(1);
    }
    eprintln!("{compared} rows are identical");
    Ok(())
}

/// Lines `FIELD: BEFORE -> AFTER`. Values are compared as text, which also distinguishes -0.0 from
/// 0.0.
fn differences(before: &Fields, after: &Fields) -> Vec<String> {
    let text = |value: Option<&Value>| value.map_or("absent".to_string(), Value::to_string);
    let fields: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let both = fields.into_iter().map(|field| (field, text(before.get(field)), text(after.get(field))));
    both.filter(|(_, a, b)| a != b).map(|(field, a, b)| format!("{field}: {a} -> {b}")).collect()
}

impl Recording {
    /// JSON with one line per row, sorted by name.
    fn to_text(&self) -> Result<String> {
        let rows = self.rows.iter().map(|(name, fields)| {
            Ok(format!("{}:{}", serde_json::to_string(name)?, serde_json::to_string(fields)?))
        });
        let rows = rows.collect::<Result<Vec<_>>>()?.join(",\n");
        Ok(format!("{{\"machine\":{},\"rows\":{{\n{rows}\n}}}}\n", serde_json::to_string(&self.machine)?))
    }
}

/// Runs the rows in a directory `name` below the work directory. Fails after the last row if any
/// row failed.
fn record(binary: &Path, options: &Options, name: &str) -> Result<Recording> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden.toml");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut spec: Spec = toml::from_str(&text).with_context(|| file.display().to_string())?;
    spec.threads = options.threads.unwrap_or(spec.threads);
    spec.validate()?;
    let selected = spec.select(&options.rows)?;

    let temporary = tempfile::tempdir()?;
    let work = options.work.as_deref().unwrap_or(temporary.path()).join(name);
    write_sources(&work.join("files"))?;
    for (name, text) in &spec.files {
        fs::write(work.join("files").join(name), text)?;
    }
    let runner = Runner {
        binary: &fs::canonicalize(binary).with_context(|| format!("no binary {}", binary.display()))?,
        work: &fs::canonicalize(work)?,
        spec: &spec,
    };
    let mpi = can_run_ranks(runner.binary)?;
    let (mut rows, mut failures) = (BTreeMap::new(), Vec::new());
    let began = Instant::now();
    for row in selected {
        if row.ranks > 0 && !mpi {
            eprintln!(
                "{}: skipped: the binary has no MPI, or mpirun is not installed; \
                 run `cargo xtask setup` and build with --features mpi",
                row.name
            );
            rows.insert(row.name.clone(), None);
            continue;
        }
        match runner.run(row) {
            Ok(fields) => {
                rows.insert(row.name.clone(), Some(fields));
            }
            Err(error) => {
                eprintln!("{}: {error:#}", row.name);
                failures.push(row.name.as_str());
            }
        }
    }
    ensure!(
        failures.is_empty(),
        "{} of {} rows failed with {}: {}",
        failures.len(),
        rows.len() + failures.len(),
        binary.display(),
        failures.join(", ")
    );
    if options.rows.is_empty() && mpi {
        spec.note_unmatched();
    }
    eprintln!("{} rows in {:.1} s with {}", rows.len(), began.elapsed().as_secs_f64(), binary.display());
    Ok(Recording { machine: machine(), rows })
}

/// The processor and the instruction sets that change floating-point results.
fn machine() -> String {
    let mut words = vec![env::consts::ARCH.to_string()];
    #[cfg(target_arch = "x86_64")]
    for (name, has) in [
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("fma", std::is_x86_feature_detected!("fma")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
    ] {
        words.extend(has.then(|| name.to_string()));
    }
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    words.extend(model.map(|(_, model)| format!("({model})")));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bit_and_the_sign_of_zero_differ() {
        let fields = |text: &str| serde_json::from_str::<Fields>(text).unwrap();
        let before = fields(r#"{"a": 0.1, "b": 0.0, "c": 1.5, "d": 2}"#);
        let after = fields(r#"{"a": 0.10000000000000002, "b": -0.0, "c": 1.5, "e": null}"#);
        assert_eq!(
            differences(&before, &after),
            ["a: 0.1 -> 0.10000000000000002", "b: 0.0 -> -0.0", "d: 2 -> absent", "e: absent -> null"]
        );
        assert_eq!(differences(&before, &before), [""; 0]);
    }

    #[test]
    fn recordings_are_read_as_they_were_written() {
        let fields: Fields = serde_json::from_str(r#"{"train.loss": 3.1799275875091553}"#).unwrap();
        let rows = BTreeMap::from([("a".to_string(), Some(fields)), ("ranks".to_string(), None)]);
        let recording = Recording { machine: "here".to_string(), rows };
        let text = recording.to_text().unwrap();
        assert_eq!(text.lines().count(), 4);
        let read: Recording = serde_json::from_str(&text).unwrap();
        assert_eq!((read.machine, read.rows), (recording.machine, recording.rows));
    }
}
