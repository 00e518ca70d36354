//! Labels of nodes, and the training, validation and test nodes.

use crate::{Buffer, NodeId};

/// Node labels.
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
}

impl Default for Labels {
    fn default() -> Self {
        Self::Single { class: Buffer::default(), classes: 0 }
    }
}

impl Labels {
    /// Number of classes, `C`.
    pub fn classes(&self) -> usize {
        match self {
            Self::Single { classes, .. } | Self::Multi { classes, .. } => *classes,
        }
    }

    /// Returns true if a node may have several classes.
    pub fn is_multi(&self) -> bool {
        matches!(self, Self::Multi { .. })
    }

    /// Returns true if `v` has a label (with several classes every node has one, possibly the empty
    /// set).
    pub fn is_labelled(&self, v: NodeId) -> bool {
        match self {
            Self::Single { class, .. } => class[v as usize] >= 0,
            Self::Multi { .. } => true,
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
