//! Imports of the field's formats.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use graphmill_core::table;
use graphmill_data::{
    dataset::{
        Work,
        import::{self, ImportOptions, import_to},
    },
    tables::{self, Dangling, RelBench, RelBenchOptions, TableSchema},
    typed::import::{self as typed, TypedOptions},
};
use pyo3::{exceptions::PyTypeError, prelude::*};

use super::{
    dataset::{Dataset, create},
    error,
    typed::{Created, opened},
};

/// Imports a dataset of one type or of several; `options` are pairs of a name and a value.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of one caller")]
#[pyo3(signature = (format, src, out, options, replace, memory, observe))]
pub(super) fn import_dataset(
    py: Python<'_>,
    format: &str,
    src: PathBuf,
    out: PathBuf,
    options: Vec<(String, String)>,
    replace: bool,
    memory: Option<u64>,
    observe: Option<Py<PyAny>>,
) -> PyResult<Created> {
    if format == RELBENCH {
        let (directory, dangling, name) = relbench(&src, &options)?;
        let schema = TableSchema { dangling, name, ..directory.schema };
        let imported = create(py, observe, |progress| {
            tables::import_tables(&schema, &out, None, Work { memory, replace, progress })
        })?;
        let mut report = serde_json::to_value(&imported.report).map_err(error::value)?;
        report["notes"] = directory.notes.into();
        return opened(py, out, &report);
    }
    let one = import::TABLE.iter().map(|row| row.name);
    let known: Vec<&str> = one.chain(typed::TABLE.iter().map(|row| row.name)).chain([RELBENCH]).collect();
    if !known.contains(&format) {
        let (axis, name, known) = ("format", format.to_string(), known.join(", "));
        return Err(error::graph(graphmill_core::Error::Unknown { axis, name, known }));
    }
    if table::find("format", typed::TABLE, format).is_err() {
        let options = options_of_one_type(&options, format)?;
        let imported = create(py, observe, |progress| {
            import_to(format, &src, &out, &options, Work { memory, replace, progress })
        })?;
        let report = serde_json::to_string(&imported.report).map_err(error::value)?;
        return Ok((Some(Dataset::of(imported.dataset, Some(out), Some(report))), None));
    }
    let options = options_of_several_types(&options, format)?;
    let imported = create(py, observe, |progress| {
        typed::import_to(format, &src, &out, &options, Work { memory, replace, progress })
    })?;
    opened(py, out, &imported.report)
}

/// Format of directories that are read as tables.
const RELBENCH: &str = "relbench";

/// Reads the descriptions in the directory `src` of RelBench; returns them, the treatment of rows
/// that name no row, and the name of the dataset.
fn relbench(src: &Path, given: &[(String, String)]) -> PyResult<(RelBench, Dangling, Option<String>)> {
    let (mut o, mut dangling, mut name_of) = (RelBenchOptions::default(), Dangling::default(), None);
    for (name, word) in given {
        match name.as_str() {
            "task" => o.tasks.push(word.clone()),
            "target_task" => o.kinds.push((None, parsed(name, word)?)),
            "dangling" => dangling = parsed(name, word)?,
            "name" => name_of = Some(word.clone()),
            _ => return Err(unknown(name, RELBENCH)),
        }
    }
    Ok((tables::relbench(src, &o).map_err(error::graph)?, dangling, name_of))
}

/// Parses a value of the option `name`.
fn parsed<T: FromStr<Err: std::fmt::Display>>(name: &str, word: &str) -> PyResult<T> {
    word.parse().map_err(|e| error::value(format!("{name} '{word}': {e}")))
}

fn flag(name: &str, word: &str) -> PyResult<bool> {
    match word {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err(PyTypeError::new_err(format!("{name}: expected True or False, not '{word}'"))),
    }
}

/// Error for an option that a format does not have.
fn unknown(name: &str, format: &str) -> PyErr {
    PyTypeError::new_err(format!("import_dataset() has no option '{name}' for the format '{format}'"))
}

/// Parses the options of formats of several types.
fn options_of_several_types(given: &[(String, String)], format: &str) -> PyResult<TypedOptions> {
    let mut o = TypedOptions::default();
    for (name, word) in given {
        let flag = || flag(name, word);
        match name.as_str() {
            "name" => o.name = Some(word.clone()),
            "add_reverses" => o.add_reverses = flag()?,
            "no_self_loops" => o.no_self_loops = flag()?,
            "keep_duplicates" => o.keep_duplicates = flag()?,
            "dense_features" => o.dense_features = flag()?,
            "no_literals" => o.no_literals = flag()?,
            "undirected" => o.undirected = flag()?,
            "valid_fraction" => o.valid_fraction = Some(parsed(name, word)?),
            "test_fraction" => o.test_fraction = Some(parsed(name, word)?),
            "split_seed" => o.split_seed = parsed(name, word)?,
            _ => return Err(unknown(name, format)),
        }
    }
    o.check(format).map_err(error::graph)?;
    Ok(o)
}

/// Parses the options of formats of one type.
fn options_of_one_type(given: &[(String, String)], format: &str) -> PyResult<ImportOptions> {
    let mut o = ImportOptions::default();
    for (name, word) in given {
        let flag = || flag(name, word);
        let path = || Some(PathBuf::from(word));
        match name.as_str() {
            "undirected" => o.undirected = flag()?,
            "no_self_loops" => o.no_self_loops = flag()?,
            "keep_duplicates" => o.keep_duplicates = flag()?,
            "largest_component" => o.largest_component = flag()?,
            "dense_features" => o.dense_features = flag()?,
            "compact_ids" => o.compact_ids = flag()?,
            "normalize" => o.normalize = parsed(name, word)?,
            "split" => o.split = Some(parsed(name, word)?),
            "split_seed" => o.split_seed = parsed(name, word)?,
            "metric" => o.metric = Some(word.clone()),
            "name" => o.name = Some(word.clone()),
            "features" => o.features = path(),
            "labels" => o.labels = path(),
            "label_pairs" => o.label_pairs = path(),
            "nodes" => o.nodes = path(),
            "train" => o.train = path(),
            "valid" => o.valid = path(),
            "test" => o.test = path(),
            "num_nodes" => o.num_nodes = Some(parsed(name, word)?),
            "first_id" => o.first_id = parsed(name, word)?,
            "flavour" => o.flavour = parsed(name, word)?,
            "weights" => o.weights = parsed(name, word)?,
            _ => return Err(unknown(name, format)),
        }
    }
    Ok(o)
}
