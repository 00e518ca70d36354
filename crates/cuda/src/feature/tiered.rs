//! Static tiers: the hottest rows on devices, the others in host memory.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{sync::Arc, time::Instant};

use graphmill_core::{Block, Error, Matrix, NodeId, Result, accelerator::DeviceMemory, matrix::TableData};
use graphmill_loader::{
    Feature, Traffic,
    feature::{Capabilities, DeviceFeature, DeviceIds, OutputRows, TierTraffic, cached::CacheLayout},
};

use super::stored::{self, Ids, Stored};
use crate::{
    Buffer, Device, Queue,
    driver::Address,
    kernels::{self, Copying},
    peers,
    pool::QueuePool,
};

/// Mark of a row that is not on a device.
const COLD: u32 = u32::MAX;

/// Rule by which a device finds a row.
#[derive(Default)]
struct Lookup {
    /// Location of each row (`V`); `None` if a boundary locates it.
    places: Option<Buffer<u32>>,
    /// Rows below this number are on devices, if there is no map: the boundary of a dataset whose
    /// hottest rows come first (Data Tiering, section 4.1).
    boundary: u32,
    /// Rows below this number are on every device; the others below the boundary take turns.
    replicated: u32,
    /// True if devices read the memory of each other.
    shared: bool,
}

/// Rows on devices, as read by one of them. The maps are immutable, so readers need no lock.
pub struct Tiered {
    stored: Arc<Stored>,
    pool: QueuePool,
    lookup: Lookup,
    /// Rows of each device.
    shards: Arc<Vec<Buffer<u8>>>,
    /// Addresses of the shards.
    table: Buffer<u64>,
    /// Index of the reading device; at least the number of shards if it holds no rows.
    own: usize,
}

impl Tiered {
    /// Creates a reader per device, with the rows of `assigned` on their assigned devices (see
    /// [`graphmill_loader::feature::cached::CacheLayout::new`]) and all of `stored` in host memory.
    /// A device reads a row from host memory if it cannot read the memory of the device that has
    /// it. Besides the rows, this takes 4 `V` bytes of each device, or 0 if the rows in the slots
    /// are the first of the table, in order and interleaved, as on a reordered dataset.
    ///
    /// # Errors
    /// Memory is insufficient, an assigned row does not exist, or a driver fails.
    pub fn new(devices: &[Arc<Device>], stored: &Arc<Stored>, assigned: &CacheLayout) -> Result<Vec<Self>> {
        Self::with_readers(devices, &[], stored, assigned)
    }

