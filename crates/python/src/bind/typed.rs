//! Datasets of several node types and edge types, with their arrays as NumPy arrays.

use std::{path::PathBuf, sync::Arc};

use graphmill_core::{self as core, FeatureData, Features, Labels, NodeId};
use graphmill_data::{
    self as data,
    typed::{
        self, EdgeType, FeatureTable, Seeds, TableData, Targets, TaskKind, TypedBuilder, Values, Verify,
    },
};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::{exceptions::PyTypeError, prelude::*, types::PyDict};

use super::{
    array,
    columns::{features_of, keys_of, labels_of},
    dataset::Dataset,
    error,
    topology::Topology,
};

/// Typed dataset.
#[pyclass(frozen, module = "graphmill._graphmill", name = "TypedDataset")]
pub(super) struct TypedDataset {
    pub(super) data: Arc<data::TypedDataset>,
    pub(super) path: Option<PathBuf>,
    /// Report of its import, as JSON.
    report: Option<String>,
}

/// Node type: name, number of nodes, features, times and keys.
type Nodes<'py> =
    (String, usize, Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);
/// Edge type: names, sources, destinations, and columns by name.
type Edges<'py> = ([String; 3], Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyDict>);
/// Edges of a type as they were given: number, and sources and destinations if a task predicts
/// them.
type GivenEdges = (EdgeType, usize, Option<[Vec<NodeId>; 2]>);

/// Task, as Python gives it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Task<'py> {
    name: String,
    /// Node type, or the three names of an edge type.
    on: Vec<String>,
    /// Targets; without them, edges are predicted.
    y: Option<Bound<'py, PyAny>>,
    num_classes: Option<usize>,
    names: Vec<String>,
    /// Rows that train, validate and test.
    parts: [Bound<'py, PyAny>; 3],
    /// Nodes of the rows, or their sources and destinations; without them, all of the type.
    seeds: Option<Vec<Bound<'py, PyAny>>>,
    /// Time of each row.
    time: Option<Bound<'py, PyAny>>,
    /// Customary metric.
    metric: Option<String>,
}

/// Source, name and destination of an edge type.
fn names_of(edge_type: &EdgeType) -> [&str; 3] {
    [&edge_type.source, &edge_type.name, &edge_type.destination]
}

/// Ids of the columns of a task's seeds, below the numbers of nodes of their types.
fn seeds_of(task: &Task<'_>, count: &dyn Fn(&str) -> usize) -> PyResult<Option<Vec<Vec<NodeId>>>> {
    let Some(columns) = &task.seeds else { return Ok(None) };
    // the ends of an edge type, or the node type alone
    let types = task.on.iter().step_by(2);
    let read = |(of, column): (&String, &Bound<'_, PyAny>)| {
        array::nodes(&format!("seeds of task '{}'", task.name), column, count(of))
    };
    types.zip(columns).map(read).collect::<PyResult<_>>().map(Some)
}

/// Adds a task on all nodes or edges of a type, or on its seeds.
fn add_task(
    builder: &mut TypedBuilder,
    task: &Task<'_>,
    edges: &[GivenEdges],
    count: &dyn Fn(&str) -> usize,
) -> PyResult<()> {
    let Task { name, on, y, num_classes, names, parts, time, metric, .. } = task;
    let found = edges.iter().find(|(edge_type, ..)| names_of(edge_type) == on[..]);
    let seeds = seeds_of(task, count)?;
    let rows = match (&seeds, found) {
        (Some(columns), _) => columns.first().map_or(0, Vec::len),
        (None, Some((_, rows, _))) => *rows,
        (None, None) => on.first().map_or(0, |on| count(on)),
    };
    let part = |i: usize| array::nodes(["train", "valid", "test"][i], &parts[i], rows);
    let split = [part(0)?, part(1)?, part(2)?];
    let time = time.as_ref().map(|time| column::<i64>("time", time)).transpose()?;
    if let Some(time) = time.as_ref().filter(|time| time.len() != rows) {
        return Err(error::value(format!(
            "task '{name}': {} times for {rows} rows; pass one each",
            time.len()
        )));
    }
    let to = builder.task(name);
    let to = match &on[..] {
        [source, name, destination] => to.on_edges(EdgeType::new(source, name, destination)),
        _ => to.on_nodes(on.concat()),
    };
    if let Some(metric) = metric {
        to.metric(metric);
    }
    match (y, &seeds, found.and_then(|(.., ends)| ends.as_ref())) {
        (None, ..) if found.is_none() => {
            return Err(error::value(format!("task '{name}': a task on nodes needs targets; pass y")));
        }
        (None, None, Some([src, dst])) => {
            // rows are numbered part by part
            if let Some(time) = time {
                to.time(split.iter().flatten().map(|row| time[*row as usize]).collect::<Vec<_>>());
            }
            let of_row = |row: &NodeId| [src[*row as usize], dst[*row as usize]];
            to.positives(split.map(|rows| rows.iter().flat_map(of_row).collect()));
            return Ok(());
        }
        (Some(y), ..) => {
            to.targets(targets_of(y, *num_classes)?).names(names.clone());
        }
        (None, ..) => {}
    }
    match seeds.as_deref() {
        Some([nodes]) => _ = to.node_seeds(nodes.clone()),
        Some([src, dst]) => {
            to.pair_seeds(src.iter().zip(dst).flat_map(|(&u, &v)| [u, v]).collect::<Vec<_>>());
        }
        _ => {}
    }
    if let Some(time) = time {
        to.time(time);
    }
    let [train, valid, test] = split;
    to.split(train, valid, test);
    Ok(())
}

