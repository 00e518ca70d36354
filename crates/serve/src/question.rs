//! Questions in JSON, and documents of answers.

use axum::http::StatusCode;
use graphmill_core::NodeId;
use graphmill_engine::predictor::{Answers, Neighborhood, Predictor, Task};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::failure::Failure;

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
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) of: Neighborhood,
    top_k: Option<usize>,
}

/// A failure by the content of a question.
fn refuse(why: impl Into<String>, fix: &str) -> Failure {
    Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "predict", why, fix)
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

    /// Finds the nodes, first the keys and then the ids.
    ///
    /// # Errors
    /// There are none or too many; one is unknown; options exclude each other or do not fit the
    /// run.
    pub(crate) fn resolve(self, predictor: &Predictor, max_nodes: usize) -> Result<Resolved, Failure> {
        let Self { keys, ids, seed, exact, top_k } = self;
        let count = keys.len() + ids.len();
        if count == 0 {
            return Err(refuse("it names no nodes", "name some by keys or ids"));
        }
        if count > max_nodes {
            let why = format!("it names {count} nodes, and the service answers {max_nodes} at a time");
            let fix = "send several requests, or start the service with a larger --max-nodes";
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "predict", why, fix));
        }
        let of = match (seed, exact) {
            (Some(_), true) => {
                let why = "an exact answer has no seed";
                return Err(refuse(why, "leave out seed, or exact"));
            }
            (Some(seed), false) => Neighborhood::Drawn { seed },
            (None, _) => Neighborhood::All,
        };
        if let Some(k) = top_k
            && (k == 0 || predictor.task() == Task::Values)
        {
            let why = if k == 0 { "top_k is 0" } else { "the run predicts values, which have no ranks" };
            return Err(refuse(why, "leave out top_k, or ask a run on classes with 1 or more"));
        }
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        predictor.check(of).map_err(|error| Failure::of(status, "predict", &error))?;
        let mut nodes = Vec::with_capacity(count);
        for key in keys {
            let key = match key {
                Key::Number(number) => number.to_string(),
                Key::Text(text) => text,
            };
            nodes.push(predictor.find(&key).map_err(|error| Failure::of(status, "predict", &error))?);
        }
        if let Some(id) = ids.iter().find(|&&id| id as usize >= predictor.num_nodes()) {
            let why = format!("node {id} is outside the graph's {} nodes", predictor.num_nodes());
            return Err(refuse(why, "ask for ids below it"));
        }
        nodes.extend(ids);
        Ok(Resolved { nodes, of, top_k })
    }
}

impl Resolved {
    /// The document of the answers.
    pub(crate) fn document(&self, predictor: &Predictor, answers: &Answers) -> Value {
        let task = predictor.task();
        let predictions: Vec<Value> =
            (0..answers.len()).map(|i| self.prediction(predictor, answers, i)).collect();
        let mut document = json!({ "task": task.name() });
        if task != Task::Values {
            let classes = (0..answers.cols).map(|c| name(predictor, c));
            document["classes"] = classes.collect::<Vec<_>>().into();
        }
        document["predictions"] = predictions.into();
        document
    }

    /// The answer for node number `i`.
    fn prediction(&self, predictor: &Predictor, answers: &Answers, i: usize) -> Value {
        let mut fields = Map::new();
        let node = self.nodes[i];
        fields.insert("id".into(), node.into());
        if let Some(key) = predictor.key(node) {
            fields.insert("key".into(), key.into());
        }
        if let Some(&class) = answers.classes.get(i) {
            fields.insert("class".into(), name(predictor, class as usize));
        }
        let scores = &answers.scores[i * answers.cols..(i + 1) * answers.cols];
        let Some(k) = self.top_k else {
            let what = if predictor.task() == Task::Values { "values" } else { "probabilities" };
            fields.insert(what.into(), json!(scores));
            return fields.into();
        };
        let mut ranks: Vec<usize> = (0..scores.len()).collect();
        ranks.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
        let best = ranks.into_iter().take(k);
        let best = best.map(|c| json!({ "class": name(predictor, c), "probability": scores[c] }));
        fields.insert("top".into(), best.collect::<Vec<_>>().into());
        fields.into()
    }
}

/// Name of a class, or its number.
fn name(predictor: &Predictor, class: usize) -> Value {
    predictor.class_names().get(class).map_or_else(|| class.into(), |name| name.as_str().into())
}
