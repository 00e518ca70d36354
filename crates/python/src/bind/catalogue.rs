//! Public datasets and their downloads, as JSON.

use std::path::PathBuf;

use graphmill_data::download::{Options, catalogue, download as fetch};
use pyo3::prelude::*;
use serde_json::json;

use super::{dataset::watched, error};

/// Entries of the catalogue.
#[pyfunction]
pub(super) fn datasets() -> PyResult<String> {
    let entries = catalogue::all().iter().map(|entry| {
        let mut document = serde_json::to_value(entry)?;
        document["download_bytes"] = json!(entry.download_bytes());
        document["imported_bytes"] = json!(entry.imported_bytes());
        Ok(document)
    });
    let entries = entries.collect::<serde_json::Result<Vec<_>>>().map_err(error::value)?;
    serde_json::to_string(&entries).map_err(error::value)
}

/// Downloads the files of a dataset into `out`; returns what was fetched, with the dataset's entry.
#[pyfunction]
#[pyo3(signature = (name, out, mirror, verify, observe))]
pub(super) fn download(
    py: Python<'_>,
    name: &str,
    out: PathBuf,
    mirror: Option<String>,
    verify: bool,
    observe: Option<Py<PyAny>>,
) -> PyResult<String> {
    let entry = catalogue::find(name).map_err(error::download)?;
    let options = Options { mirror, verify, ..Options::default() };
    let fetched = watched(py, observe, |progress| fetch(entry, &out, &options, &*progress))?
        .map_err(error::download)?;
    let document =
        json!({ "entry": entry, "files": fetched.files, "unpacked_bytes": fetched.unpacked_bytes });
    Ok(document.to_string())
}