#[pymethods]
impl TypedDataset {
    /// Opens a directory; `verify` reads every byte and compares the checksums.
    #[staticmethod]
    pub(super) fn open(py: Python<'_>, path: PathBuf, verify: bool) -> PyResult<Self> {
        let verify = if verify { Verify::All } else { Verify::Once };
        Self::opened(py, path, verify, None)
    }

    /// Creates a dataset of arrays.
    #[staticmethod]
    fn build(
        py: Python<'_>,
        name: String,
        nodes: Vec<Nodes<'_>>,
        edges: Vec<Edges<'_>>,
        tasks: Vec<Task<'_>>,
    ) -> PyResult<Self> {
        let mut builder = TypedBuilder::new(name);
        let counts: Vec<(String, usize)> = nodes.iter().map(|node| (node.0.clone(), node.1)).collect();
        let count =
            |name: &str| counts.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count);
        for (name, count, x, time, keys) in &nodes {
            let to = builder.node_type(name, *count);
            if let Some(x) = x {
                to.feature_table(table_of(x)?);
            }
            if let Some(time) = time {
                to.time(column::<i64>("time", time)?);
            }
            match keys {
                None => {}
                Some(keys) if keys.cast::<PyArray1<i64>>().is_ok() => {
                    to.integer_keys(column::<i64>("keys", keys)?);
                }
                Some(keys) => {
                    to.text_keys(keys.extract::<Vec<String>>()?);
                }
            }
        }
        let mut pairs: Vec<GivenEdges> = Vec::with_capacity(edges.len());
        for ([source, name, destination], src, dst, columns) in &edges {
            let place = |end: &str| format!("{end} of ({source}, {name}, {destination})");
            let src = array::nodes(&place("sources"), src, count(source))?;
            let dst = array::nodes(&place("destinations"), dst, count(destination))?;
            let edge_type = EdgeType::new(source, name, destination);
            let predicts = |task: &Task<'_>| task.y.is_none() && names_of(&edge_type) == task.on[..];
            let ends = tasks.iter().any(predicts).then(|| [src.clone(), dst.clone()]);
            pairs.push((edge_type, src.len(), ends));
            let to = builder.edge_type(source, name, destination).edges(src, dst);
            if let Some(weights) = columns.get_item("weight")? {
                to.weights(column::<f32>("weight", &weights)?);
            }
            if let Some(time) = columns.get_item("time")? {
                to.time(column::<i64>("time", &time)?);
            }
            if let Some(x) = columns.get_item("x")? {
                to.feature_table(table_of(&x)?);
            }
        }
        for task in &tasks {
            add_task(&mut builder, task, &pairs, &count)?;
        }
        let data = py.detach(|| builder.build()).map_err(error::graph)?;
        Ok(Self { data: Arc::new(data), path: None, report: None })
    }

    /// Writes the directory.
    fn save(&self, py: Python<'_>, path: PathBuf, replace: bool) -> PyResult<()> {
        let save = || if replace { self.data.save_replacing(&path) } else { self.data.save(&path) };
        py.detach(save).map_err(error::graph)
    }

    /// The dataset of one type.
    fn to_dataset(&self, py: Python<'_>) -> PyResult<Dataset> {
        let data = py.detach(|| self.data.to_dataset()).map_err(error::graph)?;
        Ok(Dataset::of(data, self.path.clone(), self.report.clone()))
    }

    #[getter]
    fn is_one_type(&self) -> bool {
        self.data.is_one_type()
    }

    #[getter]
    fn path(&self) -> Option<PathBuf> {
        self.path.clone()
    }

    #[getter]
    fn name(&self) -> &str {
        &self.data.name
    }

    #[getter]
    fn node_types(&self) -> Vec<(&str, usize)> {
        self.data.nodes.iter().map(|nodes| (nodes.name.as_str(), nodes.count)).collect()
    }

    #[getter]
    fn edge_types(&self) -> Vec<((&str, &str, &str), usize)> {
        self.data
            .edges
            .iter()
            .map(|edges| {
                let of = &edges.edge_type;
                ((of.source.as_str(), of.name.as_str(), of.destination.as_str()), edges.num_edges())
            })
            .collect()
    }

    #[getter]
    fn tasks(&self) -> Vec<&str> {
        self.data.tasks.iter().map(|task| task.name.as_str()).collect()
    }

    /// Figures of the dataset, as `graphmill info --json` prints them.
    fn info(&self, py: Python<'_>) -> PyResult<String> {
        let info = py.detach(|| typed::info(&self.data));
        serde_json::to_string(&info).map_err(error::value)
    }

    /// Columns of a node type.
    fn nodes<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let nodes = self.data.node_type(name).map_err(error::graph)?;
        let columns = PyDict::new(py);
        columns.set_item("num_nodes", nodes.count)?;
        set_features(py, &columns, nodes.features.as_ref(), nodes.count)?;
        columns.set_item("keys", nodes.keys.as_ref().map(|keys| keys_of(py, keys)).transpose()?)?;
        let time = nodes.time.as_ref().map(|time| array::of_buffer(py, time, &[time.len()]));
        columns.set_item("time", time.transpose()?)?;
        let ids = nodes.original_ids.as_ref().map(|ids| array::of_buffer(py, ids, &[ids.len()]));
        columns.set_item("original_ids", ids.transpose()?)?;
        Ok(columns)
    }

    /// Columns of an edge type, in the order of the destinations.
    fn edges<'py>(&self, py: Python<'py>, of: [String; 3]) -> PyResult<Bound<'py, PyDict>> {
        let [source, name, destination] = of;
        let edges = self.data.edge_type(&EdgeType::new(source, name, destination)).map_err(error::graph)?;
        let columns = PyDict::new(py);
        let count = edges.num_edges();
        columns.set_item("src", array::of_buffer(py, &edges.indices, &[count])?)?;
        columns.set_item("indptr", array::of_buffer(py, &edges.indptr, &[edges.indptr.len()])?)?;
        let weight = edges.weights.as_ref().map(|weights| array::of_buffer(py, weights, &[count]));
        columns.set_item("weight", weight.transpose()?)?;
        let time = edges.time.as_ref().map(|time| array::of_buffer(py, time, &[count]));
        columns.set_item("time", time.transpose()?)?;
        set_features(py, &columns, edges.features.as_ref(), count)?;
        columns.set_item("reverse", edges.reverse.as_deref())?;
        Ok(columns)
    }

    /// Edges of the edge type of this number, numbered by destination.
    fn topology(&self, r: usize) -> PyResult<Topology> {
        let edges =
            self.data.edges.get(r).ok_or_else(|| error::value(format!("there is no edge type {r}")))?;
        let graph = core::Graph::of_sound_edges(edges.indptr.clone(), edges.indices.clone(), None);
        Ok(Topology(Arc::new(graph.map_err(error::graph)?.into())))
    }

    /// Targets and split of a task.
    fn task<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let task = self.data.task(name).map_err(error::graph)?;
        let columns = PyDict::new(py);
        columns.set_item("kind", task.kind().map(TaskKind::name))?;
        columns.set_item("on", task.on.to_string())?;
        columns.set_item("metric", task.metric.as_deref())?;
        columns.set_item("names", &task.names)?;
        let seeds = match &task.seeds {
            None => None,
            Some(Seeds::Nodes(ids)) => Some(array::of_buffer(py, ids, &[ids.len()])?),
            Some(Seeds::Pairs(ids)) => Some(array::of_buffer(py, ids, &[ids.len() / 2, 2])?),
        };
        columns.set_item("seeds", seeds)?;
        let time = task.time.as_ref().map(|time| array::of_buffer(py, time, &[time.len()]));
        columns.set_item("time", time.transpose()?)?;
        let rows = self.data.rows_of(task);
        let (y, classes) = match &task.targets {
            Targets::None => (None, 0),
            Targets::Classes(Labels::Single { class, classes }) => {
                (Some(array::of_buffer(py, class, &[class.len()])?), *classes)
            }
            Targets::Classes(Labels::Multi { member, classes }) => {
                (Some(array::of_buffer(py, member, &[rows, *classes])?), *classes)
            }
            Targets::Classes(Labels::Columns { class, columns }) => {
                (Some(array::of_buffer(py, class, &[rows, columns.len()])?), task.width())
            }
            Targets::Values { width: 1, values } | Targets::Classes(Labels::Values { width: 1, values }) => {
                (Some(array::of_buffer(py, values, &[rows])?), 0)
            }
            Targets::Values { width, values } | Targets::Classes(Labels::Values { width, values }) => {
                (Some(array::of_buffer(py, values, &[rows, *width])?), 0)
            }
        };
        columns.set_item("y", y)?;
        columns.set_item("num_classes", classes)?;
        for (part, ids) in task.split.parts() {
            columns.set_item(part, array::of_buffer(py, ids, &[ids.len()])?)?;
        }
        Ok(columns)
    }

    fn import_report(&self) -> Option<&str> {
        self.report.as_deref()
    }

    fn __str__(&self) -> String {
        self.data.to_string()
    }
}

