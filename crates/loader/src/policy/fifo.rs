//! First in, first out: a ring of slots and a cursor.
//!
//! # Algorithm
//!
//! Slots are evicted in the order in which they were filled. A hit changes nothing, which makes it
//! the cheapest policy; proximity-aware ordering supplies the hits.
//!
//! # Source
//!
//! The cache engine of Liu et al., *BGL: GPU-efficient GNN training by optimizing graph data I/O
//! and preprocessing*, NSDI 2023, section 3.2.1.
//!
//! # Cost
//!
//! O(1) per row.
//!
//! # Memory
//!
//! 4 bytes per id and 4 per slot.

use graphmill_core::NodeId;

use super::{Policy, SlotMap};

/// First in, first out.
#[derive(Debug)]
pub struct Fifo {
    slot_map: SlotMap,
    /// Slot that was filled first.
    next: u32,
}

impl Fifo {
    /// Creates a policy for `num_ids` ids and `capacity` slots.
    pub fn new(num_ids: usize, capacity: usize) -> Self {
        Self { slot_map: SlotMap::new(num_ids, capacity), next: 0 }
    }
}

impl Policy for Fifo {
    fn slot_map(&self) -> &SlotMap {
        &self.slot_map
    }

    fn slot_map_mut(&mut self) -> &mut SlotMap {
        &mut self.slot_map
    }

    #[inline(always)]
    fn touch(&mut self, _slots: &[u32]) {}

    #[inline(always)]
    fn enter(&mut self, _slot: u32, _id: NodeId) {}

    #[inline(always)]
    fn evict(&mut self) -> u32 {
        let slot = self.next;
        self.next = if slot as usize + 1 == self.slot_map.capacity() { 0 } else { slot + 1 };
        slot
    }
}
