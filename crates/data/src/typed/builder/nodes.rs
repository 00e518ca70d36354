//! Columns of a node type under construction.

use graphmill_core::{Buffer, NodeId, SparseRows};

use crate::{
    dataset::{NamedGraph, Normalization},
    typed::{FeatureTable, Keys, NodeData, Values},
};

/// Columns of a node type, set one by one; a later call replaces an earlier one.
#[derive(Debug)]
pub struct NodeBuilder {
    pub(super) data: NodeData,
}

impl NodeBuilder {
    pub(super) fn new(name: String, count: usize) -> Self {
        Self { data: NodeData { name, count, ..NodeData::default() } }
    }

    /// Sets feature rows of `width` values of any number type, row by row.
    pub fn features(&mut self, width: usize, values: impl Into<Values>) -> &mut Self {
        self.feature_table(FeatureTable::dense(width, values))
    }

    /// Sets sparse feature rows.
    pub fn sparse_features(&mut self, rows: SparseRows) -> &mut Self {
        self.feature_table(FeatureTable::sparse(rows))
    }

    /// Sets feature rows with the names of their columns.
    pub fn feature_table(&mut self, table: FeatureTable) -> &mut Self {
        self.data.features = Some(table);
        self
    }

    /// Sets the names of the feature columns, after the rows.
    pub fn feature_names<S: Into<String>>(&mut self, names: impl IntoIterator<Item = S>) -> &mut Self {
        if let Some(table) = &mut self.data.features {
            table.names = names.into_iter().map(Into::into).collect();
        }
        self
    }

    /// Records the normalization that was applied to the features.
    pub fn normalization(&mut self, normalization: Normalization) -> &mut Self {
        self.data.normalization = Some(normalization);
        self
    }

    /// Sets the original keys, in the order of the ids.
    pub fn keys(&mut self, keys: Keys) -> &mut Self {
        self.data.keys = Some(keys);
        self
    }

    /// Sets integers as original keys.
    pub fn integer_keys(&mut self, keys: impl Into<Buffer<i64>>) -> &mut Self {
        self.keys(Keys::Integers(keys.into()))
    }

    /// Sets texts as original keys.
    pub fn text_keys<S: AsRef<str>>(&mut self, keys: impl IntoIterator<Item = S>) -> &mut Self {
        self.keys(Keys::texts(keys))
    }

    /// Sets the time from which each node exists.
    pub fn time(&mut self, time: impl Into<Buffer<i64>>) -> &mut Self {
        self.data.time = Some(time.into());
        self
    }

    /// Sets the ids before the dataset was reordered.
    pub fn original_ids(&mut self, ids: impl Into<Buffer<NodeId>>) -> &mut Self {
        self.data.original_ids = Some(ids.into());
        self
    }

    /// Sets the graphs of a disjoint union.
    pub fn graphs(&mut self, graphs: Vec<NamedGraph>) -> &mut Self {
        self.data.graphs = graphs;
        self
    }
}
