//! Map between ids and slots: a dense array each way.

use graphmill_core::{NodeId, memory};

use super::MISS;

/// Maximum number of slots: linked lists number two nodes per slot in 32 bits.
const MAX_SLOTS: usize = (1 << 31) - 2;

/// Map between ids and slots: 4 bytes per id and 4 per slot. Slots are first assigned in ascending
/// order and never become free again.
#[derive(Debug)]
pub(super) struct SlotMap {
    slot_of: Vec<u32>,
    /// Id in each slot assigned so far.
    ids: Vec<NodeId>,
    capacity: usize,
}

impl SlotMap {
    pub(super) fn new(num_ids: usize, capacity: usize) -> Self {
        let capacity = capacity.min(num_ids).min(MAX_SLOTS);
        let (mut slot_of, mut ids) = (Vec::new(), Vec::new());
        memory::demand_len(&mut slot_of, num_ids, MISS);
        memory::demand(&mut ids, capacity);
        Self { slot_of, ids, capacity }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Slot of an id, or [`MISS`].
    #[inline(always)]
    pub(super) fn slot(&self, id: NodeId) -> u32 {
        self.slot_of[id as usize]
    }

    /// Id in a slot, which must have been assigned.
    #[inline(always)]
    pub(super) fn id(&self, slot: u32) -> NodeId {
        self.ids[slot as usize]
    }

    /// Next slot that was never assigned, if any.
    #[inline(always)]
    pub(super) fn free(&self) -> Option<u32> {
        (self.ids.len() < self.capacity).then_some(self.ids.len() as u32)
    }

    /// Assigns a slot, either that of [`SlotMap::free`] or a taken one, to an id without a slot.
    #[inline(always)]
    pub(super) fn assign(&mut self, slot: u32, id: NodeId) {
        if slot as usize == self.ids.len() {
            self.ids.push(id);
        } else {
            let former = std::mem::replace(&mut self.ids[slot as usize], id);
            self.slot_of[former as usize] = MISS;
        }
        self.slot_of[id as usize] = slot;
    }
}
