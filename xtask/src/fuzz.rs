//! `cargo xtask fuzz`: runs the fuzzing targets one after the other for a fixed time each, prints
//! the results as a table, and appends them to `fuzz/record.toml`. `--record` prints the sums of
//! that record, and `--minimize` minimizes the corpora and stores their smallest inputs as seeds.
//! It installs nothing; it reports missing tools.

mod minimize;
mod record;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use record::{Record, Run};

/// Longest input in bytes: a directory of small files, and as long as a mutation of the tests.
const MAX_LEN: &str = "-max_len=16384";
/// Memory limit of the process in MiB: well above the declared limit of any input (fuzz/README.md).
const RSS_LIMIT: &str = "-rss_limit_mb=4096";

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
    check_tools()?;
    build(&options)?;
    if options.work == Work::Minimize {
        println!("| target | inputs | seeds |");
        println!("| --- | ---: | ---: |");
        for target in &options.targets {
            let [inputs, seeds] = minimize::minimize(root, target, &options)?;
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
        let outcome = fuzz(root, target, &options)?;
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
    let mut options = Options { work: Work::Run, seconds: 60, sanitizer: "none".into(), targets: Vec::new() };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match *word {
            "--seconds" => options.seconds = value()?.parse().context("--seconds")?,
            "--minimize" => options.work = Work::Minimize,
            "--record" => options.work = Work::Record,
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

fn check_tools() -> Result<()> {
    let works = |program: &str, arguments: &[&str]| {
        let quiet =
            Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
        quiet.is_ok_and(|status| status.success())
    };
    if !works("rustup", &["run", "nightly", "rustc", "--version"]) {
        bail!("the nightly compiler is missing: rustup toolchain install nightly");
    }
    if !works("cargo", &["fuzz", "--version"]) {
        bail!("cargo-fuzz is missing: cargo install cargo-fuzz");
    }
    if !works("c++", &["--version"]) {
        bail!("a C++ compiler is missing (libFuzzer is written in C++): install g++ or clang++");
    }
    Ok(())
}

/// `cargo +nightly fuzz` without link-time optimization, which doubles the build time without
/// benefit.
fn cargo_fuzz(words: &[&str], options: &Options) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "fuzz", words[0], "--sanitizer", &options.sanitizer]);
    command.args(["--features", "targets"]).args(&words[1..]).env("CARGO_PROFILE_RELEASE_LTO", "off");
    command
}

fn build(options: &Options) -> Result<()> {
    let words = match &options.targets[..] {
        [target] => vec!["build", target],
        _ => vec!["build"],
    };
    if !cargo_fuzz(&words, options).status().context("cannot run cargo fuzz")?.success() {
        bail!("the targets cannot be built");
    }
    Ok(())
}

fn fuzz(root: &Path, target: &str, options: &Options) -> Result<Outcome> {
    let artifacts = root.join("artifacts").join(target);
    let before = count(&artifacts);
    let dictionary = root.join("dictionaries").join(format!("{target}.dict"));
    let corpus = root.join("corpus").join(target);
    fs::create_dir_all(&corpus)?;
    let path = |path: PathBuf| path.to_string_lossy().into_owned();
    let (seeds, regressions) = (root.join("seeds").join(target), root.join("regressions").join(target));
    // New inputs go to the first directory.
    let mut words: Vec<String> = vec!["run".into(), target.into(), path(corpus), path(seeds)];
    if regressions.is_dir() {
        words.push(path(regressions));
    }
    let flags = [MAX_LEN, RSS_LIMIT, "-timeout=20", "-print_final_stats=1"];
    words.push("--".into());
    words.extend(flags.map(String::from));
    words.push(format!("-dict={}", dictionary.display()));
    words.push(format!("-max_total_time={}", options.seconds));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let start = Instant::now();
    let output = cargo_fuzz(&words, options).output().with_context(|| format!("cannot run {target}"))?;
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
        assert_eq!((options.seconds, options.targets), (5, vec!["npz".to_string()]));
        let options = parse(&[], &known).unwrap();
        assert_eq!((options.work, options.targets.len()), (Work::Run, 2));
        let works = ["--record", "--minimize"].map(|word| parse(&[word], &known).unwrap().work);
        assert_eq!(works, [Work::Record, Work::Minimize]);
        assert!(parse(&["nothing"], &known).is_err_and(|e| e.to_string().contains("known: npy, npz")));
    }
}
