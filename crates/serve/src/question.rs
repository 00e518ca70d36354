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
pub(crate) enum Key {
    Number(i64),
    Text(String),
}

impl Key {
    /// The key as a predictor reads it.
    fn into_text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
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

/// Parses the body of a question such as `example`.
///
/// # Errors
/// It is not JSON, or has unknown fields.
pub(crate) fn parse<'b, Q: Deserialize<'b>>(body: &'b [u8], example: &str) -> Result<Q, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        let fix = format!("send a document such as {example}; GET /openapi.json describes it");
        Failure::new(StatusCode::BAD_REQUEST, "body", error.to_string(), fix)
    })
}

impl Question {
    /// Parses a body.
    ///
    /// # Errors
    /// It is not JSON, or has unknown fields.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Failure> {
        parse(body, "{\"ids\": [0, 7]}")
    }

    /// Converts new nodes as far as no run is needed.
    ///
    /// # Errors
    /// Rows of a table or of a type do not go together.
    #[cfg(feature = "fuzz")]
    pub(crate) fn check_new(self) -> Result<(), Failure> {
        self.new.map_or(Ok(()), New::check)
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
            None if keys.is_empty() && ids.is_empty() => {
                return Err(refuse("it names no nodes", "name some by keys or ids, or send new ones"));
            }
            None => {
                let find = |key: &str| predictor.find(key);
                let nodes = find_nodes((keys, ids), limits.max_nodes, find)?;
                let failed = |error| Failure::of(StatusCode::UNPROCESSABLE_ENTITY, "predict", &error);
                predictor.check_nodes(&nodes).map_err(failed)?;
                Subject::Known(nodes)
            }
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

/// Nodes of keys and ids, of which there may be `max`.
///
/// # Errors
/// There are none or too many, or a key is unknown.
pub(crate) fn find_nodes(
    (keys, ids): (Vec<Key>, Vec<NodeId>),
    max: usize,
    find: impl Fn(&str) -> graphmill_engine::Result<NodeId>,
) -> Result<Vec<NodeId>, Failure> {
    check_count(keys.len() + ids.len(), "nodes", max)?;
    let mut nodes = Vec::with_capacity(keys.len() + ids.len());
    for key in keys {
        nodes.push(find_key(key, &find)?);
    }
    nodes.extend(ids);
    Ok(nodes)
}

/// Refuses a question for none of the `what`, or for more than `max`.
pub(crate) fn check_count(count: usize, what: &str, max: usize) -> Result<(), Failure> {
    if count == 0 {
        return Err(refuse(format!("it names no {what}"), "name some by keys or ids"));
    }
    if count > max {
        let why = format!("it names {count} {what}, and the service answers {max} at a time");
        return Err(too_large(why, "--max-nodes"));
    }
    Ok(())
}

/// The node of a key.
pub(crate) fn find_key(
    key: Key,
    find: impl Fn(&str) -> graphmill_engine::Result<NodeId>,
) -> Result<NodeId, Failure> {
    find(&key.into_text()).map_err(|error| Failure::of(StatusCode::UNPROCESSABLE_ENTITY, "predict", &error))
}
