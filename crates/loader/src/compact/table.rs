//! Open addressing with stamps, for graphs whose dense table would leave the caches.
//!
//! A slot holds a node and a stamp in one word of 64 bits, stamp above: `stamp = base + local id`,
//! and a stamp below this batch's `base` is an empty slot. A node's slots begin at the top bits of
//! its id times a constant (Knuth, *The art of computer programming*, vol. 3, section 6.4) and go
//! on one by one. At most half the slots are taken: the table doubles.
//!
//! Memory: 16 to 64 bytes per node of the largest batch so far.

use graphmill_core::{NodeId, keyed::GOLDEN};

use super::AHEAD;
use crate::prefetch::prefetch;

/// The fewest slots.
const LEAST: usize = 1 << 12;

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Table {
    /// `stamp << 32 | node`, a power of two of them.
    slot: Vec<u64>,
    base: u32,
    handed_out: u32,
}

impl Default for Table {
    fn default() -> Self {
        Self { slot: vec![0; LEAST], base: 1, handed_out: 0 }
    }
}

impl Table {
    /// The size in bytes with room for `nodes` nodes.
    pub fn bytes_for(&self, nodes: usize) -> usize {
        size_of::<u64>() * self.slot.len().max((2 * nodes).next_power_of_two())
    }

    /// Forgets the last batch and numbers `nodes` (distinct) from 0.
    pub fn start(&mut self, nodes: &[NodeId]) {
        let next = u64::from(self.base) + u64::from(self.handed_out);
        self.handed_out = 0;
        // a batch hands out far fewer ids than that: beyond a quarter of all nodes the dense table
        // serves
        if next > u64::from(u32::MAX / 2) {
            self.slot.fill(0);
            self.base = 1;
        } else {
            self.base = next as u32;
        }
        for (i, &node) in nodes.iter().enumerate() {
            if let Some(&ahead) = nodes.get(i + AHEAD) {
                prefetch(&self.slot, self.place(ahead));
            }
            let local = self.local(node);
            debug_assert_eq!(local as usize, i, "node {node} twice among the seeds");
        }
    }

    /// See [`super::Relabel::relabel`].
    pub fn relabel(&mut self, ids: &mut [NodeId], nodes: &mut Vec<NodeId>) {
        for i in 0..ids.len() {
            if let Some(&ahead) = ids.get(i + AHEAD) {
                prefetch(&self.slot, self.place(ahead));
            }
            let (id, before) = (ids[i], self.handed_out);
            ids[i] = self.local(id);
            if self.handed_out > before {
                nodes.push(id);
            }
        }
    }

    /// Where the slots of `node` begin.
    #[inline(always)]
    fn place(&self, node: NodeId) -> usize {
        (u64::from(node).wrapping_mul(GOLDEN) >> (64 - self.slot.len().trailing_zeros())) as usize
    }

    /// The local id of `node`: the next one if it is new.
    #[inline(always)]
    fn local(&mut self, node: NodeId) -> u32 {
        let mask = self.slot.len() - 1;
        let mut at = self.place(node);
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
        let local = self.handed_out;
        self.slot[at & mask] = u64::from(self.base + local) << 32 | u64::from(node);
        self.handed_out += 1;
        if self.handed_out as usize > self.slot.len() / 2 {
            self.double();
        }
        local
    }

    #[cold]
    fn double(&mut self) {
        let larger = vec![0; 2 * self.slot.len()];
        let old = std::mem::replace(&mut self.slot, larger);
        let mask = self.slot.len() - 1;
        for slot in old.into_iter().filter(|slot| (slot >> 32) as u32 >= self.base) {
            let mut at = self.place(slot as u32);
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
