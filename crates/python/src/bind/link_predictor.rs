//! A run on links that stays open: scores of pairs, best candidates and embeddings.

use std::path::PathBuf;

use graphmill_core::{NodeId, memory};
use graphmill_engine::{
    predictor::{LinkPredictor as Opened, NewEvents, TopOptions},
    saved::{SavedRun, links::Reading},
};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::{
    array, error,
    given::{Data, Given},
    saved::Candidates,
    wait,
};

/// Predictor of a run on links. Relations and node types have their numbers.
#[pyclass(frozen, module = "graphmill._graphmill")]
pub(super) struct LinkPredictor(Opened);

#[pymethods]
impl LinkPredictor {
    #[new]
    fn new(
        py: Python<'_>,
        run: PathBuf,
        dataset: Option<Given<'_>>,
        last: bool,
        all_edges: bool,
    ) -> PyResult<Self> {
        let data = dataset.map(|dataset| dataset.data());
        let reading = if all_edges { Reading::All } else { Reading::Training };
        let opened = wait::quietly(py, move |progress| {
            Data::links(data.as_ref(), &SavedRun::open(&run, last)?, reading, progress)
        })?;
        opened.map(Self).map_err(error::engine)
    }

    /// Number of the relation of this name, or of the only one.
    fn relation(&self, name: &str) -> PyResult<usize> {
        self.0.relation(name).map_err(error::engine)
    }

    /// Number of the node type of this name, or of the first.
    fn node_type(&self, name: &str) -> PyResult<usize> {
        self.0.node_type(name).map_err(error::engine)
    }

    /// Nodes of keys in a type.
    fn find<'py>(
        &self,
        py: Python<'py>,
        node_type: usize,
        keys: Vec<String>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let nodes = keys.iter().map(|key| self.0.find(node_type, key).map(i64::from));
        Ok(PyArray1::from_vec(py, nodes.collect::<Result<Vec<_>, _>>().map_err(error::engine)?))
    }

    /// Scores of pairs of a relation.
    fn score<'py>(
        &self,
        py: Python<'py>,
        relation: usize,
        source: &Bound<'py, PyAny>,
        destination: &Bound<'py, PyAny>,
        at: Option<i64>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let pairs = self.pairs(relation, source, destination)?;
        let scores = py
            .detach(|| memory::catch(|| self.0.score_at(relation, &pairs, at)))
            .map_err(error::graph)?
            .map_err(error::engine)?;
        Ok(PyArray1::from_vec(py, scores))
    }

    /// The `k` best candidates of nodes in a relation.
    fn top<'py>(
        &self,
        py: Python<'py>,
        nodes: (usize, Bound<'py, PyAny>),
        k: usize,
        sources: bool,
        include_known: bool,
        at: Option<i64>,
    ) -> PyResult<Candidates<'py>> {
        let (relation, nodes) = nodes;
        let [source, destination] = self.0.relations()[relation].ends;
        let fixed = if sources { destination } else { source };
        let nodes = array::nodes("nodes", &nodes, self.0.num_nodes(fixed))?;
        let options = TopOptions { k, sources, include_known, at };
        let best = py
            .detach(|| memory::catch(|| self.0.top(relation, &nodes, options)))
            .map_err(error::graph)?
            .map_err(error::engine)?;
        let of_nodes = nodes.iter().zip(&best).flat_map(|(&node, best)| best.iter().map(move |_| node));
        let of_nodes: Vec<NodeId> = of_nodes.collect();
        let (candidates, scores): (Vec<NodeId>, Vec<f32>) = best.into_iter().flatten().unzip();
        let ids = |ids| PyArray1::from_vec(py, ids);
        Ok((ids(of_nodes), ids(candidates), PyArray1::from_vec(py, scores)))
    }

    /// Embeddings of nodes of a type (`N * F`).
    fn embed<'py>(
        &self,
        py: Python<'py>,
        node_type: usize,
        nodes: &Bound<'py, PyAny>,
        at: Option<i64>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let nodes = array::nodes("nodes", nodes, self.0.num_nodes(node_type))?;
        let rows = py
            .detach(|| memory::catch(|| self.0.embed_at(node_type, &nodes, at)))
            .map_err(error::graph)?
            .map_err(error::engine)?;
        Ok(PyArray1::from_vec(py, rows))
    }

    /// Adds events to the stream of a run on events.
    fn add_events(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        destination: &Bound<'_, PyAny>,
        times: PyReadonlyArray1<'_, i64>,
        features: PyReadonlyArray1<'_, f32>,
    ) -> PyResult<()> {
        let pairs = self.pairs(0, source, destination)?;
        let (times, features) = (times.as_slice()?.to_vec(), features.as_slice()?.to_vec());
        let new = NewEvents { pairs, times, features };
        py.detach(|| self.0.add_events(&new)).map_err(error::engine)
    }

    /// Numbers of events and of features of each; `None` if the run learned no events.
    #[getter]
    fn events(&self) -> Option<[usize; 2]> {
        self.0.events()
    }

    /// Time after all events; `None` if the run learned none.
    #[getter]
    fn end_time(&self) -> Option<i64> {
        self.0.end_time()
    }

    /// Relations with the numbers of the types of source and destination.
    #[getter]
    fn relations(&self) -> Vec<(String, usize, usize)> {
        self.0.relations().iter().map(|of| (of.name.clone(), of.ends[0], of.ends[1])).collect()
    }

    /// Node types that have embeddings; `None` for the nodes of a dataset of one type.
    #[getter]
    fn node_types(&self) -> Vec<Option<String>> {
        self.0.node_types().map(|name| name.map(str::to_owned)).collect()
    }

    /// Width of the embeddings.
    #[getter]
    fn embedding_dim(&self) -> usize {
        self.0.embedding_dim()
    }
}

impl LinkPredictor {
    /// Pairs of the sources and destinations of a relation.
    fn pairs(
        &self,
        relation: usize,
        source: &Bound<'_, PyAny>,
        destination: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<(NodeId, NodeId)>> {
        let [of_source, of_destination] = self.0.relations()[relation].ends;
        let source = array::nodes("source", source, self.0.num_nodes(of_source))?;
        let destination = array::nodes("destination", destination, self.0.num_nodes(of_destination))?;
        if source.len() != destination.len() {
            let (sources, destinations) = (source.len(), destination.len());
            return Err(error::value(format!(
                "{sources} sources for {destinations} destinations; pass one of each for every pair"
            )));
        }
        Ok(source.into_iter().zip(destination).collect())
    }
}
