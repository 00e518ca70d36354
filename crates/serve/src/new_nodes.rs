//! New nodes of a question: rows with the columns of the imported tables, or feature rows.

use std::{collections::BTreeMap, fmt, marker::PhantomData, sync::Arc, thread::available_parallelism};

use axum::http::StatusCode;
use graphmill_core::NodeId;
use graphmill_data::tables::MemoryTable;
use graphmill_engine::{
    predictor::{Neighborhood, NewAnswers, NewNodes, Predictor},
    saved::on::{NewFeatures, NewTables, NewTypedFeatures},
};
use serde::{
    Deserialize, Deserializer,
    de::{
        MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use crate::{
    failure::{Failure, refuse, status_of_question, too_large, unwound},
    options::ServeOptions,
};

/// Names of the tables in messages; those of a type end with it.
const ROWS: &str = "rows";
const EDGES: &str = "edges";

/// Maximum number of requests for new nodes that are answered at the same time.
const MAX_TURNS: usize = 64;

/// New nodes and their edges.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct New {
    /// Objects with the columns of the imported nodes: of the type that the run predicts, or by
    /// type.
    rows: Option<ByType<Row>>,
    /// Feature rows instead, of a dataset of one type or by type.
    features: Option<ByType<Vec<f32>>>,
    /// Objects with the columns of the imported edges, of the only edge table or by edge type;
    /// beside feature rows, source, destination and perhaps a weight.
    #[serde(default)]
    edges: ByType<Edge>,
    /// True if edges of feature rows have both directions.
    #[serde(default)]
    undirected: bool,
}

/// A row of a table.
type Row = Map<String, Value>;

/// Items of one type that the context implies, or of types by their names.
#[derive(Debug)]
enum ByType<T> {
    One(Vec<T>),
    Types(BTreeMap<String, Vec<T>>),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByType<T> {
    /// Reads an array, or an object of arrays, so that an error names the item.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Items(PhantomData))
    }
}

/// Reader of [`ByType`].
struct Items<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
    type Value = ByType<T>;

    fn expecting(&self, to: &mut fmt::Formatter) -> fmt::Result {
        to.write_str("an array, or an object of arrays by type")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<ByType<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(items)).map(ByType::One)
    }

    fn visit_map<A: MapAccess<'de>>(self, types: A) -> Result<ByType<T>, A::Error> {
        BTreeMap::deserialize(MapAccessDeserializer::new(types)).map(ByType::Types)
    }
}

impl<T> Default for ByType<T> {
    fn default() -> Self {
        Self::One(Vec::new())
    }
}

impl<T> ByType<T> {
    /// Number of items of all types.
    fn len(&self) -> usize {
        match self {
            Self::One(items) => items.len(),
            Self::Types(types) => types.values().map(Vec::len).sum(),
        }
    }

    /// Lists that are not empty, with the name of each table and that table in the form
    /// `TYPE=TABLE`.
    fn into_tables(self, name: &str) -> Vec<(String, String, Vec<T>)> {
        let tables: Vec<_> = match self {
            Self::One(items) => vec![(name.to_owned(), name.to_owned(), items)],
            Self::Types(types) => {
                let of_type = |(of, items): (String, Vec<T>)| {
                    let table = format!("{name} of {of}");
                    (table.clone(), format!("{of}={table}"), items)
                };
                types.into_iter().map(of_type).collect()
            }
        };
        tables.into_iter().filter(|(.., items)| !items.is_empty()).collect()
    }
}

/// An edge of a new node.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Edge {
    Plain(End, End),
    Weighted(End, End, f32),
    Row(Row),
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
    /// Converts rows to tables, and feature rows by type, as [`New::resolve`] does.
    ///
    /// # Errors
    /// Rows do not go together.
    #[cfg(feature = "fuzz")]
    pub(crate) fn check(self) -> Result<(), Failure> {
        let Self { rows, features, edges, undirected } = self;
        match (rows, features) {
            (Some(rows), None) => tables(rows, edges).map(drop),
            (None, Some(ByType::Types(rows))) => features_of_types(rows, edges, undirected).map(drop),
            _ => Ok(()),
        }
    }

    /// Checks the limits, and finds the nodes of the edges of feature rows.
    ///
    /// # Errors
    /// There are no rows or too many, or too many edges; rows and features exclude each other, or
    /// edges have the form of the other; a key is unknown.
    pub(crate) fn resolve(self, predictor: &Predictor, limits: &ServeOptions) -> Result<NewNodes, Failure> {
        let Self { rows, features, edges, undirected } = self;
        let count = rows.as_ref().map_or(0, ByType::len) + features.as_ref().map_or(0, ByType::len);
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
            (Some(rows), None) if rows.len() > 0 && !undirected => Ok(NewNodes::Tables(tables(rows, edges)?)),
            (Some(rows), None) if rows.len() > 0 => {
                let why = "undirected is for feature rows: edges of rows have the directions of the import";
                Err(refuse(why, "leave out undirected"))
            }
            (None, Some(ByType::One(rows))) if !rows.is_empty() => {
                Ok(NewNodes::Features(features_of_one(rows, edges, undirected, predictor)?))
            }
            (None, Some(ByType::Types(rows))) if !rows.is_empty() => {
                Ok(NewNodes::TypedFeatures(features_of_types(rows, edges, undirected)?))
            }
            (Some(_), Some(_)) => {
                Err(refuse("new has rows and features", "send rows with columns, or feature rows"))
            }
            _ => Err(refuse("new has no nodes", "send rows, or features, of at least one node")),
        }
    }
}

