//! Node file of an edge-list import, which determines the number of nodes.

use std::path::Path;

use graphmill_core::{Result, location::Location};

use super::{
    super::ImportOptions,
    files::is_npy,
    text::{table, whole},
};
use crate::npy;

/// Counts the nodes of the file: one per row, its id in the first column.
///
/// A file that was found by convention and whose first column does not hold ids (a table of names,
/// for example) is not a node list: `None`.
///
/// # Errors
/// The file cannot be read, or ids repeat or leave gaps (without `compact_ids` they must be
/// contiguous from the first id on).
pub(super) fn count(path: &Path, options: &ImportOptions) -> Result<Option<usize>> {
    /// Marks a field that is not an id.
    const NAME: u64 = u64::MAX;
    let asked = options.nodes.is_some();
    let first = options.first_id;
    let at = Location::new(path, "ids");
    let mut ids: Vec<u64> = if is_npy(path) {
        npy::open(path)?.read_as()?
    } else {
        match table(path, "", |field| Some(whole(field).unwrap_or(NAME))) {
            Ok(table) => table.data.chunks_exact(table.columns.max(1)).map(|row| row[0]).collect(),
            Err(error) if asked => return Err(error),
            Err(_) => return Ok(None), // not a table
        }
    };
    match ids.iter().position(|&id| id == NAME) {
        Some(row) if asked => return Err(at.error(format!("row {row} does not begin with a node id"))),
        Some(_) => return Ok(None),
        None => ids.sort_unstable(),
    }
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(at.error(format!("node {} occurs twice", pair[0])));
    }
    let (Some(&low), Some(&high)) = (ids.first(), ids.last()) else {
        return Err(at.error("there are no nodes"));
    };
    let count = ids.len();
    let last = first.saturating_add(count as u64 - 1);
    if !options.compact_ids && (low, high) != (first, last) {
        let hint = match (low, high == low + (count as u64 - 1)) {
            (1.., true) => format!("pass first-id {low}"),
            _ => "pass compact-ids if ids leave gaps".into(),
        };
        return Err(at.error(format!(
            "{count} nodes from {low} to {high}, but {first} to {last} is expected; {hint}"
        )));
    }
    Ok(Some(count))
}
