//! Questions in JSON, and their resolution to nodes of a run.

use axum::http::StatusCode;
use graphmill_core::NodeId;
use graphmill_engine::predictor::{Neighborhood, NewNodes, Predictor, Task};
use serde::Deserialize;

use crate::{
    failure::{Failure, refuse, too_large},
    new_nodes::New,
    options::ServeOptions,
};

/// Body of `POST /v1/predict`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    /// Keys of nodes.
    #[serde(default)]
    keys: Vec<Key>,
    /// Ids of nodes.
    #[serde(default)]
    ids: Vec<NodeId>,
    /// New nodes instead.
    new: Option<New>,
    /// Seed of drawn neighbours.
    seed: Option<u64>,
    /// True to ask for all neighbours.
    #[serde(default)]
    exact: bool,
    /// Number of the most likely classes to name.
    top_k: Option<usize>,
}

/// A key, which may be a number.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Key {
    Number(i64),
    Text(String),
}

/// A question whose nodes are found.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) subject: Subject,
    pub(crate) of: Neighborhood,
    pub(crate) top_k: Option<usize>,
}

/// Nodes of a question.
#[derive(Debug)]
pub(crate) enum Subject {
    Known(Vec<NodeId>),
    New(NewNodes),
}

impl Question {
    /// Parses a body.
    ///
    /// # Errors
    /// It is not JSON, or has unknown fields.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice(body).map_err(|error| {
            let fix = "send a document such as {\"ids\": [0, 7]}; GET /openapi.json describes it";
            Failure::new(StatusCode::BAD_REQUEST, "body", error.to_string(), fix)
        })
    }

    /// Finds the nodes, first the keys and then the ids, or reads the new nodes.
    ///
    /// # Errors
    /// There are none or too many; one is unknown; options exclude each other or do not fit the
    /// run.
    pub(crate) fn resolve(self, predictor: &Predictor, limits: &ServeOptions) -> Result<Resolved, Failure> {
        let Self { keys, ids, new, seed, exact, top_k } = self;
        let of = match (seed, exact) {
            (Some(_), true) => {
                let why = "an exact answer has no seed";
                return Err(refuse(why, "leave out seed, or exact"));
            }
            (Some(seed), false) => Neighborhood::Drawn { seed },
            (None, _) => Neighborhood::All,
        };
        let subject = match new {
            None => Subject::Known(find(keys, ids, predictor, limits.max_nodes)?),
            Some(_) if !keys.is_empty() || !ids.is_empty() => {
                let why = "it names known and new nodes";
                return Err(refuse(why, "send two requests, one with new alone"));
            }
            Some(new) => Subject::New(new.resolve(predictor, limits)?),
        };
        if let Some(k) = top_k
            && (k == 0 || predictor.task() == Task::Values)
        {
            let why = if k == 0 { "top_k is 0" } else { "the run predicts values, which have no ranks" };
            return Err(refuse(why, "leave out top_k, or ask a run on classes with 1 or more"));
        }
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        predictor.check(of).map_err(|error| Failure::of(status, "predict", &error))?;
        Ok(Resolved { subject, of, top_k })
    }
}

/// Nodes of keys and ids.
fn find(
    keys: Vec<Key>,
    ids: Vec<NodeId>,
    predictor: &Predictor,
    max_nodes: usize,
) -> Result<Vec<NodeId>, Failure> {
    let count = keys.len() + ids.len();
    if count == 0 {
        return Err(refuse("it names no nodes", "name some by keys or ids, or send new ones"));
    }
    if count > max_nodes {
        let why = format!("it names {count} nodes, and the service answers {max_nodes} at a time");
        return Err(too_large(why, "--max-nodes"));
    }
    let mut nodes = Vec::with_capacity(count);
    for key in keys {
        let key = match key {
            Key::Number(number) => number.to_string(),
            Key::Text(text) => text,
        };
        let found = predictor.find(&key);
        nodes.push(found.map_err(|error| Failure::of(StatusCode::UNPROCESSABLE_ENTITY, "predict", &error))?);
    }
    if let Some(id) = ids.iter().find(|&&id| id as usize >= predictor.num_nodes()) {
        let count = predictor.num_nodes();
        let why = match predictor.node_type() {
            Some(name) => format!("node {id} is outside the {count} nodes of type '{name}'"),
            None => format!("node {id} is outside the graph's {count} nodes"),
        };
        return Err(refuse(why, "ask for ids below it"));
    }
    nodes.extend(ids);
    Ok(nodes)
}
