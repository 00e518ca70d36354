//! SIEVE: a queue with a mark on each used row, and a hand that sweeps it.
//!
//! # Algorithm
//!
//! The hand moves through the queue from its oldest end. A marked slot loses its mark and keeps its
//! position; an unmarked one is evicted, and the hand stops there. New ids enter at the young end,
//! so most of those that are never used again are evicted when the hand next passes, while used
//! ones stay.
//!
//! # Source
//!
//! Zhang, Yang, Yue, Vigfusson and Rashmi, *SIEVE is simpler than LRU: an efficient turn-key
//! eviction algorithm for web caches*, NSDI 2024.
//!
//! # Cost
//!
//! O(1) per row, amortised. A hit sets one byte and writes nothing else.
//!
//! # Memory
//!
//! 4 bytes per id and 13 per slot.
//!
//! # Deviations
//!
//! The paper's queue is a linked list. Slots leave it only at the hand, so this one is an array in
//! queue order, in which evictions leave holes. It has capacity for twice the slots and is
//! compacted when full, which costs two sequential steps per admission. The hand then reads memory
//! in sequence.

use graphmill_core::NodeId;

use super::{Policy, SlotMap};

/// Position in the queue whose slot was evicted.
const HOLE: u32 = u32::MAX;

/// SIEVE.
#[derive(Debug)]
pub struct Sieve {
    slot_map: SlotMap,
    /// Slots from the oldest, with holes; the last entry is a slot.
    queue: Vec<u32>,
    /// True for slots used since the hand passed, and one dummy entry for misses.
    used: Vec<bool>,
    /// Position in the queue at which the search for a victim continues.
    hand: usize,
}

impl Sieve {
    /// Creates a policy for `num_ids` ids and `capacity` slots.
    pub fn new(num_ids: usize, capacity: usize) -> Self {
        let slot_map = SlotMap::new(num_ids, capacity);
        let n = slot_map.capacity();
        Self { slot_map, queue: Vec::with_capacity(2 * n), used: vec![false; n + 1], hand: 0 }
    }

    /// Removes the holes from the queue.
    #[cold]
    fn compact(&mut self) {
        self.hand -= self.queue[..self.hand].iter().filter(|slot| **slot == HOLE).count();
        self.queue.retain(|slot| *slot != HOLE);
    }
}

impl Policy for Sieve {
    fn slot_map(&self) -> &SlotMap {
        &self.slot_map
    }

    fn slot_map_mut(&mut self) -> &mut SlotMap {
        &mut self.slot_map
    }

    fn touch(&mut self, slots: &[u32]) {
        let dummy = self.used.len() as u32 - 1;
        // without a branch, which would be unpredictable
        slots.iter().for_each(|&slot| self.used[slot.min(dummy) as usize] = true);
    }

    #[inline(always)]
    fn enter(&mut self, slot: u32, _id: NodeId) {
        if self.queue.len() == 2 * self.slot_map.capacity() {
            self.compact();
        }
        self.queue.push(slot);
    }

    #[inline(always)]
    fn evict(&mut self) -> u32 {
        loop {
            let at = self.hand;
            let slot = self.queue[at];
            // the oldest follows the youngest, even if ids enter in between
            self.hand = if at + 1 == self.queue.len() { 0 } else { at + 1 };
            if slot != HOLE && !std::mem::take(&mut self.used[slot as usize]) {
                self.queue[at] = HOLE;
                return slot;
            }
        }
    }
}
