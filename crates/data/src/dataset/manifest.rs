//! Manifest of a dataset directory, `graphmill.json`: the dataset's counts and the entries of its
//! files, protected by a checksum over its own text.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use super::NamedGraph;
use crate::signed::{SignedManifest, Terms};

/// File name of the manifest.
pub(crate) const FILE_NAME: &str = "graphmill.json";
/// Value of the field `format` in a dataset directory.
pub(super) const FORMAT: &str = "graphmill-dataset";
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

/// Entry of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileEntry {
    /// Element type, in NumPy's notation.
    pub(crate) dtype: String,
    /// Length of each axis.
    pub(crate) shape: Vec<usize>,
    /// Size of the file.
    pub(crate) bytes: u64,
    /// Checksum of the whole file (see [`checksum`](super::checksum::checksum)).
    pub(crate) checksum: String,
}

impl SignedManifest for Manifest {
    const TERMS: Terms = Terms {
        file_name: FILE_NAME,
        format: FORMAT,
        version: VERSION,
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
        if dir.join("partition.json").is_file() {
            "this is a partitioned dataset: `graphmill train` takes it, other commands one of its parts \
             (part-0000, ...) or the dataset \
             that it was made of (`eval` and `predict` by --dataset)"
        } else {
            "no such file, so this is not a Graphmill dataset; create one with `graphmill import` or \
             `graphmill generate`"
        }
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::Result;

    use super::*;

    fn manifest() -> Manifest {
        let entry = FileEntry { dtype: "<u8".into(), shape: vec![3], bytes: 88, checksum: "0".repeat(32) };
        Manifest {
            format: FORMAT.into(),
            version: VERSION,
            name: "tiny".into(),
            nodes: 2,
            edges: 1,
            feature_dim: 0,
            classes: 0,
            multilabel: false,
            metric: None,
            normalize: None,
            graphs: vec![NamedGraph::new("one", 0..2)],
            files: BTreeMap::from([("indptr.npy".into(), entry)]),
            checksum: String::new(),
        }
    }

    fn read(text: &[u8]) -> Result<Manifest, String> {
        let text = std::str::from_utf8(text).map_err(|e| e.to_string())?;
        Manifest::parse(text, Path::new(FILE_NAME)).map_err(|e| e.to_string())
    }

    #[test]
    fn manifests_round_trip_and_any_changed_byte_is_an_error() {
        let text = manifest().signed().unwrap().1;
        assert_eq!(read(text.as_bytes()).unwrap().files, manifest().files);
        for length in 0..text.len() {
            assert!(read(&text.as_bytes()[..length]).is_err(), "truncated to {length}");
        }
        for bit in 0..text.len() * 8 {
            let mut bad = text.clone().into_bytes();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn unknown_formats_versions_and_fields_are_reported() {
        let text = manifest().signed().unwrap().1;
        let error = |from: &str, to: &str| read(text.replace(from, to).as_bytes()).unwrap_err();
        assert!(error("\"version\": 1", "\"version\": 7").contains("version 7"));
        assert!(error(FORMAT, "recipe").contains("'recipe' found"));
        assert!(error("\"nodes\"", "\"knots\"").contains("line "));
        assert!(error("tiny", "tidy").contains("edited"));
        let none = Manifest::read(Path::new("does-not-exist")).unwrap_err().to_string();
        assert!(none.contains("graphmill.json") && none.contains("not a Graphmill dataset"), "{none}");
    }
}
