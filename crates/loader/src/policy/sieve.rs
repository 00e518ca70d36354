//! SIEVE (Zhang, Yang, Yue, Vigfusson and Rashmi, *SIEVE is simpler than LRU*, NSDI 2024): a queue, a mark on what has been used, and a
//! hand that moves through the queue from its oldest end. What it meets marked loses the mark and stays where it is; what it meets
//! unmarked goes, and the hand waits there.
//!
//! A hit sets a mark, a byte, and writes nothing else: FIFO's cost but for that. New ids enter at the young end, so most that are never used
//! again go the next time the hand comes by, while what is in use stays; that is quick demotion and lazy promotion.
//!
//! Memory: 4 bytes an id, 13 a slot.

use graphmill_graph::NodeId;

use super::{Holders, Policy, links::Links};

/// See the module.
#[derive(Debug)]
pub struct Sieve {
    holders: Holders,
    /// Slots from the oldest, around [`Sieve::end`].
    queue: Links,
    /// Per slot: used since the hand went by.
    used: Vec<bool>,
    /// Where to look for the next to go: a slot, or the end to begin anew.
    hand: u32,
}

impl Sieve {
    /// For `num_ids` ids and so many slots.
    pub fn new(num_ids: usize, capacity: usize) -> Self {
        let holders = Holders::new(num_ids, capacity);
        let n = holders.capacity();
        Self { holders, queue: Links::new(n + 1), used: vec![false; n], hand: n as u32 }
    }

    #[inline(always)]
    fn end(&self) -> u32 {
        self.used.len() as u32
    }
}

impl Policy for Sieve {
    fn holders(&self) -> &Holders {
        &self.holders
    }

    fn holders_mut(&mut self) -> &mut Holders {
        &mut self.holders
    }

    #[inline(always)]
    fn touch(&mut self, slot: u32) {
        self.used[slot as usize] = true;
    }

    #[inline(always)]
    fn enter(&mut self, slot: u32, _id: NodeId) {
        self.queue.put_before(slot, self.end());
    }

    #[inline(always)]
    fn evict(&mut self) -> u32 {
        let mut hand = self.hand;
        loop {
            if hand == self.end() {
                hand = self.queue.behind(hand);
            }
            let next = self.queue.behind(hand);
            if !std::mem::take(&mut self.used[hand as usize]) {
                self.hand = next;
                self.queue.remove(hand);
                return hand;
            }
            hand = next;
        }
    }
}
