//! Records of saved runs, as JSON.

use std::path::PathBuf;

use graphmill_engine::{RunDir, record::compare_runs};
use pyo3::prelude::*;

use super::error;

/// Summary of a run: of one that was stopped, up to its last epoch.
#[pyfunction]
pub(super) fn summary(py: Python<'_>, run: PathBuf) -> PyResult<String> {
    let summary = py.detach(|| RunDir::open(&run)?.summary()).map_err(error::engine)?;
    serde_json::to_string(&summary).map_err(error::value)
}

/// Rewrites the report of a run or a sweep; returns its path.
#[pyfunction]
pub(super) fn write_report(py: Python<'_>, run: PathBuf) -> PyResult<PathBuf> {
    py.detach(|| graphmill_report::write_report(&run)).map_err(error::engine)
}

/// Compares the runs in these directories.
#[pyfunction]
pub(super) fn runs(py: Python<'_>, dirs: Vec<PathBuf>) -> PyResult<String> {
    let rows = py.detach(|| compare_runs(&dirs)).map_err(error::engine)?;
    serde_json::to_string(&rows).map_err(error::value)
}
