//! From the ids that files name to node numbers.

use super::super::splits;
use crate::{Buffer, NodeId, Result, place::At};

/// How ids become node numbers.
pub(super) enum Ids {
    /// An id is its number.
    Plain(usize),
    /// The ids in use, ascending: the place is the number.
    Compact(Vec<u64>),
}

impl Ids {
    pub(super) fn plain(from: &[NodeId], to: &[NodeId], known: Option<usize>, at: &At) -> Result<Self> {
        if let Some(nodes) = known {
            return Ok(Self::Plain(nodes));
        }
        let nodes = from.iter().chain(to).max().map_or(0, |&last| u64::from(last) + 1);
        // Sparse ids would make a graph of lone nodes, and a single one could ask for all memory.
        if nodes > 1_000_000 + 64 * from.len() as u64 {
            return Err(at.error(format!(
                "the largest id is {}, but there are only {} edges: use compact-ids if ids are sparse, or say num-nodes",
                nodes - 1,
                from.len()
            )));
        }
        Ok(Self::Plain(nodes as usize))
    }

    pub(super) fn compact(from: &[u64], to: &[u64], known: Option<usize>, at: &At) -> Result<Self> {
        let mut ids = [from, to].concat();
        rayon::slice::ParallelSliceMut::par_sort_unstable(&mut ids[..]);
        ids.dedup();
        ids.shrink_to_fit();
        match known {
            Some(nodes) if nodes != ids.len() => Err(at.error(format!(
                "the edges name {} different ids, but there are {nodes} nodes; compact-ids needs every node to have an edge",
                ids.len()
            ))),
            _ => Ok(Self::Compact(ids)),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Plain(nodes) => *nodes,
            Self::Compact(ids) => ids.len(),
        }
    }

    pub(super) fn number(&self, id: u64) -> Option<NodeId> {
        match self {
            Self::Plain(nodes) => (id < *nodes as u64).then_some(id).and_then(|id| id.try_into().ok()),
            Self::Compact(ids) => ids.binary_search(&id).ok().and_then(|i| i.try_into().ok()),
        }
    }

    /// The numbers of a part's ids.
    pub(super) fn part(&self, ids: Vec<u64>, at: &At) -> Result<Buffer<NodeId>> {
        let ids = match self {
            Self::Plain(_) => ids,
            Self::Compact(_) => {
                let number = |id: u64| {
                    self.number(id)
                        .map(u64::from)
                        .ok_or_else(|| at.error(format!("no edge names the node {id}")))
                };
                ids.into_iter().map(number).collect::<Result<_>>()?
            }
        };
        splits::from_ids(ids, self.len(), at)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn numbers_follow_the_ids() {
        let at = At::new(Path::new("a"), "ids");
        let plain = Ids::plain(&[0, 4], &[2, 2], None, &at).unwrap();
        assert_eq!((plain.len(), plain.number(3), plain.number(5)), (5, Some(3), None));
        let compact = Ids::compact(&[90, 7], &[7, u64::MAX], None, &at).unwrap();
        assert_eq!((compact.len(), compact.number(90), compact.number(8)), (3, Some(1), None));
        assert_eq!(compact.part(vec![u64::MAX, 7], &at).unwrap()[..], [0, 2]);
        assert!(compact.part(vec![8], &at).is_err() && plain.part(vec![5], &at).is_err());
        assert!(Ids::plain(&[0], &[u32::MAX], None, &at).is_err());
        assert!(Ids::compact(&[1], &[2], Some(3), &at).is_err());
    }
}
