//! Sources of batches of several node types, and of batches of links.

use std::sync::Arc;

use numpy::{PyArray1, PyArrayDescr, PyArrayMethods};
use pyo3::{
    prelude::*,
    types::{PyDict, PyList, PyTuple},
};

use super::{
    array,
    dataset::Dataset,
    error,
    loader::{Schedule, TimeRule, time_rule},
    tiers::Tiers,
    topology::Topology,
    wait,
};
use crate::{
    method::{
        draw::{Draws, Weights},
        times::{TimeColumns, Times},
    },
    prefetch::Prefetch,
    table::Table,
    typed::{
        Relation, TypedMethod, TypedTopology,
        hgt::TypedBudgets,
        links::{Given, Links, Negatives},
        neighbors::TypedNeighbors,
        source::{self, TypedBatch, TypedInputs, TypedOf},
        subgraph::TypedEdges,
    },
};

/// Source of typed batches.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(super) struct TypedSource {
    source: Arc<source::TypedSource>,
    layout: Arc<Vec<Column>>,
}

/// Layout of a table's rows in Python.
struct Column {
    of: TypedOf,
    descr: Py<PyArrayDescr>,
    shape: Vec<usize>,
}

/// Relation: types of sources and destinations, edges.
type GivenRelation<'py> = (usize, usize, Bound<'py, Topology>);

/// Supervision edges, as Python gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct GivenLinks<'py> {
    types: (usize, usize),
    src: Bound<'py, PyAny>,
    dst: Bound<'py, PyAny>,
    exclude: Vec<(usize, bool)>,
    /// Row of the table of negatives, number for each positive, and whether they are listed
    /// together.
    negatives: Option<(String, f64, bool)>,
    known: Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
    /// Pairs that negatives are drawn from.
    listed: Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
    /// Weights by which sources and destinations of negatives are drawn.
    weights: (GivenNumbers<'py>, GivenNumbers<'py>),
}

/// Times that bound the hops of every input, as Python gives them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct GivenTimes<'py> {
    /// Times of each relation's edges, and of the nodes of its source type; `None` without times.
    relations: Vec<(GivenIntegers<'py>, GivenIntegers<'py>)>,
    rule: TimeRule,
    /// Time of each input.
    inputs: Bound<'py, PyArray1<i64>>,
    /// Time from which each destination of negatives exists.
    destinations: GivenIntegers<'py>,
}

/// Array of times, if there is one.
type GivenIntegers<'py> = Option<Bound<'py, PyArray1<i64>>>;
/// Array of weights, if there is one.
type GivenNumbers<'py> = Option<Bound<'py, PyArray1<f64>>>;

