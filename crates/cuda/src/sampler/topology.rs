//! A graph where a device's samplers read it: in the device's memory, in that of several devices,
//! or in host memory. Kernels see addresses alone, so they are the same for all three.

use std::{fmt, sync::Arc};

use graphmill_core::{Graph, alias::RowAlias};

use crate::{Buffer, Device, Queue, Result, driver::Address, mapped::Mapped, peers};

/// Where a graph is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the memory of the device that reads it.
    Device,
    /// Row `v` on device `v` mod so many, which read each other.
    Shards(usize),
    /// In host memory, read over the link.
    Host,
}

impl fmt::Display for Place {
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
enum Part {
    Device([Buffer; 3]),
    Host([Mapped; 3]),
}

impl Part {
    fn addresses(&self) -> [Address; 3] {
        match self {
            Self::Device(arrays) => arrays.each_ref().map(Buffer::address),
            Self::Host(arrays) => arrays.each_ref().map(Mapped::address),
        }
    }
}

/// A graph as one device reads it.
#[derive(Clone, Debug)]
pub struct Topology {
    place: Place,
    parts: Arc<Vec<Part>>,
    /// Three addresses of each part.
    table: Arc<Buffer>,
}

impl Topology {
    /// Of each of `devices`, a graph with its alias tables, if any: on every device where at most
    /// `budget` bytes of each are enough, shared out among them where they read each other and it
    /// then is, and otherwise in host memory. O(V + E).
    ///
    /// # Errors
    /// There is not enough memory, or a driver fails.
    pub fn new(
        devices: &[Arc<Device>],
        graph: &Graph,
        alias: Option<&RowAlias>,
        budget: u64,
    ) -> Result<Vec<Self>> {
        let queues = devices.iter().map(Queue::new).collect::<Result<Vec<_>>>()?;
        let bytes = Self::bytes(graph, alias);
        let one = |queue: &Arc<Queue>, place, parts: &Arc<Vec<Part>>| Self::of(queue, place, parts.clone());
        if bytes <= budget {
            let put = |queue: &Arc<Queue>| -> Result<_> {
                let part =
                    put(queue, graph.indptr(), graph.indices(), alias.map_or(&[], RowAlias::as_bytes))?;
                one(queue, Place::Device, &Arc::new(vec![part]))
            };
            return queues.iter().map(put).collect();
        }
        let share = bytes / devices.len().max(1) as u64;
        // rows are of different lengths, so shares are
        if devices.len() > 1 && share + share / 8 <= budget && peers::read_each_other(devices)? {
            let shard = |(i, queue): (usize, &Arc<Queue>)| put_shard(queue, graph, alias, i, devices.len());
            let parts = Arc::new(queues.iter().enumerate().map(shard).collect::<Result<Vec<_>>>()?);
            let place = Place::Shards(devices.len());
            return queues.iter().map(|queue| one(queue, place, &parts)).collect();
        }
        let Some(first) = devices.first() else { return Ok(Vec::new()) };
        // portable: locked once, read by all
        let part = Part::Host([
            Mapped::new(first, bytemuck::cast_slice(graph.indptr()), graph.clone())?,
            Mapped::new(first, bytemuck::cast_slice(graph.indices()), graph.clone())?,
            Mapped::new(first, alias.map_or(&[], RowAlias::as_bytes), alias.cloned())?,
        ]);
        let parts = Arc::new(vec![part]);
        queues.iter().map(|queue| one(queue, Place::Host, &parts)).collect()
    }

    fn of(queue: &Arc<Queue>, place: Place, parts: Arc<Vec<Part>>) -> Result<Self> {
        let addresses: Vec<u64> = parts.iter().flat_map(Part::addresses).map(|at| at.0).collect();
        let table = Arc::new(queue.upload(&addresses)?);
        queue.synchronize()?;
        Ok(Self { place, parts, table })
    }

    /// What it takes.
    pub fn bytes(graph: &Graph, alias: Option<&RowAlias>) -> u64 {
        let alias = alias.map_or(0, |alias| alias.as_bytes().len());
        (size_of_val(graph.indptr()) + size_of_val(graph.indices()) + alias) as u64
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Where the addresses of its parts are.
    pub(super) fn table(&self) -> Address {
        self.table.address()
    }

    /// How many parts it has.
    pub(super) fn num_parts(&self) -> u32 {
        self.parts.len() as u32
    }
}

/// Rows in the queue's memory.
fn put(queue: &Arc<Queue>, indptr: &[u64], indices: &[u32], cells: &[u8]) -> Result<Part> {
    let part = Part::Device([queue.upload(indptr)?, queue.upload(indices)?, queue.upload(cells)?]);
    queue.synchronize()?;
    Ok(part)
}

/// The rows of nodes `index`, `index + count`, ..
fn put_shard(
    queue: &Arc<Queue>,
    graph: &Graph,
    alias: Option<&RowAlias>,
    index: usize,
    count: usize,
) -> Result<Part> {
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
