//! Sweeps over values of options, as JSON.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::Sender,
    },
};

use graphmill_core::progress::Progress;
use graphmill_engine::{
    Result, RunDir, TrainConfig,
    observer::Observer,
    options::names,
    sweep::{Axis, Plan, Step, SweepOptions, SweepRecord, sweep as run_sweep},
};
use graphmill_report::{Recorder, write_sweep_report};
use pyo3::prelude::*;
use serde_json::json;

use super::{
    error,
    given::Given,
    run::{on_threads, read_options},
    wait::{self, StopFlag},
};

/// Observer of a trial, which reports nothing: the flag stops it before the first epoch, too.
struct QuietUntilFlag(Arc<AtomicBool>);

impl Observer for QuietUntilFlag {
    fn preparation(&self) -> Arc<dyn Progress> {
        Arc::new(StopFlag(self.0.clone()))
    }
}

/// Runs the sweep in `out`, and returns its record. `how` has the values to try, the options of the
/// sweep, and those of training, the latter two as JSON; it is not read if `resume` is set.
#[pyfunction]
#[pyo3(signature = (dataset, how, out, resume, observe))]
pub(super) fn sweep(
    py: Python<'_>,
    dataset: Option<Given<'_>>,
    how: (Vec<String>, String, String),
    out: PathBuf,
    resume: bool,
    observe: Option<Py<PyAny>>,
) -> PyResult<String> {
    let (plan, threads) = match resume {
        true => (Plan::resume(&out).map_err(error::engine)?, 0),
        false => planned(dataset.as_ref(), &how)?,
    };
    let report = |py: Python<'_>, message: &str| {
        observe.as_ref().map_or(Ok(()), |observe| observe.call1(py, (message,)).map(drop))
    };
    let work = move |stop: Arc<AtomicBool>, to| on_threads(threads, || run(&plan, &out, &stop, &to))?;
    let record = wait::run(py, work, report)?.map_err(error::engine)?;
    serde_json::to_string(&record).map_err(error::value)
}

/// Plan of a new sweep, and its number of threads.
fn planned(
    dataset: Option<&Given<'_>>,
    (tried, sweeping, training): &(Vec<String>, String, String),
) -> PyResult<(Plan, usize)> {
    let mut config = TrainConfig::default();
    if let Some(dataset) = dataset {
        dataset.locate(&mut config).map_err(error::engine)?;
        // without a directory the trials would train on the demo
        if config.dataset.is_empty() {
            return Err(error::value(
                "sweep: every trial reads the dataset from its directory; call save(path) and pass the path",
            ));
        }
    }
    let given = read_options(&mut config, training, &names())?;
    let axes = tried.iter().map(|word| Axis::parse(word)).collect::<Result<_>>().map_err(error::engine)?;
    let options: SweepOptions = serde_json::from_str(sweeping).map_err(error::value)?;
    Ok((Plan::new(&config, &given, axes, options).map_err(error::engine)?, config.threads))
}

/// Runs the sweep and writes its report.
fn run(plan: &Plan, out: &Path, stop: &Arc<AtomicBool>, to: &Sender<String>) -> Result<SweepRecord> {
    let flag = stop.clone();
    let mut observe = move |config: &TrainConfig, run: &RunDir| -> Box<dyn Observer> {
        Box::new(Recorder::new(config, Some(run), Box::new(QuietUntilFlag(flag.clone()))))
    };
    let mut report = |step: Step| {
        let event = match step {
            Step::Trial { record, trial, rung } => json!({
                "event": "trial", "trial": trial, "trials": record.trials.len(), "metric": record.metric,
                "epochs": record.rungs[rung],
            }),
            Step::Seed { seed, summary } => json!({
                "event": "seed", "seed": seed, "metric": summary.test.metric, "test": summary.test.score,
            }),
        };
        // a closed channel is ignored: the flag stops the sweep
        let _ = to.send(event.to_string());
    };
    let record = run_sweep(plan, out, &mut observe, &mut report, &|| stop.load(Relaxed))?;
    write_sweep_report(out)?;
    Ok(record)
}
