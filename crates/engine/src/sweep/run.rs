//! The loop of a sweep: rung by rung, trial by trial.

use std::path::Path;

use graphmill_data::atomic;

use super::{
    MakeObserver, Plan, RungScore, SweepRecord, TrialRecord,
    rungs::survivors,
    trial::{self, Reached},
};
use crate::{
    Error, Result, RunDir, TrainConfig,
    options::command_line,
    record::{Repeated, Summary},
};

/// A finished step of a sweep, for its progress.
#[derive(Debug)]
pub enum Step<'s> {
    /// A trial has reached a rung, or has failed.
    Trial {
        /// Record of the sweep so far.
        record: &'s SweepRecord,
        /// The trial.
        trial: &'s TrialRecord,
        /// Number of the rung, from 0.
        rung: usize,
    },
    /// A run of the best options with another seed has ended.
    Seed {
        /// Seed of the run.
        seed: u64,
        /// Summary of the run.
        summary: &'s Summary,
    },
}

/// Runs the sweep of `plan` in the directory `dir`, or the rest of it if `dir` holds the record of
/// the same plan. `observe` makes the observer of each run, `report` is called after each step, and
/// `stop` ends the sweep after the current batch.
///
/// The results do not depend on kills and stops: a sweep that continues ends with the record of one
/// that ran in one go.
///
/// # Errors
/// `dir` holds another sweep or is in use; a run fails for a reason other than its loss; every
/// trial failed, or none has a validation score; [`Error::Interrupted`] after a stop.
pub fn sweep(
    plan: &Plan,
    dir: &Path,
    observe: &mut MakeObserver,
    report: &mut dyn FnMut(Step),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<SweepRecord> {
    atomic::create_dirs(&mut atomic::Real, dir)?;
    let at = dir.join(".sweep.lock");
    let Some(_lock) = atomic::lock(&at).map_err(|e| Error::io(&at, "open", e))? else {
        let message = "another process runs a sweep here; wait for it to end, or pass another --out";
        return Err(Error::run(dir, message));
    };
    let record = open(plan, dir)?;
    let mut sweep = Sweep { plan, dir, record, observe, report, stop };
    sweep.run()?;
    Ok(sweep.record)
}

/// Record of the sweep in `dir`, which must be that of `plan`; of a new sweep, the plan's.
fn open(plan: &Plan, dir: &Path) -> Result<SweepRecord> {
    let Some(record) = SweepRecord::read(dir)? else {
        if RunDir::config_path(dir).is_file() {
            return Err(Error::run(dir, "there is a run here already; pass another --out for the sweep"));
        }
        plan.record.write(dir)?;
        return Ok(plan.record.clone());
    };
    let planned = |record: &SweepRecord| {
        let trials: Vec<_> = record.trials.iter().map(|trial| trial.values.clone()).collect();
        (record.config.clone(), record.tried.clone(), record.options.clone(), record.rungs.clone(), trials)
    };
    if planned(&record) != planned(&plan.record) {
        let message = "there is another sweep here; continue it with --resume and without other options, or \
                       pass another --out";
        return Err(Error::run(dir, message));
    }
    Ok(record)
}

/// Sweep in progress.
struct Sweep<'a, 'o> {
    plan: &'a Plan,
    dir: &'a Path,
    record: SweepRecord,
    observe: &'a mut MakeObserver<'o>,
    report: &'a mut dyn FnMut(Step),
    stop: &'a (dyn Fn() -> bool + Sync),
}

impl Sweep<'_, '_> {
    fn run(&mut self) -> Result<()> {
        let rungs = self.record.rungs.clone();
        let mut alive: Vec<usize> = (0..self.plan.num_trials()).collect();
        let mut at = 0;
        loop {
            // one trial left: the rungs between compare nothing
            let rung = if alive.len() == 1 { rungs.len() - 1 } else { at };
            for &trial in &alive {
                self.train(trial, rung, at)?;
            }
            alive.retain(|&trial| self.record.trials[trial].failed.is_none());
            alive.sort_by(|&a, &b| self.judged(b).total_cmp(&self.judged(a)).then(a.cmp(&b)));
            self.check(&alive)?;
            if rung + 1 == rungs.len() {
                break;
            }
            let eta = self.record.options.eta;
            alive.truncate(survivors(alive.len(), eta));
            // the order of the trials is that of their numbers, whatever their scores
            alive.sort_unstable();
            at += 1;
        }
        self.finish(alive[0])
    }

    /// Value that trials are compared by.
    fn judged(&self, trial: usize) -> f64 {
        let score = self.record.trials[trial].last().and_then(|score| score.judged);
        score.unwrap_or(f64::NEG_INFINITY)
    }

    /// Refuses to go on without a trial to compare.
    fn check(&self, alive: &[usize]) -> Result<()> {
        let dir = self.dir;
        let Some(&first) = alive.first() else {
            let failed = self.record.trials.iter().find_map(|trial| trial.failed.clone()).unwrap_or_default();
            return Err(Error::run(dir, format!("every trial failed; the first: {failed}")));
        };
        if self.record.trials.len() > 1 && self.judged(first) == f64::NEG_INFINITY {
            let message = "no trial has a validation score, so none is better; a sweep needs validation \
                           data, and --eval-every at most the epochs of the first rung";
            return Err(Error::run(dir, message));
        }
        Ok(())
    }

    /// Trains a trial up to a rung, its `step`-th, if the record does not have it yet.
    fn train(&mut self, at: usize, rung: usize, step: usize) -> Result<()> {
        let trial = &self.record.trials[at];
        if trial.failed.is_some() || trial.scores.len() > step {
            return Ok(());
        }
        if trial.is_finished {
            // early stopping has ended it: it stays as it is
            let last = trial.scores.last().copied().unwrap_or_default();
            return self.add(at, rung, last);
        }
        if (self.stop)() {
            return Err(self.interrupted());
        }
        let (config, dir) = (&self.plan.configs[at], self.dir.join(&trial.run));
        let epochs = self.record.rungs[rung];
        let reached = match self.recorded(&dir, epochs, config) {
            Some(reached) => reached,
            None => match trial::train_to(config, &dir, epochs, self.observe, self.stop) {
                Ok(reached) => reached,
                Err(error @ (Error::Diverged { .. } | Error::NotFinite { .. })) => {
                    self.record.trials[at].failed = Some(error.to_string());
                    self.record.write(self.dir)?;
                    let (record, trial) = (&self.record, &self.record.trials[at]);
                    (self.report)(Step::Trial { record, trial, rung });
                    return Ok(());
                }
                Err(error) => return Err(error),
            },
        };
        let score = trial::score(config, &reached.metric, &reached.epochs, epochs);
        let Reached { dataset, metric, summary, .. } = reached;
        (self.record.dataset, self.record.metric) = (dataset, metric);
        if let Some(summary) = summary {
            let trial = &mut self.record.trials[at];
            (trial.is_finished, trial.test) = (true, summary.test.score);
        }
        self.add(at, rung, score)
    }

    /// Records of a trial that reached the rung in an earlier process, which was killed before it
    /// wrote the record of the sweep.
    fn recorded(&self, dir: &Path, epochs: usize, config: &TrainConfig) -> Option<Reached> {
        // a run with a summary has ended early, and returns it at once
        let has_ended = dir.join("summary.json").is_file();
        if self.record.metric.is_empty() || epochs >= config.epochs || has_ended {
            return None;
        }
        let summary = RunDir::open(dir).ok()?.summary().ok()?;
        let (dataset, metric) = (self.record.dataset.clone(), self.record.metric.clone());
        let is_there = summary.epochs.len() >= epochs;
        is_there.then_some(Reached { dataset, metric, epochs: summary.epochs, summary: None })
    }

    /// Adds the score of a trial at a rung, and writes the record.
    fn add(&mut self, at: usize, rung: usize, score: RungScore) -> Result<()> {
        self.record.trials[at].scores.push(score);
        self.record.write(self.dir)?;
        let (record, trial) = (&self.record, &self.record.trials[at]);
        (self.report)(Step::Trial { record, trial, rung });
        Ok(())
    }

    /// Records the best trial, and trains it with the other seeds.
    fn finish(&mut self, best: usize) -> Result<()> {
        let config = &self.plan.configs[best];
        let options = config.to_json();
        self.record.best = Some(best + 1);
        self.record.command = options.as_object().map(command_line);
        if self.record.options.repeat > 1 && self.record.repeated.is_none() {
            self.record.repeated = Some(self.repeat(best)?);
        }
        self.record.write(self.dir)
    }

    /// Trains the options of the best trial with the seeds after its own.
    fn repeat(&mut self, best: usize) -> Result<Repeated> {
        let config = &self.plan.configs[best];
        let name = &self.record.trials[best].run;
        let own = RunDir::open(&self.dir.join(name))?.summary()?;
        let mut runs = vec![(config.seed, name.clone(), own)];
        for more in 1..self.record.options.repeat as u64 {
            if (self.stop)() {
                return Err(self.interrupted());
            }
            let seed = config.seed.checked_add(more).ok_or_else(|| {
                Error::usage(format!("the seeds from {} exceed 2^64 - 1; lower --seed", config.seed))
            })?;
            let config = TrainConfig { seed, ..config.clone() };
            let name = format!("best-seed-{seed}");
            let reached =
                trial::train_to(&config, &self.dir.join(&name), config.epochs, self.observe, self.stop)?;
            if let Some(summary) = reached.summary {
                (self.report)(Step::Seed { seed, summary: &summary });
                runs.push((seed, name, summary));
            }
        }
        Ok(Repeated::of(runs))
    }

    /// Error of a sweep that was asked to stop between two runs.
    fn interrupted(&self) -> Error {
        Error::Interrupted { epoch: 0, batch: 0, saved: true }
    }
}
