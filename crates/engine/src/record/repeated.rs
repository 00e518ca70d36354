//! Scores of runs that differ by their seeds: `repeat.json`.

use std::{
    collections::BTreeSet,
    ops::Range,
    path::{Path, PathBuf},
};

use graphmill_data::atomic::{self, Real};
use serde::{Deserialize, Serialize};

use super::{RunDir, RunRow, Summary};
use crate::{Error, Result};

/// Scores of several runs that differ by their seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Repeated {
    /// Name of the dataset.
    pub dataset: String,
    /// Name of the metric.
    pub metric: String,
    /// Each run.
    pub runs: Vec<SeedScore>,
    /// Spread of the test scores; `None` if a run has none.
    pub test: Option<Spread>,
    /// Spread of the validation scores of the best epochs; `None` if a run has none.
    pub valid: Option<Spread>,
}

/// Scores of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeedScore {
    /// Seed of the run.
    pub seed: u64,
    /// Directory of the run.
    pub run: String,
    /// Best epoch, from 1.
    pub best_epoch: usize,
    /// Validation score of the best epoch.
    pub valid: Option<f64>,
    /// Test score of the best epoch.
    pub test: Option<f64>,
    /// Seconds of the run.
    pub seconds: f64,
}

/// Mean, standard deviation (of a sample) and range of scores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Standard deviation; 0 of one score.
    pub deviation: f64,
    /// Smallest score.
    pub min: f64,
    /// Largest score.
    pub max: f64,
}

impl Spread {
    /// Spread of the scores; `None` if one is missing or there are none.
    pub fn of(scores: impl Iterator<Item = Option<f64>>) -> Option<Self> {
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

impl Repeated {
    /// Largest number of runs.
    pub const MAX: u64 = 1000;

    /// Seeds of `count` runs, the first of which has the seed `first`.
    ///
    /// # Errors
    /// Wrong usage: too many or no runs, or a seed beyond the largest one.
    pub fn seeds(first: u64, count: u64) -> Result<Range<u64>> {
        if !(1..=Self::MAX).contains(&count) {
            let message = format!("--repeat {count}: pass an integer from 1 to {}", Self::MAX);
            return Err(Error::usage(message));
        }
        let beyond = || {
            let message = format!("--repeat {count}: the seeds from {first} exceed 2^64 - 1; lower --seed");
            Error::usage(message)
        };
        Ok(first..first.checked_add(count).ok_or_else(beyond)?)
    }

    /// Directory of the run of a seed below `dir`.
    pub fn run_dir(dir: &Path, seed: u64) -> PathBuf {
        dir.join(format!("seed-{seed}"))
    }

    /// Run of the smallest seed below `dir`, from which the others take their options if the runs
    /// go on after an interruption.
    ///
    /// # Errors
    /// The directory cannot be read; wrong usage: it holds no such run.
    pub fn first_run(dir: &Path) -> Result<PathBuf> {
        let entries = std::fs::read_dir(dir).map_err(|error| Error::io(dir, "read", error))?;
        let seed = |name: &str| name.strip_prefix("seed-")?.parse::<u64>().ok();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let found = names.filter_map(|name| Some((seed(&name)?, dir.join(name))));
        let found = found.filter(|(_, dir)| RunDir::config_path(dir).is_file()).min();
        let nothing = || Error::usage(format!("{}: no run to resume; leave out --resume", dir.display()));
        Ok(found.ok_or_else(nothing)?.1)
    }

    /// Path of the file in the directory of the runs.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join("repeat.json")
    }

    /// Scores of the runs of these seeds, directories and summaries.
    pub fn of(runs: Vec<(u64, String, Summary)>) -> Self {
        let names =
            runs.first().map(|(.., summary)| (summary.dataset.name.clone(), summary.test.metric.clone()));
        let (dataset, metric) = names.unwrap_or_default();
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
        Self { dataset, metric, runs, test, valid }
    }

    /// Spreads of the runs of `rows` that one command repeated, with their directories.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn of_rows(rows: &[RunRow]) -> Result<Vec<(String, Self)>> {
        let parents: BTreeSet<&Path> = rows.iter().filter_map(|row| row.run.parent()).collect();
        let mut found = Vec::new();
        for dir in parents {
            let path = Self::path(dir);
            if !path.is_file() {
                continue;
            }
            let text = std::fs::read_to_string(&path).map_err(|error| Error::io(&path, "read", error))?;
            let of =
                serde_json::from_str(&text).map_err(|e| Error::format(&path, "scores", e.to_string()))?;
            found.push((dir.display().to_string(), of));
        }
        Ok(found)
    }

    /// Writes the scores as JSON.
    ///
    /// # Errors
    /// The disk is full or not writable.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text =
            serde_json::to_string_pretty(self).map_err(|e| Error::format(path, "scores", e.to_string()))?;
        Ok(atomic::replace(&mut Real, path, (text + "\n").as_bytes())?)
    }
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
