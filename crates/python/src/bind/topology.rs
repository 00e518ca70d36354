//! Topologies: the edges that loaders draw from.

use std::sync::Arc;

use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;

use super::{array, array::with_ids, error};
use crate::topology;

/// Edges between the nodes of a graph.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(super) struct Topology(pub(super) Arc<topology::Topology>);

#[pymethods]
impl Topology {
    /// Builds the topology of edges `src[e]` to `dst[e]`.
    #[staticmethod]
    fn from_edges(
        py: Python<'_>,
        num_nodes: usize,
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let made = with_ids!("edge_index[0]", src, |src| {
            // both rows come from one array, so their types are equal
            let dst = same_as(src, dst)?;
            let dst = dst.as_slice().map_err(|_| array::not_contiguous("edge_index[1]"))?;
            py.detach(|| topology::Topology::from_edges(num_nodes, src, dst))
        });
        Ok(Self(Arc::new(made.map_err(error::value)?)))
    }

    /// Builds the topology of edges between two node types.
    #[staticmethod]
    fn bipartite(
        py: Python<'_>,
        num_src: usize,
        num_dst: usize,
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let made = with_ids!("edge_index[0]", src, |src| {
            let dst = same_as(src, dst)?;
            let dst = dst.as_slice().map_err(|_| array::not_contiguous("edge_index[1]"))?;
            py.detach(|| topology::Topology::bipartite(num_src, num_dst, src, dst))
        });
        Ok(Self(Arc::new(made.map_err(error::value)?)))
    }

    /// Builds the topology of compressed columns.
    #[staticmethod]
    fn from_columns(py: Python<'_>, indptr: &Bound<'_, PyAny>, indices: &Bound<'_, PyAny>) -> PyResult<Self> {
        let made = with_ids!("indptr", indptr, |indptr| with_ids!("indices", indices, |indices| {
            py.detach(|| topology::Topology::from_columns(indptr, indices))
        }));
        Ok(Self(Arc::new(made.map_err(error::value)?)))
    }

    #[getter]
    pub(super) fn num_nodes(&self) -> usize {
        self.0.graph().num_nodes()
    }

    #[getter]
    fn num_edges(&self) -> usize {
        self.0.graph().num_edges()
    }
}

/// Casts an array to the element type of `of`.
fn same_as<'py, T: numpy::Element>(
    _of: &[T],
    given: &Bound<'py, PyAny>,
) -> PyResult<numpy::PyReadonlyArray1<'py, T>> {
    let array = given.cast::<PyArray1<T>>().map_err(|_| array::not_ids("edge_index[1]", given))?;
    array.try_readonly().map_err(|e| error::value(format!("edge_index[1]: {e}")))
}
