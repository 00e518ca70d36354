//! Node sets with rank queries.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use graphmill_core::{NodeId, keyed};
use graphmill_nn::Matrix;
use rayon::prelude::*;

/// Nodes of a graph for each member of the largest set that is a list: a set of few nodes, as those
/// of a request to a service, takes no pass over all nodes.
const NODES_OF_MEMBER: usize = 256;

/// A set of nodes in ascending order with the rank of each. Takes 4 bytes per member; a set of many
/// takes a bit for each node and the number of members before every 64 bits, too (Jacobson,
/// *Space-efficient static trees and graphs*, FOCS 1989), `V / 4` bytes. A rank query takes O(1),
/// or O(log members) in a set of few.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeSet {
    ids: Vec<NodeId>,
    ranks: Ranks,
}

/// Structure that finds the rank of a member.
#[derive(Clone, Debug, Default)]
enum Ranks {
    /// All nodes are members.
    #[default]
    All,
    /// By the members before every 64 nodes.
    Counted(Vec<Word>),
    /// By binary search among the members.
    Searched,
}

#[derive(Clone, Copy, Debug)]
struct Word {
    bits: u64,
    /// Number of members before this word.
    before: u32,
}

impl NodeSet {
    /// The set of all `nodes` nodes.
    pub(crate) fn all(nodes: usize) -> Self {
        Self { ids: (0..nodes as NodeId).into_par_iter().collect(), ranks: Ranks::All }
    }

    /// The set of `members` among `nodes` nodes.
    pub(crate) fn of(nodes: usize, members: impl Iterator<Item = NodeId>) -> Self {
        let mut added = Added::new(nodes);
        added.add(members);
        added.set()
    }

    /// Members in ascending order.
    pub(crate) fn ids(&self) -> &[NodeId] {
        &self.ids
    }

    /// Ranks of the members from the first to the last of the ascending, non-empty `ids`.
    pub(super) fn range_of(&self, ids: &[NodeId]) -> Range<usize> {
        let (first, last) = (ids[0], ids[ids.len() - 1]);
        self.ids.partition_point(|&v| v < first)..self.ids.partition_point(|&v| v <= last)
    }

    /// Number of members.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true if every node is a member, so that its rank is its id.
    pub(crate) fn is_all(&self) -> bool {
        matches!(self.ranks, Ranks::All)
    }

    /// Replaces members by their ranks.
    pub(crate) fn number(&self, ids: &mut [NodeId]) {
        if !self.is_all() {
            ids.par_iter_mut().with_min_len(1 << 12).for_each(|id| *id = self.rank(*id));
        }
    }

    fn rank(&self, id: NodeId) -> u32 {
        match &self.ranks {
            Ranks::All => id,
            Ranks::Counted(words) => {
                let word = words[id as usize / 64];
                debug_assert!(word.bits >> (id % 64) & 1 == 1, "node {id} is not a member");
                word.before + (word.bits & !(u64::MAX << (id % 64))).count_ones()
            }
            Ranks::Searched => {
                let at = self.ids.partition_point(|&member| member < id);
                debug_assert_eq!(self.ids.get(at), Some(&id), "node {id} is not a member");
                at as u32
            }
        }
    }
}

/// A set that nodes are added to: a list of few, and from then on a bit for each node.
#[derive(Debug)]
pub(crate) struct Added {
    nodes: usize,
    /// Members in any order, some more than once.
    few: Vec<NodeId>,
    /// All members, once they are many.
    many: Option<Marks>,
}

impl Added {
    /// The empty set of `nodes` nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes, few: Vec::new(), many: None }
    }

    /// Adds nodes, one after the other.
    pub(crate) fn add(&mut self, mut nodes: impl Iterator<Item = NodeId>) {
        if self.many.is_none() {
            let free = self.free();
            self.few.extend(nodes.by_ref().take(free));
        }
        if let Some(next) = nodes.next() {
            let marks = self.many();
            marks.mark(next);
            nodes.for_each(|v| marks.mark(v));
        }
    }

    /// Adds the nodes of a row for each of `ids`; those of many rows in parallel.
    pub(crate) fn add_rows<'a>(&mut self, ids: &[NodeId], row: impl Fn(NodeId) -> &'a [NodeId] + Sync) {
        // rows without nodes count, too, so that few rows are looked at in vain
        let free = self.free();
        if ids.len() <= free && ids.iter().map(|&v| row(v).len()).sum::<usize>() <= free {
            return self.add(ids.iter().flat_map(|&v| row(v)).copied());
        }
        let marks = self.many();
        ids.par_iter().with_min_len(1 << 8).for_each(|&v| row(v).iter().for_each(|&u| marks.mark(u)));
    }

    /// Number of nodes that fit into the list.
    fn free(&self) -> usize {
        match self.many {
            None => (self.nodes / NODES_OF_MEMBER).saturating_sub(self.few.len()),
            Some(_) => 0,
        }
    }

    /// The bits, which several threads may add to.
    fn many(&mut self) -> &Marks {
        let Self { nodes, few, many } = self;
        many.get_or_insert_with(|| {
            let marks = Marks::new(*nodes);
            few.iter().for_each(|&v| marks.mark(v));
            marks
        })
    }

    /// The current members. O(list log list), or that of [`Marks::set`].
    pub(crate) fn set(&mut self) -> NodeSet {
        if let Some(marks) = &self.many {
            return marks.set();
        }
        self.few.sort_unstable();
        self.few.dedup();
        match self.few.len() == self.nodes {
            true => NodeSet::all(self.nodes),
            false => NodeSet { ids: self.few.clone(), ranks: Ranks::Searched },
        }
    }
}

