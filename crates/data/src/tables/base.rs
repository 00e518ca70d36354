//! Dataset that tables are imported for.

use super::{changed::Changed, outside::KnownKeys, preprocessing::Preprocessing, removals::RemovalTable};
use crate::typed::{EdgeData, NodeData, TypedDataset};

/// Dataset that tables are imported for: its encodings, and its rows if the tables extend it.
#[derive(Clone, Copy, Default)]
pub(super) struct Base<'a> {
    /// Statistics by which columns are encoded.
    pub(super) like: Option<&'a Preprocessing>,
    /// Keys that edges may name without a row.
    pub(super) known: Option<&'a KnownKeys<'a>>,
    /// Dataset whose rows precede those of the tables.
    pub(super) before: Option<&'a TypedDataset>,
    /// Treatment of rows of its nodes.
    pub(super) changed: Changed,
    /// Tables of its nodes and edges that end.
    pub(super) ends: &'a [RemovalTable],
}

impl<'a> Base<'a> {
    /// Nodes of this type that precede those of the tables.
    pub(super) fn nodes(&self, kind: &str) -> Option<&'a NodeData> {
        self.before?.nodes.iter().find(|nodes| nodes.name == kind)
    }

    /// Edges of the type `source:name:destination` that precede those of the tables.
    pub(super) fn edges(&self, name: &str) -> Option<&'a EdgeData> {
        self.before?.edges.iter().find(|edges| edges.edge_type.to_string() == name)
    }

    /// Returns true if edges may name nodes of this type without a row, because no table of the
    /// dataset had rows of them.
    pub(super) fn is_open(&self, kind: &str) -> bool {
        let known = self.like.and_then(|like| like.nodes.get(kind));
        self.before.is_none() || known.is_none_or(|known| known.key.is_empty() && !known.is_numbered)
    }
}
