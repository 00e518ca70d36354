//! Lists of negatives of each node: those of a file, or those that the model ranks high.
//!
//! # Algorithm
//!
//! The other end of a positive has a list of nodes for the end that is replaced. Negatives are
//! drawn with replacement from the nodes of the list that are candidates and have no known edge
//! with the other end, all equally likely. If no such node is left, they are drawn as `uniform`
//! draws them, so the negatives of any list are exact non-edges. The sampler is that of the rows
//! `file` and `hard` of the table.
//!
//! # Source
//!
//! Hard negatives: Ying et al., *Graph convolutional neural networks for web-scale recommender
//! systems*, KDD 2018, section 3.4 (nodes that rank high for a query); here by the model's own
//! ranking at the end of the last epoch.
//!
//! # Cost
//!
//! O(L log d + K) per positive with a list of `L` nodes.
//!
//! # Memory
//!
//! 4 bytes per listed node and 16 per list.

use std::sync::{Arc, PoisonError, RwLock};

use graphmill_core::{End, Error, NodeId, Result};
use rayon::prelude::*;

use super::triples::{Index, list_key};

/// A list of negatives for each relation and other end, which may be replaced between epochs.
///
/// ```
/// use graphmill_core::End;
/// use graphmill_loader::link::NegativeLists;
///
/// // source, relation, destination
/// let lists = NegativeLists::of_triples(&[[0, 0, 3], [0, 0, 2]]);
/// assert_eq!(lists.of(0, End::Destination, 0), [2, 3]);
/// assert_eq!(lists.of(0, End::Source, 3), [0]);
/// assert!(lists.of(1, End::Source, 3).is_empty());
/// ```
#[derive(Debug, Default)]
pub struct NegativeLists {
    /// Lists of sources and of destinations.
    by_end: RwLock<[Arc<Index>; 2]>,
}

impl NegativeLists {
    /// Lists of the pairs (source, relation, destination) for both ends; repeated ones count once.
    pub fn of_triples(triples: &[[u32; 3]]) -> Self {
        let sources = triples.par_iter().map(|&[h, r, t]| (list_key(r, t), h)).collect();
        let destinations = triples.par_iter().map(|&[h, r, t]| (list_key(r, h), t)).collect();
        Self { by_end: RwLock::new([sources, destinations].map(|pairs| Arc::new(Index::new(pairs)))) }
    }

    fn index(&self, end: End) -> Arc<Index> {
        // a replacement is one assignment, so a panic elsewhere leaves whole lists
        self.by_end.read().unwrap_or_else(PoisonError::into_inner)[end as usize].clone()
    }

    /// Nodes for `end`, if `node` is the other end of an edge of this relation.
    pub fn of(&self, relation: u32, end: End, node: NodeId) -> Vec<NodeId> {
        self.index(end).of(list_key(relation, node)).to_vec()
    }

    /// Nodes of [`NegativeLists::of`] without a copy: `see` reads them.
    pub(super) fn with<R>(
        &self,
        relation: u32,
        end: End,
        node: NodeId,
        see: impl FnOnce(&[NodeId]) -> R,
    ) -> R {
        see(self.index(end).of(list_key(relation, node)))
    }

    /// Number of nodes in the lists of an end.
    pub fn len(&self, end: End) -> usize {
        self.index(end).len()
    }

    /// Returns true if no list has a node.
    pub fn is_empty(&self) -> bool {
        self.len(End::Source) + self.len(End::Destination) == 0
    }

    /// Replaces the lists of an end. Each is of a relation and a node that is the other end; both
    /// ascend.
    pub fn replace(&self, end: End, lists: impl IntoIterator<Item = (u32, NodeId, Vec<NodeId>)>) {
        let lists = lists.into_iter().map(|(relation, node, list)| (list_key(relation, node), list));
        let index = Arc::new(Index::of_lists(lists));
        self.by_end.write().unwrap_or_else(PoisonError::into_inner)[end as usize] = index;
    }

    /// Lists of an end as words: relation, node and length of each list, then its nodes.
    pub fn words(&self, end: End) -> Vec<u32> {
        let index = self.index(end);
        let of = |(key, list): (u64, &[NodeId])| {
            let head = [(key >> 32) as u32, key as u32, list.len() as u32];
            head.into_iter().chain(list.iter().copied()).collect::<Vec<u32>>()
        };
        index.iter().flat_map(of).collect()
    }

