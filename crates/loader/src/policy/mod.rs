//! Which ids a cache of fixed size holds, and in which of its slots: policies, apart from the rows
//! they are for.
//!
//! A policy sees ids alone, never a feature byte, so that it can be tested, and simulated on a
//! trace, by itself. Calls are of whole batches: a batch's rows are looked up, those that miss are
//! read from the tier behind, and then offered ([`CachePolicy::admit`]).
//!
//! Ids are dense, so all tables are arrays: no policy hashes, and each does a constant number of
//! steps a row (SIEVE and S3-FIFO: on average, an id that is passed over has been paid for by its
//! use). Nothing is random and nothing depends on threads.

pub mod fifo;
mod holders;
pub mod lfu;
mod links;
pub mod lru;
pub mod s3_fifo;
pub mod sieve;

use graphmill_core::{
    NodeId,
    table::{Entry, Table},
};

use holders::Holders;

/// The slot of an id that has none.
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
    /// Slots: as many as asked for, but no more than there are ids.
    fn capacity(&self) -> usize;

    /// The slot of each id (below `V`), [`MISS`] where it has none; each counts as a use. `slots`
    /// is overwritten.
    fn look_up(&mut self, ids: &[NodeId], slots: &mut Vec<u32>);

    /// Offers ids (below `V`) that have no slot, their rows having been read: the slot that each is
    /// given, whose former holder loses it, or [`MISS`] where it is not kept. `slots` is
    /// overwritten.
    ///
    /// A later id of the same call may be given an earlier one's slot; then the last one holds it.
    /// An id that has a slot, by an earlier place in `ids` for instance, keeps it, and that is no
    /// use.
    fn admit(&mut self, ids: &[NodeId], slots: &mut Vec<u32>);
}

/// Makes a policy for `num_ids` ids and so many slots.
pub type Make = fn(num_ids: usize, capacity: usize) -> Box<dyn CachePolicy>;

/// Every policy there is.
pub static TABLE: Table<Make> = Table::new(
    "policy",
    &[
        Entry {
            name: "fifo",
            summary: "the first that came goes first: a hit costs nothing",
            source: "",
            options: &[],
            make: |num_ids, capacity| Box::new(fifo::Fifo::new(num_ids, capacity)),
        },
        Entry {
            name: "lru",
            summary: "the one unused for longest goes first",
            source: "",
            options: &[],
            make: |num_ids, capacity| Box::new(lru::Lru::new(num_ids, capacity)),
        },
        Entry {
            name: "lfu",
            summary: "the one used least often goes first, in O(1)",
            source: "Shah, Mitra and Matani, arXiv:2110.11602",
            options: &[],
            make: |num_ids, capacity| Box::new(lfu::Lfu::new(num_ids, capacity)),
        },
        Entry {
            name: "sieve",
            summary: "first in, first out, except that what was used meanwhile is passed over",
            source: "Zhang et al., NSDI 2024",
            options: &[],
            make: |num_ids, capacity| Box::new(sieve::Sieve::new(num_ids, capacity)),
        },
        Entry {
            name: "s3-fifo",
            summary: "a small queue on trial before a large one, and a memory of what left it",
            source: "Yang et al., SOSP 2023",
            options: &[],
            make: |num_ids, capacity| Box::new(s3_fifo::S3Fifo::new(num_ids, capacity)),
        },
    ],
);

/// What a policy decides, one id at a time.
trait Policy: Send {
    /// Who holds which slot.
    fn holders(&self) -> &Holders;

    /// As above, to change.
    fn holders_mut(&mut self) -> &mut Holders;

    /// The ids in these slots have been used, one after the other; [`MISS`] is of no one.
    fn touch(&mut self, slots: &[u32]);

    /// A slot has been given to an id that had none.
    fn enter(&mut self, slot: u32, id: NodeId);

    /// All slots are held, at least one of them: the slot to take. It is forgotten;
    /// [`Policy::enter`] follows.
    fn evict(&mut self) -> u32;
}

impl<P: Policy> CachePolicy for P {
    fn capacity(&self) -> usize {
        self.holders().capacity()
    }

    fn look_up(&mut self, ids: &[NodeId], slots: &mut Vec<u32>) {
        // two passes: reads that wait for nothing, then what follows from them
        let holders = self.holders();
        slots.clear();
        slots.extend(ids.iter().map(|&id| holders.slot(id)));
        self.touch(slots);
    }

    fn admit(&mut self, ids: &[NodeId], slots: &mut Vec<u32>) {
        slots.clear();
        if self.capacity() == 0 {
            return slots.resize(ids.len(), MISS);
        }
        slots.extend(ids.iter().map(|&id| {
            let held = self.holders().slot(id);
            if held != MISS {
                return held;
            }
            let slot = match self.holders().free() {
                Some(slot) => slot,
                None => self.evict(),
            };
            self.holders_mut().give(slot, id);
            self.enter(slot, id);
            slot
        }));
    }
}

#[cfg(test)]
mod tests;
