//! Message-flow blocks of several types for users of DGL.

use std::sync::Arc;

use graphmill_engine::TrainConfig;
use numpy::{Element, PyArrayDescr};
use pyo3::{
    prelude::*,
    types::{PyList, PyTuple},
};

use super::{array, error, loader::Schedule, run::read_options, tiers::Tiers, typed::TypedDataset, wait};
use crate::{
    pool::Lease,
    prefetch::Prefetch,
    table::Table,
    typed::blocks::{self, TypedBlockArrays, TypedBlockBatch},
};

/// Type of a table's nodes, and the layout of its rows in Python.
type Column = (usize, Py<PyArrayDescr>, Vec<usize>);

/// Source of typed blocks around some nodes of a dataset.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(super) struct TypedBlockSource {
    source: Arc<blocks::TypedBlockSource>,
    layout: Arc<Vec<Column>>,
}

#[pymethods]
impl TypedBlockSource {
    /// Creates a source of blocks around `inputs` (types and ids), with rows of `tables`. `sampler`
    /// is its name, a fanout for each edge type or node type, and its options of `train`.
    #[new]
    fn new(
        py: Python<'_>,
        dataset: &TypedDataset,
        inputs: Vec<(usize, Bound<'_, PyAny>)>,
        sampler: (String, Vec<Vec<i64>>, String),
        tables: Vec<(usize, Bound<'_, PyAny>)>,
        seed: u64,
    ) -> PyResult<Self> {
        let (sampler, fanouts, options) = sampler;
        let mut config = TrainConfig::default();
        let given = read_options(&mut config, &options, &blocks::options())?;
        blocks::refuse_unread(&sampler, &given).map_err(error::value)?;
        let graph = py.detach(|| dataset.data.graph()).map_err(error::graph)?;
        let mut nodes = Vec::new();
        for (t, ids) in inputs {
            let count = graph.schema().types()[t].count;
            nodes.extend(array::nodes("input nodes", &ids, count)?.into_iter().map(|v| (t, v)));
        }
        let (mut rows, mut layout) = (Vec::new(), Vec::new());
        for (t, given) in tables {
            let (table, shape, descr) = if let Ok(tiers) = given.cast::<Tiers>() {
                tiers.get().table(py, t)?
            } else {
                let array::Table { rows, descr, shape } = array::table("features", &given)?;
                (Table::Rows(rows), shape, descr)
            };
            rows.push((t, table));
            layout.push((t, descr, shape));
        }
        let how = (&sampler[..], &fanouts[..], config.own);
        let made = blocks::TypedBlockSource::new(graph, nodes, how, rows, seed);
        Ok(Self { source: made.map_err(error::value)?, layout: Arc::new(layout) })
    }

    #[getter]
    fn num_inputs(&self) -> usize {
        self.source.num_inputs()
    }

    /// Starts an epoch, by the keyword arguments of [`Schedule`].
    #[pyo3(signature = (**schedule))]
    fn start(&self, py: Python<'_>, schedule: Option<Schedule<'_>>) -> PyResult<TypedBlockBatches> {
        let (epoch, threads, ahead) = Schedule::given(schedule)?;
        let batches = py.detach(|| self.source.start(epoch, threads, ahead)).map_err(error::value)?;
        Ok(TypedBlockBatches { batches: Some(batches), layout: self.layout.clone() })
    }
}

/// Iterator over the batches of an epoch.
#[pyclass(module = "graphmill._graphmill")]
pub(super) struct TypedBlockBatches {
    batches: Option<Prefetch<TypedBlockBatch>>,
    layout: Arc<Vec<Column>>,
}

#[pymethods]
impl TypedBlockBatches {
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

/// Converts a batch to (number, inputs, seeds of each type, input nodes of each type, blocks,
/// tables), where a block is (destinations, sources, edges of each relation) and edges are (indptr,
/// indices, weights).
fn tuple<'py>(py: Python<'py>, batch: TypedBlockBatch, layout: &[Column]) -> PyResult<Bound<'py, PyTuple>> {
    let ids = |lease: Lease| {
        let count = lease.of::<i64>().len();
        array::of_ids(py, lease, &[count])
    };
    let all = |leases: Vec<Lease>| leases.into_iter().map(ids).collect::<PyResult<Vec<_>>>();
    let counts: Vec<usize> = batch.input_nodes.iter().map(|lease| lease.of::<i64>().len()).collect();
    let tables = PyList::empty(py);
    for (lease, (t, descr, shape)) in batch.tables.into_iter().zip(layout) {
        let shape: Vec<usize> = std::iter::once(counts[*t]).chain(shape.iter().copied()).collect();
        tables.append(array::of_lease(py, lease, descr.bind(py).clone(), &shape)?)?;
    }
    let blocks = PyList::empty(py);
    for TypedBlockArrays { num_dst, num_src, relations } in batch.blocks {
        let edges = PyList::empty(py);
        for (indptr, indices, weights) in relations {
            let weights = weights.map(|lease| {
                let count = lease.bytes().len() / 4;
                array::of_lease(py, lease, f32::get_dtype(py), &[count])
            });
            edges.append((ids(indptr)?, ids(indices)?, weights.transpose()?))?;
        }
        blocks.append((num_dst, num_src, edges))?;
    }
    (batch.number, ids(batch.inputs)?, all(batch.seeds)?, all(batch.input_nodes)?, blocks, tables)
        .into_pyobject(py)
}