    /// Replaces the lists of an end by those of [`NegativeLists::words`].
    ///
    /// # Errors
    /// The words end within a list.
    pub fn set_words(&self, end: End, mut words: &[u32]) -> Result<()> {
        let mut lists = Vec::new();
        while let [relation, node, len, rest @ ..] = words {
            let Some((list, rest)) = rest.split_at_checked(*len as usize) else { break };
            lists.push((*relation, *node, list.to_vec()));
            words = rest;
        }
        if !words.is_empty() {
            return Err(Error::invalid(format!("{} words of negatives are not a list", words.len())));
        }
        self.replace(end, lists);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::link::{KnownEdges, NegativeRequest, NegativeSource, TABLE, negatives_that};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn negatives_are_listed_non_edges_if_there_are_some(
            edges in prop::collection::vec((0u32..12, 0u32..12), 1..40),
            listed in prop::collection::vec((0u32..12, 0u32..12), 0..60),
            end in prop::sample::select(vec![End::Source, End::Destination]),
            name in prop::sample::select(negatives_that(|kind| kind.lists.is_some())),
        ) {
            let (source, destination): (Vec<_>, Vec<_>) = edges.iter().copied().unzip();
            // 12 more nodes without edges: there is always a negative
            let known = KnownEdges::new(24, &source, &destination).unwrap();
            let triples: Vec<[u32; 3]> = listed.iter().map(|&(u, v)| [u, 0, v]).collect();
            let lists = Arc::new(NegativeLists::of_triples(&triples));
            let (known, candidates, lists) = (&known, &(0..24), Some(&lists));
            let source = NegativeSource { known, end, candidates, node_time: None, lists };
            let sampler = (TABLE.find(name).unwrap().make.make)(&source).unwrap();
            let draw = |threads: usize| {
                let positives = &edges[..];
                let request =
                    NegativeRequest { known, relation: 0, end, candidates, positives, latest: &[], key: 5 };
                let mut out = vec![0; edges.len() * 4];
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| sampler.draw(&request, &mut out)).unwrap();
                out
            };
            let found = draw(1);
            for (row, &(u, v)) in found.chunks(4).zip(&edges) {
                let pair = |w: u32| if end == End::Source { (w, v) } else { (u, w) };
                let is_negative = |pair: (u32, u32)| pair.0 != pair.1 && !edges.contains(&pair);
                let own = |w: &u32| listed.contains(&pair(*w)) && is_negative(pair(*w));
                let has_own = (0..24).any(|w| own(&w));
                prop_assert!(row.iter().all(|w| is_negative(pair(*w)) && (!has_own || own(w))));
            }
            prop_assert_eq!(found, draw(3));
        }
    }

    #[test]
    fn words_hold_all_lists() {
        let lists = NegativeLists::default();
        assert!(lists.is_empty() && lists.words(End::Source).is_empty());
        lists.replace(End::Source, [(0, 4, vec![9, 2, 5]), (0, 7, vec![]), (3, 1, vec![6])]);
        assert_eq!((lists.of(0, End::Source, 4), lists.of(3, End::Source, 1)), (vec![9, 2, 5], vec![6]));
        let copy = NegativeLists::default();
        copy.set_words(End::Source, &lists.words(End::Source)).unwrap();
        assert_eq!((copy.words(End::Source), copy.len(End::Source)), (lists.words(End::Source), 4));
        assert!(copy.set_words(End::Source, &[0, 4, 3, 9]).is_err());
    }

    #[test]
    fn lists_are_needed() {
        let known = KnownEdges::new(3, &[0], &[1]).unwrap();
        let (end, candidates) = (End::Source, &(0..3));
        let source = NegativeSource { known: &known, end, candidates, node_time: None, lists: None };
        for (name, remedy) in [("file", "--negatives-file"), ("hard", "choose uniform")] {
            let error = (TABLE.find(name).unwrap().make.make)(&source).err().unwrap().to_string();
            assert!(error.contains(remedy), "{error}");
        }
    }
}
