//! Sets of nodes: which ones, and the how-manieth each is.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use graphmill_core::{NodeId, keyed};
use rayon::prelude::*;

/// Some nodes of a graph, ascending, with the place of each among them: a bit per node, and before
/// every 64 bits how many are set (Jacobson, *Space-efficient static trees and graphs*, FOCS 1989).
/// `V / 4` bytes and 4 per member.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeSet {
    ids: Vec<NodeId>,
    /// Empty where all nodes are members.
    words: Vec<Word>,
}

#[derive(Clone, Copy, Debug)]
struct Word {
    bits: u64,
    before: u32,
}

impl NodeSet {
    /// All of `nodes` nodes.
    pub(crate) fn all(nodes: usize) -> Self {
        Self { ids: (0..nodes as NodeId).into_par_iter().collect(), words: Vec::new() }
    }

    /// These of `nodes` nodes.
    pub(crate) fn of(nodes: usize, members: impl Iterator<Item = NodeId>) -> Self {
        let marks = Marks::new(nodes);
        members.for_each(|v| marks.mark(v));
        marks.set()
    }

    /// The members, ascending.
    pub(crate) fn ids(&self) -> &[NodeId] {
        &self.ids
    }

    /// How many members.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether every node is a member, and therefore its own place.
    pub(crate) fn is_all(&self) -> bool {
        self.words.is_empty()
    }

    /// Replaces members by their places among the members.
    pub(crate) fn number(&self, ids: &mut [NodeId]) {
        if !self.is_all() {
            ids.par_iter_mut().with_min_len(1 << 12).for_each(|id| *id = self.place(*id));
        }
    }

    fn place(&self, id: NodeId) -> u32 {
        let word = self.words[id as usize / 64];
        debug_assert!(word.bits >> (id % 64) & 1 == 1, "node {id} is no member");
        word.before + (word.bits & !(u64::MAX << (id % 64))).count_ones()
    }
}

/// A set that several threads put nodes into.
#[derive(Debug)]
pub(crate) struct Marks {
    nodes: usize,
    // Relaxed suffices: bits are only ever set, and the join of each parallel loop orders them
    // before what follows.
    words: Vec<AtomicU64>,
}

impl Marks {
    /// None of `nodes` nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes, words: (0..nodes.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Puts a node in.
    #[inline]
    pub(crate) fn mark(&self, v: NodeId) {
        let (word, bit) = (&self.words[v as usize / 64], 1 << (v % 64));
        // most are in already: a look is cheaper than a locked write
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// The members so far. O(V / 64 + members).
    pub(crate) fn set(&self) -> NodeSet {
        let mut before = 0;
        let count = |bits: &AtomicU64| {
            let word = Word { bits: bits.load(Relaxed), before };
            before += word.bits.count_ones();
            word
        };
        let words: Vec<Word> = self.words.iter().map(count).collect();
        if before as usize == self.nodes {
            return NodeSet::all(self.nodes);
        }
        let ids = words.par_iter().with_min_len(1 << 10).enumerate().flat_map_iter(|(i, word)| {
            let mut bits = word.bits;
            std::iter::from_fn(move || {
                (bits != 0).then(|| {
                    let bit = bits.trailing_zeros();
                    bits &= bits - 1;
                    64 * i as NodeId + bit
                })
            })
        });
        NodeSet { ids: ids.collect(), words }
    }
}

/// `most` of `nodes` (ascending), ascending: the same ones whenever it is asked, of whatever run.
/// All of them where `most` is 0 or no less than they are.
pub(crate) fn some(nodes: &[NodeId], most: usize) -> Vec<NodeId> {
    let mut ids = nodes.to_vec();
    if most == 0 || most >= ids.len() {
        return ids;
    }
    // mix is a bijection: no two nodes have the same hash, and which are first does not depend on
    // how they are sorted
    let key = keyed::key(&[0x7363_6f72_6564]);
    ids.select_nth_unstable_by_key(most, |&v| keyed::mix(key ^ u64::from(v)));
    ids.truncate(most);
    ids.par_sort_unstable();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_numbered_in_their_order() {
        for nodes in [1usize, 63, 64, 65, 1000] {
            for step in [1, 2, 7, 64, 999] {
                let marks = Marks::new(nodes);
                let members: Vec<NodeId> = (0..nodes as NodeId).filter(|v| v % step == 0).collect();
                members.iter().rev().for_each(|&v| marks.mark(v));
                let set = marks.set();
                assert_eq!(set.ids(), members);
                assert_eq!(set.is_all(), members.len() == nodes);
                let mut places = members.clone();
                set.number(&mut places);
                assert!(places.iter().copied().eq(0..set.len() as u32), "{nodes} by {step}");
            }
        }
        assert_eq!(NodeSet::all(3).ids(), [0, 1, 2]);
    }

    #[test]
    fn some_are_a_sample_that_stays_the_same() {
        let nodes: Vec<NodeId> = (0..1000).map(|v| 3 * v).collect();
        let few = some(&nodes, 100);
        assert_eq!((few.len(), &few), (100, &some(&nodes, 100)));
        assert!(few.windows(2).all(|pair| pair[0] < pair[1]) && few.iter().all(|v| v % 3 == 0));
        // the larger sample holds the smaller, and half of the range half of it: sigma 5, five of
        // them
        assert!(few.iter().all(|v| some(&nodes, 200).contains(v)));
        assert!(few.iter().filter(|&&v| v < 1500).count().abs_diff(50) < 25);
        assert_eq!(
            (some(&nodes, 0), some(&nodes, 1000), some(&nodes, 5000)),
            (nodes.clone(), nodes.clone(), nodes)
        );
    }
}
