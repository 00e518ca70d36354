//! `cargo xtask fuzz`: runs the fuzzing targets one after the other for a fixed time each, prints
//! the results as a table, and appends them to `fuzz/record.toml`. `--record` prints the sums of
//! that record, and `--minimize` minimizes the corpora and stores some small inputs as seeds.
//! A stable compiler and a C++ compiler are enough.

mod minimize;
mod program;
mod record;

use std::{fs, path::Path, time::Instant};

use anyhow::{Context, Result, bail};
use program::Programs;
use record::{Record, Run};

/// Work of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Runs the targets.
    Run,
    /// Minimizes their corpora.
    Minimize,
    /// Prints the sums of the record.
    Record,
}

/// Options of `cargo xtask fuzz`.
struct Options {
    work: Work,
    seconds: u64,
    sanitizer: String,
    /// Features of the fuzz crate that replace the default ones.
    features: Option<String>,
    targets: Vec<String>,
}

/// Result of a target.
struct Outcome {
    executions: u64,
    seconds: f64,
    /// Number of edges covered after the seeds were read, and at the end.
    coverage: (u64, u64),
    crashes: usize,
}

/// Runs the command.
///
/// # Errors
/// A tool is missing, a target cannot be built, or one crashed; crashes are reported after all
/// targets have run.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let root = Path::new("fuzz");
    let options = parse(words, &known(root)?)?;
    let path = root.join("record.toml");
    if options.work == Work::Record {
        print!("{}", Record::read(&path)?.sums());
        return Ok(());
    }
    let programs = Programs::build(&options)?;
    if options.work == Work::Minimize {
        println!("| target | inputs | seeds |");
        println!("| --- | ---: | ---: |");
        for target in &options.targets {
            let [inputs, seeds] = minimize::minimize(root, target, &programs)?;
            println!("| {target} | {inputs} | {seeds} |");
        }
        return Ok(());
    }
    let (commit, date) = (record::commit()?, record::today());
    println!("| target | executions | seconds | executions/s | new coverage | crashes |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    let mut crashes = 0;
    let mut executions = 0;
    for target in &options.targets {
        let outcome = fuzz(root, target, options.seconds, &programs)?;
        let Outcome { executions: runs, seconds, coverage: (before, after), crashes: found } = outcome;
        println!(
            "| {target} | {runs} | {seconds:.0} | {:.0} | {before} + {} | {found} |",
            runs as f64 / seconds.max(1e-9),
            after.saturating_sub(before)
        );
        let run =
            Run { target: target.clone(), executions: runs, commit: commit.clone(), date: date.clone() };
        record::append(&path, &run)?;
        executions += runs;
        crashes += found;
    }
    println!("\n{executions} executions, {crashes} crashes");
    if crashes > 0 {
        bail!("crashing inputs are in fuzz/artifacts; see fuzz/README.md for what to do with one");
    }
    Ok(())
}

fn parse(words: &[&str], known: &[String]) -> Result<Options> {
    let mut options = Options {
        work: Work::Run,
        seconds: 60,
        sanitizer: "none".into(),
        features: None,
        targets: Vec::new(),
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match *word {
            "--seconds" => options.seconds = value()?.parse().context("--seconds")?,
            "--minimize" => options.work = Work::Minimize,
            "--record" => options.work = Work::Record,
            "--features" => options.features = Some(value()?.to_string()),
            "--sanitizer" => options.sanitizer = value()?.to_string(),
            target if known.iter().any(|name| name == target) => options.targets.push(target.to_string()),
            other => bail!("no target '{other}'; known: {}", known.join(", ")),
        }
    }
    if options.targets.is_empty() {
        options.targets = known.to_vec();
    }
    Ok(options)
}

