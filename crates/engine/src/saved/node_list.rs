//! Lists of nodes: files of ids, ids from before a reordering, and rows of nodes.

use std::path::Path;

use graphmill_core::{NodeId, node_order};
use graphmill_data::{Dataset, npy};

use crate::{Error, Result};

/// Node id in `data`, indexed by original id.
pub(super) fn ids_by_original(data: &Dataset) -> Result<Vec<NodeId>> {
    match &data.original_ids {
        Some(ids) => Ok(node_order::inverse(ids)?),
        None => Err(Error::dataset(&data.name, "it was not reordered; leave out --original-ids")),
    }
}

/// Lines of a list with their numbers, without comments and empty lines.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    lines.zip(1..).map(|(line, number)| (number, line)).filter(|(_, line)| !line.is_empty())
}

/// Reads a list of nodes below `num_nodes`.
pub(crate) fn read_nodes(file: &Path, num_nodes: usize) -> Result<Vec<NodeId>> {
    let check = |place: String, id: i64| match NodeId::try_from(id) {
        Ok(v) if (v as usize) < num_nodes => Ok(v),
        _ => Err(Error::format(
            file,
            place,
            format!(
                "node {id} is outside the graph's {num_nodes} nodes; list nodes from 0 to {}",
                num_nodes.saturating_sub(1)
            ),
        )),
    };
    if file.extension().is_some_and(|extension| extension == "npy") {
        let ids = npy::open(file)?.read_as_i64()?;
        return ids.into_iter().enumerate().map(|(i, id)| check(format!("entry {i}"), id)).collect();
    }
    let text = std::fs::read_to_string(file).map_err(|e| Error::io(file, "read", e))?;
    lines(&text)
        .map(|(i, line)| {
            let place = format!("line {i}");
            let id = line.parse().map_err(|_| {
                Error::format(file, &place, format!("'{line}' is not a node id; write one integer per line"))
            })?;
            check(place, id)
        })
        .collect()
}
