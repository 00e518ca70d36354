//! What every operation needs: addresses of its matrices, its block on the device, and how its
//! kernels are started.

use std::sync::Arc;

use graphmill_core::{
    Block,
    block::DeviceBlock,
    matrix::{TableType, View, ViewMut},
};

use crate::{
    Buffer, Error, Queue, Result, arguments,
    block::Resident,
    device::{Argument, THREADS, WARP},
    driver::{Address, Shape},
    queue::Memory,
};

/// One operation at work.
pub(super) struct Work<'a> {
    pub(super) queue: &'a Arc<Queue>,
    memory: Memory,
}

/// A block's arrays on the device.
pub(super) struct OnDevice(Arc<dyn DeviceBlock>);

impl OnDevice {
    /// The arrays.
    pub(super) fn get(&self) -> &Resident {
        self.0.as_any().downcast_ref().expect("blocks of this crate's devices are resident blocks")
    }
}

impl<'a> Work<'a> {
    pub(super) fn new(queue: &'a Arc<Queue>) -> Self {
        Self { queue, memory: Memory(queue.clone()) }
    }

    /// What the device remembers where it had no memory.
    fn refusal(&self) -> Error {
        let device = self.queue.device();
        device.check().err().unwrap_or_else(|| Error::Driver {
            device: device.name().into(),
            call: "allocate",
            message: "a matrix has no place on the device".into(),
        })
    }

    /// The values' type and where they are.
    pub(super) fn table(&self, x: View) -> Result<(TableType, Address)> {
        let (kind, at) = x.on_device(&self.memory).ok_or_else(|| self.refusal())?;
        Ok((kind, Address(at)))
    }

    /// Where the values are.
    ///
    /// # Panics
    /// They are 16-bit floats, which only operations that read a table take: a bug in the caller.
    pub(super) fn read(&self, x: View) -> Result<Address> {
        let (kind, at) = self.table(x)?;
        assert_eq!(kind, TableType::F32, "a table of 16-bit floats: gather its rows first");
        Ok(at)
    }

    /// Where values are written that were not read.
    pub(super) fn write(&self, x: ViewMut) -> Result<Address> {
        self.place(x, false)
    }

    /// Where values are changed.
    pub(super) fn change(&self, x: ViewMut) -> Result<Address> {
        self.place(x, true)
    }

    /// Where values are written, and read before if `keeps`.
    pub(super) fn place(&self, x: ViewMut, keeps: bool) -> Result<Address> {
        x.on_device(&self.memory, keeps).map(Address).ok_or_else(|| self.refusal())
    }

    /// The block on the device.
    pub(super) fn block(&self, block: &Block) -> Result<OnDevice> {
        Ok(OnDevice(Resident::of(self.queue, block)?))
    }

    /// Memory for so many values.
    pub(super) fn scratch<T>(&self, values: usize) -> Result<Buffer> {
        self.queue.take(values * size_of::<T>())
    }

    /// Starts a kernel for so many groups of `lanes` lanes.
    ///
    /// # Errors
    /// See [`crate::Device::launch`].
    ///
    /// # Safety
    /// See [`crate::Device::launch`].
    pub(super) unsafe fn groups(
        &self,
        name: &'static str,
        groups: usize,
        lanes: u32,
        arguments: &[Argument],
    ) -> Result<()> {
        // SAFETY: the caller's promise
        unsafe { self.queue.run(name, groups.saturating_mul(lanes as usize), arguments) }
    }

    /// Starts a kernel of blocks of 256 threads.
    ///
    /// # Errors
    /// See [`crate::Device::launch`].
    ///
    /// # Safety
    /// See [`crate::Device::launch`].
    pub(super) unsafe fn blocks(
        &self,
        name: &'static str,
        grid: [usize; 3],
        arguments: &[Argument],
    ) -> Result<()> {
        let shape = Shape { grid: grid.map(|blocks| blocks as u32), block: [THREADS, 1, 1], shared: 0 };
        // SAFETY: the caller's promise
        unsafe { self.queue.launch(name, shape, arguments) }
    }

