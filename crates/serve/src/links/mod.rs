//! Questions to a run on links, and their answers.

mod document;
pub(crate) mod events;

use std::sync::Arc;

use axum::http::StatusCode;
use graphmill_core::NodeId;
use graphmill_engine::{
    Error,
    predictor::{LinkPredictor, TopOptions},
};
use serde::Deserialize;
use serde_json::{Value, json};

use self::document::{Content, LinkReply};
use crate::{
    ServeOptions,
    app::{App, Served},
    batch::Candidates,
    failure::{Failure, refuse, status_of_question, too_large},
    question::{Key, check_count, find_key, find_nodes, parse},
};

/// Endpoints of runs on links.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinkQuestion {
    /// `POST /v1/links/top`: the best candidates of nodes.
    Top,
    /// `POST /v1/links/score`: scores of pairs.
    Score,
    /// `POST /v1/links/embed`: embeddings of nodes.
    Embed,
}

impl LinkQuestion {
    /// Answers the question of a body by `served`.
    ///
    /// # Errors
    /// The body is not such a question, names unknown nodes or exceeds a limit.
    pub(crate) async fn answer(
        self,
        app: &App,
        served: Served<LinkPredictor, Candidates>,
        body: &[u8],
    ) -> Result<LinkReply, Failure> {
        match self {
            Self::Top => {
                let question = Top::parse(body)?;
                question.answer(&app.options, served).await
            }
            Self::Score => {
                let question = Score::parse(body)?;
                question.answer(app, served.run).await
            }
            Self::Embed => {
                let question = Embed::parse(body)?;
                question.answer(app, served.run).await
            }
        }
    }
}

/// Parses the body of a request to an endpoint of runs on links or of events; `None` if there is no
/// such endpoint.
#[cfg(feature = "fuzz")]
pub(crate) fn parse_body(endpoint: &str, body: &[u8]) -> Option<Result<(), Failure>> {
    Some(match endpoint {
        "top" => Top::parse(body).map(drop),
        "score" => Score::parse(body).map(drop),
        "embed" => Embed::parse(body).map(drop),
        "events" => events::Body::parse(body).map(drop),
        _ => return None,
    })
}

/// Body of `POST /v1/links/top`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Top {
    /// Keys of nodes.
    #[serde(default)]
    keys: Vec<Key>,
    /// Ids of nodes.
    #[serde(default)]
    ids: Vec<NodeId>,
    /// Number of candidates of each node.
    top_k: usize,
    /// Name of the relation, if there are several.
    #[serde(default)]
    relation: String,
    /// True to rank sources of given destinations.
    #[serde(default)]
    sources: bool,
    /// True to rank known edges, too.
    #[serde(default)]
    include_known: bool,
    /// Time as of which a run on events answers.
    at: Option<i64>,
}

impl Top {
    fn parse(body: &[u8]) -> Result<Self, Failure> {
        parse(body, "{\"ids\": [0, 7], \"top_k\": 10}")
    }

    async fn answer(
        self,
        limits: &ServeOptions,
        served: Served<LinkPredictor, Candidates>,
    ) -> Result<LinkReply, Failure> {
        let Served { run: links, batches } = served;
        let Self { keys, ids, top_k, relation, sources, include_known, at } = self;
        if top_k == 0 {
            return Err(refuse("top_k is 0", "ask for 1 or more candidates"));
        }
        let relation = links.relation(&relation).map_err(of_question)?;
        let [source, destination] = links.relations()[relation].ends;
        let [fixed, ranked] = if sources { [destination, source] } else { [source, destination] };
        let nodes = find_nodes((keys, ids), limits.max_nodes, |key| links.find(fixed, key))?;
        links.check_nodes(fixed, &nodes).map_err(of_question)?;
        let k = top_k.min(links.num_nodes(ranked));
        let (count, max) = (nodes.len().saturating_mul(k), limits.max_candidates);
        if count > max {
            let why = format!("it asks for {count} candidates, and the service answers {max} at a time");
            return Err(too_large(why, "--max-candidates"));
        }
        let options = TopOptions { k, sources, include_known, at };
        links.check(&options).map_err(of_question)?;
        let question = Candidates { links: links.clone(), relation, nodes: nodes.clone(), options };
        let best = batches.ask(question).await?;
        Ok(LinkReply { links, content: Content::Top { relation, nodes: (fixed, nodes), ranked, best } })
    }
}

