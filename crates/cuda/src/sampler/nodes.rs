//! The nodes that a batch has so far, on a device.

use std::sync::Arc;

use graphmill_core::NodeId;

use crate::{Buffer, Queue, Result, arguments, driver::Address};

/// Where sources are put, as kernels are given it (`kernels/table.cuh`): entries, slots less one,
/// and whether ids are slots.
pub(super) type Slots = (Address, u32, u32);

/// Sources stay global ids.
pub(super) const NO_SLOTS: Slots = (Address(0), 0, 0);

/// Nodes in first-seen order, and a hash table of them once there are sources to be numbered.
pub(super) struct Nodes {
    /// Ids, u32.
    pub(super) ids: Buffer,
    /// How many there are at most. Which of them there are the device knows.
    pub(super) most: usize,
    /// How many there can be, whatever is drawn: all of the graph, and seeds that are named twice.
    limit: usize,
    num_nodes: usize,
    /// How many the ids and the table have room for.
    room: usize,
    table: Option<(Buffer, Slots)>,
}

impl Nodes {
    /// The seeds, of a graph of so many nodes.
    ///
    /// # Errors
    /// There is not enough memory, or the driver fails.
    pub(super) fn new(queue: &Arc<Queue>, seeds: &[NodeId], num_nodes: usize) -> Result<Self> {
        let most = seeds.len();
        let limit = num_nodes + most;
        Ok(Self { ids: queue.upload(seeds)?, most, limit, num_nodes, room: 0, table: None })
    }

    /// How many there are at most with the sources of so many edges more.
    pub(super) fn with(&self, edges: usize) -> usize {
        self.with_many(self.most, edges)
    }

    /// The same of so many nodes.
    pub(super) fn with_many(&self, nodes: usize, edges: usize) -> usize {
        nodes.saturating_add(edges).min(self.limit)
    }

    /// Whether there is room for so many in all.
    pub(super) fn has_room(&self, room: usize) -> bool {
        self.table.is_some() && room <= self.room
    }

    /// Makes room for so many in all. There are exactly `most` now.
    ///
    /// # Errors
    /// There is not enough memory, or the driver fails.
    pub(super) fn make_room(&mut self, queue: &Arc<Queue>, room: usize) -> Result<()> {
        let driver = queue.device().driver();
        let open = (2 * room.min(self.num_nodes)).next_power_of_two().max(2);
        let dense = self.num_nodes <= open;
        let slots = if dense { self.num_nodes } else { open };
        let mask = if dense { 0 } else { (slots - 1) as u32 };
        let (entries, ids) = (queue.scratch(8 * slots)?, queue.take(4 * room)?);
        let (at, old, new) = (entries.address(), self.ids.address(), ids.address());
        let slots_of = (at, mask, u32::from(dense));
        // SAFETY: two words for each slot, which are more than there will be different nodes; ids
        // for all that are there
        unsafe {
            driver.fill(at, u32::MAX, 2 * slots, queue.stream())?;
            driver.copy(old, new, 4 * self.most, queue.stream())?;
            let arguments = arguments![at, mask, u32::from(dense), new, self.most];
            queue.run("relabel_nodes", self.most, arguments)?;
        }
        (self.ids, self.room, self.table) = (ids, room, Some((entries, slots_of)));
        Ok(())
    }

    /// Where sources are put.
    pub(super) fn slots(&self) -> Slots {
        self.table.as_ref().map_or(NO_SLOTS, |(_, slots)| *slots)
    }
}
