//! Generated datasets.

use std::path::PathBuf;

use graphmill_data::{
    dataset::Work,
    generate::{GenerateOptions, TYPED_TABLE, generate_to, generate_typed, generate_with},
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
    let options: GenerateOptions = serde_json::from_str(options).map_err(error::value)?;
    if TYPED_TABLE.iter().any(|entry| entry.name == generator) {
        return generate_several(py, generator, &options, (out, replace, memory))
            .map(|data| (None, Some(data)));
    }
    let data = create(py, observe, |progress| match &out {
        Some(out) => generate_to(generator, out, &options, Work { memory, replace, progress }),
        None => generate_with(generator, &options, progress),
    })?;
    Ok((Some(Dataset::of(data, out, None)), None))
}

/// Generates a dataset of several types, which works in memory.
fn generate_several(
    py: Python<'_>,
    generator: &str,
    options: &GenerateOptions,
    (out, replace, memory): (Option<PathBuf>, bool, Option<u64>),
) -> PyResult<TypedDataset> {
    if memory.is_some() {
        return Err(error::value(format!("memory: generator {generator} works in memory; leave it out")));
    }
    let make = || -> graphmill_core::Result<_> {
        let mut data = generate_typed(generator, options)?;
        if let Some(out) = &out {
            if let Some(name) = out.file_name() {
                data.name = name.to_string_lossy().into_owned();
            }
            if replace { data.save_replacing(out) } else { data.save(out) }?;
        }
        Ok(data)
    };
    let data = py.detach(make).map_err(error::graph)?;
    match out {
        Some(out) => TypedDataset::open(py, out, false),
        None => Ok(TypedDataset::of(data)),
    }
}
