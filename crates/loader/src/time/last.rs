//! The last neighbours of every node in a stream of events.
//!
//! # Algorithm
//!
//! A ring of `k` slots per node: an event is written to the rings of both ends.
//!
//! # Source
//!
//! The neighbour loader of TGN (Rossi et al., *Temporal graph networks for deep learning on dynamic
//! graphs*, 2020), as PyTorch Geometric's `LastNeighborLoader`.
//!
//! # Cost
//!
//! O(1) per event, O(k) per node of a batch.
//!
//! # Memory
//!
//! `12 k + 4` bytes per node.
//!
//! # Deviations
//!
//! A node with more than `k` events in one batch keeps the last `k`; PyTorch Geometric keeps
//! arbitrary ones of them.

use graphmill_core::{Block, Error, NodeId, Result, memory};
use rustc_hash::FxHashMap;

use super::Events;

/// The last `k` events of every node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastNeighbors {
    slots: usize,
    /// Other end of each stored event, `V x k`.
    neighbor: Vec<NodeId>,
    /// Number of each stored event, `V x k`.
    event: Vec<u64>,
    /// Number of events that each node had, up to `2 k` exactly and above modulo `k`.
    count: Vec<u32>,
    /// Event that is inserted next.
    next: u64,
}

/// Neighbours of some nodes.
#[derive(Clone, Debug, Default)]
pub struct NeighborBatch {
    /// The asked nodes, then the others, in first-seen order.
    pub nodes: Vec<NodeId>,
    /// Edges from neighbours to the asked nodes, the last event at the end of a row.
    pub block: Block,
    /// Number of the event of each edge.
    pub events: Vec<u64>,
}

impl LastNeighbors {
    /// First bytes of a saved store.
    const MAGIC: [u8; 8] = *b"gmlastn1";

    /// Creates an empty store of `slots` events for each of `nodes` nodes.
    ///
    /// # Errors
    /// There are no slots, or more than 2^20.
    pub fn new(nodes: usize, slots: usize) -> Result<Self> {
        if !(1..=1 << 20).contains(&slots) {
            return Err(Error::invalid(format!(
                "last neighbours: {slots} events for each node; use 1 to {}",
                1 << 20
            )));
        }
        let places = nodes * slots;
        Ok(Self { slots, neighbor: vec![0; places], event: vec![0; places], count: vec![0; nodes], next: 0 })
    }

    /// Removes all events, as at the begin of an epoch.
    pub fn clear(&mut self) {
        self.count.fill(0);
        self.next = 0;
    }

    /// Number of the event that is inserted next.
    pub fn next_event(&self) -> u64 {
        self.next
    }

    /// Inserts the events of a range, which begins where the last one ended, at both ends.
    ///
    /// # Errors
    /// The range leaves out events, repeats some or is not one of the stream, or a node is unknown.
    pub fn insert(&mut self, events: &Events, range: std::ops::Range<usize>) -> Result<()> {
        if range.start as u64 != self.next || range.end > events.len() || range.end < range.start {
            return Err(Error::invalid(format!(
                "last neighbours: events {} to {} of {} after {} events; insert all events once, in order",
                range.start,
                range.end,
                events.len(),
                self.next
            )));
        }
        self.insert_pairs(&events.source()[range.clone()], &events.destination()[range])
    }

    /// Inserts the next events, given by their ends, at both ends.
    ///
    /// # Errors
    /// The lists differ in length, or a node is unknown.
    pub fn insert_pairs(&mut self, source: &[NodeId], destination: &[NodeId]) -> Result<()> {
        if source.len() != destination.len() {
            return Err(Error::invalid(format!(
                "last neighbours: {} sources and {} destinations; pass one of each for every event",
                source.len(),
                destination.len()
            )));
        }
        let nodes = self.count.len();
        if let Some(v) = source.iter().chain(destination).find(|&&v| v as usize >= nodes) {
            return Err(Error::invalid(format!(
                "last neighbours: an event has node {v}, but the store was created for {nodes} nodes; create \
                 it for all nodes"
            )));
        }
        for (&source, &destination) in source.iter().zip(destination) {
            self.push(source, destination, self.next);
            self.push(destination, source, self.next);
            self.next += 1;
        }
        Ok(())
    }

    fn push(&mut self, v: NodeId, neighbor: NodeId, event: u64) {
        let slots = self.slots as u32;
        let count = &mut self.count[v as usize];
        let at = v as usize * self.slots + (*count % slots) as usize;
        (self.neighbor[at], self.event[at]) = (neighbor, event);
        *count += 1;
        if *count == 2 * slots {
            *count = slots;
        }
    }

