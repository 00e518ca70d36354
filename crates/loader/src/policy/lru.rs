//! Least recently used: slots in a list, in the order of their last use.
//!
//! Memory: 4 bytes per id and 12 per slot. A hit moves its slot to the end of the list with three
//! random writes.

use graphmill_core::NodeId;

use super::{MISS, Policy, SlotMap, links::Links};

/// Least recently used.
#[derive(Debug)]
pub struct Lru {
    slot_map: SlotMap,
    /// Slots in the order of their last use, the oldest first, around [`Lru::end`].
    uses: Links,
}

impl Lru {
    /// Creates a policy for `num_ids` ids and `capacity` slots.
    pub fn new(num_ids: usize, capacity: usize) -> Self {
        let slot_map = SlotMap::new(num_ids, capacity);
        let uses = Links::new(slot_map.capacity() + 1);
        Self { slot_map, uses }
    }

    #[inline(always)]
    fn end(&self) -> u32 {
        self.slot_map.capacity() as u32
    }
}

impl Policy for Lru {
    fn slot_map(&self) -> &SlotMap {
        &self.slot_map
    }

    fn slot_map_mut(&mut self) -> &mut SlotMap {
        &mut self.slot_map
    }

    fn touch(&mut self, slots: &[u32]) {
        for &slot in slots.iter().filter(|slot| **slot != MISS) {
            self.uses.remove(slot);
            self.uses.put_before(slot, self.end());
        }
    }

    #[inline(always)]
    fn enter(&mut self, slot: u32, _id: NodeId) {
        self.uses.put_before(slot, self.end());
    }

    #[inline(always)]
    fn evict(&mut self) -> u32 {
        let slot = self.uses.next(self.end());
        self.uses.remove(slot);
        slot
    }
}
