//! Row cache on a device whose policy runs on the host, in front of a table or of any tier.
//!
//! # Reads
//!
//! ```text
//!   ids ─► policy ─► hits ──────────────────────────────────► kernel: slots ─► result
//!            └─► misses ─► table: kernel reads page-locked memory ────────┐
//!                     └──► tier: host reads ─► one copy to the device ────┴─► result, slots
//! ```
//!
//! The host knows the slot of every row, so a tier whose rows are on disk, on other machines or
//! sparse is asked for the missing rows only, while the device copies those that it holds. Every
//! policy of [`graphmill_loader::policy`] works, and so does a fixed set of rows.
//!
//! # Cost
//!
//! A look-up per row on the host, and a copy of 4 bytes per row to the device. [`super::Dynamic`]
//! does both on the device, for the policies that kernels can run.
//!
//! # Memory
//!
//! Rows in the slots, on the device; the maps of the policy, and the missing rows of a batch, on
//! the host.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use graphmill_core::{Block, Matrix, NodeId, ObjectPool, Result, matrix::TableType};
use graphmill_loader::{
    Feature, Traffic,
    feature::{Capabilities, DeviceFeature, DeviceIds, OutputRows, TierTraffic},
    policy::{CachePolicy, MISS},
};
use half::{bf16, f16};

use super::stored::{self, Ids, Stored};
use crate::{
    Buffer, Device, Queue,
    driver::Address,
    kernels::{self, Copying, In},
};

/// Number of rows that are loaded into a cache at once.
const CHUNK_LEN: usize = 1 << 14;

/// The rows behind a cache.
#[derive(Clone)]
pub enum Behind {
    /// A table in page-locked memory, which the device reads in place.
    Table(Arc<Stored>),
    /// Rows of a tier, which the host reads; the device holds them as this type.
    Tier(Arc<dyn Feature>, TableType),
}

impl Behind {
    fn dim(&self) -> usize {
        match self {
            Self::Table(table) => table.dim(),
            Self::Tier(rows, _) => rows.dim(),
        }
    }

    fn num_rows(&self) -> usize {
        match self {
            Self::Table(table) => table.num_rows(),
            Self::Tier(rows, _) => rows.num_rows(),
        }
    }

    fn copying(&self) -> Copying {
        match self {
            Self::Table(table) => table.copying(),
            Self::Tier(rows, kind) => Copying::of(rows.dim(), *kind, Address(0)),
        }
    }
}

/// Row cache of a device by a policy that runs on the host.
pub struct Cached {
    behind: Behind,
    queue: Arc<Queue>,
    slots: usize,
    state: Mutex<State>,
    scratch: ObjectPool<Scratch>,
}

struct State {
    /// The rows in the slots.
    rows: Buffer<u8>,
    /// Two words that the kernels expect, for caches whose policy runs on the device.
    hand: Buffer<u32>,
    policy: Box<dyn CachePolicy>,
    /// True if missing rows are offered to the policy.
    admits: bool,
    /// Number of the last offer that filled each slot.
    filled: Vec<u32>,
    /// Number of offers so far.
    offers: u32,
}

impl State {
    /// Offers rows to the policy: the slot that each fills, or [`MISS`]. No two rows fill a slot.
    fn admit(&mut self, ids: &[NodeId], slots: &mut Vec<u32>) {
        if !self.admits {
            slots.clear();
            return slots.resize(ids.len(), MISS);
        }
        self.policy.admit(ids, slots);
        self.offers = self.offers.wrapping_add(1);
        if self.offers == 0 {
            (self.offers, self.filled) = (1, vec![0; self.filled.len()]);
        }
        // the last one holds the slot
        for slot in slots.iter_mut().rev().filter(|slot| **slot != MISS) {
            if std::mem::replace(&mut self.filled[*slot as usize], self.offers) == self.offers {
                *slot = MISS;
            }
        }
    }
}