#[pymethods]
impl TypedSource {
    /// Draws neighbours by each relation, or nodes of each type if `samples` are given. With
    /// `times` ([`GivenTimes`]) every input has a neighbourhood of its own. A batch has all edges
    /// among its nodes if `induced`, or each relation also the reverses of `reverses`.
    #[new]
    #[pyo3(signature = (
        types, relations, tables, *, seed, inputs, fanout = None, samples = None, replace = false,
        weights = None, disjoint = false, times = None, induced = false, reverses = None
    ))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of one caller")]
    fn new(
        py: Python<'_>,
        types: Vec<(String, usize)>,
        relations: Vec<GivenRelation<'_>>,
        tables: &Bound<'_, PyList>,
        seed: u64,
        inputs: &Bound<'_, PyAny>,
        fanout: Option<Vec<Vec<i64>>>,
        samples: Option<Vec<Vec<i64>>>,
        replace: bool,
        weights: Option<Vec<Option<Bound<'_, PyArray1<f64>>>>>,
        disjoint: bool,
        times: Option<GivenTimes<'_>>,
        induced: bool,
        reverses: Option<Vec<usize>>,
    ) -> PyResult<Self> {
        let relations = relations.into_iter().map(|(src, dst, topology)| Relation {
            src,
            dst,
            topology: topology.get().0.clone(),
        });
        let topology = TypedTopology { relations: relations.collect(), types };
        let method: Box<dyn TypedMethod> = match samples {
            Some(samples) => {
                Box::new(py.detach(|| TypedBudgets::new(&topology, &samples)).map_err(error::value)?)
            }
            None => {
                let sorted = times.as_ref().map(|given| times_of(py, &topology, given)).transpose()?;
                let sorted = sorted.unwrap_or_default();
                Box::new(TypedNeighbors {
                    fanout: fanouts(fanout.unwrap_or_default())?,
                    draws: draws(py, &topology, replace, weights, &sorted)?,
                    times: sorted,
                    edges: match reverses {
                        _ if induced => TypedEdges::Induced,
                        Some(reverses) => TypedEdges::Bidirectional(reverses),
                        None => TypedEdges::Directional,
                    },
                })
            }
        };
        let inputs = inputs_of(py, &topology, inputs, disjoint || times.is_some(), times.as_ref())?;
        let (mut rows, mut layout) = (Vec::new(), Vec::new());
        for item in tables {
            let (name, of, number, given): (String, String, usize, Bound<'_, PyAny>) = item.extract()?;
            let of = if of == "nodes" { TypedOf::Nodes(number) } else { TypedOf::Edges(number) };
            let (table, shape, descr) = if let Ok(dataset) = given.cast::<Dataset>() {
                dataset.get().features(py)?
            } else if let Ok(tiers) = given.cast::<Tiers>() {
                tiers.get().table(py, number)?
            } else {
                let array::Table { rows, descr, shape } = array::table(&name, &given)?;
                (Table::Rows(rows), shape, descr)
            };
            rows.push((of, table));
            layout.push(Column { of, descr, shape });
        }
        let source = source::TypedSource::new(topology, inputs, rows, method, seed).map_err(error::value)?;
        Ok(Self { source, layout: Arc::new(layout) })
    }

    #[getter]
    fn num_inputs(&self) -> usize {
        self.source.num_inputs()
    }

    /// Starts an epoch, by the keyword arguments of [`Schedule`].
    #[pyo3(signature = (**schedule))]
    fn start(&self, py: Python<'_>, schedule: Option<Schedule<'_>>) -> PyResult<TypedBatches> {
        let (epoch, threads, ahead) = Schedule::given(schedule)?;
        let batches = py.detach(|| self.source.start(epoch, threads, ahead)).map_err(error::value)?;
        Ok(TypedBatches { batches: Some(batches), layout: self.layout.clone() })
    }

    /// Makes one batch of the given inputs on this thread.
    fn one<'py>(
        &self,
        py: Python<'py>,
        epoch: u64,
        number: u64,
        inputs: Vec<u64>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let batch = py.detach(|| self.source.one(epoch, number, &inputs)).map_err(error::fault)?;
        tuple(py, batch, &self.layout)
    }

    /// Makes one batch of these nodes (types and ids) on this thread; `times` bound their hops,
    /// those of one type after those of another.
    #[pyo3(signature = (epoch, number, nodes, times = None))]
    fn one_of_nodes<'py>(
        &self,
        py: Python<'py>,
        epoch: u64,
        number: u64,
        nodes: Vec<(usize, Bound<'py, PyAny>)>,
        times: GivenIntegers<'py>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let read = |(t, ids): &(usize, Bound<'_, PyAny>)| {
            array::nodes("node", ids, u32::MAX as usize).map(|ids| (*t, ids))
        };
        let nodes = nodes.iter().map(read).collect::<PyResult<Vec<_>>>()?;
        let latest = times.map_or_else(|| Ok(Vec::new()), |times| integers("time", &times))?;
        let batch = py.detach(|| self.source.one_of_nodes((epoch, number), &nodes, &latest));
        tuple(py, batch.map_err(error::fault)?, &self.layout)
    }

    /// Makes one batch of these links on this thread; `times` bound the hops around their ends.
    #[pyo3(signature = (epoch, number, links, times = None))]
    fn one_of_links<'py>(
        &self,
        py: Python<'py>,
        epoch: u64,
        number: u64,
        links: (Bound<'py, PyAny>, Bound<'py, PyAny>),
        times: GivenIntegers<'py>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let src = array::nodes("row", &links.0, u32::MAX as usize)?;
        let dst = array::nodes("col", &links.1, u32::MAX as usize)?;
        let latest = times.map_or_else(|| Ok(Vec::new()), |times| integers("time", &times))?;
        let edges: Vec<(u32, u32)> = src.into_iter().zip(dst).collect();
        let batch = py.detach(|| self.source.one_of_links((epoch, number), &edges, &latest));
        tuple(py, batch.map_err(error::fault)?, &self.layout)
    }
}

