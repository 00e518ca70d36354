//! The order of the table: after a dataset is reordered by hotness, its first rows are the hottest.
//! A cache of the first rows needs no map, only their number (Data Tiering, section 4.1).

use super::{Setting, no_argument};

/// Number of nodes from each node to the end of the table. O(V).
pub(super) fn score(setting: &Setting, argument: Option<&str>) -> Result<Vec<f64>, String> {
    no_argument("stored-order", argument)?;
    Ok((1..=setting.graph.num_nodes()).rev().map(|rank| rank as f64).collect())
}
