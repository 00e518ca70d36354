//! First in, first out: a ring of slots and a cursor (BGL's cache engine, Liu et al., NSDI 2023,
//! section 3.2.1). A hit changes nothing, which is what makes it the cheapest; proximity-aware
//! ordering gives it the hits.
//!
//! Memory: 4 bytes an id, 4 a slot.

use graphmill_core::NodeId;

use super::{Holders, Policy};

/// See the module.
#[derive(Debug)]
pub struct Fifo {
    holders: Holders,
    /// The slot that has been held for longest.
    next: u32,
}

impl Fifo {
    /// For `num_ids` ids and so many slots.
    pub fn new(num_ids: usize, capacity: usize) -> Self {
        Self { holders: Holders::new(num_ids, capacity), next: 0 }
    }
}

impl Policy for Fifo {
    fn holders(&self) -> &Holders {
        &self.holders
    }

    fn holders_mut(&mut self) -> &mut Holders {
        &mut self.holders
    }

    #[inline(always)]
    fn touch(&mut self, _slots: &[u32]) {}

    #[inline(always)]
    fn enter(&mut self, _slot: u32, _id: NodeId) {}

    #[inline(always)]
    fn evict(&mut self) -> u32 {
        let slot = self.next;
        self.next = if slot as usize + 1 == self.holders.capacity() { 0 } else { slot + 1 };
        slot
    }
}
