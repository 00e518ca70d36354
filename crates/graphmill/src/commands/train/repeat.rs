//! `graphmill train --repeat N`: a run for each of several seeds, and the spread of their scores.

use std::ops::Range;

use clap::ArgMatches;
use graphmill_engine::{
    Error, TrainConfig,
    record::{Repeated, Spread},
};

use super::{train_once, with_remedy};
use crate::{args, output, ranks};

/// Largest number of runs.
const MAX: u64 = 1000;

/// Seeds of the runs; `None` without `--repeat`.
///
/// # Errors
/// Wrong usage: not a number, no directory, or options that do not go together.
pub(super) fn seeds(matches: &ArgMatches, config: &TrainConfig) -> anyhow::Result<Option<Range<u64>>> {
    let Some(word) = matches.get_one::<String>("repeat") else { return Ok(None) };
    let refuse = |message: String| Err(Error::usage(format!("--repeat {word}: {message}")).into());
    let Some(count) = word.parse().ok().filter(|count| (1..=MAX).contains(count)) else {
        return refuse(format!("pass an integer from 1 to {MAX}"));
    };
    if matches.get_flag("resume") {
        return refuse("each run resumes by itself; pass --resume --out OUT/seed-S without --repeat".into());
    }
    if args::get_path(matches, "out").is_none() {
        return refuse("name the directory of the runs with --out DIR".into());
    }
    if ranks::partition(config)?.is_some() {
        return refuse("partitioned datasets train one run at a time; leave it out".into());
    }
    match config.seed.checked_add(count) {
        Some(end) => Ok(Some(config.seed..end)),
        None => refuse(format!("the seeds from {} exceed 2^64 - 1; lower --seed", config.seed)),
    }
}

/// Trains a run for each seed, and prints and writes the spread of their scores.
pub(super) fn run(matches: &ArgMatches, config: &TrainConfig, seeds: Range<u64>) -> anyhow::Result<()> {
    let out = args::required_path(matches, "out");
    let mut runs = Vec::new();
    for seed in seeds {
        let config = TrainConfig { seed, ..config.clone() };
        let dir = out.join(format!("seed-{seed}"));
        let (outcome, run) = train_once(matches, &config, Some(&dir))?;
        let summary = outcome.map_err(|error| with_remedy(error, &run))?;
        runs.push((seed, dir.display().to_string(), summary));
    }
    let repeated = Repeated::of(runs);
    let path = out.join("repeat.json");
    repeated.write(&path)?;
    if matches.get_flag("json") {
        return output::json(&repeated);
    }
    output::text(&format!("{}{}\n", table(&repeated), path.display()))
}

/// Table of the runs, and their spread.
pub(in crate::commands) fn table(repeated: &Repeated) -> String {
    let score = |x: Option<f64>| x.map_or("-".to_string(), |x| format!("{x:.4}"));
    let mut text = format!("{:>20}{:>8}{:>12}{:>12}\n", "seed", "epoch", "valid", "test");
    for run in &repeated.runs {
        text += &format!(
            "{:>20}{:>8}{:>12}{:>12}\n",
            run.seed,
            run.best_epoch,
            score(run.valid),
            score(run.test)
        );
    }
    let part = |name: &str, spread: Option<Spread>| match spread {
        Some(Spread { mean, deviation, .. }) => format!("{name} {mean:.4} ± {deviation:.4}"),
        None => format!("{name} -"),
    };
    text += &format!(
        "{} {}, {} runs: {}, {} (mean ± standard deviation)\n",
        repeated.dataset,
        repeated.metric,
        repeated.runs.len(),
        part("test", repeated.test),
        part("valid", repeated.valid)
    );
    text
}
