//! Datasets from directories, arrays, generators and importers, with their arrays as NumPy arrays.

#![allow(unsafe_code, reason = "foreign libraries")]

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::Sender,
    },
    time::Instant,
};

use graphmill_core::{
    self as core, EdgeOptions, FeatureData, Labels, Split,
    progress::{Progress, Unit},
};
use graphmill_data::{
    self as data,
    dataset::import,
    typed::{self, Verify},
};
use graphmill_loader::feature::Host;
use numpy::{Element, PyArray1, PyArrayDescr, PyArrayMethods};
use pyo3::prelude::*;

use super::{
    array,
    array::with_ids,
    columns::{features_of, keys_of, labels_of},
    error,
    topology::Topology,
    wait,
};
use crate::{
    table::{Rows, Table},
    topology,
};

/// Graph, features, labels and split of a training run.
#[pyclass(frozen, module = "graphmill._graphmill", name = "Dataset")]
pub(super) struct Dataset {
    pub(super) data: Arc<data::Dataset>,
    /// Directory that it was opened from or written to.
    pub(super) path: Option<PathBuf>,
    /// Report of its import, as JSON.
    report: Option<String>,
}

/// Result of a getter of an optional array.
type Array<'py> = PyResult<Option<Bound<'py, PyAny>>>;

