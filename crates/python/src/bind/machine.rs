//! State and speed of this machine, and epoch times of others, as JSON.

use std::path::Path;

use graphmill_engine::{TrainConfig, bench as benches, doctor::examine, options::key};
use graphmill_plan::{Hardware, Request, measure, plan_run};
use pyo3::prelude::*;

use super::{
    dataset::Dataset,
    error,
    run::{configure, on_threads},
    wait,
};

/// Findings about the parts of the machine.
#[pyfunction]
pub(super) fn doctor(py: Python<'_>) -> PyResult<String> {
    let findings = py.detach(|| examine(Path::new(".")));
    serde_json::to_string(&findings).map_err(error::value)
}

/// Runs benches on a dataset or a generated graph.
#[pyfunction]
#[pyo3(signature = (name, dataset, dim, repeat, scale, options))]
pub(super) fn bench(
    py: Python<'_>,
    name: &str,
    dataset: Option<&Dataset>,
    dim: Option<usize>,
    repeat: Option<usize>,
    scale: Option<u32>,
    options: &str,
) -> PyResult<String> {
    let mut train = TrainConfig::default();
    let given = configure(&mut train, options, &benches::options())?;
    benches::refuse_unused(name, &train, &given).map_err(error::engine)?;
    for (option, value, range) in [
        ("dim", dim.map(|dim| dim as u64), 1..=1 << 16),
        ("repeat", repeat.map(|repeat| repeat as u64), 1..=1000),
        ("scale", scale.map(u64::from), 1..=28),
    ] {
        if let Some(value) = value.filter(|value| !range.contains(value)) {
            let (least, most) = (range.start(), range.end());
            return Err(error::value(format!("{option} {value}: use a number from {least} to {most}")));
        }
    }
    if dataset.is_some() && scale.is_some() {
        return Err(error::value("scale: it generates a graph; leave out dataset or scale"));
    }
    let defaults = benches::Options::default();
    let options = benches::Options {
        train,
        dim,
        repeat: repeat.unwrap_or(defaults.repeat),
        scale: scale.unwrap_or(defaults.scale),
    };
    let data = dataset.map(|dataset| dataset.data.as_ref().clone());
    let report = wait::quietly(py, move |_| {
        on_threads(options.train.threads, || benches::run(name, &options, data))?
    })?;
    serde_json::to_string(&report.map_err(error::engine)?).map_err(error::value)
}

/// Options of a run that [`plan`] takes.
pub(super) fn options_of_plan() -> Vec<&'static str> {
    [graphmill_plan::options(), Request::OPTIONS.to_vec()].concat()
}

/// Measures minibatches of a dataset and predicts epochs on other hardware.
#[pyfunction]
#[pyo3(signature = (dataset, path, hardware, device_counts, options))]
pub(super) fn plan(
    py: Python<'_>,
    dataset: &Dataset,
    path: Option<String>,
    hardware: &str,
    device_counts: Option<&str>,
    options: &str,
) -> PyResult<String> {
    let mut config = TrainConfig::default();
    let given = configure(&mut config, options, &options_of_plan())?;
    let words = given.iter().filter_map(|name| Some((*name, key(name)?.word(&config)))).collect();
    let mut request = Request::new(config.clone(), words);
    if let Some(path) = path {
        request.dataset = path;
    }
    if let Some(counts) = device_counts {
        request.set_device_counts(counts).map_err(error::engine)?;
    }
    let hardware = Hardware::find(hardware).map_err(error::engine)?;
    request.refuse_unused(&hardware).map_err(error::engine)?;
    let data = dataset.data.clone();
    let report = wait::quietly(py, move |_| {
        let profile = on_threads(config.threads, || measure(&config, &data))??;
        plan_run(hardware, profile, &request)
    })?;
    serde_json::to_string(&report.map_err(error::engine)?).map_err(error::value)
}
