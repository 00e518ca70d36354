//! Labels or values of nodes, and the training, validation and test nodes.

#![forbid(unsafe_code)]

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{Buffer, NodeId, parallel};

/// Column of classes, one of several that every node has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassColumn {
    /// Name.
    pub name: String,
    /// Number of classes, `C_k`.
    pub classes: usize,
}

impl ClassColumn {
    /// Range of the classes of each column in a row of all of them.
    pub fn ranges(columns: &[Self]) -> impl Iterator<Item = Range<usize>> {
        columns.iter().scan(0, |end, column| {
            let start = *end;
            *end += column.classes;
            Some(start..*end)
        })
    }

    /// First fault of the `class` of each of `rows` rows in each of the `columns`.
    pub fn fault(columns: &[Self], class: &[i32], rows: usize) -> Option<String> {
        let count = columns.len();
        for (k, column) in columns.iter().enumerate() {
            if column.name.is_empty() || columns[..k].iter().any(|other| other.name == column.name) {
                return Some(format!(
                    "column {k} is called '{}': names are unique and not empty",
                    column.name
                ));
            }
            if column.classes == 0 || column.classes > i32::MAX as usize {
                return Some(format!("column '{}' has {} classes", column.name, column.classes));
            }
        }
        if count == 0 || Some(class.len()) != rows.checked_mul(count) {
            return Some(format!("{} classes for {rows} rows x {count} columns", class.len()));
        }
        let wrong = |row: &[i32]| {
            let outside = |(&c, column): (&i32, &Self)| c < -1 || c as i64 >= column.classes as i64;
            row.iter().zip(columns).position(outside)
        };
        let i = parallel::first_index(rows, |i| wrong(&class[i * count..][..count]).is_some())?;
        let k = wrong(&class[i * count..][..count])?;
        let ClassColumn { name, classes } = &columns[k];
        Some(format!(
            "the class of row {i} in column '{name}' is {}, outside its {classes} classes (-1 means unknown)",
            class[i * count + k]
        ))
    }
}

/// Targets of nodes: classes, or real values.
#[derive(Clone, Debug)]
pub enum Labels {
    /// One class of `0..classes` per node (`V`), -1 if unknown.
    Single {
        /// Class per node.
        class: Buffer<i32>,
        /// Number of classes, `C`.
        classes: usize,
    },
    /// Set of classes per node: `V x classes` zeros and ones, row-major.
    Multi {
        /// Membership, row-major.
        member: Buffer<u8>,
        /// Number of classes, `C`.
        classes: usize,
    },
    /// One class per node in each of `K` columns: `V x K`, row-major, -1 if unknown.
    Columns {
        /// Classes, row-major; those of column `k` are in `0..columns[k].classes`.
        class: Buffer<i32>,
        /// The columns.
        columns: Vec<ClassColumn>,
    },
    /// Real values: `V x width`, row-major, NaN if unknown.
    Values {
        /// Values, row-major.
        values: Buffer<f32>,
        /// Number of values per node.
        width: usize,
    },
}

impl Default for Labels {
    fn default() -> Self {
        Self::Single { class: Buffer::default(), classes: 0 }
    }
}

impl Labels {
    /// Number of outputs of a model: classes `C` (those of all columns together), or values per
    /// node.
    pub fn classes(&self) -> usize {
        match self {
            Self::Single { classes, .. } | Self::Multi { classes, .. } => *classes,
            Self::Columns { columns, .. } => {
                columns.iter().fold(0, |sum, column| sum.saturating_add(column.classes))
            }
            Self::Values { width, .. } => *width,
        }
    }

    /// Returns true if a node may have several classes.
    pub fn is_multi(&self) -> bool {
        matches!(self, Self::Multi { .. })
    }

    /// Returns true if the targets are real values.
    pub fn is_values(&self) -> bool {
        matches!(self, Self::Values { .. })
    }

    /// Columns of classes; empty unless a node has a class in each of several columns.
    pub fn columns(&self) -> &[ClassColumn] {
        match self {
            Self::Columns { columns, .. } => columns,
            Self::Single { .. } | Self::Multi { .. } | Self::Values { .. } => &[],
        }
    }

    /// Returns true if `v` has a label (with several classes every node has one, possibly the empty
    /// set), or a class in at least one of its columns, or at least one of its values.
    pub fn is_labelled(&self, v: NodeId) -> bool {
        match self {
            Self::Single { class, .. } => class[v as usize] >= 0,
            Self::Multi { .. } => true,
            Self::Columns { class, columns } => {
                class[v as usize * columns.len()..][..columns.len()].iter().any(|&c| c >= 0)
            }
            Self::Values { values, width } => {
                let first = v as usize * width;
                values[first..first + width].iter().any(|x| !x.is_nan())
            }
        }
    }
}

/// Nodes of each part, ascending and disjoint.
#[derive(Clone, Debug, Default)]
pub struct Split {
    /// Nodes whose labels train the model.
    pub train: Buffer<NodeId>,
    /// Nodes that select the best epoch.
    pub valid: Buffer<NodeId>,
    /// Nodes that are scored at the end.
    pub test: Buffer<NodeId>,
}

impl Split {
    /// The three parts with their names.
    pub fn parts(&self) -> [(&'static str, &Buffer<NodeId>); 3] {
        [("train", &self.train), ("valid", &self.valid), ("test", &self.test)]
    }
}
