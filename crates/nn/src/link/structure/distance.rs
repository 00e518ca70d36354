//! Distance of a pair of nodes without their edge.
//!
//! # Algorithm
//!
//! Levels of both ends by turns, that of the end with the smaller last level first, until one end
//! sees a node of the other.
//!
//! # Source
//!
//! Pohl, *Bi-directional search*, Machine Intelligence 6, 1971.
//!
//! # Cost
//!
//! O(1) for each entry of rows that is read, at most [`MAX_READ`].
//!
//! # Memory
//!
//! 512 KiB for each search, reused from pair to pair.

#![forbid(unsafe_code)]

use std::mem;

use graphmill_core::{NodeId, memory};

use super::{FARTHEST, MAX_READ, PairStructure};

/// Slots of the table of nodes that a search has seen: twice as many as nodes.
const SLOTS: usize = 2 * MAX_READ;
/// An unused slot.
const UNUSED: u64 = u64::MAX;

/// Search for the distance of a pair. Its memory is reused from pair to pair.
#[derive(Default)]
pub(super) struct Search {
    /// Nodes that were seen, each with the end that has seen it in the lowest bit.
    slots: Vec<u64>,
    /// Numbers of the used slots.
    used: Vec<u32>,
    /// Nodes of the last level of each end.
    frontiers: [Vec<NodeId>; 2],
    next: Vec<NodeId>,
}

/// Outcome of seeing a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    First,
    BySameEnd,
    ByOtherEnd,
}

impl Search {
    /// Number of edges between `a` and `b` without their edge, up to 6; `None` if there are more,
    /// or the search has read [`MAX_READ`] entries.
    pub(super) fn distance(&mut self, of: &PairStructure, [a, b]: [NodeId; 2]) -> Option<usize> {
        self.begin([a, b]);
        let mut left = MAX_READ;
        for steps in 1..=FARTHEST {
            let end = usize::from(self.frontiers[1].len() < self.frontiers[0].len());
            // a level has at most as many nodes as entries are read
            let mut next = mem::take(&mut self.next);
            next.clear();
            let frontier = mem::take(&mut self.frontiers[end]);
            let met = frontier.iter().find_map(|&w| self.step(of, (w, [a, b], end), &mut left, &mut next));
            self.next = frontier;
            let is_last = next.is_empty();
            self.frontiers[end] = next;
            match met {
                Some(true) => return Some(steps),
                Some(false) => return None,
                None if is_last => return None,
                None => {}
            }
        }
        None
    }

    /// Adds the neighbours of `w` to the next level of an end. Returns true if the other end has
    /// seen one, and false if no entry may be read any more.
    fn step(
        &mut self,
        of: &PairStructure,
        (w, [a, b], end): (NodeId, [NodeId; 2], usize),
        left: &mut usize,
        next: &mut Vec<NodeId>,
    ) -> Option<bool> {
        for &x in of.row(w) {
            if [w, x] == [a, b] || [w, x] == [b, a] {
                continue;
            }
            if *left == 0 {
                return Some(false);
            }
            *left -= 1;
            match self.see(x, end) {
                Seen::First => memory::demand_push(next, x),
                Seen::BySameEnd => {}
                Seen::ByOtherEnd => return Some(true),
            }
        }
        None
    }

    /// Forgets the last search, and sees both ends.
    fn begin(&mut self, ends: [NodeId; 2]) {
        if self.slots.is_empty() {
            memory::demand(&mut self.used, MAX_READ + 2);
            memory::demand_len(&mut self.slots, SLOTS, UNUSED);
        }
        self.used.iter().for_each(|&slot| self.slots[slot as usize] = UNUSED);
        self.used.clear();
        for (end, node) in ends.into_iter().enumerate() {
            self.see(node, end);
            self.frontiers[end].clear();
            memory::demand_push(&mut self.frontiers[end], node);
        }
    }

    /// Marks a node as seen by an end, unless one has seen it.
    fn see(&mut self, node: NodeId, end: usize) -> Seen {
        let entry = u64::from(node) << 1 | end as u64;
        let hash = u64::from(node).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mut slot = hash as usize % SLOTS;
        loop {
            match self.slots[slot] {
                UNUSED => {
                    self.slots[slot] = entry;
                    self.used.push(slot as u32);
                    return Seen::First;
                }
                found if found == entry => return Seen::BySameEnd,
                found if found == entry ^ 1 => return Seen::ByOtherEnd,
                _ => slot = (slot + 1) % SLOTS,
            }
        }
    }
}
