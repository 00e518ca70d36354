//! Map from nodes to the ranks that own them, and to their position at the owner.
//!
//! Memory: 2 bytes a node for the parts, mapped if the partition is on disk, and 3 bits for the
//! positions of own nodes.

#![forbid(unsafe_code)]

use graphmill_core::{Error, NodeId, Result, memory};
use graphmill_data::partition::PartitionBook;
use rayon::prelude::*;

use crate::row_words::{MIN_PARALLEL, TASK_LEN};

/// Nodes per word of the bitmap.
const WORD: usize = 64;

/// Owners of all nodes. Parts are assigned to ranks round-robin, so that any number of ranks up to
/// the number of parts is possible.
#[derive(Clone, Debug)]
pub struct NodeOwnership {
    parts: PartitionBook,
    /// Rank of each part.
    rank_of: Vec<u16>,
    rank: usize,
    size: usize,
    /// Bitmap of own nodes.
    own: Vec<u64>,
    /// Number of own nodes before each word.
    before: Vec<u32>,
    num_own: usize,
    /// Number of graph stores, the last ranks; 0 if all ranks hold parts and train.
    stores: usize,
}

impl NodeOwnership {
    /// Creates the map of rank `rank` of `size`, with parts assigned round-robin.
    ///
    /// # Errors
    /// There are fewer parts than ranks.
    pub fn new(parts: PartitionBook, rank: usize, size: usize) -> Result<Self> {
        let many = usize::from(parts.parts());
        if many < size {
            return Err(Error::invalid(format!(
                "{size} ranks share {many} parts: partition with --parts {size} or more, or start {many} \
                 ranks or fewer"
            )));
        }
        Ok(Self::of_ranks(parts, (0..many).map(|part| (part % size) as u16).collect(), rank, size))
    }

    /// Creates the map of ranks of which the last `stores` (fewer than `size`) hold the parts,
    /// assigned round-robin, and the others train.
    ///
    /// # Errors
    /// There are fewer parts than stores, or no rank is left to train.
    pub fn with_stores(parts: PartitionBook, rank: usize, size: usize, stores: usize) -> Result<Self> {
        if stores == 0 {
            return Self::new(parts, rank, size);
        }
        let many = usize::from(parts.parts());
        if stores >= size {
            return Err(Error::invalid(format!(
                "{stores} graph stores of {size} ranks: at least one rank must train; use fewer stores or \
                 start more ranks"
            )));
        }
        if many < stores {
            return Err(Error::invalid(format!(
                "{stores} graph stores share {many} parts: partition with --parts {stores} or more, or use \
                 {many} stores or fewer"
            )));
        }
        let rank_of = (0..many).map(|part| (size - stores + part % stores) as u16).collect();
        Ok(Self { stores, ..Self::of_ranks(parts, rank_of, rank, size) })
    }

    /// The map of the same ranks with the parts at other ranks: `order` lists all parts, which are
    /// assigned round-robin to the ranks that hold parts.
    ///
    /// # Errors
    /// The number of parts differs.
    pub fn reassigned(&self, order: &[usize]) -> Result<Self> {
        let many = usize::from(self.parts.parts());
        if many != order.len() {
            return Err(Error::invalid(format!("an order of {} parts, there are {many}", order.len())));
        }
        let mut rank_of = vec![0; many];
        for (i, &part) in order.iter().enumerate() {
            rank_of[part] = (self.first_holder() + i % self.num_holders()) as u16;
        }
        let stores = self.stores;
        Ok(Self { stores, ..Self::of_ranks(self.parts.clone(), rank_of, self.rank, self.size) })
    }

