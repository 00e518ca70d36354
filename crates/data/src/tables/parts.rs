//! Imported tables as columns, before they are written as a dataset.

use graphmill_core::{Buffer, NodeId};

/// Columns of all tables.
pub(super) struct Parts {
    /// Name of the dataset.
    pub(super) name: String,
    pub(super) nodes: Vec<NodePart>,
    pub(super) edges: Vec<EdgePart>,
    pub(super) tasks: Vec<TaskPart>,
    /// Statistics by which other tables are encoded.
    pub(super) preprocessing: serde_json::Value,
}

/// Feature rows.
pub(super) struct FeaturePart {
    pub(super) names: Vec<String>,
    /// Values, row by row.
    pub(super) values: Buffer<f32>,
}

/// Node type.
pub(super) struct NodePart {
    pub(super) name: String,
    pub(super) count: usize,
    pub(super) features: Option<FeaturePart>,
    pub(super) keys: KeyPart,
}

/// Keys of the nodes, in the order of the ids.
pub(super) enum KeyPart {
    /// Integers.
    Integers(Buffer<i64>),
    /// Starts of the texts and the number of bytes, and the bytes.
    Texts(Buffer<u64>, Buffer<u8>),
}

/// Edge type: a row per edge, in the order of the tables.
pub(super) struct EdgePart {
    /// Source type, name and destination type.
    pub(super) edge_type: [String; 3],
    /// Name of the edge type of the reverse edges, which is to be added.
    pub(super) reverse: Option<String>,
    /// True to store every edge in both directions.
    pub(super) undirected: bool,
    /// True to keep parallel edges without times and features.
    pub(super) keep_duplicates: bool,
    pub(super) src: Buffer<NodeId>,
    pub(super) dst: Buffer<NodeId>,
    pub(super) weight: Option<Buffer<f32>>,
    pub(super) time: Option<Buffer<i64>>,
    pub(super) features: Option<FeaturePart>,
}

/// Task on a node type.
pub(super) struct TaskPart {
    pub(super) name: String,
    pub(super) on: String,
    pub(super) targets: TargetPart,
    /// Nodes that train, validate and test, ascending.
    pub(super) split: [Vec<NodeId>; 3],
}

/// Target of every node.
pub(super) enum TargetPart {
    /// Class, -1 if unknown, and the names of the classes.
    Classes(Vec<i32>, Vec<String>),
    /// Value, NaN if unknown.
    Values(Vec<f32>),
}
