//! Labels from numbers: the checks every importer needs.

use crate::{Labels, Result, place::At, search::position};

/// One class per node, -1 where unknown; there are as many classes as the largest one asks for.
pub(super) fn single<T: Copy + Into<i64>>(class: &[T], at: &At) -> Result<Labels> {
    let mut checked = Vec::with_capacity(class.len());
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

/// A set of classes per node: `V x classes` zeros and ones.
pub(super) fn multi(member: Vec<u8>, classes: usize, at: &At) -> Result<Labels> {
    if let Some(i) = position(&member, |&m| m > 1) {
        return Err(at.error(format!(
            "label entry {} of node {} is {}: with several columns each says 0 or 1",
            i % classes,
            i / classes,
            member[i]
        )));
    }
    Ok(Labels::Multi { member: member.into(), classes })
}

/// How many label columns an array of this shape has: 1 for one class per node (`[V]`, `[V, 1]`),
/// `C` for sets of classes (`[V, C]`).
pub(super) fn columns(shape: &[usize], at: &At) -> Result<usize> {
    match *shape {
        [_] => Ok(1),
        [_, columns] if columns > 0 => Ok(columns),
        _ => Err(at.error(format!("labels of shape {shape:?}: [nodes] or [nodes, classes] expected"))),
    }
}

/// No labels at all.
pub(super) fn unknown(nodes: usize) -> Labels {
    Labels::Single { class: vec![-1; nodes].into(), classes: 0 }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn labels_are_checked() {
        let at = At::new(Path::new("a"), "labels");
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
        assert!(columns(&[1, 1, 1], &at).unwrap_err().to_string().contains("shape [1, 1, 1]"));
        assert_eq!((columns(&[5], &at).unwrap(), columns(&[5, 3], &at).unwrap()), (1, 3));
    }
}
