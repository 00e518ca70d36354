//! Parts of a split from ids or masks, with the checks of all importers.

use graphmill_core::{Buffer, NodeId, Result, location::Location};

/// Sorts the ids of one part.
///
/// # Errors
/// The part is empty, or an id is not below `nodes` or occurs twice.
pub(super) fn from_ids(mut ids: Vec<u64>, nodes: usize, at: &Location) -> Result<Buffer<NodeId>> {
    if ids.is_empty() {
        return Err(at.error("this part of the split is empty; leave it out if there is none"));
    }
    if let Some(i) = ids.iter().position(|&v| v >= nodes as u64) {
        return Err(at.error(format!("entry {i} is node {}, but there are {nodes} nodes", ids[i])));
    }
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(at.error(format!("node {} occurs twice", pair[0])));
    }
    // A graph has at most 2^32 - 1 nodes; larger declared numbers are rejected when it is built.
    Ok(ids.into_iter().map(|v| v as NodeId).collect::<Vec<_>>().into())
}

/// Ids at which a mask of `nodes` zeros and ones is set.
///
/// # Errors
/// The mask has another length or is all zero.
pub(super) fn from_mask(mask: &[u8], nodes: usize, at: &Location) -> Result<Buffer<NodeId>> {
    if mask.len() != nodes {
        return Err(at.error(format!("a mask of {} entries for {nodes} nodes", mask.len())));
    }
    if let Some(v) = mask.iter().position(|&m| m > 1) {
        return Err(at.error(format!("the mask of node {v} is {}: 0 or 1 expected", mask[v])));
    }
    from_ids((0..nodes as u64).filter(|&v| mask[v as usize] == 1).collect(), nodes, at)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn parts_are_sorted_and_checked() {
        let at = Location::new(Path::new("a"), "train");
        assert_eq!(from_ids(vec![3, 0, 2], 4, &at).unwrap()[..], [0, 2, 3]);
        assert_eq!(from_mask(&[0, 1, 1], 3, &at).unwrap()[..], [1, 2]);
        let fails = |part: Result<Buffer<u32>>, why: &str| {
            let error = part.unwrap_err().to_string();
            assert!(error.contains(why) && error.starts_with("a: train"), "{error}");
        };
        fails(from_ids(vec![], 4, &at), "empty");
        fails(from_ids(vec![1, 4], 4, &at), "entry 1 is node 4");
        fails(from_ids(vec![2, 1, 2], 4, &at), "node 2 occurs twice");
        fails(from_mask(&[1], 2, &at), "1 entries for 2");
        fails(from_mask(&[0, 0], 2, &at), "empty");
        fails(from_mask(&[0, 2], 2, &at), "node 1 is 2");
    }
}