    /// The map of the rows of a table with two rows for each of the `V` nodes, at the node's owner:
    /// row `v` and row `V + v` of node `v`. Takes 4 bytes a node.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn doubled(&self) -> Result<Self> {
        let mut of: Vec<u16> = memory::reserve(self.parts.num_nodes().saturating_mul(2))?;
        of.extend_from_slice(self.parts.of());
        of.extend_from_slice(self.parts.of());
        let parts = PartitionBook::new(self.parts.parts(), of)?;
        let stores = self.stores;
        Ok(Self { stores, ..Self::of_ranks(parts, self.rank_of.clone(), self.rank, self.size) })
    }

    /// Map from the rank of each part, which are as many as the parts.
    fn of_ranks(parts: PartitionBook, rank_of: Vec<u16>, rank: usize, size: usize) -> Self {
        let own: Vec<u64> = parts
            .of()
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
        Self { parts, rank_of, rank, size, own, before, num_own: num_own as usize, stores: 0 }
    }

    /// Number of graph stores: ranks that hold parts and do not train, the last ones; 0 if all
    /// ranks do both.
    pub fn num_stores(&self) -> usize {
        self.stores
    }

    /// Number of ranks that train, the first ones.
    pub fn num_trainers(&self) -> usize {
        self.size - self.stores
    }

    /// Number of ranks that hold parts, the last ones: the graph stores, or all ranks.
    pub fn num_holders(&self) -> usize {
        if self.stores == 0 { self.size } else { self.stores }
    }

    /// First of the ranks that hold parts.
    pub fn first_holder(&self) -> usize {
        self.size - self.num_holders()
    }

    /// Number of this rank among those that hold parts; 0 if it holds none.
    pub fn number_of_holder(&self) -> usize {
        self.rank.saturating_sub(self.first_holder())
    }

    /// Returns true if this rank trains.
    pub fn trains(&self) -> bool {
        self.rank < self.num_trainers()
    }

    /// Returns true if this rank trains on the seed `v` at position `i` of its batch: its owner
    /// does or, if the owners are graph stores, the training ranks in turns.
    #[inline]
    pub fn takes(&self, i: usize, v: NodeId) -> bool {
        if self.stores == 0 { self.is_own(v) } else { i % self.num_trainers() == self.rank }
    }

    /// Rank that trains on the seed `v` at position `i` of its batch ([`NodeOwnership::takes`]).
    #[inline]
    pub fn trainer(&self, i: usize, v: NodeId) -> usize {
        if self.stores == 0 { self.owner(v) } else { i % self.num_trainers() }
    }

    /// Number of this rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Part of every node.
    pub fn parts(&self) -> &PartitionBook {
        &self.parts
    }

    /// Number of all nodes.
    pub fn num_nodes(&self) -> usize {
        self.parts.num_nodes()
    }

    /// Number of own nodes.
    pub fn num_own(&self) -> usize {
        self.num_own
    }

    /// Parts of a rank.
    pub fn parts_of(&self, rank: usize) -> impl Iterator<Item = usize> + '_ {
        self.rank_of.iter().enumerate().filter(move |(_, r)| usize::from(**r) == rank).map(|(part, _)| part)
    }

    /// Rank that owns `v`.
    #[inline]
    pub fn owner(&self, v: NodeId) -> usize {
        usize::from(self.rank_of[usize::from(self.parts.part_of(v))])
    }

    /// Returns true if this rank owns `v`.
    #[inline]
    pub fn is_own(&self, v: NodeId) -> bool {
        self.own[v as usize / WORD] >> (v as usize % WORD) & 1 == 1
    }

    /// Position of the own node `v` among all own nodes, ascending.
    #[inline]
    pub fn place(&self, v: NodeId) -> u32 {
        let (word, bit) = (v as usize / WORD, v as usize % WORD);
        self.before[word] + (self.own[word] & ((1 << bit) - 1)).count_ones()
    }

    /// Positions of the nodes `ids` of a request among all own nodes.
    ///
    /// # Errors
    /// A node belongs to another rank.
    pub fn places(&self, ids: &[NodeId]) -> Result<Vec<u32>> {
        match ids.iter().find(|&&v| v as usize >= self.num_nodes() || !self.is_own(v)) {
            Some(v) => Err(Error::invalid(format!(
                "node {v} is not on this rank: the ranks have opened different partitions"
            ))),
            None => Ok(memory::demand_collect(ids.iter().map(|&v| self.place(v)))),
        }
    }

    /// Own nodes, ascending.
    pub fn own(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.num_nodes() as NodeId).filter(|&v| self.is_own(v))
    }

    /// Groups `ids` by owner: for each rank that owns some, the ids and their positions in `ids`.
    pub(crate) fn by_owner(&self, ids: &[NodeId]) -> Vec<Share> {
        group(ids, self.size, |v| self.owner(v))
    }
}

/// Groups `ids` by their owners, of `size` ranks, in the order of `ids`; many ids in parallel.
/// Unwinds as [`memory::demand`] if the system refuses the memory.
pub(crate) fn group(ids: &[NodeId], size: usize, owner: impl Fn(NodeId) -> usize + Sync) -> Vec<Share> {
    let of_run = |(run, ids): (usize, &[NodeId])| {
        let mut shares: Vec<Share> = (0..size).map(|_| Share::default()).collect();
        for (i, &v) in ids.iter().enumerate() {
            let share = &mut shares[owner(v)];
            memory::demand_push(&mut share.ids, v);
            memory::demand_push(&mut share.at, (run * TASK_LEN + i) as u32);
        }
        shares
    };
    if ids.len() < MIN_PARALLEL {
        return of_run((0, ids));
    }
    let runs: Vec<Vec<Share>> = ids.par_chunks(TASK_LEN).enumerate().map(of_run).collect();
    let of_rank = |rank: usize| {
        let shares = || runs.iter().map(|shares| &shares[rank]);
        let len = shares().map(|share| share.ids.len()).sum();
        let mut all = Share::default();
        memory::demand(&mut all.ids, len);
        memory::demand(&mut all.at, len);
        for Share { ids, at } in shares() {
            all.ids.extend_from_slice(ids);
            all.at.extend_from_slice(at);
        }
        all
    };
    (0..size).into_par_iter().map(of_rank).collect()
}

