//! Labels from numbers, with the checks of all importers.
//!
//! A missing single label is -1. In a set of classes a missing value is [`MISSING`], and either all
//! or none of a node's values are present: with none the node is unlabelled, while a single missing
//! value is an error, because neither 0 nor 1 could represent it. [`take_missing`] converts the
//! rows of unlabelled nodes to empty sets and returns these nodes.

use graphmill_core::{Labels, NodeId, Result, location::Location, memory, search::position};

/// Missing value of a set of classes.
pub(super) const MISSING: u8 = u8::MAX;

/// Creates one class per node, -1 if unknown; the largest class determines their number.
pub(super) fn single<T: Copy + Into<i64>>(class: &[T], at: &Location) -> Result<Labels> {
    let mut checked = memory::reserve(class.len())?;
    for (v, &c) in class.iter().enumerate() {
        let c: i64 = c.into();
        match i32::try_from(c) {
            Ok(c) if (-1..i32::MAX).contains(&c) => checked.push(c),
            _ => {
                return Err(at.error(format!(
                    "the label of node {v} is {c}: classes are numbered from 0, -1 means unknown"
                )));
            }
        }
    }
    let classes = checked.iter().max().map_or(0, |&c| (c + 1) as usize);
    Ok(Labels::Single { class: checked.into(), classes })
}

/// Creates a set of classes per node: `V x classes` zeros and ones, or only [`MISSING`] in the row
/// of an unlabelled node.
pub(super) fn multi(member: Vec<u8>, classes: usize, at: &Location) -> Result<Labels> {
    let partly = |row: &[u8]| row.contains(&MISSING) && row.iter().any(|&m| m != MISSING);
    let is_wrong = |i: usize| match member[i] {
        MISSING => partly(&member[i - i % classes..][..classes]),
        m => m > 1,
    };
    if position(&member, |&m| m > 1).is_some()
        && let Some(i) = (0..member.len()).find(|&i| is_wrong(i))
    {
        let (j, v) = (i % classes, i / classes);
        let found = if member[i] == MISSING { "missing".into() } else { member[i].to_string() };
        return Err(at.error(wrong_entry(j, v, &found)));
    }
    Ok(Labels::Multi { member: member.into(), classes })
}

/// Message about value `j` of the label of node `v` in a set of classes.
pub(super) fn wrong_entry(j: usize, v: usize, found: &str) -> String {
    format!(
        "label entry {j} of node {v} is {found}: with several columns each is 0 or 1; leave all of them \
         empty (or nan) for a node without a label"
    )
}

/// Converts the rows of unlabelled nodes to empty sets and returns these nodes, ascending.
pub(super) fn take_missing(labels: &mut Labels) -> Vec<NodeId> {
    let Labels::Multi { member, classes } = labels else { return Vec::new() };
    if position(member, |&m| m == MISSING).is_none() {
        return Vec::new();
    }
    let mut all = member.to_vec();
    let mut nodes = Vec::new();
    for (v, row) in all.chunks_exact_mut(*classes).enumerate() {
        if row[0] == MISSING {
            row.fill(0);
            nodes.push(v as NodeId);
        }
    }
    *member = all.into();
    nodes
}

/// Number of label columns in an array of this shape: 1 for one class per node (`[V]`, `[V, 1]`),
/// `C` for sets of classes (`[V, C]`).
pub(super) fn columns(shape: &[usize], at: &Location) -> Result<usize> {
    match *shape {
        [_] => Ok(1),
        [_, columns] if columns > 0 => Ok(columns),
        _ => Err(at.error(format!("labels of shape {shape:?}: [nodes] or [nodes, classes] expected"))),
    }
}

/// Creates labels of `nodes` unlabelled nodes.
///
/// # Errors
/// Memory runs out.
pub(super) fn unknown(nodes: usize) -> Result<Labels> {
    Ok(Labels::Single { class: memory::filled(-1, nodes)?.into(), classes: 0 })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn labels_are_checked() {
        let at = Location::new(Path::new("a"), "labels");
        assert_eq!(single(&[0i64, 2, -1], &at).unwrap().classes(), 3);
        assert_eq!(single(&[-1i32], &at).unwrap().classes(), 0);
        let fails = |labels: Result<Labels>, why: &str| {
            let error = labels.unwrap_err().to_string();
            assert!(error.contains(why) && error.starts_with("a: labels"), "{error}");
        };
        fails(single(&[0i64, -2], &at), "node 1 is -2");
        fails(single(&[i64::MAX], &at), "node 0");
        fails(single(&[i64::from(i32::MAX)], &at), "node 0");
        fails(multi(vec![0, 1, 1, 2], 2, &at), "entry 1 of node 1 is 2");
        fails(multi(vec![MISSING, MISSING, 1, MISSING], 2, &at), "entry 1 of node 1 is missing");
        assert!(columns(&[1, 1, 1], &at).unwrap_err().to_string().contains("shape [1, 1, 1]"));
        assert_eq!((columns(&[5], &at).unwrap(), columns(&[5, 3], &at).unwrap()), (1, 3));
    }

    #[test]
    fn rows_without_values_are_unlabelled_nodes() {
        let at = Location::new(Path::new("a"), "labels");
        let mut labels = multi(vec![0, 1, MISSING, MISSING, 0, 0], 2, &at).unwrap();
        assert_eq!(take_missing(&mut labels), [1]);
        let Labels::Multi { member, classes: 2 } = &labels else { panic!() };
        assert_eq!(member[..], [0, 1, 0, 0, 0, 0]);
        assert!(take_missing(&mut labels).is_empty());
    }
}
