//! Manifest of a partition directory, `partition.json`: its counts and the entries of its files,
//! protected by a checksum over its own text.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use crate::signed::{FileEntry, SignedManifest, Terms};

pub(super) const FILE_NAME: &str = "partition.json";
/// Value of the field `format` in a partition directory.
const FORMAT: &str = "graphmill-partition";
/// Version that this program reads and writes.
const VERSION: u64 = 1;

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
    pub(super) nodes: usize,
    pub(super) edges: usize,
    pub(super) weighted: bool,
    pub(super) train: usize,
    pub(super) valid: usize,
    pub(super) test: usize,
    pub(super) statistics: serde_json::Value,
    /// Counts of each part.
    pub(super) each: Vec<Counts>,
    pub(super) files: BTreeMap<String, FileEntry>,
    /// Checksum of this text: see [`SignedManifest`].
    pub(super) checksum: String,
}

/// Counts of one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Counts {
    pub(super) nodes: usize,
    /// Edges among its own nodes.
    pub(super) edges: usize,
    /// Edges into its nodes from any node.
    pub(super) neighbors: usize,
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
            nodes: 0,
            edges: 0,
            weighted: false,
            train: 0,
            valid: 0,
            test: 0,
            statistics: serde_json::Value::Null,
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
        // Each of at most 65535 parts takes less than a kilobyte.
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
        let sum = |count: fn(&Counts) -> usize| {
            self.each.iter().try_fold(0usize, |sum, part| sum.checked_add(count(part)))
        };
        if sum(|part| part.nodes) != Some(self.nodes) {
            return Err(("each", format!("the parts' nodes do not add up to {}", self.nodes)));
        }
        if sum(|part| part.neighbors) != Some(self.edges) {
            return Err(("each", format!("the parts' neighbors do not add up to {} edges", self.edges)));
        }
        for (name, said) in super::SPLIT.iter().zip([self.train, self.valid, self.test]) {
            let found = self.files.get(*name).and_then(|file| file.shape.first().copied());
            if found != Some(said) {
                return Err((name, format!("{said} nodes, but the file is listed with {found:?}")));
            }
        }
        Ok(())
    }
}
