//! Least frequently used, in O(1).
//!
//! # Algorithm
//!
//! Frequencies form a list in ascending order, and each has the list of slots with that frequency.
//! An id counts 1 when it receives a slot, and 1 for each use; the count is lost with the slot.
//! Among equal frequencies the slot with that frequency for longest goes first. Counts do not age,
//! so ids that were hot in the past stay.
//!
//! # Source
//!
//! Shah, Mitra and Matani, *An O(1) algorithm for implementing the LFU cache eviction scheme*,
//! arXiv:2110.11602, 2021.
//!
//! # Cost
//!
//! O(1) per row.
//!
//! # Memory
//!
//! 4 bytes per id and 36 per slot (at most one frequency per slot, if all differ).

use graphmill_core::NodeId;

use super::{MISS, Policy, SlotMap, links::Links};

/// Least frequently used.
#[derive(Debug)]
pub struct Lfu {
    slot_map: SlotMap,
    /// Numbers below the capacity are slots, and those from there on are groups: the members of a
    /// group are its ring.
    members: Links,
    /// Groups with members in ascending order of frequency, around [`Lfu::end`].
    groups: Links,
    /// Group of each slot.
    group_of: Vec<u32>,
    /// Frequency of each group's members.
    frequency: Vec<u32>,
    /// Groups without members.
    spare: Vec<u32>,
}

impl Lfu {
    /// Creates a policy for `num_ids` ids and `capacity` slots.
    pub fn new(num_ids: usize, capacity: usize) -> Self {
        let slot_map = SlotMap::new(num_ids, capacity);
        let n = slot_map.capacity();
        // one more than slots: a slot enters a new group before its old one is checked for members
        let groups = n + 1;
        Self {
            slot_map,
            members: Links::new(n + groups),
            groups: Links::new(groups + 1),
            group_of: vec![0; n],
            frequency: vec![0; groups],
            spare: (0..groups as u32).rev().collect(),
        }
    }

    /// Number that stands for the list of groups.
    #[inline(always)]
    fn end(&self) -> u32 {
        self.frequency.len() as u32
    }

    /// Number that stands for a group's members.
    #[inline(always)]
    fn ring(&self, group: u32) -> u32 {
        self.slot_map.capacity() as u32 + group
    }

    /// Puts a slot, which is in no group, into the group of that frequency, which is the one right
    /// after group `at` if it exists.
    #[inline(always)]
    fn join(&mut self, slot: u32, frequency: u32, at: u32) {
        let mut group = self.groups.next(at);
        if group == self.end() || self.frequency[group as usize] != frequency {
            let new = self.spare.pop().expect("at most one group per slot has members");
            self.frequency[new as usize] = frequency;
            self.groups.put_before(new, group);
            group = new;
        }
        self.members.put_before(slot, self.ring(group));
        self.group_of[slot as usize] = group;
    }

    /// Removes a group from the list if it has no members left.
    #[inline(always)]
    fn drop_if_empty(&mut self, group: u32) {
        if self.members.next(self.ring(group)) == self.ring(group) {
            self.groups.remove(group);
            self.spare.push(group);
        }
    }
}

impl Policy for Lfu {
    fn slot_map(&self) -> &SlotMap {
        &self.slot_map
    }

    fn slot_map_mut(&mut self) -> &mut SlotMap {
        &mut self.slot_map
    }

    fn touch(&mut self, slots: &[u32]) {
        for &slot in slots.iter().filter(|slot| **slot != MISS) {
            let group = self.group_of[slot as usize];
            let frequency = self.frequency[group as usize];
            if frequency < u32::MAX {
                self.members.remove(slot);
                self.join(slot, frequency + 1, group);
                self.drop_if_empty(group);
            }
        }
    }

    #[inline(always)]
    fn enter(&mut self, slot: u32, _id: NodeId) {
        self.join(slot, 1, self.end());
    }

    #[inline(always)]
    fn evict(&mut self) -> u32 {
        let least = self.groups.next(self.end());
        let slot = self.members.next(self.ring(least));
        self.members.remove(slot);
        self.drop_if_empty(least);
        slot
    }
}
