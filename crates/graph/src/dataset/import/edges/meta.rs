//! `meta.json`: what the tables of a directory cannot say. Every field may be missing.
//!
//! ```text
//! {"name": "cora", "nodes": 2708, "edges": 10556, "classes": 7, "metric": "accuracy"}
//! ```
//!
//! `graphs`, a list of `{"name": "DE", "nodes": {"start": 0, "end": 9498}}`, says of which graphs this is the union.
//! `nodes` and `edges` must be what the files hold; classes beyond the largest label have no node.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::json;
use crate::{Error, Labels, Result, dataset::NamedGraph, place::At};

/// Beside a directory of tables.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super::super) struct Meta {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super::super) name: Option<String>,
    /// `V`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super::super) nodes: Option<usize>,
    /// Lines of the list of edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super::super) edges: Option<u64>,
    /// `C`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super::super) classes: Option<usize>,
    /// Whether labels are sets of classes, where a single column of them leaves that open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super::super) multi: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super::super) metric: Option<String>,
    /// The graphs that the dataset is the union of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super::super) graphs: Option<Vec<NamedGraph>>,
    #[serde(skip)]
    /// The file, for messages.
    pub(in super::super::super) path: PathBuf,
}

impl Meta {
    /// Reads the file `path`.
    ///
    /// # Errors
    /// It cannot be read, or is something else.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).map_err(|e| Error::io(path, "read", e))?;
        let meta: Self = serde_json::from_slice(&text).map_err(|e| json::error(path, &e))?;
        Ok(Self { path: path.to_path_buf(), ..meta })
    }

    /// That the list holds as many edges as this says.
    pub(super) fn check_edges(&self, found: u64, list: &Path) -> Result<()> {
        match self.edges {
            Some(edges) if edges != found => Err(At::new(&self.path, "edges")
                .error(format!("{edges} edges, but {} holds {found}: is it truncated?", list.display()))),
            _ => Ok(()),
        }
    }

    /// The labels with as many classes as this says.
    pub(super) fn with_classes(&self, labels: Labels) -> Result<Labels> {
        let labels = match (labels, self.multi, self.classes) {
            (Labels::Single { class, .. }, Some(true), Some(1)) => {
                let member = class.iter().map(|&c| u8::try_from(c).unwrap_or(u8::MAX)).collect();
                super::labels::multi(member, 1, &At::new(&self.path, "multi"))?
            }
            (Labels::Single { class, classes: used }, _, Some(classes))
                if classes >= used && classes <= i32::MAX as usize =>
            {
                Labels::Single { class, classes }
            }
            (labels, ..) => labels,
        };
        match self.classes {
            Some(classes) if classes != labels.classes() => Err(At::new(&self.path, "classes")
                .error(format!("{classes} classes, but the labels have {}", labels.classes()))),
            _ => Ok(labels),
        }
    }
}
