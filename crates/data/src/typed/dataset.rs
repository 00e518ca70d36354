//! Typed datasets: columns of node types and edge types, and tasks on them.

use std::{fmt, path::PathBuf};

use graphmill_core::{Buffer, Error, NodeId, Result, keyed::key};
use rayon::prelude::*;
use serde_json::Value;

use super::{EdgeType, FeatureTable, Keys, Schema, Task, TaskOn, csc};
use crate::dataset::{NamedGraph, Normalization};

/// Columns of a node type, each with a row per node.
#[derive(Clone, Debug, Default)]
pub struct NodeData {
    /// Name of the type.
    pub name: String,
    /// Number of nodes, `V`.
    pub count: usize,
    /// Feature rows; without them a model learns a row for each node.
    pub features: Option<FeatureTable>,
    /// Normalization that was applied to the features.
    pub normalization: Option<Normalization>,
    /// Original keys.
    pub keys: Option<Keys>,
    /// Time from which a node exists; `i64::MIN` if it always did.
    pub time: Option<Buffer<i64>>,
    /// Ids before the dataset was reordered: a permutation of the nodes.
    pub original_ids: Option<Buffer<NodeId>>,
    /// Graphs of a disjoint union: empty, or ranges that cover all nodes. Only datasets of one node
    /// type and one edge type have them.
    pub graphs: Vec<NamedGraph>,
}

/// Columns of an edge type, each with a row per edge, in CSC order: by destination.
#[derive(Clone, Debug)]
pub struct EdgeData {
    /// Edge type.
    pub edge_type: EdgeType,
    /// Name of the edge type that holds the reverse of every edge, from the destinations to the
    /// sources. An undirected edge type is its own reverse.
    pub reverse: Option<String>,
    /// Start of each destination's row, and the number of edges (`D + 1`).
    pub indptr: Buffer<u64>,
    /// Local id of the source of each edge (`E`).
    pub indices: Buffer<NodeId>,
    /// Weights, finite and not negative.
    pub weights: Option<Buffer<f32>>,
    /// Time from which an edge exists; `i64::MIN` if it always did.
    pub time: Option<Buffer<i64>>,
    /// Feature rows.
    pub features: Option<FeatureTable>,
}

impl EdgeData {
    /// Number of edges, `E`.
    pub fn num_edges(&self) -> usize {
        self.indices.len()
    }

    /// Destination of each edge (`E`). Parallel.
    pub fn destinations(&self) -> Vec<NodeId> {
        csc::destinations(&self.indptr)
    }

    /// Returns true if every edge is stored in both directions, equally often. O(E), parallel.
    pub fn is_undirected(&self) -> bool {
        let ends = &self.edge_type;
        ends.source == ends.destination && self.checksum_of_edges(false) == self.checksum_of_edges(true)
    }

    /// Sum of a hash of every edge, which does not depend on their order. O(E), parallel.
    pub(super) fn checksum_of_edges(&self, exchange: bool) -> u64 {
        let hash = |u: NodeId, v: NodeId| {
            let (u, v) = if exchange { (v, u) } else { (u, v) };
            key(&[u.into(), v.into()])
        };
        let rows = self.indptr.par_windows(2).with_min_len(1 << 12).enumerate();
        let row = |(v, ends): (usize, &[u64])| {
            let sources = &self.indices[ends[0] as usize..ends[1] as usize];
            sources.iter().fold(0u64, |sum, &u| sum.wrapping_add(hash(u, v as NodeId)))
        };
        rows.map(row).reduce(|| 0, u64::wrapping_add)
    }

    /// Positions of the edges of destination `v`: their range in every column.
    ///
    /// # Panics
    /// `v` is not a destination.
    pub fn row(&self, v: NodeId) -> std::ops::Range<usize> {
        self.indptr[v as usize] as usize..self.indptr[v as usize + 1] as usize
    }

    /// Sources of the edges of destination `v`.
    ///
    /// # Panics
    /// `v` is not a destination.
    pub fn in_neighbors(&self, v: NodeId) -> &[NodeId] {
        &self.indices[self.row(v)]
    }
}

