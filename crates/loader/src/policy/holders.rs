//! Who holds which slot: a dense map each way.

use graphmill_core::NodeId;

use super::MISS;

/// The most slots there can be: two nodes of a list for each are numbered in 32 bits.
const MOST: usize = (1 << 31) - 2;

/// Ids to slots and back: 4 bytes an id and 4 bytes a slot. Slots are given out in ascending order
/// at first, and never given back.
#[derive(Debug)]
pub(super) struct Holders {
    slot_of: Vec<u32>,
    /// Of the slots given out so far.
    holder: Vec<NodeId>,
    capacity: usize,
}

impl Holders {
    pub(super) fn new(num_ids: usize, capacity: usize) -> Self {
        let capacity = capacity.min(num_ids).min(MOST);
        Self { slot_of: vec![MISS; num_ids], holder: Vec::with_capacity(capacity), capacity }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The slot of an id, or [`MISS`].
    #[inline(always)]
    pub(super) fn slot(&self, id: NodeId) -> u32 {
        self.slot_of[id as usize]
    }

    /// Who holds the slot. It must have been given out.
    #[inline(always)]
    pub(super) fn holder(&self, slot: u32) -> NodeId {
        self.holder[slot as usize]
    }

    /// A slot that no one has held yet.
    #[inline(always)]
    pub(super) fn free(&self) -> Option<u32> {
        (self.holder.len() < self.capacity).then_some(self.holder.len() as u32)
    }

    /// Gives a slot, that of [`Holders::free`] or one that is held, to an id that has none.
    #[inline(always)]
    pub(super) fn give(&mut self, slot: u32, id: NodeId) {
        if slot as usize == self.holder.len() {
            self.holder.push(id);
        } else {
            let former = std::mem::replace(&mut self.holder[slot as usize], id);
            self.slot_of[former as usize] = MISS;
        }
        self.slot_of[id as usize] = slot;
    }
}
