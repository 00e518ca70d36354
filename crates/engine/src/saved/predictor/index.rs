//! Nodes by their keys.

use graphmill_core::NodeId;
use graphmill_data::typed::Keys;
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

/// Nodes by the hash of their keys, in ascending order. 12 bytes per node.
#[derive(Default)]
pub(super) struct KeyIndex {
    hashes: Vec<u64>,
    nodes: Vec<NodeId>,
}

impl KeyIndex {
    pub(super) fn new(keys: Option<&Keys>) -> Self {
        let Some(keys) = keys else { return Self::default() };
        let hash = |v: NodeId| (xxh3_64(keys.get(v as usize).to_string().as_bytes()), v);
        let mut all: Vec<(u64, NodeId)> =
            (0..keys.len() as NodeId).into_par_iter().with_min_len(1 << 12).map(hash).collect();
        all.par_sort_unstable();
        Self { hashes: all.iter().map(|entry| entry.0).collect(), nodes: all.iter().map(|e| e.1).collect() }
    }

    /// Node of a key: those of equal hashes are compared.
    pub(super) fn find(&self, keys: &Keys, key: &str) -> Option<NodeId> {
        let hash = xxh3_64(key.as_bytes());
        let first = self.hashes.partition_point(|&other| other < hash);
        let alike = self.hashes[first..].iter().take_while(|&&other| other == hash).count();
        let mut nodes = self.nodes[first..first + alike].iter().copied();
        nodes.find(|&v| keys.get(v as usize).to_string() == key)
    }
}
