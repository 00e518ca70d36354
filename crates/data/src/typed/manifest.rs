//! Manifest of format 2: types, tasks, and the entries of all files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use graphmill_core::ClassColumn;
use serde::{Deserialize, Serialize};

use super::{
    EdgeType, TaskKind, TaskOn,
    names::{EDGES, NODES, PREPROCESSING, TASKS, is_directory_name, is_known},
};
use crate::{
    dataset::{
        NamedGraph,
        manifest::{FILE_NAME, FORMAT, missing},
    },
    signed::{FileEntry, SignedManifest, Terms},
};

/// Version of the format.
pub(crate) const VERSION: u64 = 2;

/// Contents of `graphmill.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) format: String,
    pub(super) version: u64,
    pub(super) name: String,
    pub(super) node_types: Vec<NodeEntry>,
    pub(super) edge_types: Vec<EdgeEntry>,
    pub(super) tasks: Vec<TaskEntry>,
    /// Entries of the arrays, by relative path.
    pub(super) files: BTreeMap<String, FileEntry>,
    /// Entries of the other files, by relative path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) documents: BTreeMap<String, Document>,
    /// Checksum of this text: see [`SignedManifest`].
    pub(super) checksum: String,
}

/// File that is not an array.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) bytes: u64,
    pub(super) checksum: String,
}

/// Node type.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeEntry {
    pub(super) name: String,
    /// Name of the directory within `nodes`.
    pub(super) directory: String,
    pub(super) nodes: usize,
    /// Number of columns of the features; 0 without features.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) feature_dim: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) feature_names: Vec<String>,
    /// Normalization of the features: "rows" or "standard".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) normalize: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) graphs: Vec<NamedGraph>,
}

/// Edge type.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EdgeEntry {
    pub(super) source: String,
    pub(super) name: String,
    pub(super) destination: String,
    /// Name of the directory within `edges`.
    pub(super) directory: String,
    pub(super) edges: usize,
    /// Name of the reverse edge type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reverse: Option<String>,
    /// Number of columns of the features; 0 without features.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) feature_dim: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) feature_names: Vec<String>,
}

/// Task.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskEntry {
    pub(super) name: String,
    /// Name of the directory within `tasks`.
    pub(super) directory: String,
    pub(super) kind: TaskKind,
    pub(super) on: TaskOn,
    /// Number of classes; 0 without classes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) classes: usize,
    /// True if a row may have several classes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) multilabel: bool,
    /// Columns of classes, if a row has a class in each of several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) columns: Vec<ClassColumn>,
    /// Number of values of a row; 0 without values.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) values: usize,
    /// Names of the classes, or of the values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) names: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metric: Option<String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl NodeEntry {
    /// Path of the file `name` of this type.
    pub(super) fn file(&self, name: &str) -> String {
        format!("{NODES}/{}/{name}", self.directory)
    }
}

impl EdgeEntry {
    /// Path of the file `name` of this type.
    pub(super) fn file(&self, name: &str) -> String {
        format!("{EDGES}/{}/{name}", self.directory)
    }

    /// Edge type.
    pub(super) fn edge_type(&self) -> EdgeType {
        EdgeType::new(&self.source, &self.name, &self.destination)
    }
}

impl TaskEntry {
    /// Path of the file `name` of this task.
    pub(super) fn file(&self, name: &str) -> String {
        format!("{TASKS}/{}/{name}", self.directory)
    }
}

impl SignedManifest for Manifest {
    const TERMS: Terms = Terms {
        file_name: FILE_NAME,
        format: FORMAT,
        version: VERSION,
        reads: "versions 1 and 2",
        // Names of classes and of feature columns are the largest part.
        max_bytes: 64 << 20,
        thing: "dataset",
        directory: "dataset",
        manifest: "a dataset manifest",
        remake: "import the data again",
        shorten: "fewer or shorter names of types, classes and feature columns fit",
    };

    fn checksum(&mut self) -> &mut String {
        &mut self.checksum
    }

    fn missing(dir: &Path) -> &'static str {
        missing(dir)
    }

    /// Checks that every file belongs to a type or a task, and that directories are unique.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let mut known = BTreeSet::new();
        let node_types = self.node_types.iter().map(|entry| (NODES, &entry.directory));
        let edge_types = self.edge_types.iter().map(|entry| (EDGES, &entry.directory));
        let tasks = self.tasks.iter().map(|entry| (TASKS, &entry.directory));
        for (kind, directory) in node_types.chain(edge_types).chain(tasks) {
            if !is_directory_name(directory) {
                return Err((kind, format!("'{directory}' is not the name of a directory")));
            }
            if !known.insert((kind, directory.as_str())) {
                return Err((kind, format!("the directory '{directory}' is listed twice")));
            }
        }
        for path in self.files.keys() {
            let parts: Vec<&str> = path.split('/').collect();
            let ours = matches!(parts[..], [kind, directory, name]
                if known.contains(&(kind, directory)) && is_known(kind, name));
            if !ours {
                return Err(("files", format!("'{path}' is not a file of this format")));
            }
        }
        match self.documents.keys().find(|path| *path != PREPROCESSING) {
            Some(path) => Err(("documents", format!("'{path}' is not a document of this format"))),
            None => Ok(()),
        }
    }
}