    /// Other end and number of each stored event of node `v`, the oldest first.
    ///
    /// # Panics
    /// The node is unknown.
    pub fn of_node(&self, v: NodeId) -> impl DoubleEndedIterator<Item = (NodeId, u64)> + '_ {
        let (count, slots) = (self.count[v as usize] as usize, self.slots);
        // the oldest stored event follows the newest in a full ring
        (count.saturating_sub(slots)..count).map(move |i| {
            let at = v as usize * slots + i % slots;
            (self.neighbor[at], self.event[at])
        })
    }

    /// Neighbours of `nodes` (distinct) by the stored events.
    ///
    /// # Errors
    /// A node is unknown or listed twice.
    pub fn neighbors(&self, nodes: &[NodeId]) -> Result<NeighborBatch> {
        let mut batch = NeighborBatch::default();
        memory::demand_copy(&mut batch.nodes, nodes);
        let mut rows = FxHashMap::default();
        memory::demand_in_map(&mut rows, nodes.len());
        for (row, &v) in nodes.iter().enumerate() {
            if v as usize >= self.count.len() || rows.insert(v, row as u32).is_some() {
                return Err(Error::invalid(format!(
                    "last neighbours: node {v} is listed twice, or is not one of {} nodes; pass each once",
                    self.count.len()
                )));
            }
        }
        let NeighborBatch { nodes: all, block, events } = &mut batch;
        memory::demand(&mut block.indptr, nodes.len() + 1);
        block.indptr.push(0);
        for &v in nodes {
            for (neighbor, event) in self.of_node(v) {
                memory::demand_in_map(&mut rows, 1);
                let row = *rows.entry(neighbor).or_insert_with(|| {
                    memory::demand_push(all, neighbor);
                    all.len() as u32 - 1
                });
                memory::demand_push(&mut block.indices, row);
                memory::demand_push(events, event);
            }
            block.indptr.push(block.indices.len() as u32);
        }
        (block.num_dst, block.num_src) = (nodes.len(), all.len());
        Ok(batch)
    }

    /// The store as bytes, for a checkpoint.
    pub fn save(&self) -> Vec<u8> {
        let mut out = Self::MAGIC.to_vec();
        for number in [self.count.len() as u64, self.slots as u64, self.next] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        self.count.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
        self.neighbor.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
        self.event.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
        out
    }

    /// Restores the bytes of [`LastNeighbors::save`] into a store of the same size.
    ///
    /// # Errors
    /// The bytes are not those of such a store; it is then unchanged.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let places = self.neighbor.len();
        let expected = 32 + 4 * self.count.len() + 12 * places;
        let number = |at: usize| {
            bytes.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap_or_default()))
        };
        let fits = bytes.len() == expected
            && bytes.starts_with(&Self::MAGIC)
            && [number(8), number(16)] == [self.count.len() as u64, self.slots as u64];
        let words = |at: usize, len: usize| -> Vec<u32> {
            let bytes = bytes.get(at..at + 4 * len).unwrap_or_default();
            bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        };
        let count = words(32, self.count.len());
        if !fits || count.iter().any(|&count| count >= 2 * self.slots as u32) {
            return Err(Error::invalid(format!(
                "last neighbours: {} bytes are not a saved store of {} nodes with {} events each; restore it \
                 into a store of the same size",
                bytes.len(),
                self.count.len(),
                self.slots
            )));
        }
        let at = 32 + 4 * self.count.len();
        self.neighbor = words(at, places);
        let events = bytes[at + 4 * places..].chunks_exact(8);
        self.event = events.map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default())).collect();
        (self.count, self.next) = (count, number(24));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_store_holds_the_last_events_of_a_plain_list(
            ends in prop::collection::vec((0u32..7, 0u32..7), 0..60),
            slots in 1usize..5,
            batch in 1usize..9,
            asked in prop::collection::btree_set(0u32..7, 0..7),
        ) {
            let (source, destination): (Vec<u32>, Vec<u32>) = ends.iter().copied().unzip();
            let times: Vec<i64> = (0..ends.len() as i64).collect();
            let events = Events::new(source.into(), destination.into(), times.into()).unwrap();
            let mut store = LastNeighbors::new(7, slots).unwrap();
            let asked: Vec<u32> = asked.into_iter().collect();
            for range in events.batches(0..events.len(), batch) {
                let before = store.clone();
                store.insert(&events, range.clone()).unwrap();
                let found = store.neighbors(&asked).unwrap();
                prop_assert_eq!(&found.nodes[..asked.len()], &asked[..]);
                for (row, &v) in asked.iter().enumerate() {
                    let mut expected: Vec<(u32, u64)> = Vec::new();
                    for (e, &(a, b)) in ends[..range.end].iter().enumerate() {
                        expected.extend((a == v).then_some((b, e as u64)));
                        expected.extend((b == v).then_some((a, e as u64)));
                    }
                    let expected = &expected[expected.len().saturating_sub(slots)..];
                    let row: Vec<(u32, u64)> = (found.block.edges(row))
                        .map(|e| (found.nodes[found.block.indices[e] as usize], found.events[e]))
                        .collect();
                    prop_assert_eq!(&row[..], expected);
                }
                // a restored store goes on to the same contents
                let mut again = LastNeighbors::new(7, slots).unwrap();
                again.restore(&before.save()).unwrap();
                again.insert(&events, range).unwrap();
                prop_assert_eq!(&again, &store);
            }
            prop_assert_eq!(store.next_event(), events.len() as u64);
            store.clear();
            prop_assert_eq!(store.neighbors(&asked).unwrap().events.len(), 0);
        }
    }

    #[test]
    fn wrong_uses_are_rejected_with_the_reason() {
        let events = Events::new(vec![0, 9].into(), vec![1, 1].into(), vec![1, 2].into()).unwrap();
        let mut store = LastNeighbors::new(3, 2).unwrap();
        assert!(store.insert(&events, 1..2).unwrap_err().to_string().contains("events 1 to 2 of 2 after 0"));
        assert!(store.insert(&events, 0..2).unwrap_err().to_string().contains("node 9"));
        store.insert(&events, 0..1).unwrap();
        assert!(store.neighbors(&[1, 1]).unwrap_err().to_string().contains("node 1 is listed twice"));
        let error = store.insert_pairs(&[0, 1], &[1]).unwrap_err().to_string();
        assert!(error.contains("2 sources and 1 destinations"), "{error}");
        assert_eq!(store.next_event(), 1);
        assert!(LastNeighbors::new(3, 0).is_err());
        let bytes = store.save();
        assert!(store.restore(&bytes[1..]).unwrap_err().to_string().contains("not a saved store of 3 nodes"));
        assert!(LastNeighbors::new(3, 3).unwrap().restore(&bytes).is_err());
    }
}
