//! Commands on saved runs: scores, predictions, embeddings, best candidates, and models for other
//! libraries.

use std::path::{Path, PathBuf};

use graphmill_engine::{
    CandidateOptions, EmbedOptions, Error, Result,
    propagation::PropagationOptions,
    saved::{
        Kind, Propagation, SavedRun, Selection,
        links::BestLinks,
        on::{BestOfNew, NewTables},
    },
};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use super::{
    error,
    given::{Data, Given},
    tables::{Named, in_memory},
    wait,
};

/// Nodes of a question: a list file of ids, keys, or neither for all nodes.
type NodesAndKeys = (Option<PathBuf>, Option<Vec<String>>);

/// The selection of these nodes.
fn selection((nodes, keys): &NodesAndKeys) -> Selection<'_> {
    match (nodes, keys) {
        (Some(nodes), _) => Selection::Nodes(nodes),
        (None, Some(keys)) => Selection::KeyList(keys),
        (None, None) => Selection::All,
    }
}

/// Scores a run's model by every metric on every part of the split; returns JSON.
#[pyfunction]
#[pyo3(signature = (run, dataset, last, propagate))]
pub(super) fn evaluate(
    py: Python<'_>,
    run: PathBuf,
    dataset: Option<Given<'_>>,
    last: bool,
    propagate: Option<(String, String)>,
) -> PyResult<String> {
    let data = dataset.map(|dataset| dataset.data());
    let scores = wait::quietly(py, move |progress| {
        Data::scores(data.as_ref(), &opened(&run, last, propagate)?, progress)
    })?;
    serde_json::to_string(&scores.map_err(error::engine)?).map_err(error::value)
}

/// A run with the propagation of this name, whose options are JSON, after its model.
///
/// # Errors
/// The run cannot be opened, or it or an option does not fit the propagation.
fn opened(run: &Path, last: bool, propagate: Option<(String, String)>) -> Result<SavedRun> {
    let saved = SavedRun::open(run, last)?;
    let Some((name, options)) = propagate else { return Ok(saved) };
    let wrong = |error: serde_json::Error| Error::usage(format!("propagation: {error}"));
    let options: PropagationOptions = serde_json::from_str(&options).map_err(wrong)?;
    saved.with_propagation(Propagation::new(&name, options)?)
}

/// Writes predictions of a run's model to a file; returns their description as JSON.
#[pyfunction]
#[pyo3(signature = (run, dataset, asked, kind, last, original_ids, at, propagate, out))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of one caller")]
pub(super) fn predict(
    py: Python<'_>,
    run: PathBuf,
    dataset: Option<Given<'_>>,
    asked: NodesAndKeys,
    kind: &str,
    last: bool,
    original_ids: bool,
    at: Option<i64>,
    propagate: Option<(String, String)>,
    out: PathBuf,
) -> PyResult<String> {
    let kind = kind_of(kind)?;
    let data = dataset.map(|dataset| dataset.data());
    let written = wait::quietly(py, move |progress| {
        let saved = opened(&run, last, propagate)?;
        let saved = if let Some(at) = at { saved.as_of(at)? } else { saved };
        let selected = (selection(&asked), original_ids);
        Data::predict(data.as_ref(), &saved, selected, (kind, &out), progress)
    })?;
    serde_json::to_string(&written.map_err(error::engine)?).map_err(error::value)
}

/// Writes embeddings of nodes to a file; returns their description as JSON. `options` are a node
/// type, whether to read all edges, and a time.
#[pyfunction]
#[pyo3(signature = (run, dataset, asked, options, last, out))]
pub(super) fn embed(
    py: Python<'_>,
    run: PathBuf,
    dataset: Option<Given<'_>>,
    asked: NodesAndKeys,
    options: (Option<String>, bool, Option<i64>),
    last: bool,
    out: PathBuf,
) -> PyResult<String> {
    let data = dataset.map(|dataset| dataset.data());
    let written = wait::quietly(py, move |progress| {
        let (node_type, all_edges, at) = options;
        let options = EmbedOptions { node_type: node_type.as_deref(), all_edges, at };
        let saved = SavedRun::open(&run, last)?;
        Data::embed(data.as_ref(), &saved, (selection(&asked), options), &out, progress)
    })?;
    serde_json::to_string(&written.map_err(error::engine)?).map_err(error::value)
}

/// Nodes, their candidates, and the scores of the pairs (`N` each).
pub(super) type Candidates<'py> =
    (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<f32>>);

