//! The record of the dataset that a run is trained on.

use std::fmt;

use graphmill_data::Dataset;
use serde::{Deserialize, Serialize};

/// The dataset that a run is trained on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DatasetRecord {
    /// Its name.
    pub name: String,
    /// `V`.
    pub nodes: usize,
    /// `E`, as stored.
    pub edges: usize,
    /// `F`.
    pub feature_dim: usize,
    /// `C`.
    pub classes: usize,
    /// Whether a node may have several classes.
    pub multilabel: bool,
    /// Training nodes.
    pub train: usize,
    /// Validation nodes.
    pub valid: usize,
    /// Test nodes.
    pub test: usize,
    /// Of all its files, where it came from a dataset directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

impl DatasetRecord {
    /// The record of a dataset with the checksum by which it is known, whether it is in a directory
    /// or in memory ([`Dataset::identity`]).
    ///
    /// # Errors
    /// The checksum cannot be computed.
    pub fn identified(data: &Dataset) -> crate::Result<Self> {
        Ok(Self { checksum: Some(data.identity()?), ..data.into() })
    }

    /// Whether both are the same data: by their checksums, or where one has none by name and
    /// counts.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.checksum, &other.checksum) {
            (Some(one), Some(two)) => one == two,
            _ => Self { checksum: None, ..self.clone() } == Self { checksum: None, ..other.clone() },
        }
    }
}

impl fmt::Display for DatasetRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, nodes, edges, feature_dim, classes, .. } = self;
        write!(f, "{name} ({nodes} nodes, {edges} edges, {feature_dim} features, {classes} classes")?;
        match &self.checksum {
            Some(checksum) => write!(f, ", checksum {checksum})"),
            None => write!(f, ")"),
        }
    }
}

impl From<&Dataset> for DatasetRecord {
    fn from(data: &Dataset) -> Self {
        Self {
            name: data.name.clone(),
            nodes: data.graph.num_nodes(),
            edges: data.graph.num_edges(),
            feature_dim: data.features.dim,
            classes: data.labels.classes(),
            multilabel: data.labels.is_multi(),
            train: data.split.train.len(),
            valid: data.split.valid.len(),
            test: data.split.test.len(),
            checksum: data.checksum.clone(),
        }
    }
}
