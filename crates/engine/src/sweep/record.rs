//! Record of a sweep: `sweep.json`, replaced after every step, so that a killed sweep resumes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use graphmill_core::options::Values;
use graphmill_data::atomic::{self, Real};
use serde::{Deserialize, Serialize};

use super::SweepOptions;
use crate::{Error, Result, record::Repeated};

/// Plan and results of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepRecord {
    /// Version of Graphmill.
    pub graphmill: String,
    /// Options that all trials share.
    pub config: serde_json::Value,
    /// Names of the shared options that were given.
    pub given: Vec<String>,
    /// Options with the values to try, as given: `lr=0.001,0.01`.
    pub tried: Vec<String>,
    /// Options of the sweep itself.
    pub options: SweepOptions,
    /// Epochs after which trials are compared; the last is the end of a trial.
    pub rungs: Vec<usize>,
    /// Name of the dataset; empty before the first trial.
    pub dataset: String,
    /// Metric of the scores; empty before the first trial.
    pub metric: String,
    /// All trials, in their order.
    pub trials: Vec<TrialRecord>,
    /// Number of the best trial, once the sweep is complete.
    pub best: Option<usize>,
    /// Command line of the best trial.
    pub command: Option<String>,
    /// Scores of the best trial's options with several seeds, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated: Option<Repeated>,
}

/// A trial: a run with some of the values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrialRecord {
    /// Number of the trial, from 1.
    pub trial: usize,
    /// Directory of its run, in the directory of the sweep.
    pub run: String,
    /// Values of the options that are tried and that the trial reads.
    pub values: Values,
    /// Scores at the rungs that it has reached.
    pub scores: Vec<RungScore>,
    /// Test score of the best epoch, of a trial that was trained to its end.
    pub test: Option<f64>,
    /// True if the trial was trained to its end: to all epochs, or to early stopping.
    pub is_finished: bool,
    /// Reason why it failed, such as a loss that is not finite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Best score of a trial up to a rung.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RungScore {
    /// Epochs that the trial was trained for; fewer than the rung's if it stopped early.
    pub epochs: usize,
    /// Best epoch, from 1.
    pub best_epoch: usize,
    /// Validation score of the best epoch.
    pub valid: Option<f64>,
    /// The value that trials are compared by, larger is better: the score, the negative error, or
    /// with `--select-by loss` the negative loss.
    pub judged: Option<f64>,
}

impl SweepRecord {
    /// Path of the record of the sweep in `dir`.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join("sweep.json")
    }

    /// Reads the record of the sweep in `dir`; `None` if there is no sweep.
    ///
    /// # Errors
    /// The file cannot be read or is damaged.
    pub fn read(dir: &Path) -> Result<Option<Self>> {
        let path = Self::path(dir);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| Error::io(&path, "read", error))?,
        };
        let record: Self = serde_json::from_str(&text)
            .map_err(|e| Error::format(&path, format!("line {}", e.line()), e.to_string()))?;
        if let Some((at, trial)) = (1..).zip(&record.trials).find(|(at, trial)| trial.trial != *at) {
            return Err(Error::format(&path, "trials", format!("trial {at} has the number {}", trial.trial)));
        }
        Ok(Some(record))
    }

    /// Writes the record into `dir`, in one step.
    ///
    /// # Errors
    /// The disk is full or not writable.
    pub(super) fn write(&self, dir: &Path) -> Result<()> {
        let path = Self::path(dir);
        let text =
            serde_json::to_string_pretty(self).map_err(|e| Error::format(&path, "sweep", e.to_string()))?;
        Ok(atomic::replace(&mut Real, &path, (text + "\n").as_bytes())?)
    }

    /// Trials, the best first: those that reached more epochs come before the others, and failed
    /// ones are last.
    pub fn ranked(&self) -> Vec<&TrialRecord> {
        let mut trials: Vec<&TrialRecord> = self.trials.iter().collect();
        // a stable sort: equal trials stay in their order
        trials.sort_by(|a, b| b.rank().0.cmp(&a.rank().0).then(b.rank().1.total_cmp(&a.rank().1)));
        trials
    }

    /// Names of the options that are tried.
    pub fn names(&self) -> Vec<&str> {
        self.tried.iter().map(|axis| axis.split('=').next().unwrap_or(axis)).collect()
    }

    /// The best trial, once the sweep is complete.
    pub fn best(&self) -> Option<&TrialRecord> {
        self.trials.get(self.best?.checked_sub(1)?)
    }
}

impl TrialRecord {
    /// Number of rungs that it passed, and the value that it is compared by.
    fn rank(&self) -> (usize, f64) {
        let rungs = if self.failed.is_some() { 0 } else { self.scores.len() };
        (rungs, self.scores.last().and_then(|score| score.judged).unwrap_or(f64::NEG_INFINITY))
    }

    /// Score at the last rung that it reached.
    pub fn last(&self) -> Option<&RungScore> {
        self.scores.last()
    }
}