/// A set that several threads add nodes to.
#[derive(Debug)]
struct Marks {
    nodes: usize,
    // Relaxed suffices: bits are only ever set, and the join of each parallel loop orders them
    // before later reads.
    words: Vec<AtomicU64>,
}

impl Marks {
    /// The empty set of `nodes` nodes.
    fn new(nodes: usize) -> Self {
        Self { nodes, words: (0..nodes.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Adds a node.
    #[inline]
    fn mark(&self, v: NodeId) {
        let (word, bit) = (&self.words[v as usize / 64], 1 << (v % 64));
        // most nodes are members already, and a load is cheaper than an atomic write
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// The current members. O(V / 64 + members).
    fn set(&self) -> NodeSet {
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
        NodeSet { ids: ids.collect(), ranks: Ranks::Counted(words) }
    }
}

/// Random sample of at most `max` of the ascending `nodes`, in ascending order. The sample is the
/// same in every call and run. Returns all nodes if `max` is 0 or not below their number.
pub(crate) fn fixed_sample(nodes: &[NodeId], max: usize) -> Vec<NodeId> {
    let mut ids = nodes.to_vec();
    if max == 0 || max >= ids.len() {
        return ids;
    }
    // mix is a bijection, so hashes are distinct and the selection does not depend on the algorithm
    let key = keyed::key(&[0x7363_6f72_6564]);
    ids.select_nth_unstable_by_key(max, |&v| keyed::mix(key ^ u64::from(v)));
    ids.truncate(max);
    ids.par_sort_unstable();
    ids
}

/// The rows of `nodes`.
pub(crate) fn select(rows: &Matrix, nodes: &[NodeId]) -> Matrix {
    let width = rows.num_cols();
    let mut selected = Matrix::zeros(nodes.len(), width);
    let from = rows.view().host();
    for (to, &v) in selected.view_mut().host().chunks_exact_mut(width).zip(nodes) {
        to.copy_from_slice(&from[v as usize * width..][..width]);
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_order_of_members() {
        for nodes in [1usize, 63, 64, 65, 1000] {
            for step in [1, 2, 7, 64, 999] {
                let marks = Marks::new(nodes);
                let members: Vec<NodeId> = (0..nodes as NodeId).filter(|v| v % step == 0).collect();
                members.iter().rev().for_each(|&v| marks.mark(v));
                let set = marks.set();
                assert_eq!(set.ids(), members);
                assert_eq!(set.is_all(), members.len() == nodes);
                let mut ranks = members.clone();
                set.number(&mut ranks);
                assert!(ranks.iter().copied().eq(0..set.len() as u32), "{nodes} by {step}");
                let (middle, end) = (nodes as NodeId / 3, nodes as NodeId);
                let below = members.iter().filter(|&&v| v < middle).count();
                let above: Vec<NodeId> = (middle..end).collect();
                assert_eq!(set.range_of(&above), below..set.len());
                if middle > 0 {
                    assert_eq!(set.range_of(&(0..middle).collect::<Vec<_>>()), 0..below);
                }
            }
        }
        assert_eq!(NodeSet::all(3).ids(), [0, 1, 2]);
    }

    proptest::proptest! {
        #[test]
        fn few_and_many_nodes_have_the_same_ranks(
            nodes in 1usize..2000,
            rows in proptest::collection::vec(proptest::collection::vec(0usize..2000, 0..4), 0..12),
        ) {
            let rows: Vec<Vec<NodeId>> =
                rows.iter().map(|row| row.iter().map(|&v| (v % nodes) as NodeId).collect()).collect();
            let (marks, mut added) = (Marks::new(nodes), Added::new(nodes));
            for (i, row) in rows.iter().enumerate() {
                row.iter().for_each(|&v| marks.mark(v));
                match i % 2 {
                    0 => added.add(row.iter().copied()),
                    _ => added.add_rows(&[i as NodeId], |v| &rows[v as usize]),
                }
                let (expected, set) = (marks.set(), added.set());
                proptest::prop_assert_eq!(set.ids(), expected.ids());
                proptest::prop_assert_eq!(set.is_all(), expected.is_all());
                let mut ranks = set.ids().to_vec();
                set.number(&mut ranks);
                proptest::prop_assert!(ranks.iter().copied().eq(0..set.len() as u32));
            }
        }
    }

    #[test]
    fn fixed_samples_repeat_and_are_nested() {
        let nodes: Vec<NodeId> = (0..1000).map(|v| 3 * v).collect();
        let few = fixed_sample(&nodes, 100);
        assert_eq!((few.len(), &few), (100, &fixed_sample(&nodes, 100)));
        assert!(few.windows(2).all(|pair| pair[0] < pair[1]) && few.iter().all(|v| v % 3 == 0));
        // the larger sample contains the smaller one, and about half of the sample lies in half of
        // the range (5 standard deviations of 5)
        assert!(few.iter().all(|v| fixed_sample(&nodes, 200).contains(v)));
        assert!(few.iter().filter(|&&v| v < 1500).count().abs_diff(50) < 25);
        assert_eq!(
            (fixed_sample(&nodes, 0), fixed_sample(&nodes, 1000), fixed_sample(&nodes, 5000)),
            (nodes.clone(), nodes.clone(), nodes)
        );
    }
}