/// Checks numbers of neighbours; -1 is `None`.
fn fanouts(given: Vec<Vec<i64>>) -> PyResult<Vec<Vec<Option<usize>>>> {
    let each = |k: i64| match k {
        -1 => Ok(None),
        0..=1_000_000 => Ok(Some(k as usize)),
        _ => Err(error::value(format!("num_neighbors {k}: use 0 to 1000000 for each hop, or -1 for all"))),
    };
    if let Some(hops) = given.iter().map(Vec::len).find(|&hops| hops > 64) {
        return Err(error::value(format!("num_neighbors: {hops} hops, but at most 64 are supported")));
    }
    given.into_iter().map(|hops| hops.into_iter().map(each).collect()).collect()
}

/// Rules of the draws of each relation, whose edges have these times.
fn draws(
    py: Python<'_>,
    topology: &TypedTopology,
    replace: bool,
    weights: Option<Vec<Option<Bound<'_, PyArray1<f64>>>>>,
    times: &[Option<Times>],
) -> PyResult<Vec<Draws>> {
    let weights = weights.unwrap_or_else(|| topology.relations.iter().map(|_| None).collect());
    let mut all = Vec::with_capacity(weights.len());
    for (r, (relation, weights)) in topology.relations.iter().zip(weights).enumerate() {
        let weights = match weights {
            None => None,
            Some(array) => {
                let array = array.try_readonly().map_err(error::value)?;
                let values = array.as_slice().map_err(|_| array::not_contiguous("weight_attr"))?;
                let ordered = || {
                    let weights = Weights::new(&relation.topology, values)?;
                    match times.get(r).and_then(Option::as_ref) {
                        None => Ok(weights),
                        Some(times) => times.order(&relation.topology, &weights),
                    }
                };
                Some(py.detach(ordered).map_err(error::value)?)
            }
        };
        all.push(Draws { replace, weights });
    }
    Ok(all)
}

/// Order by time of the edges of each relation.
fn times_of(
    py: Python<'_>,
    topology: &TypedTopology,
    given: &GivenTimes<'_>,
) -> PyResult<Vec<Option<Times>>> {
    let read =
        |times: &GivenIntegers<'_>| times.as_ref().map(|times| integers("time_attr", times)).transpose();
    let rule = time_rule(&given.rule)?;
    let each = |(relation, (edges, sources)): (&Relation, &(GivenIntegers<'_>, GivenIntegers<'_>))| {
        let (edges, sources) = (read(edges)?, read(sources)?);
        if edges.is_none() && sources.is_none() {
            return Ok(None);
        }
        let num_sources = topology.types[relation.src].1;
        let of = TimeColumns { edges: edges.as_deref(), sources: sources.as_deref(), num_sources };
        let sorted = py.detach(|| Times::new(&relation.topology, of, rule));
        Ok(Some(sorted.map_err(error::value)?))
    };
    topology.relations.iter().zip(&given.relations).map(each).collect()
}

/// Values of an array of times.
fn integers(name: &str, array: &Bound<'_, PyArray1<i64>>) -> PyResult<Vec<i64>> {
    let array = array.try_readonly().map_err(error::value)?;
    Ok(array.as_slice().map_err(|_| array::not_contiguous(name))?.to_vec())
}

/// Values of an array of weights, if there is one.
fn numbers(name: &str, array: Option<&Bound<'_, PyArray1<f64>>>) -> PyResult<Option<Vec<f64>>> {
    let Some(array) = array else { return Ok(None) };
    let array = array.try_readonly().map_err(error::value)?;
    Ok(Some(array.as_slice().map_err(|_| array::not_contiguous(name))?.to_vec()))
}

