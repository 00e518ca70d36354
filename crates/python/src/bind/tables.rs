//! Tables of pandas, Polars, PyArrow, DuckDB and others, through Arrow's C stream interface, and
//! their import.

#![allow(unsafe_code, reason = "foreign libraries")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch, RecordBatchReader, StringArray,
    ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader},
    types::Float64Type,
};
use graphmill_data::{
    dataset::Work,
    tables::{self, MemoryTable, MoreTables, Preprocessing, TableSchema},
};
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyCapsule, PyCapsuleMethods},
};

use super::{
    dataset::create,
    error,
    typed::{Created, opened},
};

/// Name of the capsule of an Arrow stream.
const STREAM: &std::ffi::CStr = c"arrow_array_stream";

/// Table in memory.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(super) struct Table(MemoryTable);

/// Tables by the names that a schema gives them.
pub(super) type Named = Vec<(String, Py<Table>)>;

#[pymethods]
impl Table {
    /// Reads a stream, the result of `__arrow_c_stream__`. Its memory is shared.
    #[staticmethod]
    fn from_stream(py: Python<'_>, name: &str, capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        let pointer = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
        // SAFETY: by Arrow's PyCapsule interface a capsule of this name holds a valid stream. This
        // call moves it out of the capsule and leaves a released stream there, which the capsule's
        // destructor ignores.
        let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr()) };
        // A producer may take the interpreter's lock on threads of its own.
        let table = py.detach(|| read(stream)).map_err(|why| error::value(format!("{name}: {why}")))?;
        Ok(Self(table))
    }

    /// Creates a table of columns: name, kind of the values, and the values, `None` if missing.
    #[staticmethod]
    fn from_columns(name: &str, columns: Vec<(String, String, Bound<'_, PyAny>)>) -> PyResult<Self> {
        let names: Vec<String> = columns.iter().map(|(name, ..)| name.clone()).collect();
        let mut arrays: Vec<(&str, ArrayRef, bool)> = Vec::new();
        for (column, kind, values) in &columns {
            let array: ArrayRef = match kind.as_str() {
                "bool" => Arc::new(BooleanArray::from(values.extract::<Vec<Option<bool>>>()?)),
                "int" => Arc::new(Int64Array::from(values.extract::<Vec<Option<i64>>>()?)),
                "float" => Arc::new(Float64Array::from(values.extract::<Vec<Option<f64>>>()?)),
                "text" => Arc::new(StringArray::from(values.extract::<Vec<Option<String>>>()?)),
                "list" => {
                    let lists: Vec<Option<Vec<f64>>> = values.extract()?;
                    let rows = lists.into_iter().map(|list| list.map(|list| list.into_iter().map(Some)));
                    Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(rows))
                }
                other => return Err(PyTypeError::new_err(format!("{name}: unknown kind '{other}'"))),
            };
            arrays.push((column, array, true));
        }
        let mut table = MemoryTable::new(names).map_err(|e| error::value(format!("{name}: {e}")))?;
        if !arrays.is_empty() {
            let batch = RecordBatch::try_from_iter_with_nullable(arrays);
            let batch = batch.map_err(|e| error::value(format!("{name}: {e}")))?;
            table.push(&batch).map_err(error::graph)?;
        }
        Ok(Self(table))
    }
}

/// Reads all batches of a stream.
fn read(stream: FFI_ArrowArrayStream) -> Result<MemoryTable, String> {
    let stream = RecordBatchStreamReader::try_new(stream).map_err(|e| e.to_string())?;
    let names = stream.schema().fields().iter().map(|field| field.name().clone()).collect();
    let mut table = MemoryTable::new(names).map_err(|e| e.to_string())?;
    for batch in stream {
        table.push(&batch.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    }
    Ok(table)
}

/// Tables by name, for a schema.
pub(super) fn in_memory(tables: &Named) -> BTreeMap<String, MemoryTable> {
    tables.iter().map(|(name, table)| (name.clone(), table.get().0.clone())).collect()
}

/// Parses a schema in JSON, or reads its file.
fn schema_of((text, tables): (String, Named)) -> PyResult<TableSchema> {
    if !text.starts_with('{') {
        return TableSchema::read(Path::new(&text)).map_err(error::graph);
    }
    let mut schema: TableSchema =
        serde_json::from_str(&text).map_err(|e| error::value(format!("schema: {e}")))?;
    schema.memory = in_memory(&tables);
    schema.check().map_err(error::graph)?;
    Ok(schema)
}

/// Imports tables to the directory `out`; the schema is JSON or the path of a file.
#[pyfunction]
#[pyo3(signature = (schema, like, out, replace, memory, observe))]
pub(super) fn import_tables(
    py: Python<'_>,
    schema: (String, Named),
    like: Option<PathBuf>,
    out: PathBuf,
    replace: bool,
    memory: Option<u64>,
    observe: Option<Py<PyAny>>,
) -> PyResult<Created> {
    let schema = schema_of(schema)?;
    let like = like.map(|dir| Preprocessing::read(&dir)).transpose().map_err(error::graph)?;
    let imported = create(py, observe, |progress| {
        tables::import_tables(&schema, &out, like.as_ref(), Work { memory, replace, progress })
    })?;
    opened(py, out, &imported.report)
}

/// Tables of an append: names of files of nodes, edges, targets, and nodes and edges that end,
/// which may name tables in memory.
type More = ([Vec<String>; 5], Named);
/// Options of an append: rules and seed of splits, treatments of dangling edges and of changed
/// nodes, and name.
type MoreOptions = (Vec<String>, u64, String, String, Option<String>);

/// Writes the dataset in `base` with the rows of further tables to `out`.
#[pyfunction]
#[pyo3(signature = (base, more, options, out, memory, observe))]
pub(super) fn append_tables(
    py: Python<'_>,
    base: PathBuf,
    more: More,
    options: MoreOptions,
    out: (PathBuf, bool),
    memory: Option<u64>,
    observe: Option<Py<PyAny>>,
) -> PyResult<Created> {
    let ([nodes, edges, targets, end_nodes, end_edges], named) = more;
    let (splits, seed, dangling, changed, name) = options;
    let (out, replace) = out;
    let more = MoreTables {
        nodes: nodes.into(),
        edges: edges.into(),
        targets: targets.into(),
        end_nodes: end_nodes.into(),
        end_edges: end_edges.into(),
        changed: changed.parse().map_err(error::graph)?,
        splits,
        seed,
        dangling: dangling.parse().map_err(error::graph)?,
        name,
        memory: in_memory(&named),
        ..MoreTables::default()
    };
    let (made, _) = create(py, observe, |progress| {
        tables::append_tables(&base, &more, &out, Work { memory, replace, progress })
    })?;
    opened(py, out, &made.report)
}

/// Roles that an import would give to all columns: a report for a person, the same as JSON, and the
/// schema file.
#[pyfunction]
#[pyo3(signature = (schema, like))]
pub(super) fn plan_tables(
    py: Python<'_>,
    schema: (String, Named),
    like: Option<PathBuf>,
) -> PyResult<(String, String, String)> {
    let schema = schema_of(schema)?;
    let like = like.map(|dir| Preprocessing::read(&dir)).transpose().map_err(error::graph)?;
    let planned = py.detach(|| tables::plan(&schema, like.as_ref())).map_err(error::graph)?;
    let report = serde_json::to_string(&planned.report).map_err(error::value)?;
    Ok((planned.report.to_string(), report, planned.schema.to_string()))
}
