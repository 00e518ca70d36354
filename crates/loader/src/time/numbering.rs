//! Numbers of the rows of one node type: pairs of a node and a time, or nodes alone.
//!
//! # Algorithm
//!
//! Nodes alone are numbered by [`Relabel`]. Pairs have an open-addressing table of the same kind: a
//! slot holds a pair and a stamp, which is `base` and the number of the row, and a slot with a
//! stamp below the hop's `base` is empty. Nothing is cleared between hops, and slots are
//! prefetched.
//!
//! # Source
//!
//! That of [`crate::compact::table`]: Knuth, *The art of computer programming*, vol. 3, section 6.4
//! (multiplicative hashing).
//!
//! # Cost
//!
//! O(1) for each pair on average.
//!
//! # Memory
//!
//! 32 to 64 bytes per row of the largest hop with pairs.

use graphmill_core::{NodeId, keyed::GOLDEN, memory};

use crate::{Relabel, prefetch::prefetch};

/// Least number of slots.
const MIN_SLOTS: usize = 1 << 10;
/// Number of pairs between the prefetch of a slot and its use.
const PREFETCH_DISTANCE: usize = 16;

/// Numbers the rows of one node type during a hop, in first-seen order.
///
/// The rows so far come first: each keeps its number, also if it equals an earlier one. New rows
/// are numbered from there.
#[derive(Debug)]
pub(super) struct Numbering {
    relabel: Relabel,
    /// Distinct nodes in the order of `relabel`, without times.
    distinct: Vec<NodeId>,
    /// Row of each distinct node among the rows so far.
    first: Vec<u32>,
    /// Number of rows when `relabel` was started.
    before: usize,
    pairs: PairTable,
    new: Vec<NodeId>,
}

impl Numbering {
    /// Creates the numbering of a type with `count` nodes.
    pub(super) fn new(count: usize) -> Self {
        Self {
            relabel: Relabel::new(count),
            distinct: Vec::new(),
            first: Vec::new(),
            before: 0,
            pairs: PairTable::default(),
            new: Vec::new(),
        }
    }

    /// Begins hops in which rows are nodes; `rows` are the rows so far.
    pub(super) fn start_nodes(&mut self, rows: &[NodeId]) {
        let Self { relabel, distinct, first, before, new, .. } = self;
        *before = rows.len();
        distinct.clear();
        first.clear();
        new.clear();
        relabel.start(&[]);
        memory::demand_append(new, rows);
        relabel.relabel(new, &[], distinct);
        memory::demand(first, distinct.len());
        for (&local, row) in new.iter().zip(0..) {
            if local as usize == first.len() {
                first.push(row);
            }
        }
    }

    /// Replaces nodes by rows, and appends those seen first to `rows`.
    pub(super) fn number_nodes(&mut self, ids: &mut [NodeId], rows: &mut Vec<NodeId>) {
        let Self { relabel, distinct, first, new, .. } = self;
        new.clear();
        relabel.relabel(ids, distinct, new);
        memory::demand_append(rows, new);
        memory::demand_append(distinct, new);
        let (known, before) = (first.len(), self.before);
        if known < before {
            for id in ids {
                let local = *id as usize;
                *id = if local < known { first[local] } else { (before + local - known) as u32 };
            }
        }
    }

    /// Begins hops in which rows are pairs of a node and a time; `nodes` and `times` are those so
    /// far. Returns the first row that equals an earlier one.
    pub(super) fn start_pairs(&mut self, nodes: &[NodeId], times: &[i64]) -> Option<usize> {
        self.pairs.start(nodes.len());
        let mut repeated = None;
        for (row, (&node, &time)) in nodes.iter().zip(times).enumerate() {
            self.pairs.prefetch(nodes, times, row + PREFETCH_DISTANCE);
            if self.pairs.number(node, time, row as u32) != row as u32 {
                repeated = repeated.or(Some(row));
            }
        }
        repeated
    }

    /// Replaces nodes by the rows of the pairs of them and `times`; `see` is called for those seen
    /// first with the number of the edge and the node. `rows` is the number of rows so far.
    pub(super) fn number_pairs(
        &mut self,
        ids: &mut [NodeId],
        times: &[i64],
        rows: usize,
        mut see: impl FnMut(usize, NodeId),
    ) {
        self.pairs.fit(rows + ids.len());
        let mut next = rows as u32;
        for e in 0..ids.len() {
            self.pairs.prefetch(ids, times, e + PREFETCH_DISTANCE);
            let node = ids[e];
            ids[e] = self.pairs.number(node, times[e], next);
            if ids[e] == next {
                see(e, node);
                next += 1;
            }
        }
    }
}

/// A pair in the table.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    time: i64,
    node: NodeId,
    /// Base and number of the row, or less than the base.
    stamp: u32,
}

/// Rows of pairs. At most half the slots are taken.
#[derive(Debug)]
struct PairTable {
    /// Their number is a power of two.
    slot: Vec<Slot>,
    base: u32,
    /// Number of slots that are taken.
    taken: usize,
    /// Bound of the rows since the start.
    rows: usize,
}