impl TypedDataset {
    /// Creates a dataset from Rust's, in memory.
    pub(super) fn of(data: data::TypedDataset) -> Self {
        Self { data: Arc::new(data), path: None, report: None }
    }

    /// Opens the directory of an import with this report.
    pub(super) fn opened(
        py: Python<'_>,
        path: PathBuf,
        verify: Verify,
        report: Option<String>,
    ) -> PyResult<Self> {
        let data = py.detach(|| typed::open(&path, verify)).map_err(error::graph)?;
        Ok(Self { data: Arc::new(data), path: Some(path), report })
    }
}

/// Sets the features of a type and the names of their columns.
fn set_features(
    py: Python<'_>,
    columns: &Bound<'_, PyDict>,
    table: Option<&FeatureTable>,
    rows: usize,
) -> PyResult<()> {
    let x = table.map(|table| dense(py, table, rows)).transpose()?;
    columns.set_item("x", x)?;
    columns.set_item("feature_names", table.map(|table| table.names.clone()).unwrap_or_default())
}

/// Feature rows as an array; sparse rows are copied to a dense table.
fn dense<'py>(py: Python<'py>, table: &FeatureTable, rows: usize) -> PyResult<Bound<'py, PyAny>> {
    let shape = [rows, table.width];
    py.detach(|| table.verify()).map_err(error::graph)?;
    macro_rules! view {
        ($($variant:ident),*) => {
            match &table.data {
                $(TableData::Dense(Values::$variant(values)) => array::of_buffer(py, values, &shape),)*
                TableData::Sparse(sparse) => {
                    let dense: core::Buffer<f32> =
                        py.detach(|| sparse.to_dense()).map_err(error::graph)?.into();
                    array::of_buffer(py, &dense, &shape)
                }
            }
        };
    }
    view!(F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64)
}

