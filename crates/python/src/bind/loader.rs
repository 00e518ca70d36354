//! Sources of batches, for every method.

use std::sync::Arc;

use graphmill_core::{
    memory,
    options::{OptionSet, OwnOptions},
};
use graphmill_loader::{
    sampler::{self, WalkLength},
    subgraph::SubgraphContext,
    time::{TimeDraw, TimeOptions},
};
use numpy::{IntoPyArray, PyArray1, PyArrayDescr, PyArrayMethods, PyReadonlyArray1};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyDict, PyList, PyTuple},
};

use super::{array, dataset::Dataset, error, tiers::Tiers, topology::Topology, wait};
use crate::{
    batch::Batch,
    method::{
        Method,
        draw::{Draws, Weights},
        ego::Ego,
        neighbors::{Edges, Neighbors},
        subgraphs::Subgraphs,
        times::{TimeColumns, Times, rule},
    },
    order::InputOrder,
    prefetch::Prefetch,
    source::{self, Epoch, Inputs, Of},
    table::Table,
};

/// Keyword arguments of `start`: the batches `first..last` of an epoch over the inputs in `order`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct Schedule<'py> {
    epoch: u64,
    order: Bound<'py, PyArray1<u64>>,
    batch_size: usize,
    first: u64,
    last: u64,
    threads: usize,
    ahead: usize,
}

impl Schedule<'_> {
    /// Converts the arguments to the epoch, the number of threads and the batches made ahead.
    pub(super) fn given(given: Option<Self>) -> PyResult<(Epoch, usize, usize)> {
        let missing = || PyTypeError::new_err("start() needs keyword arguments");
        let Self { epoch, order, batch_size, first, last, threads, ahead } = given.ok_or_else(missing)?;
        let order = order.try_readonly().map_err(error::value)?;
        let order = order.as_slice().map_err(|_| array::not_contiguous("order"))?.to_vec();
        Ok((Epoch { epoch, order, batch_size, batches: first..last }, threads, ahead))
    }
}

/// Source of batches: graph, inputs, tables and method.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(super) struct Source {
    source: Arc<source::Source>,
    layout: Arc<Vec<Column>>,
    /// Normalization of nodes and of edges.
    norms: Option<(Vec<f32>, Vec<f32>)>,
}

/// Layout of a table's rows in Python.
struct Column {
    of: Of,
    descr: Py<PyArrayDescr>,
    shape: Vec<usize>,
}

