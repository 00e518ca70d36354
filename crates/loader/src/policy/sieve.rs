//! SIEVE (Zhang, Yang, Yue, Vigfusson and Rashmi, *SIEVE is simpler than LRU*, NSDI 2024): a queue,
//! a mark on what has been used, and a hand that moves through the queue from its oldest end. What
//! it meets marked loses the mark and stays where it is; what it meets unmarked goes, and the hand
//! waits there.
//!
//! A hit sets a mark, a byte, and writes nothing else: FIFO's cost but for that. New ids enter at
//! the young end, so most that are never used again go the next time the hand comes by, while what
//! is in use stays.
//!
//! The paper's queue is a linked list. Slots leave it only at the hand, so an array in the queue's
//! order does as well, in which they leave holes: it has room for twice the slots, and the holes
//! are squeezed out when it is full, which is two sequential steps an admission. The hand then
//! reads memory in its order.
//!
//! Memory: 4 bytes an id, 13 a slot.

use graphmill_core::NodeId;

use super::{Holders, Policy};

/// Where a slot has left the queue.
const HOLE: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub struct Sieve {
    holders: Holders,
    /// Slots from the oldest, and holes; the last is a slot.
    queue: Vec<u32>,
    /// Per slot, used since the hand went by; and one of no meaning, for misses.
    used: Vec<bool>,
    /// The place in the queue where to look for the next to go.
    hand: usize,
}

impl Sieve {
    /// For `num_ids` ids and so many slots.
    pub fn new(num_ids: usize, capacity: usize) -> Self {
        let holders = Holders::new(num_ids, capacity);
        let n = holders.capacity();
        Self { holders, queue: Vec::with_capacity(2 * n), used: vec![false; n + 1], hand: 0 }
    }

    /// Takes the holes out of the queue.
    #[cold]
    fn squeeze(&mut self) {
        self.hand -= self.queue[..self.hand].iter().filter(|slot| **slot == HOLE).count();
        self.queue.retain(|slot| *slot != HOLE);
    }
}

impl Policy for Sieve {
    fn holders(&self) -> &Holders {
        &self.holders
    }

    fn holders_mut(&mut self) -> &mut Holders {
        &mut self.holders
    }

    fn touch(&mut self, slots: &[u32]) {
        let nobody = self.used.len() as u32 - 1;
        // without a branch, which would be taken as often as not
        slots.iter().for_each(|&slot| self.used[slot.min(nobody) as usize] = true);
    }

    #[inline(always)]
    fn enter(&mut self, slot: u32, _id: NodeId) {
        if self.queue.len() == 2 * self.holders.capacity() {
            self.squeeze();
        }
        self.queue.push(slot);
    }

    #[inline(always)]
    fn evict(&mut self) -> u32 {
        loop {
            let at = self.hand;
            let slot = self.queue[at];
            // behind the youngest comes the oldest, whoever enters meanwhile
            self.hand = if at + 1 == self.queue.len() { 0 } else { at + 1 };
            if slot != HOLE && !std::mem::take(&mut self.used[slot as usize]) {
                self.queue[at] = HOLE;
                return slot;
            }
        }
    }
}
