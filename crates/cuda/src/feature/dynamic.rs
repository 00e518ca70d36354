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

use super::stored::{self, Ids, Stored};
use crate::{
    Buffer, Device, Queue,
    driver::Address,
    kernels::{self, In, Out},
    scan,
};

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
    rows: Buffer<u8>,
    /// Slot of each row, `V` values.
    slot_of: Buffer<u32>,
    /// Row in each slot.
    holder: Buffer<u32>,
    /// Current and next position of the hand.
    hand: Buffer<u32>,
    /// Use flags of the slots, with [`Policy::Sieve`].
    used: Option<Buffer<u32>>,
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
        let filled = |words: usize, word: u32| -> Result<Buffer<u32>> {
            let buffer = queue.take(words)?;
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
    fn rows(&self, ids: &[NodeId], device_ids: Option<Address>) -> Result<(Buffer<f32>, Traffic)> {
        if device_ids.is_none() {
            self.stored.check(ids)?;
        }
        if ids.len() > i32::MAX as usize {
            return Err(Error::invalid(format!(
                "a batch of {} rows is too large; use at most 2^31 - 1",
                ids.len()
            )));
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        let (queue, count) = (&self.queue, ids.len());
        let driver = queue.device().driver();
        let on_device = Ids::of(queue, ids, device_ids)?;
        let ids = on_device.read();
        let (mut found, mut to) = (queue.scratch(count)?, queue.scratch(count)?);
        let mut first = queue.scratch(count + 1)?;
        let dim = self.dim();
        let mut out = queue.take(count * dim)?;
        // hits, and the totals of the prefix sums
        let mut hits = queue.scratch(3)?;
        let State { rows, slot_of, holder, hand, used } = &mut *state;
        let used = used.as_mut().map(Buffer::write);
        let (slots, first, before) = (slot_of.write(), first.write(), In::from(first.write()));
        let look_up = kernels::CacheLookUp { ids, count, slot_of: slots, used, found: found.write() };
        let (slot_of, found) = (slots.into(), found.read());
        let of_first = kernels::CacheFirst { ids, count, slot_of, found, first, hits: hits.write() };
        let (copying, host) = (self.stored.copying(), self.stored.bytes());
        let of_hits = kernels::CacheHits { found, count, rows: rows.read(), copying, dim, out: out.write() };
        // SAFETY: all ids are below V; the buffers have entries for every id, slot and row that a
        // kernel writes, and the number of rows to admit follows the prefix sums
        let victims = unsafe {
            driver.fill(hits.address(), 0, 6, queue.stream())?;
            queue.run(count, &look_up)?;
            queue.run(count, &of_first)?;
            scan::exclusive(queue, first, count, hits.write().offset(1))?;
            queue.run(count, &of_hits)?;
            match used {
                Some(used) => Some(self.victims(used, hand.write(), before.offset(count))?),
                None => None,
            }
        };
        let admit = kernels::CacheAdmit {
            ids,
            count,
            before,
            slots: self.slots,
            round: victims.is_none(),
            victims: victims.as_ref().map(Buffer::read),
            slot_of: slots,
            holder: holder.write(),
            hand: hand.write(),
            to: to.write(),
        };
        let of_misses = kernels::CacheMisses {
            ids,
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
        // SAFETY: as above
        unsafe {
            queue.run(count, &admit)?;
            queue.run(count, &of_misses)?;
        }
        let [hits] = stored::counts(queue, &hits)?;
        let missed = count as u64 - hits;
        let host = TierTraffic { rows: missed, bytes: missed * self.row_bytes(), nanos: 0 };
        let device = TierTraffic::since(began, hits, hits * self.row_bytes());
        Ok((out, Traffic { device, host, ..Traffic::default() }))
    }

    /// Slots to evict, in the order of the hand; their number is at `missing`.
    ///
    /// # Safety
    /// The flags and the hand are those of the cache's state, and a count is at `missing`.
    unsafe fn victims(&self, used: Out<u32>, hand: Out<u32>, missing: In<u32>) -> Result<Buffer<u32>> {
        let (queue, slots) = (&self.queue, self.slots);
        let mut free = queue.scratch(slots + 1)?;
        let (mut total, mut victims) = (queue.scratch(1)?, queue.scratch(slots)?);
        let unused = kernels::CacheUnused { used: used.into(), slots, hand: hand.into(), free: free.write() };
        let before = free.read();
        let of_hand = kernels::CacheVictims { used, slots, before, missing, hand, victims: victims.write() };
        // SAFETY: by the caller's guarantee; there is a flag for each slot and one more
        unsafe {
            queue.run(slots, &unused)?;
            scan::exclusive(queue, free.write(), slots, total.write())?;
            queue.run(slots, &of_hand)?;
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
