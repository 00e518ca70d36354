//! `cargo xtask bench ...`, `papers ...` and `scaling-threads ...`: builds and starts the runner of
//! `benchmarks/runner`.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Builds the runner together with `graphmill`, so that both have the same dependencies, and passes
/// the words on.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let status = super::cargo()
        .args(["build", "--release", "-p", "graphmill", "-p", "graphmill-benchmarks"])
        .status()?;
    ensure!(status.success(), "the build failed");
    let status =
        Command::new(super::target_dir().join("release/graphmill-benchmarks")).args(words).status()?;
    ensure!(status.success(), "the benchmarks failed");
    Ok(())
}

/// Measures the figures and tables of the papers that the words name, or all of them: the
/// definitions of the group `papers`.
pub(crate) fn papers(words: &[&str]) -> Result<()> {
    let named = words.first().is_some_and(|word| !word.starts_with('-'));
    if named { run(words) } else { run(&[&["papers"], words].concat()) }
}

/// Name of the definition that measures speed-ups over threads.
const THREADS: &str = "scaling-threads";
/// Options with which the runner leaves the record as it was, so that its chart stays.
const KEEP_RECORD: [&str; 5] = ["--quick", "--only", "--set", "--sides", "--out"];

/// Measures training, sampling and products on 1, 2, 4, ... threads up to the cores of the machine,
/// and draws their chart.
pub(crate) fn scaling_threads(words: &[&str]) -> Result<()> {
    let words = runner_words(words)?;
    run(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    let keeps = |word: &String| KEEP_RECORD.contains(&word.split('=').next().unwrap_or_default());
    if words.iter().any(keeps) { Ok(()) } else { run(&["charts", THREADS]) }
}

/// Words for the runner: `--threads 1,2` replaces the numbers of threads, and others are passed on.
fn runner_words(words: &[&str]) -> Result<Vec<String>> {
    let mut all = vec![THREADS.to_string()];
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        if word != "--threads" {
            all.push(word.to_string());
            continue;
        }
        let list = words.next().context("--threads: a list such as 1,2,4 is missing")?;
        let numbers = list.split(',').map(|number| number.parse().ok().filter(|&number: &usize| number > 0));
        let numbers: Option<Vec<usize>> = numbers.collect();
        let fix = "give numbers from 1, separated by commas, such as 1,2,4";
        let numbers = numbers.with_context(|| format!("--threads {list}: not a list of numbers; {fix}"))?;
        ensure!(
            numbers.contains(&1),
            "--threads {list}: the model starts from the time of 1 thread; add 1 to the list"
        );
        all.extend(["--set".into(), format!("threads={list}")]);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_threads_become_values_of_the_sweep() {
        assert_eq!(runner_words(&[]).unwrap(), ["scaling-threads"]);
        let words = runner_words(&["--threads", "1,2,16", "--out", "x.json", "--rounds", "2"]).unwrap();
        let expected = ["scaling-threads", "--set", "threads=1,2,16", "--out", "x.json", "--rounds", "2"];
        assert_eq!(words, expected);
        for (list, why) in [
            ("2,4", "add 1 to the list"),
            ("1,0", "numbers from 1"),
            ("1,two", "numbers from 1"),
            ("", "numbers from 1"),
        ] {
            let error = runner_words(&["--threads", list]).unwrap_err().to_string();
            assert!(error.starts_with("--threads") && error.contains(why), "{error}");
        }
        assert!(runner_words(&["--threads"]).is_err());
    }
}