/// Names of the targets, from the programs of the fuzz crate.
fn known(root: &Path) -> Result<Vec<String>> {
    let path = root.join("Cargo.toml");
    let text = fs::read_to_string(&path)
        .with_context(|| format!("{}: run this in the repository", path.display()))?;
    let manifest: toml::Table = text.parse()?;
    let programs =
        manifest.get("bin").and_then(|bins| bins.as_array()).context("fuzz/Cargo.toml has no programs")?;
    let field = |program: &toml::Value, name: &str| Some(program.get(name)?.as_str()?.to_string());
    Ok(programs
        .iter()
        .filter(|program| field(program, "path").is_some_and(|path| path.starts_with("fuzz_targets/")))
        .filter_map(|program| field(program, "name"))
        .collect())
}

fn fuzz(root: &Path, target: &str, seconds: u64, programs: &Programs) -> Result<Outcome> {
    let [artifacts, corpus, seeds, regressions] =
        ["artifacts", "corpus", "seeds", "regressions"].map(|dir| root.join(dir).join(target));
    fs::create_dir_all(&artifacts)?;
    fs::create_dir_all(&corpus)?;
    let before = count(&artifacts);
    let mut command = programs.command(target, &[&corpus, &seeds, &regressions]);
    command.arg("-print_final_stats=1").arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-dict={}", root.join("dictionaries").join(format!("{target}.dict")).display()));
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    let start = Instant::now();
    let output = command.output().with_context(|| format!("cannot run {target}"))?;
    let seconds = start.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&output.stderr);
    let crashes = count(&artifacts).saturating_sub(before);
    if !output.status.success() && crashes == 0 {
        bail!("{target} did not run:\n{text}");
    }
    Ok(Outcome { executions: executions(&text), seconds, coverage: coverage(&text), crashes })
}

fn count(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

/// Number of executions: from the final statistics, or after a crash from the last line of progress
/// (`#1234 NEW`).
fn executions(text: &str) -> u64 {
    let last = text.lines().rev().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    let last = last.or_else(|| {
        let progress = text.lines().rev().find(|line| line.starts_with('#') && line.contains("cov: "))?;
        progress[1..].split_ascii_whitespace().next()
    });
    last.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// Edges covered after the seeds were read (`INITED`) and at the end.
fn coverage(text: &str) -> (u64, u64) {
    let covered = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        words.find(|word| *word == "cov:")?;
        words.next()?.parse().ok()
    };
    let seeds = text.lines().find(|line| line.contains("INITED")).and_then(covered);
    let end = text.lines().rev().find_map(covered);
    (seeds.unwrap_or(0), end.or(seeds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzers_report_is_read() {
        let text = "INFO: seed corpus: files: 3\n#4\tINITED cov: 120 ft: 130 corp: 3/9b exec/s: 0 rss: 40Mb\n\
                    #900\tNEW    cov: 131 ft: 150 corp: 4/12b\n#5000\tDONE   cov: 140 ft: 160\n\
                    stat::number_of_executed_units: 5000\nstat::average_exec_per_sec:     1000\n";
        assert_eq!((executions(text), coverage(text)), (5000, (120, 140)));
        let crashed = &text[..text.find("#5000").unwrap()];
        assert_eq!((executions(crashed), coverage(crashed)), (900, (120, 131)));
        assert_eq!((executions(""), coverage("")), (0, (0, 0)));
    }

    #[test]
    fn words_are_checked() {
        let known = ["npy".to_string(), "npz".to_string()];
        let options = parse(&["--seconds", "5", "npz"], &known).unwrap();
        assert_eq!((options.seconds, &options.targets), (5, &vec!["npz".to_string()]));
        assert_eq!((options.features, options.sanitizer.as_str()), (None, "none"));
        let options = parse(&["--features", "targets,parquet"], &known).unwrap();
        assert_eq!(options.features.as_deref(), Some("targets,parquet"));
        let options = parse(&[], &known).unwrap();
        assert_eq!((options.work, options.targets.len()), (Work::Run, 2));
        let works = ["--record", "--minimize"].map(|word| parse(&[word], &known).unwrap().work);
        assert_eq!(works, [Work::Record, Work::Minimize]);
        assert!(parse(&["nothing"], &known).is_err_and(|e| e.to_string().contains("known: npy, npz")));
    }
}