/// Memory of a request on the host.
#[derive(Default)]
struct Scratch {
    /// Slot of each row, or [`MISS`].
    found: Vec<u32>,
    missing: Vec<NodeId>,
    /// Number of each row in the table, or among the missing rows.
    from: Vec<u32>,
    /// Slot that each missing row, and each row, fills.
    admitted: Vec<u32>,
    to: Vec<u32>,
    /// The missing rows, and their values of 16 bits.
    rows: Vec<f32>,
    halves: Vec<u16>,
}

impl Cached {
    /// Creates an empty cache with this policy on the device.
    ///
    /// # Errors
    /// Memory is insufficient, or the driver fails.
    pub fn new(device: &Arc<Device>, behind: Behind, policy: Box<dyn CachePolicy>) -> Result<Self> {
        let (queue, slots) = (Queue::new(device)?, policy.capacity());
        let rows = queue.take(slots * behind.copying().row_bytes)?;
        let hand = queue.upload(&[0u32; 2])?;
        queue.synchronize()?;
        let state = State { rows, hand, policy, admits: true, filled: vec![0; slots], offers: 0 };
        Ok(Self { behind, queue, slots, state: Mutex::new(state), scratch: ObjectPool::default() })
    }

    /// The same cache with the rows of `ids`, at most as many as it has slots, which it holds from
    /// then on.
    ///
    /// # Errors
    /// The rows cannot be read, or the device fails.
    pub fn holding(self, ids: &[NodeId]) -> Result<Self> {
        for ids in ids.chunks(CHUNK_LEN) {
            self.rows(ids, None)?;
        }
        self.state().admits = false;
        Ok(self)
    }

    /// Largest number of rows that the cache holds.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Bytes of the rows in the slots on the device.
    pub fn device_bytes(&self) -> u64 {
        self.slots as u64 * self.row_bytes()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gathers rows on the device, returns their traffic, and admits missing rows. `device_ids` is
    /// the device address of the ids, if they are there.
    fn rows(&self, ids: &[NodeId], device_ids: Option<Address>) -> Result<(Buffer<f32>, Traffic)> {
        stored::check(ids, self.num_rows())?;
        self.scratch.with(|scratch| self.rows_with(ids, device_ids, scratch))
    }

    fn rows_with(
        &self,
        ids: &[NodeId],
        device_ids: Option<Address>,
        scratch: &mut Scratch,
    ) -> Result<(Buffer<f32>, Traffic)> {
        let (began, queue, count, dim) = (Instant::now(), &self.queue, ids.len(), self.dim());
        let copying = self.behind.copying();
        let mut out = queue.take(count * dim)?;
        let mut state = self.state();
        state.policy.look_up(ids, &mut scratch.found);
        let found = queue.upload(&scratch.found)?;
        let (found, rows, to) = (found.read(), state.rows.read(), out.write());
        let hits = kernels::CacheHits { found, count, rows, copying, dim, out: to };
        // SAFETY: the found slots are filled, and the result has this many rows. Kernels run in the
        // order of the queue, so no later request fills a slot before it is read
        unsafe { queue.run(count, &hits)? };
        drop(state);
        scratch.list_missing(ids);
        let hits = (count - scratch.missing.len()) as u64;
        let device = TierTraffic::since(began, hits, hits * copying.row_bytes as u64);
        let mut traffic = Traffic { device, ..Traffic::default() };
        if scratch.missing.is_empty() {
            queue.synchronize()?;
            return Ok((out, traffic));
        }
        let (read, behind) = self.read_missing(scratch)?;
        traffic += behind;
        let (host, from) = match (&self.behind, &read) {
            (Behind::Table(table), ..) => (table.bytes(), Ids::of(queue, ids, device_ids)?),
            (_, Some(read)) => (read.read(), Ids::Copied(queue.upload(&scratch.from)?)),
            (_, None) => (In::at(Address(0)), Ids::On(In::at(Address(0)))),
        };
        let mut state = self.state();
        state.admit(&scratch.missing, &mut scratch.admitted);
        let to = queue.upload(scratch.targets())?;
        let State { rows, hand, .. } = &mut *state;
        let misses = kernels::CacheMisses {
            ids: from.read(),
            found,
            to: to.read(),
            count,
            host,
            rows: rows.write(),
            copying,
            dim,
            out: out.write(),
            hand: hand.write(),
        };
        // SAFETY: the missing rows are at these places, and every slot that one fills exists
        unsafe { queue.run(count, &misses)? };
        drop(state);
        queue.synchronize()?;
        Ok((out, traffic))
    }

    /// Reads the missing rows of a tier, and copies them to the device; those of a table are read
    /// in place. Returns their traffic.
    fn read_missing(&self, scratch: &mut Scratch) -> Result<(Option<Buffer<u8>>, Traffic)> {
        let Scratch { missing, rows, halves, .. } = scratch;
        let (tier, kind) = match &self.behind {
            Behind::Table(table) => {
                let (count, bytes) = (missing.len() as u64, table.row_bytes() as u64);
                let host = TierTraffic { rows: count, bytes: count * bytes, nanos: 0 };
                return Ok((None, Traffic { host, ..Traffic::default() }));
            }
            Behind::Tier(tier, kind) => (tier, *kind),
        };
        rows.resize(missing.len() * tier.dim(), 0.0);
        let traffic = tier.read_to(missing, OutputRows::InOrder, rows)?;
        let narrow = |to: &mut Vec<u16>, bits: fn(f32) -> u16| {
            to.clear();
            to.extend(rows.iter().map(|&x| bits(x)));
        };
        let read = match kind {
            TableType::F32 => self.queue.upload(bytemuck::cast_slice(rows))?,
            TableType::F16 => {
                narrow(halves, |x| f16::from_f32(x).to_bits());
                self.queue.upload(bytemuck::cast_slice(halves))?
            }
            TableType::Bf16 => {
                narrow(halves, |x| bf16::from_f32(x).to_bits());
                self.queue.upload(bytemuck::cast_slice(halves))?
            }
        };
        Ok((Some(read), traffic))
    }
}

impl Scratch {
    /// Lists the rows of `ids` that were not found; `from` numbers them.
    fn list_missing(&mut self, ids: &[NodeId]) {
        let Self { found, missing, from, .. } = self;
        missing.clear();
        from.clear();
        for (&v, &slot) in ids.iter().zip(&*found) {
            from.push(missing.len() as u32);
            if slot == MISS {
                missing.push(v);
            }
        }
    }

