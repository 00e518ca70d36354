//! `graphmill train --repeat N`: a run for each of several seeds, and the spread of their scores.

use std::{ops::Range, path::Path};

use clap::ArgMatches;
use graphmill_data::atomic::{self, Real};
use graphmill_engine::{Error, TrainConfig, record::Summary};
use serde::Serialize;

use super::{train_once, with_remedy};
use crate::{args, output, ranks};

/// Largest number of runs.
const MAX: u64 = 1000;

/// Scores of several runs that differ by their seeds.
#[derive(Debug, Serialize)]
struct Repeated {
    /// Name of the dataset.
    dataset: String,
    /// Name of the metric.
    metric: String,
    /// Each run.
    runs: Vec<SeedScore>,
    /// Spread of the test scores; `None` if a run has none.
    test: Option<Spread>,
    /// Spread of the validation scores of the best epochs; `None` if a run has none.
    valid: Option<Spread>,
}

/// Scores of a run.
#[derive(Debug, Serialize)]
struct SeedScore {
    seed: u64,
    run: String,
    best_epoch: usize,
    valid: Option<f64>,
    test: Option<f64>,
    seconds: f64,
}

/// Mean, standard deviation (of a sample) and range of scores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Spread {
    mean: f64,
    deviation: f64,
    min: f64,
    max: f64,
}

impl Spread {
    /// Spread of the scores; `None` if one is missing or there are none.
    fn of(scores: impl Iterator<Item = Option<f64>>) -> Option<Self> {
        let scores: Vec<f64> = scores.collect::<Option<_>>()?;
        let count = scores.len() as f64;
        let mean = scores.iter().sum::<f64>() / count;
        let squares: f64 = scores.iter().map(|x| (x - mean) * (x - mean)).sum();
        let deviation = if scores.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        let (min, max) =
            scores.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &x| (a.min(x), b.max(x)));
        (!scores.is_empty()).then_some(Self { mean, deviation, min, max })
    }
}

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
    let repeated = collect(runs);
    let path = out.join("repeat.json");
    write(&path, &repeated)?;
    if matches.get_flag("json") {
        return output::json(&repeated);
    }
    output::text(&text(&repeated, &path))
}

fn collect(runs: Vec<(u64, String, Summary)>) -> Repeated {
    let first = runs.first().map(|(.., summary)| (summary.dataset.name.clone(), summary.test.metric.clone()));
    let (dataset, metric) = first.unwrap_or_default();
    let score = |(seed, run, summary): (u64, String, Summary)| SeedScore {
        seed,
        run,
        best_epoch: summary.best.epoch,
        valid: summary.best.valid_score,
        test: summary.test.score,
        seconds: summary.seconds,
    };
    let runs: Vec<SeedScore> = runs.into_iter().map(score).collect();
    let test = Spread::of(runs.iter().map(|run| run.test));
    let valid = Spread::of(runs.iter().map(|run| run.valid));
    Repeated { dataset, metric, runs, test, valid }
}

fn write(path: &Path, repeated: &Repeated) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(repeated)? + "\n";
    Ok(atomic::replace(&mut Real, path, text.as_bytes())?)
}

fn text(repeated: &Repeated, path: &Path) -> String {
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
        "{} {}, {} runs: {}, {} (mean ± standard deviation)\n{}\n",
        repeated.dataset,
        repeated.metric,
        repeated.runs.len(),
        part("test", repeated.test),
        part("valid", repeated.valid),
        path.display()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_those_of_a_sample() {
        let of = |scores: &[f64]| Spread::of(scores.iter().map(|&x| Some(x)));
        let spread = Spread { mean: 2.0, deviation: 1.0, min: 1.0, max: 3.0 };
        assert_eq!(of(&[1.0, 2.0, 3.0]), Some(spread));
        assert_eq!(of(&[0.5]), Some(Spread { mean: 0.5, deviation: 0.0, min: 0.5, max: 0.5 }));
        assert_eq!(of(&[]), None);
        assert_eq!(Spread::of([Some(1.0), None].into_iter()), None);
    }
}
