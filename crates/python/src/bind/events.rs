//! Streams of events, and the last neighbours of nodes in them.

use std::ops::Range;

use graphmill_loader::{
    BatchKey,
    time::{Events as Stream, LastNeighbors as Store},
};
use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;

use super::{array, error};

/// Number of nodes that ids of 32 bits allow.
const MAX_NODES: usize = u32::MAX as usize;

/// Events in the order of their times.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(super) struct Events {
    stream: Stream,
    destinations: Range<u32>,
}

#[pymethods]
impl Events {
    #[new]
    fn new(
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        time: &Bound<'_, PyArray1<i64>>,
    ) -> PyResult<Self> {
        let (source, destination) =
            (array::nodes("src", src, MAX_NODES)?, array::nodes("dst", dst, MAX_NODES)?);
        let destinations = match (destination.iter().min(), destination.iter().max()) {
            (Some(&low), Some(&high)) => low..high + 1,
            _ => 0..0,
        };
        let time = time.try_readonly().map_err(error::value)?;
        let time = time.as_slice().map_err(|_| array::not_contiguous("t"))?.to_vec();
        let stream = Stream::new(source.into(), destination.into(), time.into()).map_err(error::graph)?;
        Ok(Self { stream, destinations })
    }

    /// Negatives (`count`) and distinct nodes, ascending, of the events from the first to the
    /// second of `events`. Negatives are functions of the seed and the epoch in `of`.
    fn batch<'py>(
        &self,
        py: Python<'py>,
        events: (usize, usize),
        count: usize,
        of: (u64, u64),
    ) -> PyResult<[Bound<'py, PyArray1<i64>>; 2]> {
        let range = events.0..events.1;
        let made = py.detach(|| {
            let each = count.div_ceil(range.len().max(1));
            let of = BatchKey { seed: of.0, epoch: of.1, batch: 0 };
            let mut negatives = match count {
                0 => Vec::new(),
                _ => self.stream.negatives(range.clone(), &self.destinations, each, of)?,
            };
            negatives.truncate(count);
            let mut nodes = self.stream.number(range, &negatives)?.nodes;
            nodes.sort_unstable();
            Ok([negatives, nodes])
        });
        Ok(made.map_err(error::graph)?.map(|ids| of_ids(py, ids)))
    }
}

/// Array of node ids of 64 bits.
fn of_ids(py: Python<'_>, ids: Vec<u32>) -> Bound<'_, PyArray1<i64>> {
    PyArray1::from_iter(py, ids.into_iter().map(i64::from))
}

/// The last events of every node.
#[pyclass(module = "graphmill._graphmill")]
pub(super) struct LastNeighbors {
    store: Store,
    num_nodes: usize,
}

#[pymethods]
impl LastNeighbors {
    #[new]
    fn new(num_nodes: usize, size: usize) -> PyResult<Self> {
        Ok(Self { store: Store::new(num_nodes, size).map_err(error::graph)?, num_nodes })
    }

    fn clear(&mut self) {
        self.store.clear();
    }

    fn insert(&mut self, src: &Bound<'_, PyAny>, dst: &Bound<'_, PyAny>) -> PyResult<()> {
        let src = array::nodes("src", src, self.num_nodes)?;
        let dst = array::nodes("dst", dst, self.num_nodes)?;
        self.store.insert_pairs(&src, &dst).map_err(error::graph)
    }

    /// Stored events of nodes, the newest first: position among `nodes`, neighbour and number of
    /// each event.
    fn of_nodes<'py>(
        &self,
        py: Python<'py>,
        nodes: &Bound<'py, PyAny>,
    ) -> PyResult<[Bound<'py, PyArray1<i64>>; 3]> {
        let nodes = array::nodes("n_id", nodes, self.num_nodes)?;
        let (mut places, mut neighbors, mut events) = (Vec::new(), Vec::new(), Vec::new());
        for (place, &v) in (0i64..).zip(&nodes) {
            for (neighbor, event) in self.store.of_node(v).rev() {
                places.push(place);
                neighbors.push(i64::from(neighbor));
                events.push(event as i64);
            }
        }
        Ok([places, neighbors, events].map(|values| PyArray1::from_vec(py, values)))
    }

    fn save(&self) -> Vec<u8> {
        self.store.save()
    }

    fn restore(&mut self, bytes: &[u8]) -> PyResult<()> {
        self.store.restore(bytes).map_err(error::graph)
    }
}