/// The `k` best candidates of nodes. `options` are whether to read all edges, a relation, whether
/// to rank sources, and a time.
#[pyfunction]
#[pyo3(signature = (run, dataset, asked, k, options, last))]
pub(super) fn candidates<'py>(
    py: Python<'py>,
    run: PathBuf,
    dataset: Option<Given<'py>>,
    asked: NodesAndKeys,
    k: usize,
    options: (bool, Option<String>, bool, Option<i64>),
    last: bool,
) -> PyResult<Candidates<'py>> {
    let data = dataset.map(|dataset| dataset.data());
    let best = wait::quietly(py, move |progress| {
        let (all_edges, relation, sources, at) = options;
        let options = CandidateOptions { k, all_edges, relation: relation.as_deref(), sources, at };
        let saved = SavedRun::open(&run, last)?;
        Data::candidates(data.as_ref(), &saved, selection(&asked), options, progress)
    })?;
    let best = best.map_err(error::engine)?;
    Ok(arrays(py, best))
}

/// Arrays of pairs.
fn arrays(py: Python<'_>, best: BestLinks) -> Candidates<'_> {
    let ids = |ids| PyArray1::from_vec(py, ids);
    (ids(best.nodes), ids(best.candidates), PyArray1::from_vec(py, best.scores))
}

/// Tables of new nodes and of their edges: names of files or of tables in memory, and the latter.
fn tables_of((nodes, edges, tables): (Vec<String>, Vec<String>, Named)) -> NewTables {
    let memory = in_memory(&tables);
    NewTables { nodes: nodes.into(), edges: edges.into(), memory, ..NewTables::default() }
}

/// The `k` best candidates of new nodes, with remarks; `options` as of [`candidates`]. The new
/// nodes and their edges are names of files or of tables in memory.
#[pyfunction]
#[pyo3(signature = (run, dataset, new, k, options, last))]
pub(super) fn candidates_of_new<'py>(
    py: Python<'py>,
    run: PathBuf,
    dataset: Option<Given<'py>>,
    new: (Vec<String>, Vec<String>, Named),
    k: usize,
    options: (bool, Option<String>, bool, Option<i64>),
    last: bool,
) -> PyResult<(Candidates<'py>, Vec<String>)> {
    let data = dataset.map(|dataset| dataset.data());
    let new = tables_of(new);
    let found = wait::quietly_shared(py, move |progress| {
        let (all_edges, relation, sources, at) = options;
        let options = CandidateOptions { k, all_edges, relation: relation.as_deref(), sources, at };
        let saved = SavedRun::open(&run, last)?;
        Data::candidates_of_new(data.as_ref(), &saved, &new, options, &progress)
    })?;
    let BestOfNew { best, read, .. } = found.map_err(error::engine)?;
    Ok((arrays(py, best), read.notes()))
}

/// Kind of predictions by name.
fn kind_of(name: &str) -> PyResult<Kind> {
    match name {
        "classes" => Ok(Kind::Classes),
        "probabilities" => Ok(Kind::Probabilities),
        "embeddings" => Ok(Kind::Embeddings),
        other => Err(error::value(format!("kind '{other}': use classes, probabilities or embeddings"))),
    }
}

/// Writes predictions for new nodes to a file; returns their description as JSON and remarks.
/// The new nodes and their edges are names of files or of tables in memory.
#[pyfunction]
#[pyo3(signature = (run, dataset, new, kind, last, out))]
pub(super) fn predict_new(
    py: Python<'_>,
    run: PathBuf,
    dataset: Option<Given<'_>>,
    new: (Vec<String>, Vec<String>, Named),
    kind: &str,
    last: bool,
    out: PathBuf,
) -> PyResult<(String, Vec<String>)> {
    let kind = kind_of(kind)?;
    let data = dataset.map(|dataset| dataset.data());
    let new = tables_of(new);
    let written = wait::quietly_shared(py, move |progress| {
        Data::predict_new(data.as_ref(), &SavedRun::open(&run, last)?, &new, (kind, &out), &progress)
    })?;
    let written = written.map_err(error::engine)?;
    Ok((serde_json::to_string(&written).map_err(error::value)?, written.read.notes()))
}

/// Exports a run's model; returns the files as JSON.
#[pyfunction]
#[pyo3(signature = (run, to, out, last))]
pub(super) fn export_model(
    py: Python<'_>,
    run: PathBuf,
    to: &str,
    out: PathBuf,
    last: bool,
) -> PyResult<String> {
    let exported = py.detach(|| SavedRun::open(&run, last)?.export_model(to, &out));
    serde_json::to_string(&exported.map_err(error::engine)?).map_err(error::value)
}

/// Writes a run with the options of another and these parameters: names, and values row by row in
/// the layout of exports.
#[pyfunction]
#[pyo3(signature = (run, weights, out, last))]
pub(super) fn import_model(
    py: Python<'_>,
    run: PathBuf,
    weights: Vec<(String, PyReadonlyArray1<'_, f32>)>,
    out: PathBuf,
    last: bool,
) -> PyResult<()> {
    let weights: Vec<(String, Vec<f32>)> =
        weights.into_iter().map(|(name, values)| (name, values.as_array().to_vec())).collect();
    py.detach(|| SavedRun::open(&run, last)?.import_model(&weights, &out)).map_err(error::engine)
}
