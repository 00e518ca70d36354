//! Facts of a dataset by its manifest: the number of its types, and the location of the feature
//! rows of a dataset of one type.

use std::path::Path;

use graphmill_core::Result;
use serde::{Deserialize, de::IgnoredAny};

use super::{
    manifest::{Manifest, VERSION},
    names::{FEATURES, FEATURES_INDPTR},
};
use crate::{
    dataset::manifest::FILE_NAME,
    signed::{self, FileEntry, SignedManifest},
};

/// Entry of the feature rows in the manifest.
pub(crate) struct StoredFeatures {
    /// Relative path of the file.
    pub(crate) path: String,
    /// Entry of the file; `None` if the rows are sparse or missing.
    pub(crate) entry: Option<FileEntry>,
    /// True if the rows are sparse.
    pub(crate) is_sparse: bool,
    /// Rows and columns.
    pub(crate) shape: [usize; 2],
}

/// Returns true if `dir` holds a dataset of any format.
pub fn is_dataset(dir: impl AsRef<Path>) -> bool {
    signed::version_in::<Manifest>(dir.as_ref()).is_some()
}

/// Returns true if `dir` holds a dataset of format 2.
pub fn is_typed(dir: impl AsRef<Path>) -> bool {
    signed::version_in::<Manifest>(dir.as_ref()) == Some(VERSION)
}

/// Parts of a manifest whose number matters.
#[derive(Deserialize)]
struct Counts {
    node_types: Vec<IgnoredAny>,
    edge_types: Vec<IgnoredAny>,
    tasks: Vec<IgnoredAny>,
}

/// Text of the manifest in `dir`, without a check of its checksum; `None` if it cannot be read.
pub fn manifest_text(dir: impl AsRef<Path>) -> Option<Vec<u8>> {
    signed::read_twice(&dir.as_ref().join(FILE_NAME), Manifest::TERMS.max_bytes).ok()
}

/// Returns true if `dir` holds a dataset of format 2 of several node types, edge types or tasks.
/// Reads the manifest without a check of its checksum, on the current thread alone.
pub fn has_several_types(dir: impl AsRef<Path>) -> bool {
    let dir = dir.as_ref();
    let are_several = |of: Counts| of.node_types.len().max(of.edge_types.len()).max(of.tasks.len()) > 1;
    is_typed(dir)
        && manifest_text(dir).and_then(|text| serde_json::from_slice(&text).ok()).is_some_and(are_several)
}

/// Finds the feature rows of node type number `t` of the dataset in `dir`.
///
/// # Errors
/// The manifest is missing or damaged.
pub(crate) fn stored_features(dir: &Path, t: usize) -> Result<StoredFeatures> {
    let manifest = Manifest::read(dir)?;
    let node_type = manifest.node_types.get(t);
    let file = |name: &str| node_type.map(|entry| entry.file(name)).unwrap_or_default();
    Ok(StoredFeatures {
        entry: manifest.files.get(&file(FEATURES)).cloned(),
        is_sparse: manifest.files.contains_key(&file(FEATURES_INDPTR)),
        path: file(FEATURES),
        shape: node_type.map_or([0; 2], |entry| [entry.nodes, entry.feature_dim]),
    })
}

/// Checksum of the dataset in `dir`, by its manifest.
///
/// # Errors
/// The manifest is missing or damaged.
pub(crate) fn checksum_of(dir: &Path) -> Result<String> {
    Ok(Manifest::read(dir)?.checksum)
}