/// Copies a vector of one type.
fn column<T: numpy::Element + Copy>(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Vec<T>> {
    let wrong = || PyTypeError::new_err(format!("{name}: expected one dimension of another type"));
    let array = given.cast::<PyArray1<T>>().map_err(|_| wrong())?;
    let values = array.try_readonly().map_err(error::value)?;
    Ok(values.as_array().iter().copied().collect())
}

/// Copies features.
fn table_of(x: &Bound<'_, PyAny>) -> PyResult<FeatureTable> {
    let Features { dim, data } = features_of(x)?;
    Ok(match data {
        FeatureData::F32(values) => FeatureTable::dense(dim, values),
        FeatureData::F16(values) => FeatureTable::dense(dim, values),
        FeatureData::Csr(rows) => FeatureTable::sparse(rows),
    })
}

/// Targets: classes of an integer vector, sets of a matrix of zeros and ones, or values.
fn targets_of(y: &Bound<'_, PyAny>, classes: Option<usize>) -> PyResult<Targets> {
    if let Ok(values) = y.cast::<PyArray2<f32>>() {
        let width = values.shape()[1];
        let values: Vec<f32> =
            values.try_readonly().map_err(error::value)?.as_array().iter().copied().collect();
        return Ok(Targets::Values { width, values: values.into() });
    }
    Ok(Targets::Classes(labels_of(y, classes)?))
}

/// A dataset of one type, or of several.
pub(super) type Created = (Option<Dataset>, Option<TypedDataset>);

/// Opens the directory that an import of typed data wrote: as a dataset of one type if it is one.
pub(super) fn opened(py: Python<'_>, path: PathBuf, report: &impl serde::Serialize) -> PyResult<Created> {
    let report = Some(serde_json::to_string(report).map_err(error::value)?);
    let typed = TypedDataset::opened(py, path.clone(), Verify::Once, report.clone())?;
    if !typed.data.is_one_type() {
        return Ok((None, Some(typed)));
    }
    let data = py.detach(|| data::Dataset::open(&path)).map_err(error::graph)?;
    Ok((Some(Dataset::of(data, Some(path), report)), None))
}