/// Body of `POST /v1/links/score`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Score {
    /// Keys of the source and the destination of each pair.
    #[serde(default)]
    keys: Vec<[Key; 2]>,
    /// Their ids.
    #[serde(default)]
    ids: Vec<[NodeId; 2]>,
    /// Name of the relation, if there are several.
    #[serde(default)]
    relation: String,
    /// Time as of which a run on events answers.
    at: Option<i64>,
}

impl Score {
    fn parse(body: &[u8]) -> Result<Self, Failure> {
        parse(body, "{\"ids\": [[0, 7]]}")
    }

    async fn answer(self, app: &App, links: Arc<LinkPredictor>) -> Result<LinkReply, Failure> {
        let Self { keys, ids, relation, at } = self;
        let relation = links.relation(&relation).map_err(of_question)?;
        check_count(keys.len() + ids.len(), "pairs", app.options.max_nodes)?;
        let pairs = ends(&links, relation, keys, ids)?;
        let work = {
            let links = links.clone();
            move || links.score_at(relation, &pairs, at).map(|scores| (pairs, scores))
        };
        let (pairs, scores) = beside(app, at.is_some(), work).await?;
        Ok(LinkReply { links, content: Content::Score { relation, pairs, scores } })
    }
}

/// Body of `POST /v1/links/embed`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Embed {
    /// Keys of nodes.
    #[serde(default)]
    keys: Vec<Key>,
    /// Ids of nodes.
    #[serde(default)]
    ids: Vec<NodeId>,
    /// Type of the nodes; the first that has embeddings by default.
    #[serde(default)]
    node_type: String,
    /// Time as of which a run on events answers.
    at: Option<i64>,
}

impl Embed {
    fn parse(body: &[u8]) -> Result<Self, Failure> {
        parse(body, "{\"ids\": [0, 7]}")
    }

    async fn answer(self, app: &App, links: Arc<LinkPredictor>) -> Result<LinkReply, Failure> {
        let Self { keys, ids, node_type, at } = self;
        let node_type = links.node_type(&node_type).map_err(of_question)?;
        let nodes = find_nodes((keys, ids), app.options.max_nodes, |key| links.find(node_type, key))?;
        let work = {
            let links = links.clone();
            move || links.embed_at(node_type, &nodes, at).map(|rows| (nodes, rows))
        };
        let (nodes, rows) = beside(app, at.is_some(), work).await?;
        Ok(LinkReply { links, content: Content::Embed { nodes: (node_type, nodes), rows } })
    }
}

/// Pairs of nodes by the keys and the ids of both ends of a relation, the keys first.
fn ends(
    links: &LinkPredictor,
    relation: usize,
    keys: Vec<[Key; 2]>,
    ids: Vec<[NodeId; 2]>,
) -> Result<Vec<(NodeId, NodeId)>, Failure> {
    let [source, destination] = links.relations()[relation].ends;
    let mut pairs = Vec::with_capacity(keys.len() + ids.len());
    for [u, v] in keys {
        let found = |key, node_type| find_key(key, |key| links.find(node_type, key));
        pairs.push((found(u, source)?, found(v, destination)?));
    }
    pairs.extend(ids.into_iter().map(|[u, v]| (u, v)));
    Ok(pairs)
}

/// Answers a question on a thread beside those of the connections; in turn if it may compute a
/// memory of all nodes.
async fn beside<A: Send + 'static>(
    app: &App,
    in_turn: bool,
    work: impl FnOnce() -> graphmill_engine::Result<A> + Send + 'static,
) -> Result<A, Failure> {
    let failed = |why: &str| {
        let fix = "report it with the log of the service";
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "predict", why, fix)
    };
    let turn = match in_turn {
        true => Some(app.as_of.clone().acquire_owned().await.map_err(|_| failed("the service stops"))?),
        false => None,
    };
    // The work goes on if the client leaves, and keeps its turn until it ends.
    let work = move || {
        let answers = work();
        drop(turn);
        answers
    };
    let answered = tokio::task::spawn_blocking(work).await;
    answered.map_err(|_| failed("the computation failed in a way that it should not"))?.map_err(of_question)
}

/// A failure by the content of a question, or of its answer.
#[allow(clippy::needless_pass_by_value, reason = "a function of errors")]
fn of_question(error: Error) -> Failure {
    Failure::of(status_of_question(&error), "predict", &error)
}

/// Relations of a run with the types of their ends, for `GET /healthz`.
pub(crate) fn relations(links: &LinkPredictor) -> Value {
    let types: Vec<Option<&str>> = links.node_types().collect();
    let of = links.relations().iter().map(|relation| {
        let [source, destination] = relation.ends.map(|end| types[end]);
        json!({ "name": relation.name, "source": source, "destination": destination })
    });
    of.collect()
}