    /// [`Tiered::new`], with another reader for each of `others`, which hold no rows: they read
    /// those of `devices` if all devices can read each other's memory, and otherwise those of the
    /// host. The readers of `devices` come first. One of `others` has a map (4 `V` bytes) unless a
    /// boundary locates the rows and no row is on all devices.
    ///
    /// # Errors
    /// As [`Tiered::new`].
    pub fn with_readers(
        devices: &[Arc<Device>],
        others: &[Arc<Device>],
        stored: &Arc<Stored>,
        assigned: &CacheLayout,
    ) -> Result<Vec<Self>> {
        stored.check(&assigned.ids)?;
        let (count, rows) = (devices.len(), stored.num_rows());
        let whole = count == 1 && assigned.ids.len() == rows;
        let shared = peers::read_each_other(devices)?;
        let all: Vec<Arc<Device>> = devices.iter().chain(others).cloned().collect();
        let shared_by_all = shared && (others.is_empty() || peers::read_each_other(&all)?);
        let pools: Vec<QueuePool> = devices.iter().map(QueuePool::new).collect();
        let shard = |(device, pool): (usize, &QueuePool)| {
            let of_device = |slot: &usize| *slot < assigned.replicated || owner(assigned, *slot) == device;
            let ids = (0..assigned.ids.len()).filter(of_device).map(|slot| assigned.ids[slot]);
            let ids: Vec<NodeId> = if whole { (0..rows as NodeId).collect() } else { ids.collect() };
            pool.with(|queue| load(queue, stored, &ids))
        };
        let shards: Arc<Vec<Buffer<u8>>> =
            Arc::new(pools.iter().enumerate().map(shard).collect::<Result<_>>()?);
        let addresses: Vec<u64> = shards.iter().map(|rows| rows.address().0).collect();
        let one = |(own, pool): (usize, QueuePool)| {
            let holds = own < count;
            let shared = if holds { shared } else { shared_by_all };
            let (lookup, table) = pool.with(|queue| -> Result<_> {
                let lookup = if !holds && !shared {
                    Lookup::default()
                } else if whole || (is_boundary(assigned, count) && (holds || assigned.replicated == 0)) {
                    let replicated = if whole { 0 } else { assigned.replicated };
                    let [boundary, replicated] = [assigned.ids.len(), replicated].map(|rows| rows as u32);
                    Lookup { places: None, boundary, replicated, shared }
                } else {
                    let places = places(assigned, rows, count, own, shared)?;
                    Lookup { places: Some(queue.upload(&places)?), ..Lookup::default() }
                };
                let table = queue.upload(&addresses)?;
                queue.synchronize()?;
                Ok((lookup, table))
            })?;
            Ok(Self { stored: stored.clone(), pool, lookup, shards: shards.clone(), table, own })
        };
        pools.into_iter().chain(others.iter().map(QueuePool::new)).enumerate().map(one).collect()
    }

    /// Bytes of rows on the reading device.
    pub fn device_bytes(&self) -> u64 {
        self.shards.get(self.own).map_or(0, |rows| DeviceMemory::bytes(rows) as u64)
    }

    /// Bytes of the reading device that locate rows.
    pub fn lookup_bytes(&self) -> u64 {
        self.lookup.places.as_ref().map_or(0, |places| DeviceMemory::bytes(places) as u64)
    }

    /// Gathers the rows on the device and returns their traffic. `device_ids` is the device address
    /// of the ids, if they are there.
    fn rows(
        &self,
        queue: &Arc<Queue>,
        ids: &[NodeId],
        device_ids: Option<Address>,
    ) -> Result<(Buffer<f32>, Traffic)> {
        let began = Instant::now();
        if device_ids.is_none() {
            self.stored.check(ids)?;
        }
        let copying = self.stored.copying();
        let dim = self.stored.dim();
        let device_ids = Ids::of(queue, ids, device_ids)?;
        let mut out = queue.take::<f32>(ids.len() * dim)?;
        let mut found = queue.scratch::<u64>(3)?;
        let Lookup { places, boundary, replicated, shared } = &self.lookup;
        let kernel = kernels::TierGather {
            ids: device_ids.read(),
            count: ids.len(),
            places: places.as_ref().map(Buffer::read),
            boundary: *boundary,
            replicated: *replicated,
            shared: *shared,
            shards: self.table.read(),
            devices: self.shards.len() as u32,
            own: self.own as u32,
            host: self.stored.bytes(),
            copying,
            dim,
            out: out.write(),
            found: found.write(),
        };
        // SAFETY: the map or the boundary of this table locates all requested rows, and the result
        // has this many rows
        unsafe {
            self.pool.device().driver().fill(found.address(), 0, 6, queue.stream())?;
            queue.run(ids.len(), &kernel)?;
        }
        let [device, peer, host] = stored::counts(queue, &found)?;
        let rows = |rows: u64| TierTraffic { rows, bytes: rows * self.row_bytes(), nanos: 0 };
        let device = TierTraffic::since(began, device, device * self.row_bytes());
        let traffic = Traffic { device, peer: rows(peer), host: rows(host), ..Traffic::default() };
        Ok((out, traffic))
    }
}

/// Device that has a slot.
fn owner(assigned: &CacheLayout, slot: usize) -> usize {
    assigned.owners.get(slot).map_or(0, |&owner| owner.into())
}

