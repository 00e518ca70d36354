//! Manifest of a partition of a dataset of several types, `partition.json` of version 2.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    signed::{FileEntry, SignedManifest, Terms},
    typed::EdgeType,
};

pub(super) const FILE_NAME: &str = "partition.json";
/// Value of the field `format` in a partition directory.
const FORMAT: &str = "graphmill-partition";
/// Version of a partition of several types.
pub(super) const VERSION: u64 = 2;

/// Contents of `partition.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) format: String,
    pub(super) version: u64,
    pub(super) method: String,
    pub(super) parts: u16,
    pub(super) seed: u64,
    pub(super) options: serde_json::Value,
    /// Name of the partitioned dataset.
    pub(super) source: String,
    pub(super) source_checksum: Option<String>,
    pub(super) node_types: Vec<NodeTypeCounts>,
    pub(super) edge_types: Vec<EdgeTypeCounts>,
    pub(super) statistics: serde_json::Value,
    /// Checksum of the manifest of the dataset `whole`.
    pub(super) whole: String,
    /// Checksum of the manifest of the dataset `topology`; `None` in a partition of an earlier
    /// version, which has no such dataset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) topology: Option<String>,
    /// Counts of each part.
    pub(super) each: Vec<Counts>,
    pub(super) files: BTreeMap<String, FileEntry>,
    /// Checksum of this text: see [`SignedManifest`].
    pub(super) checksum: String,
}

/// Node type of the partitioned dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeTypeCounts {
    pub(super) name: String,
    pub(super) nodes: usize,
}

/// Edge type of a partitioned dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeTypeCounts {
    /// The type.
    pub edge_type: EdgeType,
    /// Number of edges.
    pub edges: usize,
    /// True if its edges have weights.
    pub weighted: bool,
    /// True if its edges have times.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed: bool,
    /// Number of features of its edges; 0 if they have none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub features: usize,
}

fn is_zero(features: &usize) -> bool {
    *features == 0
}

/// Counts of one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counts {
    /// Own nodes of each type.
    pub(super) nodes: Vec<usize>,
    /// Edges of each type into own nodes.
    pub(super) neighbors: Vec<usize>,
    /// Checksum of the part's own manifest.
    pub(super) checksum: String,
}

impl Manifest {
    /// Creates an empty manifest.
    pub(super) fn new(method: &str, parts: u16) -> Self {
        Self {
            format: FORMAT.into(),
            version: VERSION,
            method: method.into(),
            parts,
            seed: 0,
            options: serde_json::Value::Null,
            source: String::new(),
            source_checksum: None,
            node_types: Vec::new(),
            edge_types: Vec::new(),
            statistics: serde_json::Value::Null,
            whole: String::new(),
            topology: None,
            each: Vec::new(),
            files: BTreeMap::new(),
            checksum: String::new(),
        }
    }
}

impl SignedManifest for Manifest {
    const TERMS: Terms = Terms {
        file_name: FILE_NAME,
        format: FORMAT,
        version: VERSION,
        reads: "version 1 of one node type and version 2 of several",
        max_bytes: 64 << 20,
        thing: "partition",
        directory: "partitioned dataset",
        manifest: "the manifest of a partition",
        remake: "partition the dataset again",
        shorten: "shorter names fit",
    };

    fn checksum(&mut self) -> &mut String {
        &mut self.checksum
    }

    fn missing(_: &Path) -> &'static str {
        "no such file, so this is not a partitioned dataset; create one with `graphmill partition`"
    }

    /// Checks that the counts agree.
    fn check(&self) -> Result<(), (&'static str, String)> {
        if self.each.len() != usize::from(self.parts) || self.parts == 0 {
            return Err((
                "each",
                format!("{} parts are described, parts is {}", self.each.len(), self.parts),
            ));
        }
        let sums = |counts: fn(&Counts) -> &[usize], len: usize| {
            let mut sums = vec![0usize; len];
            let mut add = |part: &Counts| {
                let counts = counts(part);
                let is_complete = counts.len() == len;
                sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
                is_complete
            };
            self.each.iter().all(&mut add).then_some(sums)
        };
        let nodes: Vec<usize> = self.node_types.iter().map(|of| of.nodes).collect();
        if sums(|part| &part.nodes, nodes.len()) != Some(nodes) {
            return Err(("each", "the parts' nodes do not add up to those of each type".into()));
        }
        let edges: Vec<usize> = self.edge_types.iter().map(|of| of.edges).collect();
        if sums(|part| &part.neighbors, edges.len()) != Some(edges) {
            return Err(("each", "the parts' neighbors do not add up to the edges of each type".into()));
        }
        Ok(())
    }
}
