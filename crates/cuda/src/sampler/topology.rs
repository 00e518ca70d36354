//! Placement of a graph for a device's samplers: in the device's memory, in that of several
//! devices, or in host memory. Kernels use addresses only, so they are the same for all three.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{fmt, sync::Arc};

use graphmill_core::{Graph, accelerator::DeviceMemory, alias::RowAlias};

use crate::{Buffer, Device, Queue, Result, driver::Address, kernels::GraphParts, mapped::Mapped, peers};

/// Placement of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyPlacement {
    /// In the memory of the reading device.
    Device,
    /// Row `v` on device `v` mod the given number of devices, which can read each other's memory.
    Shards(usize),
    /// In host memory, read over the link.
    Host,
}

impl fmt::Display for TopologyPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.write_str("in device memory"),
            Self::Shards(devices) => write!(f, "in the memory of {devices} devices, row by row"),
            Self::Host => f.write_str("in host memory, read in place"),
        }
    }
}

/// Row starts, lists and alias cells of some rows.
#[derive(Debug)]
enum TopologyPart {
    Device((Buffer<u64>, Buffer<u32>, Buffer<u8>)),
    Host([Mapped; 3]),
}

impl TopologyPart {
    fn addresses(&self) -> [Address; 3] {
        match self {
            Self::Device((indptr, indices, cells)) => [indptr.address(), indices.address(), cells.address()],
            Self::Host(arrays) => arrays.each_ref().map(Mapped::address),
        }
    }

    /// Bytes of device memory.
    fn device_bytes(&self) -> u64 {
        match self {
            Self::Device((indptr, indices, cells)) => {
                let arrays: [&dyn DeviceMemory; 3] = [indptr, indices, cells];
                arrays.iter().map(|array| array.bytes() as u64).sum()
            }
            Self::Host(_) => 0,
        }
    }
}

/// A graph as read by one device.
#[derive(Clone, Debug)]
pub struct Topology {
    placement: TopologyPlacement,
    parts: Arc<Vec<TopologyPart>>,
    /// Bytes of the part that the reading device holds.
    device_bytes: u64,
    /// Table of three addresses per part.
    table: Arc<Buffer<u64>>,
}

impl Topology {
    /// Places a graph, with its alias tables, if any, for each of `devices`: a copy on every device
    /// if it needs at most `budget` bytes of each; else shards, if the devices can read each
    /// other's memory and the shards fit; else host memory. O(V + E).
    ///
    /// # Errors
    /// Memory is insufficient, or a driver fails.
    pub fn new(
        devices: &[Arc<Device>],
        graph: &Graph,
        alias: Option<&RowAlias>,
        budget: u64,
    ) -> Result<Vec<Self>> {
        let queues = devices.iter().map(Queue::new).collect::<Result<Vec<_>>>()?;
        let bytes = Self::bytes(graph, alias);
        let one = |queue: &Arc<Queue>, placement, parts: &Arc<Vec<TopologyPart>>, own: usize| {
            Self::of(queue, placement, parts.clone(), own)
        };
        if bytes <= budget {
            let put = |queue: &Arc<Queue>| -> Result<_> {
                let part =
                    put(queue, graph.indptr(), graph.indices(), alias.map_or(&[], RowAlias::as_bytes))?;
                one(queue, TopologyPlacement::Device, &Arc::new(vec![part]), 0)
            };
            return queues.iter().map(put).collect();
        }
        let share = bytes / devices.len().max(1) as u64;
        // rows differ in length, so shards differ in size
        if devices.len() > 1 && share + share / 8 <= budget && peers::read_each_other(devices)? {
            let shard = |(i, queue): (usize, &Arc<Queue>)| put_shard(queue, graph, alias, i, devices.len());
            let parts = Arc::new(queues.iter().enumerate().map(shard).collect::<Result<Vec<_>>>()?);
            let placement = TopologyPlacement::Shards(devices.len());
            return queues.iter().enumerate().map(|(i, queue)| one(queue, placement, &parts, i)).collect();
        }
        let Some(first) = devices.first() else { return Ok(Vec::new()) };
        // portable: locked once, read by all devices
        // SAFETY: clones of a graph and of alias tables share their immutable buffers, and keep
        // them in place.
        let part = TopologyPart::Host(unsafe {
            [
                Mapped::new(first, bytemuck::cast_slice(graph.indptr()), graph.clone())?,
                Mapped::new(first, bytemuck::cast_slice(graph.indices()), graph.clone())?,
                Mapped::new(first, alias.map_or(&[], RowAlias::as_bytes), alias.cloned())?,
            ]
        });
        let parts = Arc::new(vec![part]);
        queues.iter().map(|queue| one(queue, TopologyPlacement::Host, &parts, 0)).collect()
    }

    /// The graph of `parts` as read by the device of `queue`, which holds part `own`.
    fn of(
        queue: &Arc<Queue>,
        placement: TopologyPlacement,
        parts: Arc<Vec<TopologyPart>>,
        own: usize,
    ) -> Result<Self> {
        let addresses: Vec<u64> = parts.iter().flat_map(TopologyPart::addresses).map(|at| at.0).collect();
        let table = Arc::new(queue.upload(&addresses)?);
        queue.synchronize()?;
        let device_bytes = parts.get(own).map_or(0, TopologyPart::device_bytes);
        Ok(Self { placement, parts, device_bytes, table })
    }

    /// Size of the graph in bytes.
    pub fn bytes(graph: &Graph, alias: Option<&RowAlias>) -> u64 {
        let alias = alias.map_or(0, |alias| alias.as_bytes().len());
        (size_of_val(graph.indptr()) + size_of_val(graph.indices()) + alias) as u64
    }

    /// Placement of the graph.
    pub fn placement(&self) -> TopologyPlacement {
        self.placement
    }

    /// Bytes of the graph in the memory of the reading device.
    pub fn device_bytes(&self) -> u64 {
        self.device_bytes
    }

    /// The parts, for kernels.
    pub(super) fn parts(&self) -> GraphParts {
        GraphParts { shards: self.table.read(), parts: self.parts.len() as u32 }
    }
}

/// Copies rows to the queue's memory.
fn put(queue: &Arc<Queue>, indptr: &[u64], indices: &[u32], cells: &[u8]) -> Result<TopologyPart> {
    let part = TopologyPart::Device((queue.upload(indptr)?, queue.upload(indices)?, queue.upload(cells)?));
    queue.synchronize()?;
    Ok(part)
}

/// Copies the rows of nodes `index`, `index + count`, ...
fn put_shard(
    queue: &Arc<Queue>,
    graph: &Graph,
    alias: Option<&RowAlias>,
    index: usize,
    count: usize,
) -> Result<TopologyPart> {
    let all = alias.map_or(&[][..], RowAlias::as_bytes);
    let (mut indptr, mut indices, mut cells) = (vec![0], Vec::new(), Vec::new());
    for ends in graph.indptr().windows(2).skip(index).step_by(count) {
        let row = ends[0] as usize..ends[1] as usize;
        indices.extend_from_slice(&graph.indices()[row.clone()]);
        if !all.is_empty() {
            cells.extend_from_slice(&all[8 * row.start..8 * row.end]);
        }
        indptr.push(indices.len() as u64);
    }
    put(queue, &indptr, &indices, &cells)
}
