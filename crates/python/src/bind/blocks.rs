//! Message-flow blocks for users of DGL.

use std::sync::Arc;

use graphmill_engine::TrainConfig;
use numpy::PyArrayDescr;
use pyo3::{
    prelude::*,
    types::{PyList, PyTuple},
};

use super::{array, dataset::Dataset, error, loader::Schedule, run::configure, tiers::Tiers, wait};
use crate::{
    blocks::{self, BlockArrays, BlockBatch},
    prefetch::Prefetch,
};

/// Source of blocks around some nodes of a dataset.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(super) struct BlockSource {
    source: Arc<blocks::BlockSource>,
    /// Type and width of feature rows, if batches have them.
    rows: Option<(Arc<Py<PyArrayDescr>>, usize)>,
}

#[pymethods]
impl BlockSource {
    /// Creates a source. `options` are the options of `train` that configure a sampler; features
    /// are gathered through `tiers`, if given.
    #[new]
    fn new(
        py: Python<'_>,
        dataset: &Dataset,
        inputs: &Bound<'_, PyAny>,
        options: &str,
        with_features: bool,
        tiers: Option<&Tiers>,
    ) -> PyResult<Self> {
        let mut config = TrainConfig::default();
        let mut given = configure(&mut config, options, &blocks::options())?;
        // every sampler here takes fanouts; those of all neighbours read only the number of layers
        given.retain(|name| *name != "fanout");
        config.refuse_unused(&given).map_err(error::engine)?;
        let inputs = array::nodes("input nodes", inputs, dataset.data.num_nodes())?;
        let (table, rows) = if with_features && dataset.data.features.dim > 0 {
            let (table, shape, descr) = match tiers {
                Some(tiers) => tiers.table(py, 0)?,
                None => dataset.features(py)?,
            };
            (Some(table), Some((Arc::new(descr), shape[0])))
        } else {
            (None, None)
        };
        let data = dataset.data.clone();
        let made = py.detach(|| blocks::BlockSource::new(data, inputs, &config, table));
        Ok(Self { source: made.map_err(error::value)?, rows })
    }

    #[getter]
    fn num_inputs(&self) -> usize {
        self.source.num_inputs()
    }

    /// Starts an epoch, by the keyword arguments of [`Schedule`].
    #[pyo3(signature = (**schedule))]
    fn start(&self, py: Python<'_>, schedule: Option<Schedule<'_>>) -> PyResult<BlockBatches> {
        let (epoch, threads, ahead) = Schedule::given(schedule)?;
        let batches = py.detach(|| self.source.start(epoch, threads, ahead)).map_err(error::value)?;
        Ok(BlockBatches { batches: Some(batches), rows: self.rows.clone() })
    }
}

/// Iterator over the batches of an epoch.
#[pyclass(module = "graphmill._graphmill")]
pub(super) struct BlockBatches {
    batches: Option<Prefetch<BlockBatch>>,
    rows: Option<(Arc<Py<PyArrayDescr>>, usize)>,
}

#[pymethods]
impl BlockBatches {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(batches) = &self.batches else { return Ok(None) };
        match wait::next(py, batches)? {
            Some(batch) => self.tuple(py, batch).map(Some),
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

impl BlockBatches {
    /// Converts a batch to (number, inputs, seeds, input nodes, blocks, features), where a block is
    /// (destinations, sources, indptr, indices, weights).
    fn tuple<'py>(&self, py: Python<'py>, batch: BlockBatch) -> PyResult<Bound<'py, PyTuple>> {
        let ids = |lease: crate::pool::Lease| {
            let count = lease.bytes().len() / 8;
            array::of_ids(py, lease, &[count])
        };
        let blocks = PyList::empty(py);
        for BlockArrays { num_dst, num_src, indptr, indices, weights } in batch.blocks {
            let weights = weights.map(|lease| {
                let count = lease.bytes().len() / 4;
                array::of_lease(py, lease, <f32 as numpy::Element>::get_dtype(py), &[count])
            });
            blocks.append((num_dst, num_src, ids(indptr)?, ids(indices)?, weights.transpose()?))?;
        }
        let count = batch.input_nodes.bytes().len() / 8;
        let features = match (batch.features, &self.rows) {
            (Some(lease), Some((descr, dim))) => {
                Some(array::of_lease(py, lease, descr.bind(py).clone(), &[count, *dim])?)
            }
            _ => None,
        };
        (batch.number, ids(batch.inputs)?, ids(batch.seeds)?, ids(batch.input_nodes)?, blocks, features)
            .into_pyobject(py)
    }
}