    /// Sets f32 values.
    ///
    /// # Errors
    /// The driver fails.
    ///
    /// # Safety
    /// As many are there.
    pub(super) unsafe fn fill(&self, at: Address, value: f32, values: usize) -> Result<()> {
        if values == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise
        unsafe { self.queue.device().driver().fill(at, value.to_bits(), values, self.queue.stream()) }
    }
}

/// Edges from which on a whole block of threads shares a row.
const LONG: usize = 128;
/// Its threads.
const LONG_THREADS: u32 = 512;

/// So many rows, of which those of many edges are listed on the device: `kernels/long_rows.cuh`.
pub(super) struct Rows {
    count: usize,
    /// How many are long at most, and with room for these, how many and which.
    long: Option<(usize, Buffer, Buffer)>,
}

impl Work<'_> {
    /// So many rows, which have so many edges in all.
    ///
    /// # Errors
    /// The driver fails.
    ///
    /// # Safety
    /// `indptr` has a value for each row and one more, and they say no more edges than that.
    pub(super) unsafe fn list_rows(&self, indptr: Address, edges: usize, count: usize) -> Result<Rows> {
        let most = (edges / LONG).min(count);
        if most == 0 {
            return Ok(Rows { count, long: None });
        }
        let (listed, list) = (self.scratch::<u32>(1)?, self.scratch::<u32>(most)?);
        let arguments = arguments![indptr, count, LONG as u32, listed.address(), list.address()];
        // SAFETY: one word is there; the caller's promise, and the list has a place for every row
        // that is long
        unsafe {
            self.fill(listed.address(), 0.0, 1)?;
            self.queue.run("list_long_rows", count, arguments)?;
        }
        Ok(Rows { count, long: Some((most, listed, list)) })
    }

    /// Starts an operation's kernel for rows, of so many items each, a group of lanes an item, and
    /// its second one for the rows that are long, a block an item. Both have these arguments first;
    /// then follow those of the one or the other.
    ///
    /// # Errors
    /// See [`crate::Device::launch`].
    ///
    /// # Safety
    /// See [`crate::Device::launch`].
    pub(super) unsafe fn rows(
        &self,
        [name, long_name]: [&'static str; 2],
        rows: &Rows,
        items: usize,
        lanes: u32,
        arguments: &[Argument],
    ) -> Result<()> {
        let long_from = if rows.long.is_some() { LONG as u32 } else { u32::MAX };
        let of_all = [arguments, &arguments![rows.count, long_from][..]].concat();
        // SAFETY: the caller's promise
        unsafe { self.groups(name, rows.count * items, lanes, &of_all)? };
        let Some((most, listed, list)) = &rows.long else { return Ok(()) };
        let blocks = (most * items).min(8 * self.queue.device().properties().multiprocessors as usize);
        if blocks == 0 {
            return Ok(());
        }
        let shape = Shape { grid: [blocks as u32, 1, 1], block: [LONG_THREADS, 1, 1], shared: 0 };
        let of_long = [arguments, &arguments![listed.address(), list.address()][..]].concat();
        // SAFETY: the caller's promise
        unsafe { self.queue.launch(long_name, shape, &of_long) }
    }
}

/// Where a buffer is; nowhere without one.
pub(super) fn address(buffer: Option<&Buffer>) -> Address {
    buffer.map_or(Address(0), Buffer::address)
}

/// Whether rows of so many values of 4 bytes, or 2, can be read four values at a time from this
/// address on.
pub(super) fn wide(cols: usize, addresses: &[(Address, usize)]) -> bool {
    cols.is_multiple_of(4) && addresses.iter().all(|&(at, width)| at.0.is_multiple_of(4 * width as u64))
}

/// How many lanes make a row of so many columns, `vector` of them each.
pub(super) fn lanes(cols: usize, vector: usize) -> u32 {
    (cols.div_ceil(vector).clamp(4, WARP as usize) as u32).next_power_of_two()
}

/// How many lanes go through the edges of a row, of so many in all.
pub(super) fn edge_lanes(edges: usize, rows: usize) -> u32 {
    lanes(edges / rows.max(1) + 1, 1)
}