#[pymethods]
impl Dataset {
    /// Opens a dataset directory; `verify` reads every byte and compares the checksums.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, verify: bool) -> PyResult<Self> {
        let open = || if verify { data::Dataset::open_verified(&path) } else { data::Dataset::open(&path) };
        let data = Arc::new(py.detach(open).map_err(error::graph)?);
        Ok(Self { data, path: Some(path), report: None })
    }

    /// Generates the built-in demo.
    #[staticmethod]
    fn demo(py: Python<'_>) -> PyResult<Self> {
        Ok(Self::of(py.detach(data::generate::demo).map_err(error::graph)?, None, None))
    }

    /// Creates a dataset of arrays: edges `src[e]` to `dst[e]`, or compressed columns `(indptr,
    /// indices)`. `rule` is a rule of the split and its seed, instead of `parts`.
    #[staticmethod]
    #[pyo3(signature = (
        name, num_nodes, *, src, dst, columns, x, y, classes, parts, rule, weight, undirected, metric
    ))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of one caller")]
    fn from_arrays(
        py: Python<'_>,
        name: String,
        num_nodes: usize,
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        columns: bool,
        x: Option<&Bound<'_, PyAny>>,
        y: Option<&Bound<'_, PyAny>>,
        classes: Option<usize>,
        parts: [Bound<'_, PyAny>; 3],
        rule: Option<(String, u64)>,
        weight: Option<&Bound<'_, PyArray1<f32>>>,
        undirected: bool,
        metric: Option<String>,
    ) -> PyResult<Self> {
        let weight: Option<Vec<f32>> = weight
            .map(|w| Ok::<_, PyErr>(w.try_readonly().map_err(error::value)?.as_array().to_vec()))
            .transpose()?;
        let graph = if columns {
            let Topology(topology) = &*Bound::new(py, topology_of(src, dst)?)?.borrow();
            let graph = topology.graph().clone();
            match weight {
                Some(weight) => graph.with_edge_weight(weight.into()).map_err(error::graph)?,
                None => graph,
            }
        } else {
            let (src, dst) = (
                array::nodes("edge_index[0]", src, num_nodes)?,
                array::nodes("edge_index[1]", dst, num_nodes)?,
            );
            let options =
                EdgeOptions { undirected, drop_self_loops: undirected, keep_duplicates: !undirected };
            let built = py.detach(|| match &weight {
                Some(weight) => core::build_weighted(num_nodes, &src, &dst, weight, options),
                None => core::build(num_nodes, &src, &dst, options),
            });
            built.map_err(error::graph)?
        };
        let nodes = graph.num_nodes();
        let split = |part: &Bound<'_, PyAny>| -> PyResult<core::Buffer<u32>> {
            let mut ids = array::nodes("mask", part, nodes)?;
            ids.sort_unstable();
            Ok(ids.into())
        };
        let mut data = data::Dataset {
            name,
            graph,
            features: x.map(features_of).transpose()?.unwrap_or_default(),
            labels: y.map_or_else(|| Ok(unlabelled(nodes)), |y| labels_of(y, classes))?,
            split: Split { train: split(&parts[0])?, valid: split(&parts[1])?, test: split(&parts[2])? },
            metric,
            ..data::Dataset::default()
        };
        py.detach(|| data.validate()).map_err(error::graph)?;
        if let Some((rule, seed)) = rule {
            let drawn =
                rule.parse::<import::SplitRule>().and_then(|rule| import::draw_split(&data, &rule, seed));
            data.split = drawn.map_err(error::graph)?;
        }
        Ok(Self::of(data, None, None))
    }

    /// Writes the dataset as a directory, of format 2 if `is_typed` is set or it has keys, values
    /// or several columns of classes. A dataset that is mapped from a directory of format 2 is
    /// copied with all that is stored there.
    fn save(&self, py: Python<'_>, path: PathBuf, replace: bool, is_typed: bool) -> PyResult<()> {
        let needs_typed = self.data.labels.is_values() || !self.data.labels.columns().is_empty();
        let is_typed = is_typed || self.data.keys.is_some() || needs_typed;
        let stored = self.data.directory.as_ref().filter(|dir| typed::is_typed(dir));
        let save = || {
            let typed = match stored {
                Some(dir) if is_typed => Some(typed::open(dir, Verify::Once)?),
                _ => is_typed.then(|| data::TypedDataset::from_dataset(&self.data)),
            };
            match (typed, replace) {
                (Some(typed), true) => typed.save_replacing(&path),
                (Some(typed), false) => typed.save(&path),
                (None, true) => self.data.save_replacing(&path),
                (None, false) => self.data.save(&path),
            }
        };
        py.detach(save).map_err(error::graph)
    }

    fn topology(&self) -> Topology {
        Topology(Arc::new(self.data.graph.clone().into()))
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
    fn metric(&self) -> Option<&str> {
        self.data.metric.as_deref()
    }

    #[getter]
    fn num_nodes(&self) -> usize {
        self.data.num_nodes()
    }

    #[getter]
    fn num_edges(&self) -> usize {
        self.data.graph.num_edges()
    }

    #[getter]
    fn num_features(&self) -> usize {
        self.data.features.dim
    }

    #[getter]
    fn num_classes(&self) -> usize {
        self.data.labels.classes()
    }

    /// Columns of classes with their numbers of classes; empty unless there are several.
    #[getter]
    fn class_columns(&self) -> Vec<(&str, usize)> {
        self.data.labels.columns().iter().map(|column| (&column.name[..], column.classes)).collect()
    }

    #[getter]
    fn is_multilabel(&self) -> bool {
        self.data.labels.is_multi()
    }

    #[getter]
    fn has_sparse_features(&self) -> bool {
        matches!(self.data.features.data, FeatureData::Csr(_))
    }

    fn indptr<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.view_of(py, self.data.graph.indptr())
    }

    fn indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.view_of(py, self.data.graph.indices())
    }

    fn edge_weight<'py>(&self, py: Python<'py>) -> Array<'py> {
        self.data.graph.edge_weight().map(|weight| self.view_of(py, weight)).transpose()
    }

    /// Feature rows; sparse rows are copied to a dense table.
    fn x<'py>(&self, py: Python<'py>) -> Array<'py> {
        let shape = [self.data.num_nodes(), self.data.features.dim];
        self.verify(py)?;
        Ok(match &self.data.features.data {
            _ if shape[1] == 0 => None,
            FeatureData::F32(rows) => Some(array::of_buffer(py, rows, &shape)?),
            FeatureData::F16(rows) => Some(array::of_buffer(py, rows, &shape)?),
            FeatureData::Csr(rows) => {
                let dense: core::Buffer<f32> = py.detach(|| rows.to_dense()).map_err(error::graph)?.into();
                Some(array::of_buffer(py, &dense, &shape)?)
            }
        })
    }

    /// Classes (`V`, or `V x K` of several columns), labels (`V x C` zeros and ones), or values
    /// (`V` or `V x C` floats).
    fn y<'py>(&self, py: Python<'py>) -> Array<'py> {
        match &self.data.labels {
            Labels::Single { classes: 0, .. } => Ok(None),
            Labels::Single { class, .. } => array::of_buffer(py, class, &[class.len()]).map(Some),
            Labels::Multi { member, classes } => {
                array::of_buffer(py, member, &[self.data.num_nodes(), *classes]).map(Some)
            }
            Labels::Columns { class, columns } => {
                array::of_buffer(py, class, &[self.data.num_nodes(), columns.len()]).map(Some)
            }
            Labels::Values { values, width: 1 } => {
                array::of_buffer(py, values, &[self.data.num_nodes()]).map(Some)
            }
            Labels::Values { values, width } => {
                array::of_buffer(py, values, &[self.data.num_nodes(), *width]).map(Some)
            }
        }
    }

    /// Nodes of the part "train", "valid" or "test".
    fn part<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        match self.data.split.parts().into_iter().find(|(part, _)| *part == name) {
            Some((_, nodes)) => array::of_buffer(py, nodes, &[nodes.len()]),
            None => Err(error::value(format!("part '{name}': use train, valid or test"))),
        }
    }

    /// Ids of the nodes before the dataset was reordered.
    fn original_ids<'py>(&self, py: Python<'py>) -> Array<'py> {
        self.data.original_ids.as_ref().map(|ids| array::of_buffer(py, ids, &[ids.len()])).transpose()
    }

    /// Original keys of the nodes: an array of integers, or a list of texts.
    fn keys<'py>(&self, py: Python<'py>) -> Array<'py> {
        self.data.keys.as_ref().map(|keys| keys_of(py, keys)).transpose()
    }

    /// Type of the original keys: "integers" or "texts".
    #[getter]
    fn key_type(&self) -> Option<&'static str> {
        self.data.keys.as_ref().map(|keys| match keys {
            typed::Keys::Integers(_) => "integers",
            typed::Keys::Texts(_) => "texts",
        })
    }

    /// Names of the feature columns and of the classes in its directory; empty if it has none.
    fn names(&self, py: Python<'_>) -> PyResult<(Vec<String>, Vec<String>)> {
        let Some(dir) = self.data.directory.as_ref().filter(|dir| typed::is_typed(dir)) else {
            return Ok(Default::default());
        };
        let data = py.detach(|| typed::open(dir, Verify::Once)).map_err(error::graph)?;
        let features = data.nodes.first().and_then(|nodes| nodes.features.as_ref());
        let features = features.map(|table| table.names.clone()).unwrap_or_default();
        Ok((features, data.tasks.first().map(|task| task.names.clone()).unwrap_or_default()))
    }

    /// Report of the import that wrote the dataset, as JSON.
    fn import_report(&self) -> Option<&str> {
        self.report.as_deref()
    }

    fn __str__(&self) -> String {
        self.data.to_string()
    }
}

