//! Labels or values of nodes, and the training, validation and test nodes.

use crate::{Buffer, NodeId};

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
    /// Number of outputs of a model: classes `C`, or values per node.
    pub fn classes(&self) -> usize {
        match self {
            Self::Single { classes, .. } | Self::Multi { classes, .. } => *classes,
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

    /// Returns true if `v` has a label (with several classes every node has one, possibly the empty
    /// set), or at least one of its values.
    pub fn is_labelled(&self, v: NodeId) -> bool {
        match self {
            Self::Single { class, .. } => class[v as usize] >= 0,
            Self::Multi { .. } => true,
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