    /// Slot that each requested row fills.
    fn targets(&mut self) -> &[u32] {
        let Self { found, admitted, to, .. } = self;
        let mut admitted = admitted.iter();
        to.clear();
        let target = |&slot: &u32| if slot == MISS { admitted.next().copied().unwrap_or(MISS) } else { MISS };
        to.extend(found.iter().map(target));
        to
    }
}

impl Feature for Cached {
    fn dim(&self) -> usize {
        self.behind.dim()
    }

    fn num_rows(&self) -> usize {
        self.behind.num_rows()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        stored::read_to(ids, self.dim(), places, out, || self.rows(ids, None))
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        stored::gather(ids, self.dim(), out, || self.rows(ids, None))
    }

    fn row_bytes(&self) -> u64 {
        self.behind.copying().row_bytes as u64
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { device: Some(self), ..Capabilities::default() }
    }
}

impl DeviceFeature for Cached {
    fn gather_on_device(&self, ids: &[NodeId], on_device: &DeviceIds, out: &mut Matrix) -> Result<Traffic> {
        let device_ids =
            on_device.address(self.queue.device().number(), ids.len(), self.num_rows()).map(Address);
        stored::gather(ids, self.dim(), out, || self.rows(ids, device_ids))
    }

    fn place_blocks(&self, blocks: &[Block]) -> Result<()> {
        stored::place_blocks(&self.queue, blocks)
    }
}

impl std::fmt::Debug for Cached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cached({} of {} rows on {})", self.slots, self.num_rows(), self.queue.device().name())
    }
}
