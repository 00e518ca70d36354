//! Nodes of a batch on a device.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::Arc;

use graphmill_core::NodeId;

use crate::{
    Buffer, Queue, Result,
    kernels::{self, Slots},
};

/// Sources remain global ids.
pub(super) const NO_SLOTS: Slots = Slots { entries: None, mask: 0, dense: false };

/// Nodes in order of first occurrence, with a hash table if sources are numbered.
pub(super) struct Nodes {
    /// Ids.
    pub(super) ids: Buffer<u32>,
    /// Upper bound on their number; the exact number is known on the device.
    pub(super) max_nodes: usize,
    /// Upper bound for any draws: all nodes of the graph, plus repeated seeds.
    limit: usize,
    num_nodes: usize,
    /// Capacity of the ids and the table.
    capacity: usize,
    table: Option<(Buffer<u64>, Slots)>,
}

impl Nodes {
    /// Creates the seeds, in a graph of `num_nodes` nodes.
    ///
    /// # Errors
    /// Memory is insufficient, or the driver fails.
    pub(super) fn new(queue: &Arc<Queue>, seeds: &[NodeId], num_nodes: usize) -> Result<Self> {
        let max_nodes = seeds.len();
        let limit = num_nodes + max_nodes;
        Ok(Self { ids: queue.upload(seeds)?, max_nodes, limit, num_nodes, capacity: 0, table: None })
    }

    /// Upper bound on the number of nodes with the sources of `edges` more edges.
    pub(super) fn with(&self, edges: usize) -> usize {
        self.with_many(self.max_nodes, edges)
    }

    /// The same bound, from `nodes` nodes.
    pub(super) fn with_many(&self, nodes: usize, edges: usize) -> usize {
        nodes.saturating_add(edges).min(self.limit)
    }

    /// Returns true if the capacity is at least `capacity`.
    pub(super) fn has_capacity(&self, capacity: usize) -> bool {
        self.table.is_some() && capacity <= self.capacity
    }

    /// Increases the capacity to `capacity`. The number of nodes must be exactly `max_nodes`.
    ///
    /// # Errors
    /// Memory is insufficient, or the driver fails.
    pub(super) fn reserve(&mut self, queue: &Arc<Queue>, capacity: usize) -> Result<()> {
        let driver = queue.device().driver();
        let open = (2 * capacity.min(self.num_nodes)).next_power_of_two().max(2);
        let dense = self.num_nodes <= open;
        let slots = if dense { self.num_nodes } else { open };
        let mask = if dense { 0 } else { (slots - 1) as u32 };
        let (mut entries, ids) = (queue.scratch(slots)?, queue.take(capacity)?);
        let (at, old, new) = (entries.address(), self.ids.address(), ids.address());
        let slots_of = Slots { entries: Some(entries.write()), mask, dense };
        let kernel = kernels::RelabelNodes { slots: slots_of, nodes: ids.read(), count: self.max_nodes };
        // SAFETY: two words for each slot, and more slots than there will be distinct nodes; ids
        // for all nodes present
        unsafe {
            driver.fill(at, u32::MAX, 2 * slots, queue.stream())?;
            driver.copy(old, new, 4 * self.max_nodes, queue.stream())?;
            queue.run(self.max_nodes, &kernel)?;
        }
        (self.ids, self.capacity, self.table) = (ids, capacity, Some((entries, slots_of)));
        Ok(())
    }

    /// Destination of drawn sources.
    pub(super) fn slots(&self) -> Slots {
        self.table.as_ref().map_or(NO_SLOTS, |(_, slots)| *slots)
    }
}
