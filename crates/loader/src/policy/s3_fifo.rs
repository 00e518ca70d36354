//! S3-FIFO: a small trial queue before a main queue, and a record of recent evictions.
//!
//! # Algorithm
//!
//! New ids enter a small queue, a tenth of the slots. Those used at least twice there move on to
//! the main queue; the others are evicted and remembered for a while. An id that returns while it
//! is remembered enters the main queue at once. In the main queue, each use since the last pass (at
//! most three) saves an id from eviction once. The queues are rings of slot numbers, so a row moves
//! between them without leaving its slot.
//!
//! # Source
//!
//! Yang, Zhang, Qiu, Yue and Rashmi, *FIFO queues are all you need for cache eviction*, SOSP 2023,
//! algorithm 1.
//!
//! # Cost
//!
//! O(1) per row, amortised. A hit adds 1 to a byte.
//!
//! # Memory
//!
//! 8 bytes per id and 13 per slot.
//!
//! # Deviations
//!
//! The ghost queue is a number on each id: the count of evictions from the small queue when the id
//! left it. An id is remembered for as many evictions as the main queue has slots. One that
//! returned still takes its place in that record. Because counts have 32 bits, an id may be taken
//! for remembered after 4 billion evictions.

use std::collections::VecDeque;

use graphmill_core::NodeId;

use super::{Policy, SlotMap};

/// Maximum number of uses counted.
const MAX_USES: u8 = 3;
/// Number of uses in the small queue after which a slot moves to the main one.
const MIN_USES_TO_PROMOTE: u8 = 2;

/// S3-FIFO.
#[derive(Debug)]
pub struct S3Fifo {
    slot_map: SlotMap,
    /// Uses of each slot since its last inspection, at most [`MAX_USES`], and one dummy entry for
    /// misses.
    uses: Vec<u8>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// Number of slots of the small queue.
    trial: usize,
    /// Number of each id's last eviction from the small queue.
    left: Vec<u32>,
    /// Number of the next eviction, initially so large that no id is remembered.
    departures: u32,
    /// Number of recent evictions that are remembered.
    memory: u32,
}

impl S3Fifo {
    /// Creates a policy for `num_ids` ids and `capacity` slots.
    pub fn new(num_ids: usize, capacity: usize) -> Self {
        let slot_map = SlotMap::new(num_ids, capacity);
        let n = slot_map.capacity();
        let trial = (n / 10).max(1);
        let memory = n.saturating_sub(trial) as u32;
        Self {
            uses: vec![0; n + 1],
            small: VecDeque::with_capacity(n),
            main: VecDeque::with_capacity(n),
            trial,
            left: vec![0; num_ids],
            departures: memory + 1,
            memory,
            slot_map,
        }
    }
}

impl Policy for S3Fifo {
    fn slot_map(&self) -> &SlotMap {
        &self.slot_map
    }

    fn slot_map_mut(&mut self) -> &mut SlotMap {
        &mut self.slot_map
    }

    fn touch(&mut self, slots: &[u32]) {
        let dummy = self.uses.len() as u32 - 1;
        for &slot in slots {
            // without a branch, which would be unpredictable
            let uses = &mut self.uses[slot.min(dummy) as usize];
            *uses = (*uses + 1).min(MAX_USES);
        }
    }

    #[inline(always)]
    fn enter(&mut self, slot: u32, id: NodeId) {
        self.uses[slot as usize] = 0;
        let left = &mut self.left[id as usize];
        if self.departures.wrapping_sub(*left) <= self.memory {
            *left = self.departures.wrapping_sub(self.memory + 1); // remembered once only
            self.main.push_back(slot);
        } else {
            self.small.push_back(slot);
        }
    }

    #[inline(always)]
    fn evict(&mut self) -> u32 {
        loop {
            // the small queue if it has its share, otherwise the main one; one of them has slots
            if self.small.len() >= self.trial || self.main.is_empty() {
                let Some(slot) = self.small.pop_front() else { unreachable!("all slots are queued") };
                if std::mem::take(&mut self.uses[slot as usize]) < MIN_USES_TO_PROMOTE {
                    self.left[self.slot_map.id(slot) as usize] = self.departures;
                    self.departures = self.departures.wrapping_add(1);
                    return slot;
                }
                self.main.push_back(slot);
            } else if let Some(slot) = self.main.pop_front() {
                let uses = &mut self.uses[slot as usize];
                if *uses == 0 {
                    return slot;
                }
                *uses -= 1;
                self.main.push_back(slot);
            }
        }
    }
}