impl Default for PairTable {
    fn default() -> Self {
        Self { slot: vec![Slot::default(); MIN_SLOTS], base: 1, taken: 0, rows: 0 }
    }
}

impl PairTable {
    /// Forgets all pairs, for a hop with `rows` rows so far.
    fn start(&mut self, rows: usize) {
        let next = u64::from(self.base) + self.rows as u64;
        (self.taken, self.rows) = (0, 0);
        if next > u64::from(u32::MAX / 2) {
            self.slot.fill(Slot::default());
            self.base = 1;
        } else {
            self.base = next as u32;
        }
        self.fit(rows);
    }

    /// Prepares the stamps of up to `rows` rows.
    fn fit(&mut self, rows: usize) {
        self.rows = self.rows.max(rows);
        if u64::from(self.base) + rows as u64 > u64::from(u32::MAX) {
            let before = self.base - 1;
            self.slot.iter_mut().for_each(|slot| slot.stamp = slot.stamp.saturating_sub(before));
            self.base = 1;
        }
    }

    /// Slot at which probing of a pair begins.
    #[inline(always)]
    fn home(&self, node: NodeId, time: i64) -> usize {
        let mixed = (u64::from(node).wrapping_mul(GOLDEN) ^ time as u64).wrapping_mul(GOLDEN);
        (mixed >> (64 - self.slot.len().trailing_zeros())) as usize
    }

    /// Prefetches the slot of the pair of number `i`, if there is one.
    #[inline(always)]
    fn prefetch(&self, nodes: &[NodeId], times: &[i64], i: usize) {
        if let (Some(&node), Some(&time)) = (nodes.get(i), times.get(i)) {
            prefetch(&self.slot, self.home(node, time));
        }
    }

    /// Row of a pair, which is `new` if the pair is unknown.
    #[inline(always)]
    fn number(&mut self, node: NodeId, time: i64, new: u32) -> u32 {
        let mask = self.slot.len() - 1;
        let mut at = self.home(node, time);
        loop {
            let slot = self.slot[at & mask];
            if slot.stamp < self.base {
                break;
            }
            if (slot.node, slot.time) == (node, time) {
                return slot.stamp - self.base;
            }
            at += 1;
        }
        self.slot[at & mask] = Slot { time, node, stamp: self.base + new };
        self.taken += 1;
        if self.taken > self.slot.len() / 2 {
            self.double();
        }
        new
    }

    #[cold]
    fn double(&mut self) {
        let mut larger = Vec::new();
        memory::demand_len(&mut larger, 2 * self.slot.len(), Slot::default());
        let old = std::mem::replace(&mut self.slot, larger);
        let mask = self.slot.len() - 1;
        for slot in old.into_iter().filter(|slot| slot.stamp >= self.base) {
            let mut at = self.home(slot.node, slot.time);
            while self.slot[at & mask].stamp >= self.base {
                at += 1;
            }
            self.slot[at & mask] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pairs_are_numbered_as_a_hash_map_does(
            batches in prop::collection::vec(
                prop::collection::vec((0u32..40, -3i64..4), 0..300),
                1..12,
            ),
        ) {
            let mut numbering = Numbering::new(40);
            for (b, pairs) in batches.iter().enumerate() {
                // near the end of the stamps, a start clears the table, or a hop renumbers it
                match b {
                    3 => numbering.pairs.base = u32::MAX - 5,
                    6 => numbering.pairs.base = u32::MAX / 2 - 9,
                    _ => {}
                }
                let (mut nodes, times): (Vec<u32>, Vec<i64>) = pairs.iter().copied().unzip();
                let known = nodes.len() / 3;
                let mut map = HashMap::new();
                let mut repeated = None;
                for (row, pair) in pairs[..known].iter().enumerate() {
                    if *map.entry(*pair).or_insert(row) != row {
                        repeated = repeated.or(Some(row));
                    }
                }
                prop_assert_eq!(numbering.start_pairs(&nodes[..known], &times[..known]), repeated);
                if b % 4 == 2 {
                    numbering.pairs.fit(u32::MAX as usize - 1);
                    prop_assert_eq!(numbering.pairs.base, 1);
                    numbering.pairs.rows = 400;
                }
                // two relations
                let middle = known.midpoint(nodes.len());
                let mut rows = known;
                for edges in [known..middle, middle..nodes.len()] {
                    let (ids, times) = (&mut nodes[edges.clone()], &times[edges.clone()]);
                    let mut seen = Vec::new();
                    numbering.number_pairs(ids, times, rows, |e, node| seen.push((e, node)));
                    for (e, pair) in pairs[edges].iter().enumerate() {
                        let row = *map.entry(*pair).or_insert_with(|| {
                            assert!(seen.contains(&(e, pair.0)));
                            rows += 1;
                            rows - 1
                        });
                        prop_assert_eq!(ids[e] as usize, row);
                    }
                }
            }
        }
    }
}
