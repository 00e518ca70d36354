//! Open-addressing relabelling table with stamps, for graphs whose dense table exceeds the caches.
//!
//! # Algorithm
//!
//! A slot holds a node and a stamp in one word of 64 bits, with the stamp in the upper half. The
//! stamp is `base + local id`, and a slot with a stamp below this batch's `base` is empty. Probing
//! of a node begins at the top bits of its id times a constant and is linear. At most half the
//! slots are taken; the table doubles when it is full.
//!
//! # Source
//!
//! Knuth, *The art of computer programming*, vol. 3, section 6.4 (multiplicative hashing).
//!
//! # Cost
//!
//! O(1) per id on average.
//!
//! # Memory
//!
//! 16 to 64 bytes per node of the largest batch so far.

use graphmill_core::{NodeId, keyed::GOLDEN, memory};

use super::{PREFETCH_DISTANCE, RUN};
use crate::prefetch::prefetch;

/// Minimum number of slots.
const MIN_SLOTS: usize = 1 << 12;

/// Sparse relabelling table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Slots `stamp << 32 | node`; their number is a power of two.
    slot: Vec<u64>,
    base: u32,
    assigned: u32,
}

impl Default for Table {
    fn default() -> Self {
        Self { slot: vec![0; MIN_SLOTS], base: 1, assigned: 0 }
    }
}

impl Table {
    /// Size in bytes if the batch has `nodes` nodes.
    pub fn bytes_for(&self, nodes: usize) -> usize {
        size_of::<u64>() * self.slot.len().max((2 * nodes).next_power_of_two())
    }

    /// Forgets the previous batch and numbers `nodes` ([`super::Relabel::start`]).
    pub fn start(&mut self, nodes: &[NodeId]) {
        let next = u64::from(self.base) + u64::from(self.assigned);
        self.assigned = 0;
        // A batch assigns far fewer ids: beyond a quarter of all nodes the dense table serves.
        if next > u64::from(u32::MAX / 2) {
            self.slot.fill(0);
            self.base = 1;
        } else {
            self.base = next as u32;
        }
        for (i, &node) in nodes.iter().enumerate() {
            if let Some(&ahead) = nodes.get(i + PREFETCH_DISTANCE) {
                prefetch(&self.slot, self.home(ahead));
            }
            let local = self.local(node);
            debug_assert_eq!(local as usize, i, "node {node} twice among the seeds");
        }
    }

    /// Replaces global ids by local ones ([`super::Relabel::relabel`]).
    pub fn relabel(&mut self, ids: &mut [NodeId], nodes: &mut Vec<NodeId>) {
        for start in (0..ids.len()).step_by(RUN) {
            let end = (start + RUN).min(ids.len());
            memory::demand(nodes, end - start);
            for i in start..end {
                if let Some(&ahead) = ids.get(i + PREFETCH_DISTANCE) {
                    prefetch(&self.slot, self.home(ahead));
                }
                let (id, before) = (ids[i], self.assigned);
                ids[i] = self.local(id);
                if self.assigned > before {
                    nodes.push(id);
                }
            }
        }
    }

    /// Slot at which probing of `node` begins.
    #[inline(always)]
    fn home(&self, node: NodeId) -> usize {
        (u64::from(node).wrapping_mul(GOLDEN) >> (64 - self.slot.len().trailing_zeros())) as usize
    }

    /// Local id of `node`, which is the next free one if the node is new.
    #[inline(always)]
    fn local(&mut self, node: NodeId) -> u32 {
        let mask = self.slot.len() - 1;
        let mut at = self.home(node);
        loop {
            let slot = self.slot[at & mask];
            let stamp = (slot >> 32) as u32;
            if stamp < self.base {
                break;
            }
            if slot as u32 == node {
                return stamp - self.base;
            }
            at += 1;
        }
        let local = self.assigned;
        self.slot[at & mask] = u64::from(self.base + local) << 32 | u64::from(node);
        self.assigned += 1;
        if self.assigned as usize > self.slot.len() / 2 {
            self.double();
        }
        local
    }

    #[cold]
    fn double(&mut self) {
        let larger = memory::demand_zeros(2 * self.slot.len());
        let old = std::mem::replace(&mut self.slot, larger);
        let mask = self.slot.len() - 1;
        for slot in old.into_iter().filter(|slot| (slot >> 32) as u32 >= self.base) {
            let mut at = self.home(slot as u32);
            while self.slot[at & mask] != 0 {
                at += 1;
            }
            self.slot[at & mask] = slot;
        }
    }

    #[cfg(test)]
    pub(super) fn set_base(&mut self, base: u32) {
        self.base = base;
    }
}
