//! Figures of datasets, exports and other orders of the nodes.

use std::path::PathBuf;

use graphmill_core as core;
use graphmill_data::{
    self as data,
    dataset::{
        Work,
        export::{self, ExportOptions},
    },
    reorder::{reorder_to, reorder_types_to},
    stats,
    typed::{self, Verify},
};
use graphmill_engine::{
    TrainConfig, hotness,
    node_order::{self, NodeOrder},
};
use pyo3::prelude::*;

use super::{
    dataset::{Dataset, create},
    error,
    given::{Data, Given},
    run::configure,
    typed::{Created, TypedDataset},
};

/// Figures of a dataset of one type, as JSON.
#[pyfunction]
pub(super) fn info(py: Python<'_>, dataset: &Dataset) -> PyResult<String> {
    let info = py.detach(|| stats::info(&dataset.data));
    serde_json::to_string(&info).map_err(error::value)
}

/// Exports a dataset; returns the parts that the format cannot hold.
#[pyfunction]
pub(super) fn export_dataset(
    py: Python<'_>,
    dataset: Given<'_>,
    format: &str,
    out: PathBuf,
    replace: bool,
    undirected_once: bool,
    compress: bool,
) -> PyResult<Vec<String>> {
    let options = ExportOptions { replace, undirected_once, compress };
    let data = dataset.data();
    let lost = py.detach(|| match &data {
        Data::One(data) => export::export(format, data, &out, &options),
        Data::Several(data) => export::export_typed(format, data, &out, &options),
        Data::Directory(path) => match typed::has_several_types(path) {
            true => export::export_typed(format, &typed::open(path, Verify::Once)?, &out, &options),
            false => export::export(format, &data::Dataset::open(path)?, &out, &options),
        },
    });
    lost.map_err(error::graph)
}

/// Options of a run that [`reorder`] takes: those of orders by hotness, except `replace`, which the
/// function has for its output. `task` chooses one of a dataset of several types.
pub(super) fn options() -> Vec<&'static str> {
    node_order::options().into_iter().filter(|&name| name != "replace").chain(["task"]).collect()
}

/// Writes a dataset of one type or of several in the order `by` of a name and a seed; `run_options`
/// is JSON, and `work` says whether to replace a dataset at `out`, and has the memory budget.
#[pyfunction]
#[pyo3(signature = (dataset, out, by, run_options, work, observe))]
pub(super) fn reorder(
    py: Python<'_>,
    dataset: Given<'_>,
    out: PathBuf,
    by: (String, Option<u64>),
    run_options: &str,
    work: (bool, Option<u64>),
    observe: Option<Py<PyAny>>,
) -> PyResult<Created> {
    let ((by, seed), (replace, memory)) = (by, work);
    let (mut train, data) = (TrainConfig::default(), dataset.data());
    if matches!(data, Data::Several(_)) && hotness::is_metric(&by) {
        dataset.locate(&mut train).map_err(error::engine)?;
    }
    let mut given = configure(&mut train, run_options, &options())?;
    given.extend(seed.map(|_| "seed"));
    let seed = seed.unwrap_or_default();
    let order = NodeOrder::new(&by, seed, train, &given).map_err(error::engine)?;
    let what = format!("{by}, seed {seed}");
    let (one, several) = create(py, observe, |progress| {
        let work = Work { memory, replace, progress };
        Ok(match &data {
            Data::One(data) => {
                let of_dataset = |data: &data::Dataset| order.of_dataset(data);
                (Some(reorder_to(data, &out, &what, of_dataset, work)?.0), None)
            }
            Data::Several(data) => {
                let of_types = |data: &data::TypedDataset| order.of_types(data);
                (None, Some(reorder_types_to(data, &out, &what, of_types, work)?.0))
            }
            Data::Directory(path) => return Err(unopened(path)),
        })
    })?;
    let one = one.map(|data| Dataset::of(data, Some(out.clone()), None));
    let several = several.map(|data| {
        let mut made = TypedDataset::of(data);
        made.path = Some(out);
        made
    });
    Ok((one, several))
}

/// Error of a path in the place of a dataset.
fn unopened(path: &std::path::Path) -> core::Error {
    core::Error::invalid(format!("{}: open the dataset first", path.display()))
}