/// Inputs: a pair of a type and its nodes, or the fields of [`GivenLinks`].
fn inputs_of(
    py: Python<'_>,
    topology: &TypedTopology,
    given: &Bound<'_, PyAny>,
    disjoint: bool,
    times: Option<&GivenTimes<'_>>,
) -> PyResult<TypedInputs> {
    let latest = times.map_or_else(|| Ok(Vec::new()), |given| integers("input_time", &given.inputs))?;
    if !given.is_instance_of::<PyDict>() {
        let (of, nodes): (usize, Bound<'_, PyAny>) = given.extract()?;
        let nodes = array::nodes("input_nodes", &nodes, topology.types[of].1)?;
        return Ok(TypedInputs::Nodes { of, nodes, latest, disjoint });
    }
    let GivenLinks { types, src, dst, exclude, negatives, known, listed, weights } = given.extract()?;
    let counts = (topology.types[types.0].1, topology.types[types.1].1);
    let from = array::nodes("edge_label_index[0]", &src, counts.0)?;
    let to = array::nodes("edge_label_index[1]", &dst, counts.1)?;
    let negatives = match negatives {
        None => None,
        Some((name, amount, together)) => {
            let known = match known {
                None => (Vec::new(), Vec::new()),
                Some((src, dst)) => (
                    array::nodes("known edges[0]", &src, counts.0)?,
                    array::nodes("known edges[1]", &dst, counts.1)?,
                ),
            };
            let listed = match listed {
                None => None,
                Some((src, dst)) => {
                    let src = array::nodes("pairs[0]", &src, counts.0)?;
                    Some((src, array::nodes("pairs[1]", &dst, counts.1)?))
                }
            };
            let ends = (counts.0, counts.1, types.0 == types.1);
            let known = (&known.0[..], &known.1[..]);
            let exist = times.and_then(|given| given.destinations.as_ref());
            let exist = exist.map(|times| integers("time_attr", times)).transpose()?;
            let src_weight = numbers("src_weight", weights.0.as_ref())?;
            let dst_weight = numbers("dst_weight", weights.1.as_ref())?;
            let given = Given { listed, src_weight, dst_weight, times: exist.as_deref() };
            let made = py.detach(|| Negatives::new(&name, ends, known, (amount, together), given));
            Some(made.map_err(error::value)?)
        }
    };
    let edges = from.into_iter().zip(to).collect();
    Ok(TypedInputs::Links(Box::new(Links { types, edges, latest, negatives, exclude, disjoint })))
}

/// Iterator over the batches of an epoch.
#[pyclass(module = "graphmill._graphmill")]
pub(super) struct TypedBatches {
    batches: Option<Prefetch<TypedBatch>>,
    layout: Arc<Vec<Column>>,
}

#[pymethods]
impl TypedBatches {
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

/// Converts a batch to (number, inputs, nodes of each type, edge_index of each relation, edges of
/// each relation, tree of each type's nodes, tables, nodes per hop, edges per hop, pairs).
fn tuple<'py>(py: Python<'py>, batch: TypedBatch, layout: &[Column]) -> PyResult<Bound<'py, PyTuple>> {
    let ids = |lease: crate::pool::Lease| {
        let n = lease.of::<i64>().len();
        array::of_ids(py, lease, &[n])
    };
    let nodes: Vec<usize> = batch.nodes.iter().map(|lease| lease.of::<i64>().len()).collect();
    let edges: Vec<usize> = batch.edges.iter().map(|lease| lease.of::<i64>().len()).collect();
    let tables = PyList::empty(py);
    for (lease, Column { of, descr, shape }) in batch.tables.into_iter().zip(layout) {
        let rows = match of {
            TypedOf::Nodes(t) => nodes[*t],
            TypedOf::Edges(r) => edges[*r],
        };
        let shape: Vec<usize> = std::iter::once(rows).chain(shape.iter().copied()).collect();
        tables.append(array::of_lease(py, lease, descr.bind(py).clone(), &shape)?)?;
    }
    let all = |leases: Vec<crate::pool::Lease>| leases.into_iter().map(ids).collect::<PyResult<Vec<_>>>();
    let index = batch.edge_index.into_iter().zip(&edges);
    let index = index.map(|(lease, &edges)| array::of_ids(py, lease, &[2, edges]));
    (
        batch.number,
        ids(batch.inputs)?,
        all(batch.nodes)?,
        index.collect::<PyResult<Vec<_>>>()?,
        all(batch.edges)?,
        batch.tree.map(all).transpose()?,
        tables,
        batch.nodes_per_hop,
        batch.edges_per_hop,
        batch.pairs.map(|[src, dst]| Ok::<_, PyErr>((ids(src)?, ids(dst)?))).transpose()?,
    )
        .into_pyobject(py)
}
