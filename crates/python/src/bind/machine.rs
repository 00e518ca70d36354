//! State and speed of this machine, and epoch times of others, as JSON.

use std::path::{Path, PathBuf};

use graphmill_data::{
    partition::{PartitionDir, TypedPartitionDir},
    typed::TypedDataset as Types,
};
use graphmill_engine::{
    Result, TrainConfig, bench as benches,
    config::events::{self, is_of_events},
    doctor::{examine, version},
    events as engine_events,
    options::key,
    typed,
};
use graphmill_loader::feature::LinkOptions;
use graphmill_plan::{
    Hardware, Profile, Request, all_options, compare_reuse,
    machines::{self, Cluster},
    measure, measure_types, plan_events, plan_run, refuse_measured, refuse_of_events, refuse_other_machines,
};
use pyo3::{exceptions::PyTypeError, prelude::*};

use super::{
    dataset::Dataset,
    error,
    run::{configure, on_threads},
    typed::TypedDataset,
    wait,
};

/// Findings about the parts of the machine.
#[pyfunction]
pub(super) fn doctor(py: Python<'_>) -> PyResult<String> {
    let features = [("object-storage", cfg!(feature = "object-storage"))];
    let own = version(&features, "the wheel of a release has them");
    let findings = py.detach(|| [vec![own], examine(Path::new("."))].concat());
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

/// Dataset whose minibatches are measured, and its directory; or the file of a profile.
#[derive(FromPyObject)]
pub(super) enum Measured<'py> {
    Here(PyRef<'py, Dataset>, Option<String>),
    Types(PyRef<'py, TypedDataset>, String),
    Before(PathBuf),
}

/// Takes over the directory of a dataset of several types, with the defaults that depend on it.
fn derive(config: &mut TrainConfig, measured: &Measured, given: &[&str]) -> PyResult<()> {
    let Measured::Types(data, path) = measured else { return Ok(()) };
    if data.data.is_one_type() && events::TABLE.get(&config.model).is_none() {
        return Err(error::value(format!(
            "dataset {}: it has one type; pass a graphmill.Dataset",
            data.data.name
        )));
    }
    config.dataset.clone_from(path);
    config.derive_options(given).map_err(error::engine)
}

/// The dataset of several types that `config` names, as its runs read it.
fn open_types(config: &TrainConfig) -> Result<Types> {
    typed::open_dataset(config)?.ok_or_else(|| {
        let message = format!("dataset {}: it has one type now; open it again", config.dataset);
        graphmill_engine::Error::usage(message)
    })
}

/// Predicts a run on a stream of events on this machine.
fn plan_stream(py: Python<'_>, request: Request, machine: &[&str]) -> PyResult<String> {
    refuse_other_machines(request.config(), machine).map_err(error::engine)?;
    let plan = wait::quietly(py, move |_| {
        on_threads(request.config().threads, || {
            let data = open_events(request.config())?;
            plan_events(&request, &data, Path::new("."))
        })?
    })?;
    serde_json::to_string(&plan.map_err(error::engine)?).map_err(error::value)
}

/// The dataset with the stream of events that `config` names.
fn open_events(config: &TrainConfig) -> Result<Types> {
    engine_events::open_dataset(config)?.ok_or_else(|| {
        let message = format!("model {}: name the dataset with its stream of events", config.model);
        graphmill_engine::Error::usage(message)
    })
}

/// Predicts epochs on other hardware, or a run on a stream of events on this machine.
#[pyfunction]
#[pyo3(signature = (measured, hardware, device_counts, options))]
pub(super) fn plan(
    py: Python<'_>,
    measured: Measured<'_>,
    hardware: Option<&str>,
    device_counts: Option<&str>,
    options: &str,
) -> PyResult<String> {
    let mut config = TrainConfig::default();
    let given = configure(&mut config, options, &all_options())?;
    derive(&mut config, &measured, &given)?;
    if let Measured::Before(_) = measured {
        refuse_measured("profile", &Request::OPTIONS, &given).map_err(error::engine)?;
    }
    if let Measured::Here(..) = measured {
        compare_reuse(&mut config, &given);
    }
    let words = given.iter().filter_map(|name| Some((*name, key(name)?.word(&config)))).collect();
    let mut request = Request::new(config.clone(), words);
    if let Measured::Here(_, Some(path)) | Measured::Types(_, path) = &measured {
        request.dataset.clone_from(path);
    }
    if is_of_events(&config) {
        let machine = [("hardware", hardware.is_some()), ("device-counts", device_counts.is_some())];
        let given: Vec<&str> =
            machine.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect();
        return plan_stream(py, request, &given);
    }
    refuse_of_events(&config, &given).map_err(error::engine)?;
    let hardware = hardware.ok_or_else(|| {
        PyTypeError::new_err("plan: pass either hardware, the machine to predict for, or partition")
    })?;
    if let Some(counts) = device_counts {
        request.set_device_counts(counts).map_err(error::engine)?;
    }
    let hardware = Hardware::find(hardware).map_err(error::engine)?;
    request.refuse_unused(&hardware).map_err(error::engine)?;
    let profile = match measured {
        Measured::Before(file) => Profile::open(&file),
        Measured::Here(dataset, _) => {
            let data = dataset.data.clone();
            wait::quietly(py, move |_| on_threads(config.threads, || measure(&config, &data))?)?
        }
        Measured::Types(..) => wait::quietly(py, move |_| {
            let data = open_types(&config)?;
            on_threads(config.threads, || measure_types(&config, &data))?
        })?,
    };
    let report = profile.and_then(|profile| plan_run(hardware, profile, &request));
    serde_json::to_string(&report.map_err(error::engine)?).map_err(error::value)
}

/// Predicts epochs on machines like this that share the parts of a partition, joined by `network`:
/// as many as the second of `cluster` says, one for each part by default, and with NVIDIA devices
/// of the third.
#[pyfunction]
#[pyo3(signature = (measured, cluster, network, options))]
pub(super) fn plan_machines(
    py: Python<'_>,
    measured: Measured<'_>,
    cluster: (PathBuf, Option<usize>, Option<String>),
    network: &str,
    options: &str,
) -> PyResult<String> {
    let mut config = TrainConfig::default();
    let given = configure(&mut config, options, &all_options())?;
    let network: LinkOptions = network.parse().map_err(|error| error::value(format!("network {error}")))?;
    let (partition, machines, hardware) = cluster;
    let hardware = hardware.map(|word| Hardware::find(&word)).transpose().map_err(error::engine)?;
    let cluster = Cluster { machines, network, hardware };
    derive(&mut config, &measured, &given)?;
    if is_of_events(&config) {
        refuse_other_machines(&config, &["partition"]).map_err(error::engine)?;
    }
    refuse_of_events(&config, &given).map_err(error::engine)?;
    let report = match measured {
        Measured::Here(dataset, _) => {
            let data = dataset.data.clone();
            wait::quietly(py, move |_| {
                let parts = PartitionDir::open(&partition)?;
                on_threads(config.threads, || machines::plan((&config, &given[..]), &data, &parts, cluster))?
            })?
        }
        Measured::Types(..) => wait::quietly(py, move |_| {
            let (data, parts) = (open_types(&config)?, TypedPartitionDir::open(&partition)?);
            let of = (&config, &given[..]);
            on_threads(config.threads, || machines::plan_types(of, &data, &parts, cluster))?
        })?,
        Measured::Before(_) => return Err(error::value("partition: predictions for it measure a dataset")),
    };
    serde_json::to_string(&report.map_err(error::engine)?).map_err(error::value)
}
