//! S3-FIFO (Yang, Zhang, Qiu, Yue and Rashmi, *FIFO queues are all you need for cache eviction*,
//! SOSP 2023, algorithm 1): new ids are on trial in a small queue, a tenth of the slots; those used
//! twice or more there move on to the main queue, the others go, and are remembered for a while.
//! Who comes back while remembered enters the main queue at once. There, uses since the last time
//! around (three at most) save from going, one each time.
//!
//! A hit adds 1 to a byte. The queues are rings of slot numbers, so that a row moves from one to
//! the other and keeps its slot.
//!
//! Deviation: what is remembered is a number on each id, when it left the small queue; it counts
//! for as many departures as the main queue has slots. One that came back still takes up its place
//! in that memory; and as numbers are of 32 bits, an id may be taken for remembered when 4 billion
//! departures have passed.
//!
//! Memory: 8 bytes an id, 13 a slot.

use std::collections::VecDeque;

use graphmill_core::NodeId;

use super::{Holders, Policy};

/// Uses that are counted.
const MOST_USES: u8 = 3;
/// Uses on trial that make a slot move on.
const PROVEN: u8 = 2;

/// See the module.
#[derive(Debug)]
pub struct S3Fifo {
    holders: Holders,
    /// Per slot, uses since it was last looked at, [`MOST_USES`] at most; and one of no meaning,
    /// for misses.
    uses: Vec<u8>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// Slots of the small queue.
    trial: usize,
    /// Per id: the number of its last departure from the small queue.
    left: Vec<u32>,
    /// The number of the next departure; at first so large that all of `left` is forgotten.
    departures: u32,
    /// How many of the last departures are remembered.
    memory: u32,
}

impl S3Fifo {
    /// For `num_ids` ids and so many slots.
    pub fn new(num_ids: usize, capacity: usize) -> Self {
        let holders = Holders::new(num_ids, capacity);
        let n = holders.capacity();
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
            holders,
        }
    }
}

impl Policy for S3Fifo {
    fn holders(&self) -> &Holders {
        &self.holders
    }

    fn holders_mut(&mut self) -> &mut Holders {
        &mut self.holders
    }

    fn touch(&mut self, slots: &[u32]) {
        let nobody = self.uses.len() as u32 - 1;
        for &slot in slots {
            // without a branch, which would be taken as often as not
            let uses = &mut self.uses[slot.min(nobody) as usize];
            *uses = (*uses + 1).min(MOST_USES);
        }
    }

    #[inline(always)]
    fn enter(&mut self, slot: u32, id: NodeId) {
        self.uses[slot as usize] = 0;
        let left = &mut self.left[id as usize];
        if self.departures.wrapping_sub(*left) <= self.memory {
            *left = self.departures.wrapping_sub(self.memory + 1); // once
            self.main.push_back(slot);
        } else {
            self.small.push_back(slot);
        }
    }

    #[inline(always)]
    fn evict(&mut self) -> u32 {
        loop {
            // the small queue while it has its share, the main one else; one of them has slots
            if self.small.len() >= self.trial || self.main.is_empty() {
                let Some(slot) = self.small.pop_front() else { unreachable!("all slots are queued") };
                if std::mem::take(&mut self.uses[slot as usize]) < PROVEN {
                    self.left[self.holders.holder(slot) as usize] = self.departures;
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
