//! Record of a run's dataset.

use std::fmt;

use graphmill_core::{ClassColumn, Labels};
use graphmill_data::Dataset;
use graphmill_loader::Traffic;
use serde::{Deserialize, Serialize};

/// Name, sizes and checksum of a run's dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DatasetRecord {
    /// Name of the dataset.
    pub name: String,
    /// Number of nodes `V`.
    pub nodes: usize,
    /// Number of stored edges `E`.
    pub edges: usize,
    /// Number of feature columns `F`.
    pub feature_dim: usize,
    /// Number of classes `C`.
    pub classes: usize,
    /// True if a node may have several classes.
    pub multilabel: bool,
    /// Columns of classes, if a node has a class in each of several; `classes` is the sum of
    /// theirs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ClassColumn>,
    /// True if the targets are `classes` real values per node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub values: bool,
    /// Number of training nodes.
    pub train: usize,
    /// Number of validation nodes.
    pub valid: usize,
    /// Number of test nodes.
    pub test: usize,
    /// Checksum of all files, if the dataset is a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Node types with their numbers of nodes, if there are several types.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_types: Vec<TypeCount>,
    /// Edge types with their numbers of edges, if there are several types.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edge_types: Vec<TypeCount>,
}

/// Number of nodes or edges of a type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeCount {
    /// Name of the type.
    pub name: String,
    /// Number of nodes or edges.
    pub count: u64,
}

/// Feature rows read of a node type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TypeTraffic {
    /// Name of the type.
    pub name: String,
    /// Rows and bytes read, per tier.
    pub traffic: Traffic,
    /// Fraction of the rows that the nearest tier served.
    pub hit_rate: Option<f64>,
}

impl DatasetRecord {
    /// Record with the identifying checksum of a dataset in a directory or in memory
    /// ([`Dataset::identity`]).
    ///
    /// # Errors
    /// The checksum cannot be computed.
    pub fn identified(data: &Dataset) -> crate::Result<Self> {
        Ok(Self { checksum: Some(data.identity()?), ..data.into() })
    }

    /// Returns true if both records describe the same data. Compares checksums, or names and counts
    /// if a checksum is missing.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.checksum, &other.checksum) {
            (Some(one), Some(two)) => one == two,
            _ => Self { checksum: None, ..self.clone() } == Self { checksum: None, ..other.clone() },
        }
    }

    /// Returns true if targets have the kind of those of the record, and as many outputs: a class
    /// of one of at most as many, a set of the same classes, the same columns of classes, or as
    /// many values.
    pub(crate) fn has_targets_like(&self, labels: &Labels) -> bool {
        let is_class = matches!(labels, Labels::Single { .. });
        (labels.is_multi(), labels.is_values(), labels.columns())
            == (self.multilabel, self.values, &self.columns[..])
            && (labels.classes() == self.classes || is_class && labels.classes() < self.classes)
    }
}

impl fmt::Display for DatasetRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, nodes, edges, feature_dim, classes, values, columns, .. } = self;
        let what = match (values, &columns[..]) {
            (true, _) => "target values".to_string(),
            (false, []) => "classes".to_string(),
            (false, columns) => format!("classes in the columns {}", sizes(columns)),
        };
        write!(f, "{name} ({nodes} nodes, {edges} edges, {feature_dim} features, {classes} {what}")?;
        match &self.checksum {
            Some(checksum) => write!(f, ", checksum {checksum})"),
            None => write!(f, ")"),
        }
    }
}

/// Names of columns with their numbers of classes.
pub(crate) fn sizes(columns: &[ClassColumn]) -> String {
    let size = |column: &ClassColumn| format!("{} ({})", column.name, column.classes);
    columns.iter().map(size).collect::<Vec<_>>().join(", ")
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
            columns: data.labels.columns().to_vec(),
            values: data.labels.is_values(),
            train: data.split.train.len(),
            valid: data.split.valid.len(),
            test: data.split.test.len(),
            checksum: data.checksum.clone(),
            ..Self::default()
        }
    }
}