#[pymethods]
impl Source {
    /// Draws neighbours over several hops, as PyG does. A fanout of -1 takes all.
    #[staticmethod]
    #[pyo3(signature = (
        topology, inputs, tables, *, seed, fanout, replace, edges, disjoint, weights = None, starts = None,
        times = None
    ))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of one caller")]
    fn neighbors(
        py: Python<'_>,
        topology: &Topology,
        inputs: &Bound<'_, PyAny>,
        tables: &Bound<'_, PyList>,
        seed: u64,
        fanout: Vec<i64>,
        replace: bool,
        edges: &str,
        disjoint: bool,
        weights: Option<&Bound<'_, PyArray1<f64>>>,
        starts: Option<Vec<usize>>,
        times: Option<TimesGiven<'_>>,
    ) -> PyResult<Self> {
        let each = |k: i64| match k {
            -1 => Ok(None),
            0..=1_000_000 => Ok(Some(k as usize)),
            _ => {
                Err(error::value(format!("num_neighbors {k}: use 0 to 1000000 for each hop, or -1 for all")))
            }
        };
        let fanout: Vec<Option<usize>> = fanout.into_iter().map(each).collect::<PyResult<_>>()?;
        if fanout.len() > 64 {
            return Err(error::value(format!(
                "num_neighbors: {} hops, but at most 64 are supported",
                fanout.len()
            )));
        }
        let weights = match weights {
            None => None,
            Some(array) => {
                let array = array.try_readonly().map_err(error::value)?;
                let values = array.as_slice().map_err(|_| array::not_contiguous("weight_attr"))?;
                Some(py.detach(|| Weights::new(&topology.0, values)).map_err(error::value)?)
            }
        };
        let edges = match edges {
            "directional" => Edges::Directional,
            "bidirectional" => Edges::Bidirectional,
            "induced" => Edges::Induced,
            other => {
                return Err(error::value(format!(
                    "subgraph_type '{other}': use directional, bidirectional or induced"
                )));
            }
        };
        let nodes = inputs_of(topology, inputs, starts)?;
        let (times, inputs) = match times {
            None => (None, nodes),
            Some(given) => {
                let (times, of_inputs) = given.read(&topology.0)?;
                (Some(times), nodes.with_times(of_inputs).map_err(error::value)?)
            }
        };
        let weights = match (weights, &times) {
            (Some(weights), Some(times)) => {
                Some(py.detach(|| times.order(&topology.0, &weights)).map_err(error::value)?)
            }
            (weights, _) => weights,
        };
        let disjoint = disjoint || times.is_some();
        let method = Neighbors { fanout, draws: Draws { replace, weights }, edges, disjoint, times };
        Self::new(py, topology, inputs, tables, Box::new(method), seed)
    }

    /// Draws a separate ego network for every seed.
    #[staticmethod]
    #[pyo3(signature = (topology, inputs, tables, *, seed, depth, fanout, replace))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of one caller")]
    fn ego(
        py: Python<'_>,
        topology: &Topology,
        inputs: &Bound<'_, PyAny>,
        tables: &Bound<'_, PyList>,
        seed: u64,
        depth: usize,
        fanout: i64,
        replace: bool,
    ) -> PyResult<Self> {
        let k = usize::try_from(fanout).ok();
        if k.is_none() && fanout != -1 || depth > 64 {
            return Err(error::value(format!(
                "num_neighbors {fanout}, depth {depth}: use -1 or at least 0, and at most 64 hops"
            )));
        }
        let inputs = inputs_of(topology, inputs, None)?;
        Self::new(py, topology, inputs, tables, Box::new(Ego::new(depth, k, replace)), seed)
    }

    /// Draws subgraphs of sets of nodes; a positive `coverage` also estimates the normalization of
    /// nodes and edges.
    #[staticmethod]
    #[pyo3(signature = (topology, tables, *, seed, sampler, batches, roots, budget, walk_length, coverage))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of one caller")]
    fn subgraphs(
        py: Python<'_>,
        topology: &Topology,
        tables: &Bound<'_, PyList>,
        seed: u64,
        sampler: &str,
        batches: u64,
        roots: &Bound<'_, PyAny>,
        budget: usize,
        walk_length: usize,
        coverage: u64,
    ) -> PyResult<Self> {
        let make = sampler::find_subgraphs(sampler).map_err(error::graph)?;
        let own = OwnOptions::default().with(WalkLength { walk_length });
        let graph = topology.0.graph();
        let roots = array::nodes("roots", roots, graph.num_nodes())?;
        let made = wait::quietly(py, |progress| {
            let method = Subgraphs::new(
                make(graph, &roots, &SubgraphContext { budget, own: &own, partition: None, progress })?,
                batches,
            );
            let norms =
                (coverage > 0).then(|| method.norms(&topology.0, seed, coverage, progress)).transpose()?;
            Ok::<_, String>((method, norms))
        })?;
        let (method, norms) = made.map_err(error::value)?;
        let none = Inputs::nodes(Vec::new());
        Ok(Self { norms, ..Self::new(py, topology, none, tables, Box::new(method), seed)? })
    }

    /// Normalization of nodes and edges, if it was estimated.
    fn norms<'py>(&self, py: Python<'py>) -> Option<[Bound<'py, PyArray1<f32>>; 2]> {
        self.norms.as_ref().map(|(nodes, edges)| [nodes, edges].map(|norm| PyArray1::from_slice(py, norm)))
    }

    #[getter]
    fn num_inputs(&self) -> usize {
        self.source.num_inputs()
    }

    /// Starts an epoch, by the keyword arguments of [`Schedule`].
    #[pyo3(signature = (**schedule))]
    fn start(&self, py: Python<'_>, schedule: Option<Schedule<'_>>) -> PyResult<Batches> {
        let (epoch, threads, ahead) = Schedule::given(schedule)?;
        let batches = py.detach(|| self.source.start(epoch, threads, ahead)).map_err(error::value)?;
        Ok(Batches { batches: Some(batches), layout: self.layout.clone() })
    }

    /// Makes one batch of the given inputs on this thread.
    fn one<'py>(
        &self,
        py: Python<'py>,
        epoch: u64,
        number: u64,
        inputs: Vec<u64>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let one = || self.source.one(epoch, number, &inputs);
        let batch = py.detach(|| memory::catch(one)).map_err(error::graph)?.map_err(error::fault)?;
        tuple(py, batch, &self.layout)
    }
}

