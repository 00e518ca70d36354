//! Report files of a run, written during the run.
//!
//! ```text
//! RUN/report.html    the page, at the end
//! RUN/trace.json     every stage of every batch, with --trace; of the last process that trained in RUN
//! RUN/tensorboard/   event files, one per process that trained in RUN, with --tensorboard
//! ```

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use graphmill_core::progress::Progress as Work;
use graphmill_data::atomic::{self, Real};
use graphmill_engine::{
    Error, Result, RunDir, TrainConfig,
    observer::{Observer, Progress, Start},
    record::{EpochRecord, Repeated, RunRow, Summary},
    sweep::{SweepRecord, TrialRecord},
};
use graphmill_nn::Model;

use crate::{page, tensorboard::Events, trace::Trace};

/// Observer that writes `report.html`, and a trace and TensorBoard events if the options request
/// them. It forwards all calls to another observer.
pub struct Recorder<'o> {
    observer: Box<dyn Observer + 'o>,
    /// Directory of the run.
    run: Option<PathBuf>,
    wants_trace: bool,
    wants_events: bool,
    /// Options of the run, if events are written.
    options: serde_json::Value,
    trace: Option<Trace>,
    events: Option<Events>,
}

impl<'o> Recorder<'o> {
    /// Creates a recorder for a run of this configuration in this directory. Without a directory it
    /// writes nothing.
    pub fn new(config: &TrainConfig, run: Option<&RunDir>, observer: Box<dyn Observer + 'o>) -> Self {
        Self {
            observer,
            run: run.map(|run| run.path().to_path_buf()),
            wants_trace: config.trace,
            wants_events: config.tensorboard,
            options: if config.tensorboard { config.to_json() } else { serde_json::Value::Null },
            trace: None,
            events: None,
        }
    }
}

impl Observer for Recorder<'_> {
    fn preparation(&self) -> Arc<dyn Work> {
        self.observer.preparation()
    }

    fn start(&mut self, start: &Start) -> Result<()> {
        self.observer.start(start)?;
        let Some(run) = &self.run else { return Ok(()) };
        if self.wants_trace {
            self.trace = Some(Trace::create(&run.join("trace.json"), start.timeline.clone())?);
        }
        if self.wants_events {
            let events = self.events.insert(Events::create(&run.join("tensorboard"), &start.earlier)?);
            events.options(&self.options)?;
        }
        Ok(())
    }

    fn batch(&mut self, progress: &Progress) -> Result<()> {
        if let Some(trace) = &mut self.trace {
            trace.flush_if_full()?;
        }
        self.observer.batch(progress)
    }

    fn evaluate(&mut self, nodes: usize) {
        self.observer.evaluate(nodes);
    }

    fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        self.observer.epoch(record)?;
        if let Some(events) = &mut self.events {
            events.epoch(record)?;
        }
        self.trace.as_mut().map_or(Ok(()), Trace::flush)
    }

    fn model(&mut self, model: &Model) {
        self.observer.model(model);
    }

    fn note(&mut self, message: &str) {
        self.observer.note(message);
    }

    fn end(&mut self, outcome: Result<&Summary, &Error>) -> Result<()> {
        let passed_on = self.observer.end(outcome);
        let reported = match (&self.run, outcome) {
            (Some(run), Ok(summary)) => write(run, summary).map(drop),
            _ => Ok(()),
        };
        // The trace is closed regardless of earlier errors.
        let traced = self.trace.take().map_or(Ok(()), Trace::finish);
        let scored = match (&mut self.events, outcome) {
            (Some(events), Ok(summary)) => events.end(summary),
            _ => Ok(()),
        };
        passed_on.and(reported).and(traced).and(scored)
    }
}

/// Rewrites the `report.html` of the run or the sweep in `dir` from its records, finished or not,
/// and returns its path.
///
/// # Errors
/// The directory holds no run, a file is damaged, or writing fails.
pub fn write_report(dir: &Path) -> Result<PathBuf> {
    if SweepRecord::path(dir).is_file() {
        return write_sweep_report(dir);
    }
    write(dir, &RunDir::open(dir)?.summary()?)
}

/// Writes the `report.html` of the sweep in `dir` from its record and those of its trials, and
/// returns its path.
///
/// # Errors
/// The directory holds no sweep, a file is damaged, or writing fails.
pub fn write_sweep_report(dir: &Path) -> Result<PathBuf> {
    let Some(sweep) = SweepRecord::read(dir)? else {
        let message = "there is no sweep here (no sweep.json); pass a directory that sweep --out wrote";
        return Err(Error::run(dir, message));
    };
    let epochs = |trial: &TrialRecord| match &*trial.scores {
        [] => Ok(Vec::new()),
        _ => Ok(RunDir::open(&dir.join(&trial.run))?.summary()?.epochs),
    };
    let epochs: Vec<Vec<EpochRecord>> = sweep.trials.iter().map(epochs).collect::<Result<_>>()?;
    let path = dir.join("report.html");
    atomic::replace(&mut Real, &path, page::sweep_html(&sweep, &epochs).as_bytes())?;
    Ok(path)
}

/// Writes a page that compares the runs of `rows` to `out`.
///
/// # Errors
/// A record of a run cannot be read, or writing fails.
pub fn write_runs_report(rows: &[RunRow], out: &Path) -> Result<()> {
    let epochs = |row: &RunRow| Ok(RunDir::open(&row.run)?.summary()?.epochs);
    let epochs: Vec<Vec<EpochRecord>> = rows.iter().map(epochs).collect::<Result<_>>()?;
    let html = page::runs_html(rows, &epochs, &Repeated::of_rows(rows)?);
    Ok(atomic::replace(&mut Real, out, html.as_bytes())?)
}

fn write(run: &Path, summary: &Summary) -> Result<PathBuf> {
    let path = run.join("report.html");
    atomic::replace(&mut Real, &path, page::html(summary).as_bytes())?;
    Ok(path)
}

#[cfg(test)]
mod tests;
