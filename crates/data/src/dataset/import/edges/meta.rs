//! `meta.json`: properties that the tables of a directory cannot express. Every field is optional.
//!
//! ```text
//! {"name": "cora", "nodes": 2708, "edges": 10556, "classes": 7, "metric": "accuracy"}
//! ```
//!
//! `graphs`, a list of `{"name": "DE", "nodes": {"start": 0, "end": 9498}}`, lists the graphs of a
//! disjoint union. `normalize` (rows or standard) is the normalization of the features; the
//! statistics of standard are separate files. `nodes` and `edges` must match the files; classes
//! beyond the largest label have no nodes.

use std::path::{Path, PathBuf};

use graphmill_core::{Error, Labels, Result, location::Location};
use serde::{Deserialize, Serialize};

use super::super::json;
use crate::{
    dataset::{NamedGraph, Normalization},
    npy,
};

/// File names of the statistics of standardized features.
pub(super) const MEAN: &str = "feature_mean.npy";
pub(super) const DEVIATION: &str = "feature_deviation.npy";

/// Contents of `meta.json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super::super) struct Meta {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super::super) name: Option<String>,
    /// Number of nodes, `V`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super::super) nodes: Option<usize>,
    /// Number of lines of the edge list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super::super) edges: Option<u64>,
    /// Number of classes, `C`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super::super) classes: Option<usize>,
    /// True if labels are sets of classes, which a single column leaves open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super::super) multi: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super::super) metric: Option<String>,
    /// Normalization of the features, with the statistics in `feature_mean.npy` and
    /// `feature_deviation.npy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super::super) normalize: Option<String>,
    /// Graphs of a disjoint union.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super::super) graphs: Option<Vec<NamedGraph>>,
    #[serde(skip)]
    /// Path of the file, for messages.
    pub(in super::super::super) path: PathBuf,
}

impl Meta {
    /// Reads the file `path`.
    ///
    /// # Errors
    /// The file cannot be read, or has unknown or invalid fields.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).map_err(|e| Error::io(path, "read", e))?;
        let meta: Self = serde_json::from_slice(&text).map_err(|e| json::error(path, &e))?;
        Ok(Self { path: path.to_path_buf(), ..meta })
    }

    /// Reads the normalization of the features.
    ///
    /// # Errors
    /// The name is unknown, or the statistics cannot be read.
    pub(super) fn normalization(&self) -> Result<Option<Normalization>> {
        let Some(name) = &self.normalize else { return Ok(None) };
        let path = |file: &str| self.path.with_file_name(file);
        let read = |file: &str| npy::open(path(file))?.read_as::<f64>();
        let is_standard = name == "standard";
        let mean = (is_standard && path(MEAN).is_file()).then(|| read(MEAN)).transpose()?;
        let deviation = if is_standard { read(DEVIATION)? } else { Vec::new() };
        let unknown = || {
            Location::new(&self.path, "normalize").error(format!("'{name}' found, rows or standard expected"))
        };
        Normalization::of_parts(name, mean, deviation).ok_or_else(unknown).map(Some)
    }

    /// Checks the number of edges in the list.
    pub(super) fn check_edges(&self, found: u64, list: &Path) -> Result<()> {
        match self.edges {
            Some(edges) if edges != found => Err(Location::new(&self.path, "edges")
                .error(format!("{edges} edges, but {} holds {found}: is it truncated?", list.display()))),
            _ => Ok(()),
        }
    }

    /// Extends the labels to the stated number of classes.
    pub(super) fn with_classes(&self, labels: Labels) -> Result<Labels> {
        let labels = match (labels, self.multi, self.classes) {
            (Labels::Single { class, .. }, Some(true), Some(1)) => {
                let member = class.iter().map(|&c| match c {
                    0 | 1 => c as u8,
                    ..0 => super::super::labels::MISSING,
                    _ => 2, // is rejected
                });
                let member = member.collect();
                super::labels::multi(member, 1, &Location::new(&self.path, "multi"))?
            }
            (Labels::Single { class, classes: used }, _, Some(classes))
                if classes >= used && classes <= i32::MAX as usize =>
            {
                Labels::Single { class, classes }
            }
            (labels, ..) => labels,
        };
        match self.classes {
            Some(classes) if classes != labels.classes() => Err(Location::new(&self.path, "classes")
                .error(format!("{classes} classes, but the labels have {}", labels.classes()))),
            _ => Ok(labels),
        }
    }
}
