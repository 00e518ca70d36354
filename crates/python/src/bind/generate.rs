//! Generated datasets.

use std::path::PathBuf;

use graphmill_data::{
    dataset::Work,
    generate::{
        GenerateOptions, TYPED_TABLE, generate_to, generate_typed, generate_typed_to, generate_with,
        unread_option,
    },
};
use pyo3::prelude::*;

use super::{
    dataset::{Dataset, create},
    error,
    typed::TypedDataset,
};

/// Generates a dataset in memory or in a directory, of one type or of several; `options` is JSON.
#[pyfunction]
#[pyo3(signature = (generator, options, out, replace, memory, observe))]
pub(super) fn generate(
    py: Python<'_>,
    generator: &str,
    options: &str,
    out: Option<PathBuf>,
    replace: bool,
    memory: Option<u64>,
    observe: Option<Py<PyAny>>,
) -> PyResult<(Option<Dataset>, Option<TypedDataset>)> {
    let given: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(options).map_err(error::value)?;
    let options: GenerateOptions = serde_json::from_str(options).map_err(error::value)?;
    if let Some((option, readers)) = unread_option(generator, given.keys().map(String::as_str)) {
        let message =
            format!("{option}: the generator {generator} does not read it; leave it out, or use {readers}");
        return Err(error::value(message));
    }
    if out.is_none() && memory.is_some() {
        return Err(error::value("memory: data beyond a budget is kept on the disk; pass out, too"));
    }
    if TYPED_TABLE.iter().any(|entry| entry.name == generator) {
        let data = create(py, observe, |progress| match &out {
            Some(out) => generate_typed_to(generator, out, &options, Work { memory, replace, progress }),
            None => generate_typed(generator, &options),
        })?;
        let data = match out {
            Some(out) => TypedDataset::open(py, out, false)?,
            None => TypedDataset::of(data),
        };
        return Ok((None, Some(data)));
    }
    let data = create(py, observe, |progress| match &out {
        Some(out) => generate_to(generator, out, &options, Work { memory, replace, progress }),
        None => generate_with(generator, &options, progress),
    })?;
    Ok((Some(Dataset::of(data, out, None)), None))
}
