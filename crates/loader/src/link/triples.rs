//! Known edges of many relations.
//!
//! # Algorithm
//!
//! The ends that a fixed end is linked to by a relation are a sorted list, found by binary search
//! among the pairs of relation and fixed end that occur. Draws are those of [`KnownEdges`].
//!
//! # Source
//!
//! The filtered setting of Bordes et al., *Translating embeddings for modeling multi-relational
//! data*, NeurIPS 2013, section 4.2.
//!
//! # Cost
//!
//! O(E log E) to build, O(log P) per look-up with `P` pairs.
//!
//! # Memory
//!
//! 4 bytes per edge and 16 per pair for each end, however many relations and nodes there are.
//!
//! [`KnownEdges`]: super::KnownEdges

use std::ops::Range;

use graphmill_core::{End, Error, NodeId, Result};
use rayon::prelude::*;

use super::known::Known;

/// Edges of relations that are known to exist.
///
/// ```
/// use graphmill_core::End;
/// use graphmill_loader::link::KnownTriples;
///
/// // source, relation, destination
/// let known = KnownTriples::new(&[[0, 0, 1], [0, 1, 2], [0, 1, 3], [0, 1, 3]])?;
/// assert_eq!(known.ends_of(1, End::Destination, 0), [2, 3]);
/// assert_eq!(known.ends_of(0, End::Source, 1), [0]);
/// assert!(known.ends_of(0, End::Destination, 3).is_empty());
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct KnownTriples {
    /// Sources by destination, and destinations by source.
    by_end: [Index; 2],
}

/// Lists of ends by relation and fixed end.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// Relation and fixed end of each list, ascending.
    keys: Vec<u64>,
    /// Range of each list, `P + 1`.
    starts: Vec<usize>,
    /// Ends, ascending and distinct in each list.
    ends: Vec<NodeId>,
}

/// Key of the list of a relation and a fixed end.
pub(super) fn list_key(relation: u32, node: NodeId) -> u64 {
    u64::from(relation) << 32 | u64::from(node)
}

impl Index {
    /// Sorts pairs of a key and an end; repeated pairs count once.
    pub(super) fn new(mut pairs: Vec<(u64, NodeId)>) -> Self {
        pairs.par_sort_unstable();
        pairs.dedup();
        let mut index = Self::default();
        for (key, end) in pairs {
            if index.keys.last() != Some(&key) {
                index.keys.push(key);
                index.starts.push(index.ends.len());
            }
            index.ends.push(end);
        }
        index.starts.push(index.ends.len());
        index
    }

    /// Lists with these keys, ascending and distinct, one after the other.
    pub(super) fn of_lists(lists: impl IntoIterator<Item = (u64, Vec<NodeId>)>) -> Self {
        let mut index = Self { starts: vec![0], ..Self::default() };
        for (key, list) in lists {
            index.keys.push(key);
            index.ends.extend(list);
            index.starts.push(index.ends.len());
        }
        index
    }

    fn list(&self, key: u64) -> Range<usize> {
        self.keys.binary_search(&key).map_or(0..0, |i| self.starts[i]..self.starts[i + 1])
    }

    /// List of a key, empty if there is none.
    pub(super) fn of(&self, key: u64) -> &[NodeId] {
        &self.ends[self.list(key)]
    }

    /// Number of nodes in all lists.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Keys and lists, ascending by key.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &[NodeId])> {
        let lists = self.starts.windows(2).map(|ends| &self.ends[ends[0]..ends[1]]);
        self.keys.iter().copied().zip(lists)
    }
}

impl KnownTriples {
    /// Creates the set of these edges (source, relation, destination); repeated ones count once.
    ///
    /// # Errors
    /// There are 2^32 edges or more.
    pub fn new(triples: &[[u32; 3]]) -> Result<Self> {
        if u32::try_from(triples.len()).is_err() {
            let message = format!("{} known edges; below 2^32 are supported", triples.len());
            return Err(Error::invalid(message));
        }
        let sources = triples.par_iter().map(|&[h, r, t]| (list_key(r, t), h)).collect();
        let destinations = triples.par_iter().map(|&[h, r, t]| (list_key(r, h), t)).collect();
        Ok(Self { by_end: [Index::new(sources), Index::new(destinations)] })
    }

    /// Ends of the edges of `node` by `relation`, if it is the other end than `end`: ascending.
    pub fn ends_of(&self, relation: u32, end: End, node: NodeId) -> &[NodeId] {
        self.by_end[end as usize].of(list_key(relation, node))
    }

    /// Number of distinct edges.
    pub fn len(&self) -> usize {
        self.by_end[0].len()
    }

    /// Returns true if there are no edges.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The edges of one relation.
    pub fn of_relation(&self, relation: u32) -> KnownOfRelation<'_> {
        KnownOfRelation { all: self, relation }
    }
}

/// The edges of one relation.
#[derive(Clone, Copy, Debug)]
pub struct KnownOfRelation<'a> {
    all: &'a KnownTriples,
    relation: u32,
}

impl Known for KnownOfRelation<'_> {
    fn ends_of(&self, end: End, node: NodeId) -> &[NodeId] {
        self.all.ends_of(self.relation, end, node)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_are_those_of_a_search(
            triples in prop::collection::vec((0u32..7, 0u32..3, 0u32..7), 0..60),
        ) {
            let triples: Vec<[u32; 3]> = triples.into_iter().map(|(h, r, t)| [h, r, t]).collect();
            let known = KnownTriples::new(&triples).unwrap();
            for (r, node) in (0..3).flat_map(|r| (0..8).map(move |v| (r, v))) {
                let ends = |fits: &dyn Fn(&[u32; 3]) -> Option<u32>| {
                    let mut all: Vec<u32> = triples.iter().filter_map(fits).collect();
                    all.sort_unstable();
                    all.dedup();
                    all
                };
                let expected = ends(&|&[h, of, t]| (of == r && h == node).then_some(t));
                prop_assert_eq!(known.ends_of(r, End::Destination, node), &expected[..]);
                let expected = ends(&|&[h, of, t]| (of == r && t == node).then_some(h));
                let of_relation = known.of_relation(r);
                prop_assert_eq!(of_relation.ends_of(End::Source, node), &expected[..]);
            }
            let mut distinct = triples.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!((known.len(), known.is_empty()), (distinct.len(), triples.is_empty()));
        }
    }
}