/// Returns true if a boundary locates the rows on `count` devices: they are the first of the table,
/// in order, and the devices take turns after the replicated ones. O(slots).
fn is_boundary(assigned: &CacheLayout, count: usize) -> bool {
    let follows = |(slot, &v): (usize, &NodeId)| {
        v as usize == slot
            && (slot < assigned.replicated || owner(assigned, slot) == (slot - assigned.replicated) % count)
    };
    assigned.ids.iter().enumerate().all(follows)
}

/// Location of each of `rows` rows for device `own`: the number of the device that has it, of the
/// `count` devices that hold rows, plus `count` times its row there. If `own` holds none, it reads
/// replicated rows from device `own` mod `count`.
fn places(assigned: &CacheLayout, rows: usize, count: usize, own: usize, shared: bool) -> Result<Vec<u32>> {
    let mut places = vec![COLD; rows];
    let mut next = vec![assigned.replicated.min(assigned.ids.len()); count];
    for (slot, &v) in assigned.ids.iter().enumerate() {
        let (holder, row) = if slot < assigned.replicated {
            (own % count.max(1), slot)
        } else {
            let holder = owner(assigned, slot);
            next[holder] += 1;
            (holder, next[holder] - 1)
        };
        if holder == own || shared {
            let place = u32::try_from(row * count + holder).ok().filter(|place| *place != COLD);
            places[v as usize] = place.ok_or_else(|| {
                Error::invalid("more than 2^32 - 1 rows on devices; use a smaller --cache-ratio")
            })?;
        }
    }
    Ok(places)
}

/// Copies these rows to the device.
fn load(queue: &Arc<Queue>, stored: &Stored, ids: &[NodeId]) -> Result<Buffer<u8>> {
    let Copying { row_bytes, unit, group, .. } = stored.copying();
    let (device_ids, mut rows) = (queue.upload(ids)?, queue.take(ids.len() * row_bytes)?);
    let kernel = kernels::TierLoad {
        ids: device_ids.read(),
        count: ids.len(),
        host: stored.bytes(),
        row_bytes,
        unit,
        group,
        rows: rows.write(),
    };
    // SAFETY: the rows exist, and the result has this many rows
    unsafe { queue.run(ids.len(), &kernel)? };
    queue.synchronize()?;
    Ok(rows)
}

impl Feature for Tiered {
    fn dim(&self) -> usize {
        self.stored.dim()
    }

    fn num_rows(&self) -> usize {
        self.stored.num_rows()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        self.pool.with(|queue| stored::read_to(ids, self.dim(), places, out, || self.rows(queue, ids, None)))
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        self.pool.with(|queue| stored::gather(ids, self.dim(), out, || self.rows(queue, ids, None)))
    }

    fn row_bytes(&self) -> u64 {
        self.stored.row_bytes() as u64
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { device: Some(self), ..Capabilities::default() }
    }
}

impl DeviceFeature for Tiered {
    fn gather_on_device(&self, ids: &[NodeId], on_device: &DeviceIds, out: &mut Matrix) -> Result<Traffic> {
        let device_ids =
            on_device.address(self.pool.device().number(), ids.len(), self.num_rows()).map(Address);
        self.pool.with(|queue| stored::gather(ids, self.dim(), out, || self.rows(queue, ids, device_ids)))
    }

    fn place_blocks(&self, blocks: &[Block]) -> Result<()> {
        self.pool.with(|queue| stored::place_blocks(queue, blocks))
    }
}

impl Tiered {
    /// The whole table (`V x F`) in host memory.
    pub fn table(&self) -> TableData {
        self.stored.data().clone()
    }
}

impl std::fmt::Debug for Tiered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rows, bytes) = (self.num_rows(), self.device_bytes());
        write!(f, "Tiered({rows} rows, {bytes} bytes of them on {})", self.pool.device().name())
    }
}
