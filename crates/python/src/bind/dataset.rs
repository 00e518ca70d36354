//! Datasets: opened, made of arrays, generated, imported; their arrays as NumPy's.

use std::{
    path::PathBuf,
    str::FromStr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::Sender,
    },
    time::Instant,
};

use graphmill_core::{
    self as core, EdgeOptions, FeatureData, Features, Labels, Split,
    progress::{Progress, Unit},
};
use graphmill_data::{
    self as data,
    dataset::{
        Work,
        import::{ImportOptions, ImportReport, import_to},
    },
    generate::{GenerateOptions, generate_to, generate_with},
};
use graphmill_loader::feature::Host;
use numpy::{Element, PyArray1, PyArray2, PyArrayDescr, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::{exceptions::PyTypeError, prelude::*};

use super::{array, array::with_ids, error, topology::Topology, wait};
use crate::{
    table::{Rows, Table},
    topology::{self, Id},
};

/// Everything that a training run reads.
#[pyclass(frozen, module = "graphmill._graphmill", name = "Dataset")]
pub(super) struct Dataset {
    pub(super) data: Arc<data::Dataset>,
    /// Where it was opened or written.
    pub(super) path: Option<PathBuf>,
    /// The report of the import that made it, as JSON.
    report: Option<String>,
}

/// An array, or nothing.
type Array<'py> = PyResult<Option<Bound<'py, PyAny>>>;

#[pymethods]
impl Dataset {
    /// Opens a dataset directory; `verify` reads and checks all of it.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, verify: bool) -> PyResult<Self> {
        let open = || if verify { data::Dataset::open_verified(&path) } else { data::Dataset::open(&path) };
        let data = Arc::new(py.detach(open).map_err(error::graph)?);
        Ok(Self { data, path: Some(path), report: None })
    }

    /// The built-in demo.
    #[staticmethod]
    fn demo(py: Python<'_>) -> PyResult<Self> {
        Ok(Self {
            data: Arc::new(py.detach(data::generate::demo).map_err(error::graph)?),
            path: None,
            report: None,
        })
    }

    /// Of arrays: edges `src[e]` to `dst[e]`, or compressed columns `(indptr, indices)`.
    #[staticmethod]
    #[pyo3(signature = (name, num_nodes, *, src, dst, columns, x, y, classes, parts, weight, undirected, metric))]
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
        let data = data::Dataset {
            name,
            graph,
            features: x.map(features_of).transpose()?.unwrap_or_default(),
            labels: y.map_or_else(|| Ok(unlabelled(nodes)), |y| labels_of(y, classes))?,
            split: Split { train: split(&parts[0])?, valid: split(&parts[1])?, test: split(&parts[2])? },
            metric,
            ..data::Dataset::default()
        };
        py.detach(|| data.validate()).map_err(error::graph)?;
        Ok(Self { data: Arc::new(data), path: None, report: None })
    }

    /// Writes it as a directory.
    fn save(&self, py: Python<'_>, path: PathBuf, replace: bool) -> PyResult<()> {
        let save = || if replace { self.data.save_replacing(&path) } else { self.data.save(&path) };
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

    #[getter]
    fn is_multilabel(&self) -> bool {
        self.data.labels.is_multi()
    }

    #[getter]
    fn has_sparse_features(&self) -> bool {
        matches!(self.data.features.data, FeatureData::Csr(_))
    }

    fn indptr<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.lent(py, self.data.graph.indptr())
    }

    fn indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.lent(py, self.data.graph.indices())
    }

    fn edge_weight<'py>(&self, py: Python<'py>) -> Array<'py> {
        self.data.graph.edge_weight().map(|weight| self.lent(py, weight)).transpose()
    }

    /// Feature rows; sparse ones as a new dense table.
    fn x<'py>(&self, py: Python<'py>) -> Array<'py> {
        let shape = [self.data.num_nodes(), self.data.features.dim];
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

    /// Classes (`V`), or memberships (`V x C`).
    fn y<'py>(&self, py: Python<'py>) -> Array<'py> {
        match &self.data.labels {
            Labels::Single { classes: 0, .. } => Ok(None),
            Labels::Single { class, .. } => array::of_buffer(py, class, &[class.len()]).map(Some),
            Labels::Multi { member, classes } => {
                array::of_buffer(py, member, &[self.data.num_nodes(), *classes]).map(Some)
            }
        }
    }

    /// The nodes of "train", "valid" or "test".
    fn part<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        match self.data.split.parts().into_iter().find(|(part, _)| *part == name) {
            Some((_, nodes)) => array::of_buffer(py, nodes, &[nodes.len()]),
            None => Err(error::value(format!("part '{name}': train, valid or test"))),
        }
    }

    /// What nodes were called before the dataset was reordered.
    fn original_ids<'py>(&self, py: Python<'py>) -> Array<'py> {
        self.data.original_ids.as_ref().map(|ids| array::of_buffer(py, ids, &[ids.len()])).transpose()
    }

    /// The report of the import that made the dataset, as JSON.
    fn import_report(&self) -> Option<&str> {
        self.report.as_deref()
    }

    fn __str__(&self) -> String {
        self.data.to_string()
    }
}

