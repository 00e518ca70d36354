//! Tasks: a table of seeds with targets and a split, on a node type or an edge type.

use std::fmt;

use graphmill_core::{Buffer, ClassColumn, Labels, NodeId, Split};
use serde::{Deserialize, Serialize};

use super::{CandidateLists, EdgeType};

/// Node type or edge type of a task's seeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskOn {
    /// Nodes of this type.
    Nodes(String),
    /// Edges of this type. Pairs of link prediction may have a type without edges.
    Edges(EdgeType),
}

impl fmt::Display for TaskOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(name) => name.fmt(f),
            Self::Edges(edge) => edge.fmt(f),
        }
    }
}

/// Kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskKind {
    /// Predicts the class, or the set of classes, of a node.
    NodeClassification,
    /// Predicts values of a node.
    NodeRegression,
    /// Predicts if an edge exists.
    LinkPrediction,
    /// Predicts the class, or the set of classes, of an edge.
    EdgeClassification,
    /// Predicts values of an edge.
    EdgeRegression,
}

impl TaskKind {
    /// Name, as in the manifest.
    pub fn name(self) -> &'static str {
        match self {
            Self::NodeClassification => "node-classification",
            Self::NodeRegression => "node-regression",
            Self::LinkPrediction => "link-prediction",
            Self::EdgeClassification => "edge-classification",
            Self::EdgeRegression => "edge-regression",
        }
    }

    /// Returns true if the seeds are edges.
    pub fn is_on_edges(self) -> bool {
        !matches!(self, Self::NodeClassification | Self::NodeRegression)
    }
}

/// Targets of a task's rows.
#[derive(Clone, Debug, Default)]
pub enum Targets {
    /// No targets: link prediction.
    #[default]
    None,
    /// A class, or a class in each of several columns, or a set of classes, per row.
    Classes(Labels),
    /// `width` values per row, row by row; NaN if unknown.
    Values {
        /// Number of values of a row.
        width: usize,
        /// Values.
        values: Buffer<f32>,
    },
}

/// Seeds of the rows of a task, if they are not all nodes or edges of the type in their order.
#[derive(Clone, Debug)]
pub enum Seeds {
    /// Local node of each row.
    Nodes(Buffer<NodeId>),
    /// Local source and destination of each row, `R x 2`; they need not be edges of the graph.
    Pairs(Buffer<NodeId>),
}

impl Seeds {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Nodes(ids) => ids.len(),
            Self::Pairs(ids) => ids.len() / 2,
        }
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Given negatives of a part of a link prediction task.
#[derive(Clone, Debug)]
pub enum Negatives {
    /// Pairs of a source and a destination, `N x 2`.
    Pairs(Buffer<NodeId>),
    /// `each` destinations for every positive of the part, in its order.
    Destinations {
        /// Number of negatives of a positive.
        each: usize,
        /// Destinations, row by row.
        nodes: Buffer<NodeId>,
    },
    /// `each` sources for every positive of the part, in its order.
    Sources {
        /// Number of negatives of a positive.
        each: usize,
        /// Sources, row by row.
        nodes: Buffer<NodeId>,
    },
    /// Destinations for every positive of the part, in its order, of any number each.
    Lists(CandidateLists),
}

/// Task of a dataset: rows of seeds with targets, of which some train, validate and test.
///
/// Row `i` is node `i` or edge `i` of the type (in the order of its CSC), unless
/// [`seeds`](Task::seeds) lists the rows. A node may occur in several rows, each with a time.
#[derive(Clone, Debug)]
pub struct Task {
    /// Name.
    pub name: String,
    /// Type of the seeds.
    pub on: TaskOn,
    /// Seeds of the rows; `None` if they are the nodes or edges of the type.
    pub seeds: Option<Seeds>,
    /// Time of each row: a prediction sees no later edge.
    pub time: Option<Buffer<i64>>,
    /// Targets of the rows.
    pub targets: Targets,
    /// Names of the classes (those of all columns), or of the values; may be empty.
    pub names: Vec<String>,
    /// Rows that train, validate and test, ascending and disjoint.
    pub split: Split,
    /// Negatives of the parts of the split (train, valid, test), if given.
    pub negatives: [Option<Negatives>; 3],
    /// Customary metric, if known.
    pub metric: Option<String>,
}

impl Task {
    /// Creates a task without rows in its split.
    pub fn new(name: impl Into<String>, on: TaskOn) -> Self {
        Self {
            name: name.into(),
            on,
            seeds: None,
            time: None,
            targets: Targets::None,
            names: Vec::new(),
            split: Split::default(),
            negatives: [None, None, None],
            metric: None,
        }
    }

    /// Kind, by the type of the seeds and of the targets; `None` for nodes without targets.
    pub fn kind(&self) -> Option<TaskKind> {
        match (&self.on, &self.targets) {
            (TaskOn::Nodes(_), Targets::Classes(_)) => Some(TaskKind::NodeClassification),
            (TaskOn::Nodes(_), Targets::Values { .. }) => Some(TaskKind::NodeRegression),
            (TaskOn::Nodes(_), Targets::None) => None,
            (TaskOn::Edges(_), Targets::None) => Some(TaskKind::LinkPrediction),
            (TaskOn::Edges(_), Targets::Classes(_)) => Some(TaskKind::EdgeClassification),
            (TaskOn::Edges(_), Targets::Values { .. }) => Some(TaskKind::EdgeRegression),
        }
    }

    /// Number of classes, or of values of a row; 0 without targets.
    pub fn width(&self) -> usize {
        match &self.targets {
            Targets::None => 0,
            Targets::Classes(labels) => labels.classes(),
            Targets::Values { width, .. } => *width,
        }
    }

    /// Columns of classes; empty unless a row has a class in each of several columns.
    pub fn columns(&self) -> &[ClassColumn] {
        match &self.targets {
            Targets::Classes(labels) => labels.columns(),
            Targets::None | Targets::Values { .. } => &[],
        }
    }

    /// Returns true if a row may have several classes.
    pub fn is_multi_label(&self) -> bool {
        matches!(&self.targets, Targets::Classes(labels) if labels.is_multi())
    }
}
