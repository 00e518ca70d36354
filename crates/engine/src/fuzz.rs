//! Entry points for the fuzzer (feature `fuzz`) to readers without a public one.

#![forbid(unsafe_code)]

use std::path::Path;

use graphmill_core::NodeId;

use crate::{Result, saved};

/// Reads the list of nodes in `file`, each below `num_nodes`.
///
/// # Errors
/// The file cannot be read, or a line or an entry is not such a node.
pub fn nodes(file: &Path, num_nodes: usize) -> Result<Vec<NodeId>> {
    saved::read_nodes(file, num_nodes)
}