impl Dataset {
    /// A read-only array over values that the dataset owns.
    fn lent<'py, T: Element + bytemuck::Pod>(
        &self,
        py: Python<'py>,
        values: &[T],
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: a clone of the dataset keeps its buffers, which nobody writes to, where they are.
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

    /// Rows for batches: dense ones as they are, sparse ones as `f32`.
    pub(super) fn features(&self, py: Python<'_>) -> PyResult<(Table, Vec<usize>, Py<PyArrayDescr>)> {
        let dim = self.data.features.dim;
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

fn topology_of(indptr: &Bound<'_, PyAny>, indices: &Bound<'_, PyAny>) -> PyResult<Topology> {
    let made = with_ids!("indptr", indptr, |indptr| with_ids!("indices", indices, |indices| {
        topology::Topology::from_columns(indptr, indices)
    }));
    Ok(Topology(Arc::new(made.map_err(error::value)?)))
}

/// Features of a two-dimensional array of f32 or f16: a copy.
fn features_of(x: &Bound<'_, PyAny>) -> PyResult<Features> {
    if let Ok(rows) = x.cast::<PyArray2<f32>>() {
        let dim = rows.shape()[1];
        return Ok(Features::f32(
            dim,
            rows.try_readonly().map_err(error::value)?.as_array().iter().copied().collect::<Vec<_>>(),
        ));
    }
    if let Ok(rows) = x.cast::<PyArray2<half::f16>>() {
        let (dim, values) = (rows.shape()[1], rows.try_readonly().map_err(error::value)?);
        let values: Vec<half::f16> = values.as_array().iter().copied().collect();
        return Ok(Features { dim, data: FeatureData::F16(values.into()) });
    }
    Err(PyTypeError::new_err("x: two dimensions of float32 or float16 are expected"))
}

/// Labels of nodes that have none.
fn unlabelled(nodes: usize) -> Labels {
    Labels::Single { class: vec![-1; nodes].into(), classes: 0 }
}

/// Classes of a vector of whole numbers, -1 where unknown, or memberships of a matrix of zeros and
/// ones.
fn labels_of(y: &Bound<'_, PyAny>, classes: Option<usize>) -> PyResult<Labels> {
    if let Ok(rows) = y.cast::<PyArray2<u8>>() {
        let classes = rows.shape()[1];
        let member: Vec<u8> = rows.try_readonly().map_err(error::value)?.as_array().iter().copied().collect();
        return Ok(Labels::Multi { member: member.into(), classes });
    }
    let class: Vec<i32> = with_ids!("y", y, |ids| {
        let narrow = |(v, id): (usize, _)| {
            let class = Id::number(id);
            i32::try_from(class).ok().filter(|&c| c >= -1).ok_or_else(|| {
                error::value(format!("y[{v}] is {class}: classes run from 0 on, -1 is unknown"))
            })
        };
        ids.iter().copied().enumerate().map(narrow).collect::<PyResult<_>>()?
    });
    let most = class.iter().copied().max().unwrap_or(-1);
    Ok(Labels::Single { class: class.into(), classes: classes.unwrap_or((most + 1) as usize) })
}

/// Tells Python how far long work is, and the work when to stop.
struct Told {
    /// Where messages go, and when the last one of many went.
    to: Mutex<(Sender<String>, Instant)>,
    stop: Arc<AtomicBool>,
    /// Whether nobody looks: only stopping counts.
    quiet: bool,
}

impl Told {
    fn say(&self, event: serde_json::Value) {
        if !self.quiet {
            let to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
            // nobody listens any more: the work is told to stop by other means
            let _ = to.0.send(event.to_string());
        }
    }
}

impl Progress for Told {
    fn stage(&self, what: &str, total: Option<u64>, unit: Unit) {
        let unit = match unit {
            Unit::Bytes => "bytes",
            Unit::Edges => "edges",
            Unit::Rows => "rows",
        };
        self.say(serde_json::json!({ "event": "stage", "what": what, "total": total, "unit": unit }));
    }

    fn done(&self, amount: u64) {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        if to.1.elapsed().as_millis() >= 100 {
            to.1 = Instant::now();
            drop(to);
            self.say(serde_json::json!({ "event": "done", "amount": amount }));
        }
    }

    fn note(&self, message: &str) {
        self.say(serde_json::json!({ "event": "note", "message": message }));
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// Does long work that makes a dataset, in the directory `path` where there is one, telling
/// `observe`. Ctrl-C ends it; what it had written is removed then.
fn long(
    py: Python<'_>,
    observe: Option<Py<PyAny>>,
    path: Option<PathBuf>,
    work: impl FnOnce(Box<dyn Progress>) -> core::Result<(data::Dataset, Option<ImportReport>)> + Send,
) -> PyResult<Dataset> {
    let quiet = observe.is_none();
    let tell = |py: Python<'_>, message: &str| {
        observe.as_ref().map_or(Ok(()), |tell| tell.call1(py, (message,)).map(drop))
    };
    let worker =
        move |stop, sender| work(Box::new(Told { to: Mutex::new((sender, Instant::now())), stop, quiet }));
    let done = wait::run(py, worker, tell)?;
    let (data, report) = done.map_err(error::graph)?;
    let report = report.map(|report| serde_json::to_string(&report)).transpose().map_err(error::value)?;
    Ok(Dataset { data: Arc::new(data), path, report })
}

/// Generates a dataset by options as JSON, into memory or a directory.
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
) -> PyResult<Dataset> {
    let options: GenerateOptions = serde_json::from_str(options).map_err(error::value)?;
    long(py, observe, out.clone(), |progress| match &out {
        Some(out) => {
            generate_to(generator, out, &options, Work { memory, replace, progress }).map(|data| (data, None))
        }
        None => generate_with(generator, &options, progress).map(|data| (data, None)),
    })
}

/// Imports a dataset, with options as pairs of words.
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
) -> PyResult<Dataset> {
    let options = import_options(&options)?;
    long(py, observe, Some(out.clone()), |progress| {
        import_to(format, &src, &out, &options, Work { memory, replace, progress })
            .map(|imported| (imported.dataset, Some(imported.report)))
    })
}

/// Reads the options of an import.
fn import_options(given: &[(String, String)]) -> PyResult<ImportOptions> {
    fn parsed<T: FromStr<Err: std::fmt::Display>>(name: &str, word: &str) -> PyResult<T> {
        word.parse().map_err(|e| error::value(format!("{name} '{word}': {e}")))
    }
    let mut o = ImportOptions::default();
    for (name, word) in given {
        let flag = || match word.as_str() {
            "True" => Ok(true),
            "False" => Ok(false),
            _ => Err(PyTypeError::new_err(format!("{name}: True or False is expected, not '{word}'"))),
        };
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
            _ => return Err(PyTypeError::new_err(format!("import_dataset() has no option '{name}'"))),
        }
    }
    Ok(o)
}
