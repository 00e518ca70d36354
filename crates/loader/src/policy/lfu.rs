//! Least frequently used in O(1): a list of frequencies in ascending order, each with the list of
//! the slots used so often (Shah, Mitra and Matani, *An O(1) algorithm for implementing the LFU
//! cache eviction scheme*, arXiv:2110.11602).
//!
//! An id counts 1 when it is given a slot, and 1 for each use; what was counted is forgotten with
//! the slot. Among those used equally often, the one that has been for longest goes first. Counts
//! do not age: what was hot in the past stays.
//!
//! Memory: 4 bytes an id, 36 a slot (a frequency for each slot at most, as when all differ).

use graphmill_core::NodeId;

use super::{Holders, MISS, Policy, links::Links};

/// See the module.
#[derive(Debug)]
pub struct Lfu {
    holders: Holders,
    /// Numbers below the capacity are slots, those from there on groups: a group's members are its
    /// ring.
    members: Links,
    /// The groups that have members, by ascending frequency, around [`Lfu::none`].
    groups: Links,
    /// Per slot.
    group_of: Vec<u32>,
    /// Per group, how often its members were used.
    frequency: Vec<u32>,
    /// Groups without members.
    spare: Vec<u32>,
}

impl Lfu {
    /// For `num_ids` ids and so many slots.
    pub fn new(num_ids: usize, capacity: usize) -> Self {
        let holders = Holders::new(num_ids, capacity);
        let n = holders.capacity();
        // one more than slots: a slot enters a new group before its old one is known to be empty
        let groups = n + 1;
        Self {
            holders,
            members: Links::new(n + groups),
            groups: Links::new(groups + 1),
            group_of: vec![0; n],
            frequency: vec![0; groups],
            spare: (0..groups as u32).rev().collect(),
        }
    }

    /// Stands for the list of groups.
    #[inline(always)]
    fn none(&self) -> u32 {
        self.frequency.len() as u32
    }

    /// The number that stands for a group's members.
    #[inline(always)]
    fn ring(&self, group: u32) -> u32 {
        self.holders.capacity() as u32 + group
    }

    /// Puts a slot, which is in no group, into the group of that frequency, which belongs right
    /// behind group `at`.
    #[inline(always)]
    fn join(&mut self, slot: u32, frequency: u32, at: u32) {
        let mut group = self.groups.behind(at);
        if group == self.none() || self.frequency[group as usize] != frequency {
            let new = self.spare.pop().expect("groups with members are no more than slots");
            self.frequency[new as usize] = frequency;
            self.groups.put_before(new, group);
            group = new;
        }
        self.members.put_before(slot, self.ring(group));
        self.group_of[slot as usize] = group;
    }

    /// Takes a group out of the list when its last member has left.
    #[inline(always)]
    fn drop_if_empty(&mut self, group: u32) {
        if self.members.behind(self.ring(group)) == self.ring(group) {
            self.groups.remove(group);
            self.spare.push(group);
        }
    }
}

impl Policy for Lfu {
    fn holders(&self) -> &Holders {
        &self.holders
    }

    fn holders_mut(&mut self) -> &mut Holders {
        &mut self.holders
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
        self.join(slot, 1, self.none());
    }

    #[inline(always)]
    fn evict(&mut self) -> u32 {
        let least = self.groups.behind(self.none());
        let slot = self.members.behind(self.ring(least));
        self.members.remove(slot);
        self.drop_if_empty(least);
        slot
    }
}
