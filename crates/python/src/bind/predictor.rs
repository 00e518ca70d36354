//! A run that stays open and answers for single nodes.

use std::path::PathBuf;

use graphmill_engine::{
    predictor::{Neighborhood, Predictor as Opened},
    saved::SavedRun,
};
use numpy::PyArray1;
use pyo3::{exceptions::PyTypeError, prelude::*};

use super::{
    array, error,
    given::{Data, Given},
    wait,
};

/// Classes (`N`, empty if the run predicts no single class) and scores (`N * C`) of nodes.
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
            None => Ok(Some(Opened::open(&run, None, last)?)),
            Some(Data::One(data)) => {
                Ok(Some(Opened::new(SavedRun::open(&run, last)?, data.as_ref().clone())?))
            }
            Some(Data::Several(_)) => Ok(None),
        })?;
        let opened = opened.map_err(error::engine)?;
        let why = "dataset: a predictor answers for graphs of one type; use graphmill.predict";
        opened.map(Self).ok_or_else(|| PyTypeError::new_err(why))
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

    /// Task of the run: "classes", "labels" or "values".
    #[getter]
    fn task(&self) -> &'static str {
        self.0.task().name()
    }

    /// Names of the classes; empty if they have none.
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
