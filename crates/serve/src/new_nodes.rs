//! New nodes of a question: rows with the columns of the imported tables, or feature rows.

use std::{collections::BTreeMap, sync::Arc};

use axum::http::StatusCode;
use graphmill_core::NodeId;
use graphmill_data::tables::MemoryTable;
use graphmill_engine::{
    Error,
    predictor::{Neighborhood, NewAnswers, NewNodes, Predictor},
    saved::on::{NewFeatures, NewTables},
};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use crate::{
    failure::{Failure, refuse, too_large},
    options::ServeOptions,
};

/// Names of the tables in messages.
const ROWS: &str = "rows";
const EDGES: &str = "edges";

/// New nodes and their edges.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct New {
    /// Objects with the columns of the imported nodes.
    rows: Option<Vec<Map<String, Value>>>,
    /// Feature rows instead.
    features: Option<Vec<Vec<f32>>>,
    /// Objects with the columns of the imported edges; beside feature rows, source, destination and
    /// perhaps a weight.
    #[serde(default)]
    edges: Vec<Edge>,
    /// True if edges of feature rows have both directions.
    #[serde(default)]
    undirected: bool,
}

/// An edge of a new node.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Edge {
    Plain(End, End),
    Weighted(End, End, f32),
    Row(Map<String, Value>),
}

/// An end of an edge.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum End {
    /// Id of a known node, or of the new node `i` as the number of known nodes plus `i`.
    Id(NodeId),
    /// Key of a known node.
    Key(String),
}

impl New {
    /// Checks the limits, and finds the nodes of the edges of feature rows.
    ///
    /// # Errors
    /// There are no rows or too many, or too many edges; rows and features exclude each other, or
    /// edges have the form of the other; a key is unknown.
    pub(crate) fn resolve(self, predictor: &Predictor, limits: &ServeOptions) -> Result<NewNodes, Failure> {
        let Self { rows, features, edges, undirected } = self;
        let count = rows.as_ref().map_or(0, Vec::len) + features.as_ref().map_or(0, Vec::len);
        if count > limits.max_nodes {
            let why =
                format!("it has {count} new nodes, and the service takes {} at a time", limits.max_nodes);
            return Err(too_large(why, "--max-nodes"));
        }
        if edges.len() > limits.max_edges {
            let why = format!(
                "it has {} new edges, and the service takes {} at a time",
                edges.len(),
                limits.max_edges
            );
            return Err(too_large(why, "--max-edges"));
        }
        match (rows, features) {
            (Some(rows), None) if !rows.is_empty() && !undirected => {
                Ok(NewNodes::Tables(tables(&rows, edges)?))
            }
            (Some(rows), None) if !rows.is_empty() => {
                let why = "undirected is for feature rows: edges of rows have the directions of the import";
                Err(refuse(why, "leave out undirected"))
            }
            (None, Some(rows)) if !rows.is_empty() => {
                let width = predictor.dataset().features.dim;
                if let Some(i) = rows.iter().position(|row| row.len() != width) {
                    let why = format!("row {i} has {} features, and the dataset has {width}", rows[i].len());
                    return Err(refuse(why, "send all features of each row"));
                }
                let ends = edges.into_iter().map(|edge| listed(edge, predictor));
                let edges = ends.collect::<Result<_, _>>()?;
                Ok(NewNodes::Features(NewFeatures { rows: rows.concat(), edges, undirected }))
            }
            (Some(_), Some(_)) => {
                Err(refuse("new has rows and features", "send rows with columns, or feature rows"))
            }
            _ => Err(refuse("new has no nodes", "send rows, or features, of at least one node")),
        }
    }
}

/// Tables of rows and edges.
fn tables(rows: &[Map<String, Value>], edges: Vec<Edge>) -> Result<NewTables, Failure> {
    let failed = |error: graphmill_core::Error| {
        Failure::of(StatusCode::UNPROCESSABLE_ENTITY, "predict", &error.into())
    };
    let mut new = NewTables { nodes: vec![ROWS.to_owned()].into(), ..NewTables::default() };
    new.memory.insert(ROWS.into(), MemoryTable::of_objects(rows).map_err(failed)?);
    let edge = |edge| match edge {
        Edge::Row(row) => Ok(row),
        Edge::Plain(..) | Edge::Weighted(..) => Err(refuse(
            "an edge of rows is an array",
            "send an object with the columns of the imported edges",
        )),
    };
    let edges: Vec<Map<String, Value>> = edges.into_iter().map(edge).collect::<Result<_, _>>()?;
    if !edges.is_empty() {
        new.edges = vec![EDGES.to_owned()].into();
        new.memory.insert(EDGES.into(), MemoryTable::of_objects(&edges).map_err(failed)?);
    }
    Ok(new)
}

/// An edge of feature rows.
fn listed(edge: Edge, predictor: &Predictor) -> Result<(NodeId, NodeId, f32), Failure> {
    let (src, dst, weight) = match edge {
        Edge::Plain(src, dst) => (src, dst, 1.0),
        Edge::Weighted(src, dst, weight) => (src, dst, weight),
        Edge::Row(_) => {
            let why = "an edge of feature rows is an object";
            return Err(refuse(why, "send [source, destination] or [source, destination, weight]"));
        }
    };
    let find = |end| match end {
        End::Id(id) => Ok(id),
        End::Key(key) => predictor
            .find(&key)
            .map_err(|error| Failure::of(StatusCode::UNPROCESSABLE_ENTITY, "predict", &error)),
    };
    Ok((find(src)?, find(dst)?, weight))
}

/// Answers for new nodes, one request at a time: each copies the graph.
///
/// # Errors
/// The nodes do not fit the dataset, or features cannot be read.
pub(crate) async fn answer(
    turn: &Arc<Semaphore>,
    predictor: Arc<Predictor>,
    new: NewNodes,
    of: Neighborhood,
) -> Result<NewAnswers, Failure> {
    let stopped = |why: &str| {
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "predict",
            why,
            "report it with the log of the service",
        )
    };
    let turn = turn.clone().acquire_owned().await.map_err(|_| stopped("the service stops"))?;
    // The work goes on if the client leaves, and keeps its turn until it ends.
    let work = move || {
        let answers = predictor.predict_new(&new, of);
        drop(turn);
        answers
    };
    let answers = tokio::task::spawn_blocking(work).await;
    let answers = answers.map_err(|_| stopped("the computation failed in a way that it should not"))?;
    answers.map_err(|error| Failure::of(status(&error), "predict", &error))
}

/// Status of a failed answer: of the service if a file or a device failed, else of the request.
fn status(error: &Error) -> StatusCode {
    match error {
        Error::Graph(graphmill_core::Error::Io { .. } | graphmill_core::Error::Device(_)) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// Counts of unknown values by column.
pub(crate) fn unknown_values(answers: &NewAnswers) -> BTreeMap<&str, u64> {
    answers.unknown_values.iter().map(|(column, count)| (&column[..], *count)).collect()
}
