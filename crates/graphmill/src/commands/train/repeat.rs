//! `graphmill train --repeat N`: a run for each of several seeds, and the spread of their scores.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use clap::ArgMatches;
use graphmill_engine::{
    Error, RunDir, TrainConfig,
    record::{Repeated, Spread},
};

use super::{configure, train_once};
use crate::{args, output, ranks};

/// Seeds of the runs; `None` without `--repeat`.
///
/// # Errors
/// Wrong usage: not a number, no directory, or options that do not go together.
pub(super) fn seeds(matches: &ArgMatches, config: &TrainConfig) -> anyhow::Result<Option<Range<u64>>> {
    let Some(word) = matches.get_one::<String>("repeat") else { return Ok(None) };
    let refuse = |message: String| Err(Error::usage(format!("--repeat {word}: {message}")).into());
    let Ok(count) = word.parse() else {
        return refuse(format!("pass an integer from 1 to {}", Repeated::MAX));
    };
    if args::get_path(matches, "out").is_none() {
        return refuse("name the directory of the runs with --out DIR".into());
    }
    if ranks::partition(config)?.is_some() {
        return refuse("partitioned datasets train one run at a time; leave it out".into());
    }
    Ok(Some(Repeated::seeds(config.seed, count)?))
}

/// The run of the smallest seed below `out`, from which `--repeat --resume` reads the options.
///
/// # Errors
/// Wrong usage: there is no run to resume.
pub(super) fn first(matches: &ArgMatches, out: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let (Some(out), true) = (out, matches.contains_id("repeat") && matches.get_flag("resume")) else {
        return Ok(None);
    };
    Ok(Some(Repeated::first_run(out)?))
}

/// Trains a run for each seed, and prints and writes the spread of their scores. With `--resume`,
/// runs that exist go on, and finished ones are not trained again.
pub(super) fn run(matches: &ArgMatches, config: &TrainConfig, seeds: Range<u64>) -> anyhow::Result<()> {
    let out = args::required_path(matches, "out");
    let count = seeds.end - seeds.start;
    let mut runs = Vec::new();
    for seed in seeds {
        let dir = Repeated::run_dir(out, seed);
        let resume = matches.get_flag("resume") && RunDir::config_path(&dir).is_file();
        let config = match resume {
            true => TrainConfig { seed, ..configure(matches, Some(&dir), true)? },
            false => TrainConfig { seed, ..config.clone() },
        };
        let (outcome, _) = train_once(matches, &config, Some(&dir), resume)?;
        let summary = outcome.map_err(|error| match &error {
            Error::Interrupted { .. } => {
                let how = format!("graphmill train --repeat {count} --resume --out {}", out.display());
                let message = format!("{error}; resume with: {how}");
                anyhow::Error::from(error).context(message)
            }
            _ => error.into(),
        })?;
        runs.push((seed, dir.display().to_string(), summary));
    }
    let repeated = Repeated::of(runs);
    let path = Repeated::path(out);
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
