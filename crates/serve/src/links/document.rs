//! Answers of a run on links, in JSON and in Arrow.

use std::{collections::HashMap, sync::Arc};

use arrow_array::{ArrayRef, Float32Array, StringArray, UInt32Array};
use arrow_schema::ArrowError;
use graphmill_core::NodeId;
use graphmill_engine::predictor::LinkPredictor;

use crate::{
    arrow::{self, Column, column},
    document::{each, put},
    failure::Failure,
};

/// Nodes of a type, by its number.
type NodesOf = (usize, Vec<NodeId>);

/// Answers to be written.
pub(crate) struct LinkReply {
    pub(super) links: Arc<LinkPredictor>,
    pub(super) content: Content,
}

/// Answers to a question.
pub(super) enum Content {
    /// Best candidates of nodes, of the type `ranked`, with their scores.
    Top { relation: usize, nodes: NodesOf, ranked: usize, best: Vec<Vec<(NodeId, f32)>> },
    /// Scores of pairs.
    Score { relation: usize, pairs: Vec<(NodeId, NodeId)>, scores: Vec<f32> },
    /// Embeddings of nodes, row by row.
    Embed { nodes: NodesOf, rows: Vec<f32> },
}

impl LinkReply {
    /// The JSON document.
    pub(crate) fn json(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match &self.content {
            Content::Top { relation, nodes: (fixed, nodes), ranked, best } => {
                self.put_relation(&mut out, *relation);
                out.extend(b",\"predictions\":");
                each(&mut out, nodes.iter().zip(best), |out, (&node, best)| {
                    out.push(b'{');
                    self.put_node(out, ("id", "key"), *fixed, node);
                    out.extend(b",\"top\":");
                    each(out, best.iter(), |out, &(candidate, score)| {
                        out.push(b'{');
                        self.put_node(out, ("id", "key"), *ranked, candidate);
                        put_score(out, score);
                    });
                    out.push(b'}');
                });
            }
            Content::Score { relation, pairs, scores } => {
                let [source, destination] = self.links.relations()[*relation].ends;
                self.put_relation(&mut out, *relation);
                out.extend(b",\"scores\":");
                each(&mut out, pairs.iter().zip(scores), |out, (&(u, v), &score)| {
                    out.push(b'{');
                    self.put_node(out, ("source", "source_key"), source, u);
                    out.push(b',');
                    self.put_node(out, ("destination", "destination_key"), destination, v);
                    put_score(out, score);
                });
            }
            Content::Embed { nodes: (node_type, nodes), rows } => {
                out.extend(b"{\"node_type\":");
                put(&mut out, &self.links.node_types().nth(*node_type).flatten());
                out.extend(b",\"embeddings\":");
                let rows = rows.chunks_exact(self.links.embedding_dim());
                each(&mut out, nodes.iter().zip(rows), |out, (&node, row)| {
                    out.push(b'{');
                    self.put_node(out, ("id", "key"), *node_type, node);
                    out.extend(b",\"embedding\":");
                    put(out, row);
                    out.push(b'}');
                });
            }
        }
        out.push(b'}');
        out
    }

    /// Writes the name of a relation as the first field of a document.
    fn put_relation(&self, out: &mut Vec<u8>, relation: usize) {
        out.extend(b"{\"task\":\"links\",\"relation\":");
        put(out, &self.links.relations()[relation].name);
    }

    /// Writes the id and the key of a node as fields of these names.
    fn put_node(&self, out: &mut Vec<u8>, names: (&str, &str), node_type: usize, node: NodeId) {
        put(out, names.0);
        out.push(b':');
        put(out, &node);
        if let Some(key) = self.links.key(node_type, node) {
            out.push(b',');
            put(out, names.1);
            out.push(b':');
            put(out, &key);
        }
    }

    /// The stream of Arrow: a row for each pair of a node and a candidate, pair, or node.
    ///
    /// # Errors
    /// The answers do not fit an Arrow array.
    pub(crate) fn arrow(&self) -> Result<Vec<u8>, Failure> {
        self.stream().map_err(arrow::failed)
    }

    fn stream(&self) -> Result<Vec<u8>, ArrowError> {
        let mut columns: Vec<Column> = Vec::new();
        let scores = |scores: Vec<f32>| column("score", Arc::new(Float32Array::from(scores)) as ArrayRef);
        let mut relation_name = None;
        match &self.content {
            Content::Top { relation, nodes: (fixed, nodes), ranked, best } => {
                relation_name = Some(*relation);
                let sources = nodes.iter().zip(best).flat_map(|(&node, best)| best.iter().map(move |_| node));
                let (candidates, values) = best.iter().flatten().copied().unzip();
                self.add_nodes(&mut columns, ("source", "source_key"), *fixed, sources.collect());
                self.add_nodes(&mut columns, ("candidate", "candidate_key"), *ranked, candidates);
                columns.push(scores(values));
            }
            Content::Score { relation, pairs, scores: values } => {
                relation_name = Some(*relation);
                let [source, destination] = self.links.relations()[*relation].ends;
                let (sources, destinations) = pairs.iter().copied().unzip();
                self.add_nodes(&mut columns, ("source", "source_key"), source, sources);
                let names = ("destination", "destination_key");
                self.add_nodes(&mut columns, names, destination, destinations);
                columns.push(scores(values.clone()));
            }
            Content::Embed { nodes: (node_type, nodes), rows } => {
                self.add_nodes(&mut columns, ("id", "key"), *node_type, nodes.clone());
                columns.push(arrow::rows("embedding", self.links.embedding_dim(), rows.clone())?);
            }
        }
        let mut metadata = HashMap::from([("task".to_owned(), "links".to_owned())]);
        if let Some(relation) = relation_name {
            metadata.insert("relation".into(), self.links.relations()[relation].name.clone());
        }
        arrow::encode(columns, metadata)
    }

    /// Adds columns of the ids and keys of nodes.
    fn add_nodes(
        &self,
        columns: &mut Vec<Column>,
        names: (&str, &str),
        node_type: usize,
        nodes: Vec<NodeId>,
    ) {
        let keys: Option<Vec<String>> = nodes.iter().map(|&node| self.links.key(node_type, node)).collect();
        columns.push(column(names.0, Arc::new(UInt32Array::from(nodes))));
        if let Some(keys) = keys.filter(|keys| !keys.is_empty()) {
            columns.push(column(names.1, Arc::new(StringArray::from(keys))));
        }
    }
}

/// Writes a score as the last field of an object.
fn put_score(out: &mut Vec<u8>, score: f32) {
    out.extend(b",\"score\":");
    put(out, &score);
    out.push(b'}');
}
