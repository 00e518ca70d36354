//! Rows of a node table as nodes.

use graphmill_core::NodeId;

/// Rows of a node table that are nodes: all but those that repeat a key.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeRows {
    /// Nodes of the dataset that the table extends, whose ids come first.
    pub(super) base: u64,
    /// Rows of the table.
    pub(super) rows: u64,
    /// Rows that repeat the key of an earlier one, ascending.
    pub(super) repeated: Vec<u64>,
    /// Rows that change a node of the dataset, ascending, and the nodes. They are among the
    /// repeated ones.
    pub(super) changed: Vec<(u64, NodeId)>,
}

impl NodeRows {
    /// Id of the new node of a row; `None` for a repeated one.
    pub(super) fn id(&self, row: u64) -> Option<NodeId> {
        if self.repeated.is_empty() {
            return Some((self.base + row) as NodeId);
        }
        self.repeated.binary_search(&row).err().map(|before| (self.base + row - before as u64) as NodeId)
    }

    /// Id of the node of a row, new or changed; `None` for a row that is dropped.
    pub(super) fn node(&self, row: u64) -> Option<NodeId> {
        self.id(row).or_else(|| self.changed(row))
    }

    /// Node of the dataset that the row changes, if it does.
    pub(super) fn changed(&self, row: u64) -> Option<NodeId> {
        let at = self.changed.binary_search_by_key(&row, |of| of.0).ok()?;
        Some(self.changed[at].1)
    }

    /// Number of nodes.
    pub(super) fn count(&self) -> u64 {
        self.base + self.rows - self.repeated.len() as u64
    }
}
