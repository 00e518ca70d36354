//! Dynamic row cache on a device (`kernels/cache.cu`). Kernels look up, gather and admit the rows
//! of a batch, and the host receives only the number of hits.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use graphmill_core::{Block, Error, Matrix, NodeId, Result, matrix::TableData};
use graphmill_loader::{
    Feature, Traffic,
    feature::{Capabilities, DeviceFeature, DeviceIds, OutputRows, TierTraffic},
    policy::MISS,
};

use super::stored::{self, Stored};
use crate::{Buffer, Device, Queue, arguments, driver::Address, scan};

/// Eviction policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Evicts the row that was admitted first (exactly [`graphmill_loader::policy::fifo`]).
    Fifo,
    /// Evicts the first admitted row that was not used since the hand last passed it: SIEVE, except
    /// that a new row takes the freed slot, as in CLOCK, because a queue in order of admission
    /// would be rewritten by every batch. Costs O(slots) per batch.
    Sieve,
}

impl Policy {
    /// Both policies, by name.
    pub const ALL: [(&'static str, Self); 2] = [("fifo", Self::Fifo), ("sieve", Self::Sieve)];
}

/// Row cache on a device, for one batch at a time.
pub struct Dynamic {
    stored: Arc<Stored>,
    queue: Arc<Queue>,
    slots: usize,
    state: Mutex<State>,
}

/// Device memory of the cache.
struct State {
    /// `slots` rows in the stored format.
    rows: Buffer,
    /// Slot of each row, `V` values.
    slot_of: Buffer,
    /// Row in each slot.
    holder: Buffer,
    /// Current and next position of the hand.
    hand: Buffer,
    /// Use flags of the slots, with [`Policy::Sieve`].
    used: Option<Buffer>,
}

impl Dynamic {
    /// Creates a cache of `slots` rows of `stored` (at most all) on the device. Besides the rows,
    /// it takes 4 bytes per row of the table and 4 to 8 per slot.
    ///
    /// # Errors
    /// Memory is insufficient, or the driver fails.
    pub fn new(device: &Arc<Device>, stored: &Arc<Stored>, slots: usize, policy: Policy) -> Result<Self> {
        let slots = slots.min(stored.num_rows()).min(i32::MAX as usize);
        let queue = Queue::new(device)?;
        let filled = |words: usize, word: u32| -> Result<Buffer> {
            let buffer = queue.take(4 * words)?;
            // SAFETY: the buffer has this many words
            unsafe { device.driver().fill(buffer.address(), word, words, queue.stream())? };
            Ok(buffer)
        };
        let state = State {
            rows: queue.take(slots * stored.row_bytes())?,
            slot_of: filled(stored.num_rows(), MISS)?,
            holder: filled(slots, MISS)?,
            hand: filled(2, 0)?,
            used: (policy == Policy::Sieve).then(|| filled(slots, 0)).transpose()?,
        };
        queue.synchronize()?;
        Ok(Self { stored: stored.clone(), queue, slots, state: Mutex::new(state) })
    }

    /// Maximum number of cached rows.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Bytes of the rows in the slots on the device.
    pub fn device_bytes(&self) -> u64 {
        (self.slots * self.stored.row_bytes()) as u64
    }

    /// Gathers the rows on the device, returns their traffic, and admits missing rows. `device_ids`
    /// is the device address of the ids, if they are there.
    fn rows(&self, ids: &[NodeId], device_ids: Option<Address>) -> Result<(Buffer, Traffic)> {
        if device_ids.is_none() {
            self.stored.check(ids)?;
        }
        if ids.len() > i32::MAX as usize {
            return Err(Error::invalid(format!(
                "a batch of {} rows is too large; use at most 2^31 - 1",
                ids.len()
            )));
        }
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        let (queue, count) = (&self.queue, ids.len());
        let driver = queue.device().driver();
        let copied = if device_ids.is_none() { Some(queue.upload(ids)?) } else { None };
        let ids_at = device_ids.or(copied.as_ref().map(Buffer::address)).unwrap_or(Address(0));
        let (found, to) = (queue.scratch(4 * count)?, queue.scratch(4 * count)?);
        let first = queue.scratch(4 * (count + 1))?;
        let out = queue.take(4 * count * self.dim())?;
        // hits, and the totals of the prefix sums
        let hits = queue.scratch(24)?;
        let (found_at, to_at) = (found.address(), to.address());
        let (before, hits_at, sum) = (first.address(), hits.address(), hits.address().offset(8));
        let (slot_of, holder, hand) = (state.slot_of.address(), state.holder.address(), state.hand.address());
        let used = state.used.as_ref().map_or(Address(0), Buffer::address);
        let copying = self.stored.copying();
        let (bytes, unit, group, kind) = (copying.row_bytes, copying.unit, copying.group, copying.kind);
        let (rows, dim) = (state.rows.address(), self.dim());
        let out_at = out.address();
        // SAFETY: all ids are below V; the buffers have entries for every id, slot and row that a
        // kernel writes
        unsafe {
            driver.fill(hits_at, 0, 6, queue.stream())?;
            queue.run("cache_look_up", count, arguments![ids_at, count, slot_of, used, found_at])?;
            queue.run("cache_first", count, arguments![ids_at, count, slot_of, found_at, before, hits_at])?;
            scan::exclusive(queue, before, count, sum)?;
            let arguments = arguments![found_at, count, rows, bytes, unit, group, kind, dim, out_at];
            queue.run("cache_hits", count, arguments)?;
            let victims = match &state.used {
                Some(_) => Some(self.victims(used, hand, before.offset(4 * count))?),
                None => None,
            };
            let round = u32::from(victims.is_none());
            let victims = victims.as_ref().map_or(Address(0), Buffer::address);
            let arguments =
                arguments![ids_at, count, before, self.slots, round, victims, slot_of, holder, hand, to_at];
            queue.run("cache_admit", count, arguments)?;
            let host = self.stored.mapped().address();
            let arguments = arguments![
                ids_at, found_at, to_at, count, host, rows, bytes, unit, group, kind, dim, out_at, hand
            ];
            queue.run("cache_misses", count, arguments)?;
        }
        let [hits] = stored::counts(queue, &hits)?;
        let missed = count as u64 - hits;
        let host = TierTraffic { rows: missed, bytes: missed * self.row_bytes(), nanos: 0 };
        let device = TierTraffic::since(began, hits, hits * self.row_bytes());
        Ok((out, Traffic { device, host, ..Traffic::default() }))
    }

    /// Slots to evict, in the order of the hand; their number, a u32, is at `missing`.
    ///
    /// # Safety
    /// The addresses belong to the cache's state, and to a count.
    unsafe fn victims(&self, used: Address, hand: Address, missing: Address) -> Result<Buffer> {
        let (queue, slots) = (&self.queue, self.slots);
        let (free, total, victims) =
            (queue.scratch(4 * (slots + 1))?, queue.scratch(8)?, queue.scratch(4 * slots)?);
        let before = free.address();
        // SAFETY: by the caller's guarantee; there is a flag for each slot and one more
        unsafe {
            queue.run("cache_unused", slots, arguments![used, slots, hand, before])?;
            scan::exclusive(queue, before, slots, total.address())?;
            let arguments = arguments![used, slots, before, missing, hand, victims.address()];
            queue.run("cache_victims", slots, arguments)?;
        }
        Ok(victims)
    }
}

impl Feature for Dynamic {
    fn dim(&self) -> usize {
        self.stored.dim()
    }

    fn num_rows(&self) -> usize {
        self.stored.num_rows()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        stored::read_to(ids, self.dim(), places, out, || self.rows(ids, None))
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        stored::gather(ids, self.dim(), out, || self.rows(ids, None))
    }

    fn row_bytes(&self) -> u64 {
        self.stored.row_bytes() as u64
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { device: Some(self), ..Capabilities::default() }
    }
}

impl DeviceFeature for Dynamic {
    fn gather_on_device(&self, ids: &[NodeId], on_device: &DeviceIds, out: &mut Matrix) -> Result<Traffic> {
        let device_ids =
            on_device.address(self.queue.device().number(), ids.len(), self.num_rows()).map(Address);
        stored::gather(ids, self.dim(), out, || self.rows(ids, device_ids))
    }

    fn place_blocks(&self, blocks: &[Block]) -> Result<()> {
        stored::place_blocks(&self.queue, blocks)
    }
}

impl Dynamic {
    /// The whole table (`V x F`) in host memory.
    pub fn table(&self) -> TableData {
        self.stored.data().clone()
    }
}

impl std::fmt::Debug for Dynamic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dynamic({} of {} rows on {})", self.slots, self.num_rows(), self.queue.device().name())
    }
}