/// Nodes of a request that one rank owns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Share {
    /// Ids of the nodes.
    pub(crate) ids: Vec<NodeId>,
    /// Their positions in the request, ascending.
    pub(crate) at: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_nodes_are_numbered_in_ascending_order() {
        let parts: Vec<u16> = (0..1000u32).map(|v| (v * v % 7) as u16).collect();
        let parts = PartitionBook::new(7, parts).unwrap();
        for size in [1, 2, 3, 7] {
            for rank in 0..size {
                let book = NodeOwnership::new(parts.clone(), rank, size).unwrap();
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
    fn both_rows_of_a_node_are_at_its_owner() {
        let parts = PartitionBook::new(3, (0..100).map(|v| v * 5 % 3).collect::<Vec<u16>>()).unwrap();
        for (rank, stores) in [(0, 0), (1, 0), (0, 1), (2, 1)] {
            let book = NodeOwnership::with_stores(parts.clone(), rank, 3, stores).unwrap();
            let rows = book.doubled().unwrap();
            assert_eq!((rows.num_nodes(), rows.num_own()), (200, 2 * book.num_own()));
            assert_eq!((rows.num_stores(), rows.trains()), (stores, book.trains()));
            assert!((0..100).all(|v| [v, 100 + v].map(|row| rows.owner(row)) == [book.owner(v); 2]));
            // the features of all own nodes, then their aggregates
            for v in book.own() {
                let place = book.place(v);
                assert_eq!([v, 100 + v].map(|row| rows.place(row)), [place, book.num_own() as u32 + place]);
            }
        }
    }

    #[test]
    fn requests_of_any_size_are_grouped_in_order() {
        for len in [0, 1000, MIN_PARALLEL + TASK_LEN + 3] {
            let ids: Vec<NodeId> = (0..len as NodeId).map(|i| i.wrapping_mul(2_654_435_761)).collect();
            let owner = |v: NodeId| (v >> 7) as usize % 3;
            let shares = group(&ids, 4, owner);
            assert_eq!(shares.len(), 4);
            for (rank, share) in shares.iter().enumerate() {
                let at: Vec<u32> = (0..len as u32).filter(|&i| owner(ids[i as usize]) == rank).collect();
                assert_eq!(share.at, at);
                assert!(share.ids.iter().eq(at.iter().map(|&i| &ids[i as usize])));
            }
        }
    }

    #[test]
    fn stores_hold_all_nodes_and_trainers_take_all_seeds() {
        let parts = PartitionBook::new(3, (0..90).map(|v| v % 3).collect::<Vec<u16>>()).unwrap();
        let books: Vec<_> =
            (0..5).map(|rank| NodeOwnership::with_stores(parts.clone(), rank, 5, 2).unwrap()).collect();
        assert_eq!(books.iter().map(NodeOwnership::num_own).collect::<Vec<_>>(), [0, 0, 0, 60, 30]);
        for v in 0..90 {
            let takers = books.iter().filter(|book| book.takes(v as usize, v)).map(NodeOwnership::rank);
            assert_eq!(takers.collect::<Vec<_>>(), [v as usize % 3]);
            assert!(books.iter().all(|book| book.trainer(v as usize, v) == v as usize % 3));
        }
        assert!(books.iter().all(|book| book.trains() == (book.rank() < 3)));
        let owners = |book: NodeOwnership| (0..3).map(|part| book.owner(part)).collect::<Vec<_>>();
        assert_eq!(owners(books[0].clone()), [3, 4, 3]);
        assert_eq!(owners(books[0].reassigned(&[2, 0, 1]).unwrap()), [4, 3, 3]);
        let refused = |size, stores| NodeOwnership::with_stores(parts.clone(), 0, size, stores).unwrap_err();
        assert!(refused(5, 4).to_string().contains("--parts 4"));
        assert!(refused(2, 2).to_string().contains("at least one rank must train"));
    }

    #[test]
    fn inconsistent_assignments_are_rejected() {
        let parts = PartitionBook::new(2, vec![0, 1, 1]).unwrap();
        let few = NodeOwnership::new(parts.clone(), 0, 3).unwrap_err().to_string();
        assert!(few.contains("--parts 3"), "{few}");
        assert!(NodeOwnership::new(parts, 0, 2).unwrap().reassigned(&[0, 1, 0]).is_err());
    }
}
