//! Ways in for the fuzzer (feature `fuzz`): readers that have no public one.

use std::path::Path;

use graphmill_core::NodeId;

use crate::{Result, saved};

/// The list of nodes in `file`, each below `num_nodes`.
///
/// # Errors
/// The file cannot be read, or a line or an entry is no such node.
pub fn nodes(file: &Path, num_nodes: usize) -> Result<Vec<NodeId>> {
    saved::read_nodes(file, num_nodes)
}