impl Source {
    fn new(
        py: Python<'_>,
        topology: &Topology,
        inputs: Inputs,
        tables: &Bound<'_, PyList>,
        method: Box<dyn Method>,
        seed: u64,
    ) -> PyResult<Self> {
        let (mut of_kinds, mut layout) = (Vec::new(), Vec::new());
        for item in tables {
            let (name, of, given): (String, String, Bound<'_, PyAny>) = item.extract()?;
            let of = match of.as_str() {
                "nodes" => Of::Nodes,
                "edges" => Of::Edges,
                "seeds" => Of::Seeds,
                other => {
                    return Err(PyValueError::new_err(format!(
                        "{name}: expected rows of nodes, edges or seeds, not of '{other}'"
                    )));
                }
            };
            let (table, shape, descr) = if let Ok(dataset) = given.cast::<Dataset>() {
                dataset.get().features(py)?
            } else if let Ok(tiers) = given.cast::<Tiers>() {
                tiers.get().table(py, 0)?
            } else {
                let array::Table { rows, descr, shape } = array::table(&name, &given)?;
                (Table::Rows(rows), shape, descr)
            };
            of_kinds.push((of, table));
            layout.push(Column { of, descr, shape });
        }
        let source =
            source::Source::new(topology.0.clone(), inputs, of_kinds, method, seed).map_err(error::value)?;
        Ok(Self { source, layout: Arc::new(layout), norms: None })
    }
}

/// Inputs of one node each, or of the runs of nodes that begin at `starts`.
fn inputs_of(topology: &Topology, inputs: &Bound<'_, PyAny>, starts: Option<Vec<usize>>) -> PyResult<Inputs> {
    let nodes = array::nodes("input_nodes", inputs, topology.num_nodes())?;
    match starts {
        None => Ok(Inputs::nodes(nodes)),
        Some(starts) if starts.is_sorted() && starts.last().is_some_and(|&end| end <= nodes.len()) => {
            Ok(Inputs::runs(nodes, starts))
        }
        Some(_) => Err(error::value("starts must ascend to at most the number of nodes")),
    }
}

/// Rule of draws among the edges up to a time: its name, and the window and the half life of
/// [`rule`].
pub(super) type TimeRule = (String, i64, f64);

/// Checks a rule.
pub(super) fn time_rule((draw, window, half_life): &TimeRule) -> PyResult<TimeOptions> {
    let draw: TimeDraw = draw.parse().map_err(error::value)?;
    let rule = rule(draw, *window, *half_life);
    rule.check().map_err(error::value)?;
    Ok(rule)
}

/// Times of nodes or edges, the time of each input, and the rule of the draws.
#[derive(FromPyObject)]
struct TimesGiven<'py>(bool, PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i64>, TimeRule);

impl TimesGiven<'_> {
    /// Sorted times of the edges, and the time of each input.
    fn read(&self, topology: &crate::topology::Topology) -> PyResult<(Times, Vec<i64>)> {
        let Self(of_edges, times, of_inputs, rule) = self;
        let (times, num_sources) = (times.as_array().to_vec(), topology.graph().num_nodes());
        let (edges, sources) = if *of_edges { (Some(&times[..]), None) } else { (None, Some(&times[..])) };
        let given = TimeColumns { edges, sources, num_sources };
        let times = Times::new(topology, given, time_rule(rule)?).map_err(error::value)?;
        Ok((times, of_inputs.as_array().to_vec()))
    }
}