impl Dataset {
    /// Creates a dataset from Rust's.
    pub(super) fn of(data: data::Dataset, path: Option<PathBuf>, report: Option<String>) -> Self {
        Self { data: Arc::new(data), path, report }
    }

    /// Verifies features that were not verified when they were opened, before an array or a loader
    /// reads them in place.
    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.data.features.verify()).map_err(error::graph)
    }

    /// Creates a read-only array over values that the dataset owns.
    fn view_of<'py, T: Element + bytemuck::Pod>(
        &self,
        py: Python<'py>,
        values: &[T],
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: a clone of the dataset keeps its buffers in place, and they are never written.
        unsafe {
            array::view(
                py,
                values.as_ptr().cast(),
                T::get_dtype(py),
                &[values.len()],
                false,
                Box::new(self.data.clone()),
            )
        }
    }

    /// Rows for batches: dense rows in their own type, sparse rows as `f32`.
    pub(super) fn features(&self, py: Python<'_>) -> PyResult<(Table, Vec<usize>, Py<PyArrayDescr>)> {
        let dim = self.data.features.dim;
        self.verify(py)?;
        let (table, descr) = match &self.data.features.data {
            FeatureData::F32(rows) => (Table::Rows(Rows::of(rows, dim)), f32::get_dtype(py)),
            FeatureData::F16(rows) => (Table::Rows(Rows::of(rows, dim)), half::f16::get_dtype(py)),
            FeatureData::Csr(_) => {
                (Table::Feature(Arc::new(Host::new(&self.data.features))), f32::get_dtype(py))
            }
        };
        Ok((table, vec![dim], descr.unbind()))
    }
}

