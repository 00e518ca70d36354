//! Least recently used: slots in a list, in the order of their last use.
//!
//! Memory: 4 bytes an id, 12 a slot. A hit moves its slot to the end of the list, three random
//! writes.

use graphmill_core::NodeId;

use super::{Holders, MISS, Policy, links::Links};

/// See the module.
#[derive(Debug)]
pub struct Lru {
    holders: Holders,
    /// Slots from the one unused for longest, around [`Lru::end`].
    uses: Links,
}

impl Lru {
    /// For `num_ids` ids and so many slots.
    pub fn new(num_ids: usize, capacity: usize) -> Self {
        let holders = Holders::new(num_ids, capacity);
        let uses = Links::new(holders.capacity() + 1);
        Self { holders, uses }
    }

    #[inline(always)]
    fn end(&self) -> u32 {
        self.holders.capacity() as u32
    }
}

impl Policy for Lru {
    fn holders(&self) -> &Holders {
        &self.holders
    }

    fn holders_mut(&mut self) -> &mut Holders {
        &mut self.holders
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
        let slot = self.uses.behind(self.end());
        self.uses.remove(slot);
        slot
    }
}
