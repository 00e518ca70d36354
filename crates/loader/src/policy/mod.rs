//! Cache policies: the ids that a cache of fixed size holds, and the slot of each.
//!
//! A policy sees ids only, never a feature row, so it can be tested alone and simulated on a trace.
//! Calls take whole batches: the rows of a batch are looked up, the misses are read from the next
//! tier, and then offered to the cache ([`CachePolicy::admit`]).
//!
//! Ids are dense, so all tables are arrays and no policy hashes. Each takes a constant number of
//! steps per row (SIEVE and S3-FIFO: amortised, because every step past an id is paid for by a use
//! of it). No policy is random or depends on threads.

#![forbid(unsafe_code)]

pub mod fifo;
pub mod lfu;
mod links;
pub mod lru;
pub mod s3_fifo;
pub mod sieve;
mod slot_map;

use graphmill_core::{
    NodeId, memory,
    table::{Entry, Table},
};

use slot_map::SlotMap;

/// Marks an id without a slot.
pub const MISS: u32 = u32::MAX;

/// Maps ids to the slots of a cache.
///
/// ```
/// use graphmill_loader::policy::{CachePolicy, MISS, fifo::Fifo};
///
/// let mut cache = Fifo::new(10, 2); // ids 0 to 9, two slots
/// let mut slots = Vec::new();
/// cache.admit(&[7, 3], &mut slots);
/// cache.look_up(&[3, 5], &mut slots);
/// assert_eq!(slots, [1, MISS]);
/// cache.admit(&[5], &mut slots); // in the place of 7, the first to come
/// assert_eq!(slots, [0]);
/// ```
pub trait CachePolicy: Send {
    /// Number of slots: as requested, but at most the number of ids.
    fn capacity(&self) -> usize;

    /// Overwrites `slots` with the slot of each id (below `V`), or [`MISS`]. Each hit counts as a
    /// use.
    fn look_up(&mut self, ids: &[NodeId], slots: &mut Vec<u32>);

    /// Offers ids (below `V`) without a slot whose rows have been read. Overwrites `slots` with the
    /// slot that each receives, which evicts its previous id, or with [`MISS`] if it is not
    /// admitted.
    ///
    /// A later id of the same call may receive the slot of an earlier one; the last id then holds
    /// it. An id that already has a slot, for example because it occurs earlier in `ids`, keeps it;
    /// that does not count as a use.
    fn admit(&mut self, ids: &[NodeId], slots: &mut Vec<u32>);
}

/// Constructor of a policy for `num_ids` ids and `capacity` slots.
pub type Make = fn(num_ids: usize, capacity: usize) -> Box<dyn CachePolicy>;

/// All cache policies.
pub static TABLE: Table<Make> = Table::new(
    "policy",
    &[
        Entry {
            name: "fifo",
            summary: "evicts the oldest row; hits cost nothing",
            source: "",
            options: &[],
            make: |num_ids, capacity| Box::new(fifo::Fifo::new(num_ids, capacity)),
        },
        Entry {
            name: "lru",
            summary: "evicts the least recently used row",
            source: "",
            options: &[],
            make: |num_ids, capacity| Box::new(lru::Lru::new(num_ids, capacity)),
        },
        Entry {
            name: "lfu",
            summary: "evicts the least frequently used row, in O(1)",
            source: "Shah, Mitra and Matani, arXiv:2110.11602",
            options: &[],
            make: |num_ids, capacity| Box::new(lfu::Lfu::new(num_ids, capacity)),
        },
        Entry {
            name: "sieve",
            summary: "first in, first out, but skips rows used since the last pass",
            source: "Zhang et al., NSDI 2024",
            options: &[],
            make: |num_ids, capacity| Box::new(sieve::Sieve::new(num_ids, capacity)),
        },
        Entry {
            name: "s3-fifo",
            summary: "a small trial queue before a large one, with a list of recent evictions",
            source: "Yang et al., SOSP 2023",
            options: &[],
            make: |num_ids, capacity| Box::new(s3_fifo::S3Fifo::new(num_ids, capacity)),
        },
    ],
);

/// Decisions of a policy, one id at a time.
trait Policy: Send {
    /// Map between ids and slots.
    fn slot_map(&self) -> &SlotMap;

    /// Mutable map between ids and slots.
    fn slot_map_mut(&mut self) -> &mut SlotMap;

    /// Records uses of the ids in `slots`, in order; [`MISS`] is ignored.
    fn touch(&mut self, slots: &[u32]);

    /// Records that a slot was assigned to an id that had none.
    fn enter(&mut self, slot: u32, id: NodeId);

    /// Chooses the slot to evict when all slots, at least one, are taken. The policy forgets it;
    /// [`Policy::enter`] follows.
    fn evict(&mut self) -> u32;
}

impl<P: Policy> CachePolicy for P {
    fn capacity(&self) -> usize {
        self.slot_map().capacity()
    }

    fn look_up(&mut self, ids: &[NodeId], slots: &mut Vec<u32>) {
        // two passes: first independent reads, then the updates that depend on them
        let slot_map = self.slot_map();
        slots.clear();
        memory::demand_extend(slots, ids.iter().map(|&id| slot_map.slot(id)));
        self.touch(slots);
    }

    fn admit(&mut self, ids: &[NodeId], slots: &mut Vec<u32>) {
        slots.clear();
        if self.capacity() == 0 {
            return memory::demand_len(slots, ids.len(), MISS);
        }
        memory::demand_extend(
            slots,
            ids.iter().map(|&id| {
                let slot = self.slot_map().slot(id);
                if slot != MISS {
                    return slot;
                }
                let slot = match self.slot_map().free() {
                    Some(slot) => slot,
                    None => self.evict(),
                };
                self.slot_map_mut().assign(slot, id);
                self.enter(slot, id);
                slot
            }),
        );
    }
}

#[cfg(test)]
mod tests;