/// Topology of compressed columns.
fn topology_of(indptr: &Bound<'_, PyAny>, indices: &Bound<'_, PyAny>) -> PyResult<Topology> {
    let made = with_ids!("indptr", indptr, |indptr| with_ids!("indices", indices, |indices| {
        topology::Topology::from_columns(indptr, indices)
    }));
    Ok(Topology(Arc::new(made.map_err(error::value)?)))
}

/// Labels of nodes without labels.
fn unlabelled(nodes: usize) -> Labels {
    Labels::Single { class: vec![-1; nodes].into(), classes: 0 }
}

/// Progress that sends messages to Python and cancels the work when the flag is set.
struct MessageProgress {
    /// Receiver of the messages, and the time of the last `done` message.
    to: Mutex<(Sender<String>, Instant)>,
    stop: Arc<AtomicBool>,
    /// True to send no messages.
    quiet: bool,
}

impl MessageProgress {
    /// Sends an event as JSON.
    fn send(&self, event: serde_json::Value) {
        if !self.quiet {
            let to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
            // a closed channel is ignored: the flag stops the work
            let _ = to.0.send(event.to_string());
        }
    }
}

impl Progress for MessageProgress {
    fn stage(&self, what: &str, total: Option<u64>, unit: Unit) {
        let unit = match unit {
            Unit::Bytes => "bytes",
            Unit::Edges => "edges",
            Unit::Rows => "rows",
        };
        self.send(serde_json::json!({ "event": "stage", "what": what, "total": total, "unit": unit }));
    }

    fn done(&self, amount: u64) {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        if to.1.elapsed().as_millis() >= 100 {
            to.1 = Instant::now();
            drop(to);
            self.send(serde_json::json!({ "event": "done", "amount": amount }));
        }
    }

    fn note(&self, message: &str) {
        self.send(serde_json::json!({ "event": "note", "message": message }));
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// Runs `work`, which creates a dataset in memory or in a directory, and reports its progress to
/// `observe`. Ctrl-C cancels it and removes its output.
pub(super) fn create<T: Send>(
    py: Python<'_>,
    observe: Option<Py<PyAny>>,
    work: impl FnOnce(Box<dyn Progress>) -> core::Result<T> + Send,
) -> PyResult<T> {
    watched(py, observe, work)?.map_err(error::graph)
}

/// Runs `work` and reports its progress to `observe`. Ctrl-C cancels it.
pub(super) fn watched<T: Send>(
    py: Python<'_>,
    observe: Option<Py<PyAny>>,
    work: impl FnOnce(Box<dyn Progress>) -> T + Send,
) -> PyResult<T> {
    let quiet = observe.is_none();
    let report = |py: Python<'_>, message: &str| {
        observe.as_ref().map_or(Ok(()), |observe| observe.call1(py, (message,)).map(drop))
    };
    let worker = move |stop, sender| {
        work(Box::new(MessageProgress { to: Mutex::new((sender, Instant::now())), stop, quiet }))
    };
    wait::run(py, worker, report)
}