/// Iterator over the batches of an epoch.
#[pyclass(module = "graphmill._graphmill")]
pub(super) struct Batches {
    batches: Option<Prefetch<Batch>>,
    layout: Arc<Vec<Column>>,
}

#[pymethods]
impl Batches {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(batches) = &self.batches else { return Ok(None) };
        match wait::next(py, batches)? {
            Some(batch) => tuple(py, batch, &self.layout).map(Some),
            None => {
                self.close(py);
                Ok(None)
            }
        }
    }

    /// Ends the threads that make the batches.
    fn close(&mut self, py: Python<'_>) {
        let batches = self.batches.take();
        py.detach(|| drop(batches));
    }
}

/// Converts a batch to (number, inputs, nodes, edge_index, edges, tree, roots, tables, nodes per
/// hop, edges per hop).
fn tuple<'py>(py: Python<'py>, batch: Batch, layout: &[Column]) -> PyResult<Bound<'py, PyTuple>> {
    let (seeds, nodes, edges) = (batch.num_seeds(), batch.num_nodes(), batch.num_edges());
    let ids = |lease, n: usize| array::of_ids(py, lease, &[n]);
    let tables = PyList::empty(py);
    for (lease, Column { of, descr, shape }) in batch.tables.into_iter().zip(layout) {
        let rows = match of {
            Of::Nodes => nodes,
            Of::Edges => edges,
            Of::Seeds => seeds,
        };
        let shape: Vec<usize> = std::iter::once(rows).chain(shape.iter().copied()).collect();
        tables.append(array::of_lease(py, lease, descr.bind(py).clone(), &shape)?)?;
    }
    (
        batch.number,
        ids(batch.inputs, seeds)?,
        ids(batch.nodes, nodes)?,
        array::of_ids(py, batch.edge_index, &[2, edges])?,
        ids(batch.edges, edges)?,
        batch.tree.map(|tree| ids(tree, nodes)).transpose()?,
        batch.roots.map(|roots| ids(roots, seeds)).transpose()?,
        tables,
        batch.nodes_per_hop,
        batch.edges_per_hop,
    )
        .into_pyobject(py)
}

/// Numbers of this process's inputs in an epoch, in order.
#[pyfunction]
#[pyo3(signature = (epoch, **options))]
pub(super) fn order<'py>(
    py: Python<'py>,
    epoch: u64,
    options: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let order = ordering(options)?;
    Ok(py.detach(|| order.epoch(epoch)).into_pyarray(py))
}

/// Number of batches of this process.
#[pyfunction]
#[pyo3(signature = (**options))]
pub(super) fn num_batches(options: Option<&Bound<'_, PyDict>>) -> PyResult<usize> {
    Ok(ordering(options)?.num_batches())
}

/// Parses the keyword arguments of an order.
fn ordering(options: Option<&Bound<'_, PyDict>>) -> PyResult<InputOrder> {
    let get = |name: &str| -> PyResult<Bound<'_, PyAny>> {
        let found = options.map(|options| options.get_item(name)).transpose()?.flatten();
        found.ok_or_else(|| PyValueError::new_err(format!("'{name}' is missing")))
    };
    let order = InputOrder {
        inputs: get("inputs")?.extract()?,
        batch_size: get("batch_size")?.extract()?,
        shuffle: get("shuffle")?.extract()?,
        drop_last: get("drop_last")?.extract()?,
        seed: get("seed")?.extract()?,
        rank: get("rank")?.extract()?,
        world_size: get("world_size")?.extract()?,
    };
    if order.batch_size == 0 || order.rank >= order.world_size {
        return Err(error::value(format!(
            "batch_size {}, rank {} of world_size {}: use a batch_size from 1, and a rank below world_size",
            order.batch_size, order.rank, order.world_size
        )));
    }
    Ok(order)
}
