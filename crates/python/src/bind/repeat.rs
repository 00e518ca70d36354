//! Runs of `train(repeat=N)`, which differ by their seeds.

use std::path::PathBuf;

use graphmill_engine::{
    RunDir, TrainConfig,
    options::names,
    record::{Repeated, Summary},
};
use pyo3::prelude::*;

use super::{error, run::read_options};

/// A run of a plan: its seed, its directory, and true if it goes on.
type Planned = (u64, Option<String>, bool);

/// Plans `count` runs with these options (JSON), below `out` if it is given. With `resume`, also
/// returns the run from which new ones take their dataset and their options.
#[pyfunction]
#[pyo3(signature = (options, count, out, resume))]
pub(super) fn repeat_plan(
    options: &str,
    count: i64,
    out: Option<PathBuf>,
    resume: bool,
) -> PyResult<(Option<String>, Vec<Planned>)> {
    let mut config = TrainConfig::default();
    let like = out.as_deref().filter(|_| resume).map(Repeated::first_run);
    let like = like.transpose().map_err(error::engine)?;
    if let Some(like) = &like {
        config.read_file(&RunDir::config_path(like)).map_err(error::engine)?;
    }
    read_options(&mut config, options, &names())?;
    let wrong = |_| error::value(format!("repeat {count}: pass an integer from 1 to {}", Repeated::MAX));
    let seeds = Repeated::seeds(config.seed, count.try_into().map_err(wrong)?).map_err(error::engine)?;
    // the caller's path is text already
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let planned = |seed| {
        let dir = out.as_deref().map(|out| Repeated::run_dir(out, seed));
        let goes_on = resume && dir.as_deref().is_some_and(|dir| RunDir::config_path(dir).is_file());
        (seed, dir.map(text), goes_on)
    };
    Ok((like.map(text), seeds.map(planned).collect()))
}

/// Spread of the scores of runs as JSON, which is also written to `repeat.json` in `out` if it is
/// given. A run has its seed, its directory and its summary (JSON).
#[pyfunction]
#[pyo3(signature = (runs, out))]
pub(super) fn repeated(runs: Vec<(u64, Option<String>, String)>, out: Option<PathBuf>) -> PyResult<String> {
    let read = |(seed, dir, summary): (u64, Option<String>, String)| {
        let summary: Summary = serde_json::from_str(&summary).map_err(error::value)?;
        Ok((seed, dir.unwrap_or_default(), summary))
    };
    let repeated = Repeated::of(runs.into_iter().map(read).collect::<PyResult<_>>()?);
    if let Some(out) = out {
        repeated.write(&Repeated::path(&out)).map_err(error::engine)?;
    }
    serde_json::to_string(&repeated).map_err(error::value)
}
