//! Which rank owns which node, and where the owner keeps it.
//!
//! Memory: 2 bytes a node for the parts, mapped where the partition is on disk, and 3 bits for the own nodes' places.

use graphmill_graph::{Buffer, Error, NodeId, Result};

/// Nodes of a word of the bitmap.
const WORD: usize = 64;

/// The owners of all nodes. Parts go to ranks in turns, so that any number of ranks up to that of the parts will do.
#[derive(Clone, Debug)]
pub struct Book {
    part: Buffer<u16>,
    /// The rank of each part.
    rank_of: Vec<u16>,
    rank: usize,
    size: usize,
    /// Own nodes, a bit each.
    own: Vec<u64>,
    /// Own nodes before each word.
    before: Vec<u32>,
    num_own: usize,
}

impl Book {
    /// For rank `rank` of `size`, of the part of every node (below `parts`), parts dealt to the ranks in turns.
    ///
    /// # Errors
    /// There are fewer parts than ranks, or a part that is not below `parts`.
    pub fn new(part: Buffer<u16>, parts: usize, rank: usize, size: usize) -> Result<Self> {
        if parts < size {
            return Err(Error::invalid(format!(
                "{size} ranks share {parts} parts: partition with --parts {size} or more, or start {parts} ranks or fewer"
            )));
        }
        Self::dealt(part, (0..parts).map(|part| (part % size) as u16).collect(), rank, size)
    }

    /// As [`Book::new`], with the rank of each part (each below `size`).
    ///
    /// # Errors
    /// A part has no rank.
    pub fn dealt(part: Buffer<u16>, rank_of: Vec<u16>, rank: usize, size: usize) -> Result<Self> {
        if let Some(v) = part.iter().position(|&p| usize::from(p) >= rank_of.len()) {
            return Err(Error::invalid(format!(
                "node {v} is in part {}, but there are {} parts",
                part[v],
                rank_of.len()
            )));
        }
        let own: Vec<u64> = part
            .chunks(WORD)
            .map(|nodes| {
                let bit =
                    |(i, &p): (usize, &u16)| u64::from(usize::from(rank_of[usize::from(p)]) == rank) << i;
                nodes.iter().enumerate().map(bit).sum()
            })
            .collect();
        let mut num_own = 0;
        let before = own.iter().map(|word| {
            let before = num_own;
            num_own += word.count_ones();
            before
        });
        let before = before.collect();
        Ok(Self { part, rank_of, rank, size, own, before, num_own: num_own as usize })
    }

    /// Which rank this is.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// All nodes.
    pub fn num_nodes(&self) -> usize {
        self.part.len()
    }

    /// Own nodes.
    pub fn num_own(&self) -> usize {
        self.num_own
    }

    /// The parts of a rank.
    pub fn parts_of(&self, rank: usize) -> impl Iterator<Item = usize> + '_ {
        self.rank_of.iter().enumerate().filter(move |(_, r)| usize::from(**r) == rank).map(|(part, _)| part)
    }

    /// The rank that owns `v`.
    #[inline]
    pub fn owner(&self, v: NodeId) -> usize {
        usize::from(self.rank_of[usize::from(self.part[v as usize])])
    }

    /// Whether this rank owns `v`.
    #[inline]
    pub fn is_own(&self, v: NodeId) -> bool {
        self.own[v as usize / WORD] >> (v as usize % WORD) & 1 == 1
    }

    /// The number of `v`, which this rank owns, among its own nodes in ascending order.
    #[inline]
    pub fn place(&self, v: NodeId) -> u32 {
        let (word, bit) = (v as usize / WORD, v as usize % WORD);
        self.before[word] + (self.own[word] & ((1 << bit) - 1)).count_ones()
    }

    /// Own nodes, ascending.
    pub fn own(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.num_nodes() as NodeId).filter(|&v| self.is_own(v))
    }

    /// Sorts `ids` by owner: calls `see` with each rank that owns some, the ids, and their numbers among `ids`.
    pub(crate) fn by_owner(&self, ids: &[NodeId]) -> Vec<Share> {
        let mut shares: Vec<Share> = (0..self.size).map(|_| Share::default()).collect();
        for (i, &v) in ids.iter().enumerate() {
            let share = &mut shares[self.owner(v)];
            share.ids.push(v);
            share.at.push(i as u32);
        }
        shares
    }
}

/// Those of some nodes that one rank owns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share {
    /// The nodes.
    pub(crate) ids: Vec<NodeId>,
    /// Their numbers among all: ascending.
    pub(crate) at: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_nodes_are_numbered_in_their_order() {
        let part: Vec<u16> = (0..1000u32).map(|v| (v * v % 7) as u16).collect();
        for size in [1, 2, 3, 7] {
            for rank in 0..size {
                let book = Book::new(part.clone().into(), 7, rank, size).unwrap();
                let own: Vec<NodeId> = book.own().collect();
                assert_eq!(own.len(), book.num_own());
                for (i, &v) in own.iter().enumerate() {
                    assert_eq!((book.owner(v), book.place(v) as usize), (rank, i));
                }
                assert_eq!((0..1000).filter(|&v| book.owner(v) == rank).count(), own.len());
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let new = |parts, size| Book::new(vec![0, 3, 1].into(), parts, 0, size).unwrap_err().to_string();
        assert!(new(2, 3).contains("--parts 3"));
        assert!(new(3, 2).contains("node 1 is in part 3"));
    }
}