/// Tables of rows and edges.
fn tables(rows: ByType<Row>, edges: ByType<Edge>) -> Result<NewTables, Failure> {
    let failed = |error: graphmill_core::Error| {
        Failure::of(StatusCode::UNPROCESSABLE_ENTITY, "predict", &error.into())
    };
    let (mut new, mut nodes, mut links) = (NewTables::default(), Vec::new(), Vec::new());
    for (table, given, rows) in rows.into_tables(ROWS) {
        new.memory.insert(table, MemoryTable::of_objects(&rows).map_err(failed)?);
        nodes.push(given);
    }
    let row = |edge| match edge {
        Edge::Row(row) => Ok(row),
        Edge::Plain(..) | Edge::Weighted(..) => Err(refuse(
            "an edge of rows is an array",
            "send an object with the columns of the imported edges",
        )),
    };
    for (table, given, edges) in edges.into_tables(EDGES) {
        let rows: Vec<Row> = edges.into_iter().map(row).collect::<Result<_, _>>()?;
        new.memory.insert(table, MemoryTable::of_objects(&rows).map_err(failed)?);
        links.push(given);
    }
    (new.nodes, new.edges) = (nodes.into(), links.into());
    Ok(new)
}

/// Feature rows of a dataset of one type.
fn features_of_one(
    rows: Vec<Vec<f32>>,
    edges: ByType<Edge>,
    undirected: bool,
    predictor: &Predictor,
) -> Result<NewFeatures, Failure> {
    let ByType::One(edges) = edges else {
        let why = "edges are named by type, and features are not";
        return Err(refuse(why, "send both as arrays, or both by type"));
    };
    let width = predictor.feature_dim();
    if let Some(i) = rows.iter().position(|row| row.len() != width) {
        let why = format!("row {i} has {} features, and the dataset has {width}", rows[i].len());
        return Err(refuse(why, "send all features of each row"));
    }
    let ends = edges.into_iter().map(|edge| listed(edge, predictor));
    let edges = ends.collect::<Result<_, _>>()?;
    Ok(NewFeatures { rows: rows.concat(), edges, undirected })
}

/// Feature rows of a dataset of several types.
fn features_of_types(
    rows: BTreeMap<String, Vec<Vec<f32>>>,
    edges: ByType<Edge>,
    undirected: bool,
) -> Result<NewTypedFeatures, Failure> {
    let edges = match edges {
        ByType::Types(edges) => edges,
        ByType::One(edges) if edges.is_empty() => BTreeMap::new(),
        ByType::One(_) => {
            let why = "features are named by type, and edges are not";
            return Err(refuse(why, "send edges by type, as {\"user:rates:movie\": [[0, 7]]}"));
        }
    };
    let mut new = NewTypedFeatures { undirected, ..NewTypedFeatures::default() };
    for (name, rows) in rows.into_iter().filter(|(_, rows)| !rows.is_empty()) {
        let width = rows[0].len();
        if let Some(i) = rows.iter().position(|row| row.len() != width) {
            let found = rows[i].len();
            let why = format!("row {i} of '{name}' has {found} features, and row 0 has {width}");
            return Err(refuse(why, "send all features of each row"));
        }
        new.rows.insert(name, (width, rows.concat()));
    }
    for (name, edges) in edges {
        let edge = |edge| match edge {
            Edge::Plain(End::Id(src), End::Id(dst)) => Ok((src, dst, 1.0)),
            Edge::Weighted(End::Id(src), End::Id(dst), weight) => Ok((src, dst, weight)),
            _ => Err(refuse(
                format!("an edge of '{name}' does not have two ids"),
                "send [source, destination] or [source, destination, weight], with ids of their types",
            )),
        };
        let edges = edges.into_iter().map(edge).collect::<Result<Vec<_>, _>>()?;
        new.edges.insert(name, edges);
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

/// Requests for new nodes that are answered at the same time: one for each thread, or one alone
/// that copies the graph.
pub(crate) struct Turns {
    free: Arc<Semaphore>,
    count: u32,
}

impl Turns {
    pub(crate) fn new() -> Self {
        let count = available_parallelism().map_or(1, usize::from).min(MAX_TURNS);
        Self { free: Arc::new(Semaphore::new(count)), count: count as u32 }
    }
}

/// Answers for new nodes.
///
/// # Errors
/// The nodes do not fit the dataset, or features cannot be read.
pub(crate) async fn answer(
    turns: &Turns,
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
    let count = if predictor.copies_graph(of) { turns.count } else { 1 };
    let turn = turns.free.clone().acquire_many_owned(count).await;
    let turn = turn.map_err(|_| stopped("the service stops"))?;
    // The work goes on if the client leaves, and keeps its turn until it ends.
    let work = move || {
        let answers = predictor.predict_new(&new, of);
        drop(turn);
        answers
    };
    let answers = tokio::task::spawn_blocking(work).await;
    let answers = answers.map_err(|end| match end.try_into_panic() {
        Ok(payload) => unwound("predict", &*payload),
        Err(_) => stopped("the service stops"),
    })?;
    answers.map_err(|error| Failure::of(status_of_question(&error), "predict", &error))
}

/// Counts of unknown values by column.
pub(crate) fn unknown_values(answers: &NewAnswers) -> BTreeMap<&str, u64> {
    answers.read.unknown_values.iter().map(|(column, count)| (&column[..], *count)).collect()
}
