//! A device's cache whose rows come and go (`kernels/cache.cu`): batches are looked up, served and
//! admitted by kernels, and the host learns no more than how many rows were found.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use graphmill_core::{Block, Error, Matrix, NodeId, Result, accelerator::DeviceMemory, matrix::TableData};
use graphmill_loader::{
    Feature, Traffic,
    feature::{Capabilities, DeviceFeature, Places, TierTraffic},
    policy::MISS,
};

use super::stored::{self, Stored};
use crate::{Buffer, Device, Queue, arguments, driver::Address, scan};

/// Which rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The first that came ([`graphmill_loader::policy::fifo`], to the row).
    Fifo,
    /// The first that came and was not used since a hand went by: SIEVE but for the place of new
    /// rows, which is the slot they are given, as in CLOCK (a queue in the order of arrival would
    /// be rewritten by every batch). Takes O(slots) a batch.
    Sieve,
}

impl Policy {
    /// Both, by name.
    pub const ALL: [(&'static str, Self); 2] = [("fifo", Self::Fifo), ("sieve", Self::Sieve)];
}

/// A cache on a device. One batch at a time.
pub struct Dynamic {
    stored: Arc<Stored>,
    queue: Arc<Queue>,
    slots: usize,
    state: Mutex<State>,
}

/// What is where.
struct State {
    /// `slots` rows as they are stored.
    rows: Buffer,
    /// Of each row, `V`.
    slot_of: Buffer,
    /// Of each slot.
    holder: Buffer,
    /// Where the next slot is looked for, and where it will be.
    hand: Buffer,
    /// Slots in use, with [`Policy::Sieve`].
    used: Option<Buffer>,
}

impl Dynamic {
    /// `slots` rows of `stored` (at most all) on the device. Takes 4 bytes a row of the table and 4
    /// to 8 a slot beside them.
    ///
    /// # Errors
    /// There is not as much memory, or the driver fails.
    pub fn new(device: &Arc<Device>, stored: &Arc<Stored>, slots: usize, policy: Policy) -> Result<Self> {
        let slots = slots.min(stored.num_rows()).min(i32::MAX as usize);
        let queue = Queue::new(device)?;
        let filled = |words: usize, word: u32| -> Result<Buffer> {
            let buffer = queue.take(4 * words)?;
            // SAFETY: as many words as were just taken
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

    /// How many rows it holds at most.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The rows on the device, and what they cost. What is missing is admitted. `asked` is where
    /// the ids are there, if they are.
    fn rows(&self, ids: &[NodeId], asked: Option<Address>) -> Result<(Buffer, Traffic)> {
        if asked.is_none() {
            self.stored.check(ids)?;
        }
        if ids.len() > i32::MAX as usize {
            return Err(Error::invalid(format!("{} rows at once: at most 2^31 - 1", ids.len())));
        }
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        let (queue, count) = (&self.queue, ids.len());
        let driver = queue.device().driver();
        let copied = if asked.is_none() { Some(queue.upload(ids)?) } else { None };
        let ids_at = asked.or(copied.as_ref().map(Buffer::address)).unwrap_or(Address(0));
        let (found, to) = (queue.scratch(4 * count)?, queue.scratch(4 * count)?);
        let first = queue.scratch(4 * (count + 1))?;
        let out = queue.take(4 * count * self.dim())?;
        // hits, and the sums of scans
        let hits = queue.scratch(24)?;
        let (found_at, to_at) = (found.address(), to.address());
        let (before, hits_at, sum) = (first.address(), hits.address(), hits.address().offset(8));
        let (slot_of, holder, hand) = (state.slot_of.address(), state.holder.address(), state.hand.address());
        let used = state.used.as_ref().map_or(Address(0), Buffer::address);
        let copying = self.stored.copying();
        let (bytes, unit, group, kind) = (copying.row_bytes, copying.unit, copying.group, copying.kind);
        let (rows, dim) = (state.rows.address(), self.dim());
        let out_at = out.address();
        // SAFETY: all ids are below V; there is room for what each kernel writes of every id, slot
        // and row
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

    /// The slots in the order in which the hand takes them, as many as are `missing` (one u32
    /// there).
    ///
    /// # Safety
    /// The addresses are those of the cache's state, and of a count.
    unsafe fn victims(&self, used: Address, hand: Address, missing: Address) -> Result<Buffer> {
        let (queue, slots) = (&self.queue, self.slots);
        let (free, total, victims) =
            (queue.scratch(4 * (slots + 1))?, queue.scratch(8)?, queue.scratch(4 * slots)?);
        let before = free.address();
        // SAFETY: the caller's promise; room for a flag of each slot and one more
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

    fn read_to(&self, ids: &[NodeId], places: Places, out: &mut [f32]) -> Result<Traffic> {
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
    fn gather_on_device(
        &self,
        ids: &[NodeId],
        on_device: &Arc<dyn DeviceMemory>,
        out: &mut Matrix,
    ) -> Result<Traffic> {
        let here = on_device.device() == self.queue.device().number() && on_device.bytes() >= 4 * ids.len();
        let asked = here.then(|| Address(on_device.address()));
        stored::gather(ids, self.dim(), out, || self.rows(ids, asked))
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
