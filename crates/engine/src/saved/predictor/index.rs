//! Nodes by their keys.

#[cfg(feature = "tables")]
use std::collections::HashMap;

use graphmill_core::NodeId;
#[cfg(feature = "tables")]
use graphmill_data::typed::TypedDataset;
use graphmill_data::typed::{KEY_SEPARATOR, Keys};
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

#[cfg(feature = "tables")]
use crate::saved::on::FindKeys;
use crate::{Error, Result, saved::keys::Names};

/// Nodes of a type with their keys.
pub(super) struct KeyedNodes {
    pub(super) names: Names,
    index: KeyIndex,
    /// Type of the nodes, if the dataset has several.
    pub(super) node_type: Option<String>,
    /// Number of nodes.
    pub(super) count: usize,
}

impl KeyedNodes {
    pub(super) fn new(names: Names, node_type: Option<String>, count: usize) -> Self {
        let index = KeyIndex::new(names.keys.as_ref());
        Self { names, index, node_type, count }
    }

    /// Node of a key. The parts of a key of several columns are joined by `|`. O(log V).
    ///
    /// # Errors
    /// The key is unknown, several edges between the same ends have it, or the `dataset` has no
    /// keys.
    pub(super) fn find(&self, dataset: &str, key: &str) -> Result<NodeId> {
        let Some(keys) = &self.names.keys else {
            let message = "it has no keys, which 'graphmill import tables' stores; ask by ids";
            return Err(Error::dataset(dataset, message));
        };
        let joined = (self.names.key_columns.len() > 1).then(|| key.replace('|', &KEY_SEPARATOR.to_string()));
        let mut found = self.index.find(keys, joined.as_deref().unwrap_or(key));
        let node = found.next().ok_or_else(|| {
            let place = match &self.node_type {
                Some(name) => format!("not that of a node of type '{name}'"),
                None => "not in it".into(),
            };
            Error::dataset(dataset, format!("the key '{key}' is {place}; check its spelling"))
        })?;
        match found.count() {
            0 => Ok(node),
            more => {
                Err(Error::dataset(dataset, format!("the key '{key}' has {} rows; ask by ids", more + 1)))
            }
        }
    }

    /// Key of a node, as [`KeyedNodes::find`] reads it; `None` if the dataset has no keys.
    ///
    /// # Panics
    /// The node is outside the graph.
    pub(super) fn key(&self, node: NodeId) -> Option<String> {
        let key = self.names.keys.as_ref()?.get(node as usize).to_string();
        Some(key.replace(KEY_SEPARATOR, "|"))
    }

    /// Name of a node in messages: its key, or its id if the dataset has no keys.
    ///
    /// # Panics
    /// The node is outside the graph.
    pub(super) fn name(&self, node: NodeId) -> String {
        format!("node {}", self.key(node).unwrap_or_else(|| node.to_string()))
    }

    /// Checks that all nodes are in the graph of the `dataset`.
    ///
    /// # Errors
    /// The message names the first that is not.
    pub(super) fn check(&self, dataset: &str, mut nodes: impl Iterator<Item = NodeId>) -> Result<()> {
        let count = self.count;
        let Some(node) = nodes.find(|&v| v as usize >= count) else { return Ok(()) };
        let message = match &self.node_type {
            Some(name) => format!("node {node} is outside the {count} nodes of type '{name}'"),
            None => format!("node {node} is outside the graph's {count} nodes"),
        };
        Err(Error::dataset(dataset, format!("{message}; ask for ids below it")))
    }
}

/// Nodes of all types of a dataset by their keys. 12 bytes per node.
#[cfg(feature = "tables")]
pub(crate) struct KeyIndexes(Vec<KeyIndex>);

#[cfg(feature = "tables")]
impl KeyIndexes {
    pub(crate) fn new(data: &TypedDataset) -> Self {
        Self(data.nodes.iter().map(|nodes| KeyIndex::new(nodes.keys.as_ref())).collect())
    }
}

#[cfg(feature = "tables")]
impl FindKeys for KeyIndexes {
    fn find(&self, data: &TypedDataset, t: usize, wanted: &[String]) -> HashMap<String, NodeId> {
        let Some(keys) = &data.nodes[t].keys else { return HashMap::new() };
        wanted.iter().filter_map(|key| Some((key.clone(), self.0[t].find(keys, key).next()?))).collect()
    }
}

/// Nodes by the hash of their keys, in ascending order. 12 bytes per node.
#[derive(Default)]
struct KeyIndex {
    hashes: Vec<u64>,
    nodes: Vec<NodeId>,
}

impl KeyIndex {
    fn new(keys: Option<&Keys>) -> Self {
        let Some(keys) = keys else { return Self::default() };
        let hash = |v: NodeId| (xxh3_64(keys.get(v as usize).to_string().as_bytes()), v);
        let mut all: Vec<(u64, NodeId)> =
            (0..keys.len() as NodeId).into_par_iter().with_min_len(1 << 12).map(hash).collect();
        all.par_sort_unstable();
        Self { hashes: all.iter().map(|entry| entry.0).collect(), nodes: all.iter().map(|e| e.1).collect() }
    }

    /// Nodes of a key: those of equal hashes are compared.
    fn find<'k>(&'k self, keys: &'k Keys, key: &'k str) -> impl Iterator<Item = NodeId> + 'k {
        let hash = xxh3_64(key.as_bytes());
        let first = self.hashes.partition_point(|&other| other < hash);
        let alike = self.hashes[first..].iter().take_while(|&&other| other == hash).count();
        let nodes = self.nodes[first..first + alike].iter().copied();
        nodes.filter(move |&v| keys.get(v as usize).to_string() == key)
    }
}
