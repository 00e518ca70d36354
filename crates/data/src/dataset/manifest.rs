//! Manifest of a dataset directory, `graphmill.json`: the dataset's counts and the entries of its
//! files, protected by a checksum over its own text.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use super::NamedGraph;
use crate::signed::{FileEntry, SignedManifest, Terms};

/// File name of the manifest.
pub(crate) const FILE_NAME: &str = "graphmill.json";
/// Value of the field `format` in a dataset directory.
pub(crate) const FORMAT: &str = "graphmill-dataset";
/// Version that this program reads and writes.
pub(super) const VERSION: u64 = 1;

/// Contents of `graphmill.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) format: String,
    pub(super) version: u64,
    pub(super) name: String,
    pub(super) nodes: usize,
    pub(super) edges: usize,
    pub(super) feature_dim: usize,
    pub(super) classes: usize,
    pub(super) multilabel: bool,
    pub(super) metric: Option<String>,
    /// Normalization of the features, "rows" or "standard"; omitted for features stored as in the
    /// source, as in every manifest of the first releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) normalize: Option<String>,
    /// Omitted for a single graph, as in every manifest of the first releases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) graphs: Vec<NamedGraph>,
    pub(super) files: BTreeMap<String, FileEntry>,
    /// Checksum of this text: see [`SignedManifest`].
    pub(super) checksum: String,
}

impl SignedManifest for Manifest {
    const TERMS: Terms = Terms {
        file_name: FILE_NAME,
        format: FORMAT,
        version: VERSION,
        reads: "versions 1 and 2",
        // Real manifests take two kilobytes.
        max_bytes: 1 << 20,
        thing: "dataset",
        directory: "dataset",
        manifest: "a dataset manifest",
        remake: "import the data again",
        shorten: "fewer graphs or shorter names fit",
    };

    fn checksum(&mut self) -> &mut String {
        &mut self.checksum
    }

    fn missing(dir: &Path) -> &'static str {
        missing(dir)
    }
}

/// Message for a directory without a manifest.
pub(crate) fn missing(dir: &Path) -> &'static str {
    if dir.join("partition.json").is_file() {
        "this is a partitioned dataset: `graphmill train` takes it, other commands one of its parts \
         (part-0000, ...) or the dataset \
         that it was made of (`eval` and `predict` by --dataset)"
    } else if dir.join("config.toml").is_file() {
        "this is a run directory and not a Graphmill dataset; pass the dataset of the run, which \
         `dataset` in its config.toml names"
    } else if !dir.exists() {
        "there is no such directory; check its name, or create a dataset with `graphmill import` or \
         `graphmill generate`"
    } else {
        "no such file, so this is not a Graphmill dataset; create one with `graphmill import` or \
         `graphmill generate`"
    }
}
