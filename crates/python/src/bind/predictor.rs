//! A run that stays open and answers for single nodes.

use std::path::PathBuf;

use graphmill_core::NodeId;
use graphmill_engine::{
    predictor::{Neighborhood, NewNodes, Predictor as Opened},
    saved::{
        SavedRun,
        on::{NewFeatures, NewTypedFeatures},
    },
};
use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;

use super::{
    array, error,
    given::{Data, Given},
    wait,
};

/// Edge type, sources, destinations and weights of new edges.
type EdgesOfType<'py> = (String, Bound<'py, PyAny>, Bound<'py, PyAny>, PyReadonlyArray1<'py, f32>);

/// Classes (`N`, or `N * K` of several columns; empty if the run predicts labels or values) and
/// scores (`N * C`) of nodes.
type Answers<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f32>>);

/// Predictor of a run.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(super) struct Predictor(Opened);

#[pymethods]
impl Predictor {
    #[new]
    fn new(py: Python<'_>, run: PathBuf, dataset: Option<Given<'_>>, last: bool) -> PyResult<Self> {
        let data = dataset.map(|dataset| dataset.data());
        let opened = wait::quietly(py, move |_| match data {
            None => Opened::open(&run, None, last),
            Some(Data::One(data)) => Opened::new(SavedRun::open(&run, last)?, data.as_ref().clone()),
            Some(Data::Directory(path)) => Opened::open(&run, Some(&path), last),
            Some(Data::Several(data)) => Opened::of_types(SavedRun::open(&run, last)?, data.as_ref().clone()),
        })?;
        opened.map(Self).map_err(error::engine)
    }

    /// Nodes of keys.
    fn find<'py>(&self, py: Python<'py>, keys: Vec<String>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let nodes = keys.iter().map(|key| self.0.find(key).map(i64::from)).collect::<Result<Vec<_>, _>>();
        Ok(PyArray1::from_vec(py, nodes.map_err(error::engine)?))
    }

    /// Classes and scores of nodes.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        nodes: &Bound<'py, PyAny>,
        seed: Option<u64>,
    ) -> PyResult<Answers<'py>> {
        let nodes = array::nodes("nodes", nodes, self.0.num_nodes())?;
        let of = seed.map_or(Neighborhood::All, |seed| Neighborhood::Drawn { seed });
        let answers = py.detach(|| self.0.predict(&nodes, of)).map_err(error::engine)?;
        Ok((PyArray1::from_vec(py, answers.classes), PyArray1::from_vec(py, answers.scores)))
    }

    /// Classes and scores of new nodes with the feature rows `x` (`N x F`), and the number of edges
    /// between known nodes, which are left out. An edge has a source, a destination and a weight.
    fn predict_new<'py>(
        &self,
        py: Python<'py>,
        x: PyReadonlyArray2<'py, f32>,
        edges: (Bound<'py, PyAny>, Bound<'py, PyAny>, PyReadonlyArray1<'py, f32>),
        undirected: bool,
        seed: Option<u64>,
    ) -> PyResult<(Answers<'py>, u64)> {
        let (&[rows, width], dim) = (x.shape(), self.0.feature_dim()) else {
            return Err(error::value("x: expected two dimensions"));
        };
        if width != dim {
            return Err(error::value(format!(
                "x: rows of {width} features, but the dataset has {dim}; pass rows of {dim}"
            )));
        }
        let count = self.0.num_nodes() + rows;
        let (source, destination) = (
            array::nodes("edge_index[0]", &edges.0, count)?,
            array::nodes("edge_index[1]", &edges.1, count)?,
        );
        let edges = listed(source, destination, &edges.2)?;
        let new = NewFeatures { rows: x.as_array().iter().copied().collect(), edges, undirected };
        self.joined(py, &NewNodes::Features(new), seed)
    }

    /// As [`Predictor::predict_new`] with the feature rows of each node type and the edges of each
    /// edge type.
    fn predict_new_types<'py>(
        &self,
        py: Python<'py>,
        rows: Vec<(String, PyReadonlyArray2<'py, f32>)>,
        edges: Vec<EdgesOfType<'py>>,
        undirected: bool,
        seed: Option<u64>,
    ) -> PyResult<(Answers<'py>, u64)> {
        let mut new = NewTypedFeatures { undirected, ..NewTypedFeatures::default() };
        for (name, x) in rows {
            let width = x.shape().last().copied().unwrap_or_default();
            new.rows.insert(name, (width, x.as_array().iter().copied().collect()));
        }
        for (name, source, destination, weights) in edges {
            let ends = |place: usize, ends| {
                array::nodes(&format!("edge_index['{name}'][{place}]"), ends, NodeId::MAX as usize)
            };
            let edges = listed(ends(0, &source)?, ends(1, &destination)?, &weights)?;
            new.edges.insert(name, edges);
        }
        self.joined(py, &NewNodes::TypedFeatures(new), seed)
    }

    /// Task of the run: "classes", "columns", "labels" or "values".
    #[getter]
    fn task(&self) -> &'static str {
        self.0.task().name()
    }

    /// Type of the nodes that the run predicts, if the dataset has several.
    #[getter]
    fn node_type(&self) -> Option<&str> {
        self.0.node_type()
    }

    /// Columns of classes with the number of their classes; empty unless there are several.
    #[getter]
    fn class_columns(&self) -> Vec<(String, usize)> {
        self.0.class_columns().iter().map(|column| (column.name.clone(), column.classes)).collect()
    }

    /// Names of the classes, of all columns together; empty if they have none.
    #[getter]
    fn class_names(&self) -> Vec<String> {
        self.0.class_names().to_vec()
    }

    /// Number of scores per node.
    #[getter]
    fn num_scores(&self) -> usize {
        self.0.num_scores()
    }

    /// Number of nodes.
    #[getter]
    fn num_nodes(&self) -> usize {
        self.0.num_nodes()
    }
}

impl Predictor {
    /// Classes and scores of new nodes, and the number of edges between known nodes.
    fn joined<'py>(
        &self,
        py: Python<'py>,
        new: &NewNodes,
        seed: Option<u64>,
    ) -> PyResult<(Answers<'py>, u64)> {
        let of = seed.map_or(Neighborhood::All, |seed| Neighborhood::Drawn { seed });
        let found = py.detach(|| self.0.predict_new(new, of)).map_err(error::engine)?;
        let answers = found.answers;
        let answers = (PyArray1::from_vec(py, answers.classes), PyArray1::from_vec(py, answers.scores));
        Ok((answers, found.read.known_edges))
    }
}

/// Source, destination and weight of each edge.
fn listed(
    source: Vec<NodeId>,
    destination: Vec<NodeId>,
    weights: &PyReadonlyArray1<'_, f32>,
) -> PyResult<Vec<(NodeId, NodeId, f32)>> {
    let weights = weights.as_array();
    if [destination.len(), weights.len()] != [source.len(); 2] {
        return Err(error::value(format!(
            "{} edge sources for {} destinations and {} weights; pass one of each for every edge",
            source.len(),
            destination.len(),
            weights.len()
        )));
    }
    let ends = source.into_iter().zip(destination).zip(weights);
    Ok(ends.map(|((u, v), &weight)| (u, v, weight)).collect())
}