/// Dataset of several node types and edge types with tasks, in memory or mapped.
#[derive(Clone, Debug, Default)]
pub struct TypedDataset {
    /// Name of the dataset; by default that of its directory.
    pub name: String,
    /// Node types, in the order of the id space that they share.
    pub nodes: Vec<NodeData>,
    /// Edge types.
    pub edges: Vec<EdgeData>,
    /// Tasks.
    pub tasks: Vec<Task>,
    /// Operations that were applied to columns, with their statistics: an object with an integer
    /// field `version`. It is stored as `preprocessing.json`.
    pub preprocessing: Option<Value>,
    /// Checksum of the directory: that of the manifest, which lists those of all files.
    pub checksum: Option<String>,
    /// Directory from which the dataset was opened.
    pub directory: Option<PathBuf>,
}

impl TypedDataset {
    /// Node types with counts and offsets, and edge types.
    ///
    /// # Errors
    /// As for [`Schema::new`].
    pub fn schema(&self) -> Result<Schema> {
        Schema::new(
            self.nodes.iter().map(|nodes| (&nodes.name, nodes.count)),
            self.edges.iter().map(|edges| edges.edge_type.clone()),
        )
    }

    /// Feature tables of all types.
    pub fn feature_tables(&self) -> impl Iterator<Item = &FeatureTable> {
        let of_nodes = self.nodes.iter().filter_map(|nodes| nodes.features.as_ref());
        of_nodes.chain(self.edges.iter().filter_map(|edges| edges.features.as_ref()))
    }

    /// Number of nodes of all types.
    pub fn num_nodes(&self) -> usize {
        self.nodes.iter().map(|nodes| nodes.count).sum()
    }

    /// Number of edges of all types.
    pub fn num_edges(&self) -> usize {
        self.edges.iter().map(EdgeData::num_edges).sum()
    }

    /// Node type `name`.
    ///
    /// # Errors
    /// The name is unknown; the message lists the known ones.
    pub fn node_type(&self, name: &str) -> Result<&NodeData> {
        find("node type", &self.nodes, |nodes| nodes.name.clone(), name)
    }

    /// Edge type `edge_type`.
    ///
    /// # Errors
    /// The type is unknown; the message lists the known ones.
    pub fn edge_type(&self, edge_type: &EdgeType) -> Result<&EdgeData> {
        find("edge type", &self.edges, |edges| edges.edge_type.to_string(), &edge_type.to_string())
    }

    /// Task `name`.
    ///
    /// # Errors
    /// The name is unknown; the message lists the known ones.
    pub fn task(&self, name: &str) -> Result<&Task> {
        find("task", &self.tasks, |task| task.name.clone(), name)
    }

    /// Number of rows of `task`; 0 if its type is unknown.
    pub fn rows_of(&self, task: &Task) -> usize {
        match (&task.seeds, &task.on) {
            (Some(seeds), _) => seeds.len(),
            (None, TaskOn::Nodes(name)) => self.node_type(name).map_or(0, |nodes| nodes.count),
            (None, TaskOn::Edges(edge_type)) => self.edge_type(edge_type).map_or(0, EdgeData::num_edges),
        }
    }
}

/// Finds the item called `name`.
fn find<'a, T>(
    axis: &'static str,
    items: &'a [T],
    name_of: impl Fn(&T) -> String,
    name: &str,
) -> Result<&'a T> {
    items.iter().find(|item| name_of(item) == name).ok_or_else(|| Error::Unknown {
        axis,
        name: name.into(),
        known: items.iter().map(name_of).collect::<Vec<_>>().join(", "),
    })
}

impl fmt::Display for TypedDataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: usize, what: &str| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {what}s"),
        };
        write!(
            f,
            "{}: {} nodes of {}, {} edges of {}, {}",
            self.name,
            self.num_nodes(),
            counted(self.nodes.len(), "type"),
            self.num_edges(),
            counted(self.edges.len(), "type"),
            counted(self.tasks.len(), "task"),
        )
    }
}
