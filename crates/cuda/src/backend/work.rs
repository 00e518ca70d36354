//! Context of an operation: addresses of its matrices, its block on the device, and kernel
//! launches.

#![allow(unsafe_code, reason = "device memory and kernels")]

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

/// Context of one operation.
pub(super) struct Work<'a> {
    pub(super) queue: &'a Arc<Queue>,
    memory: Memory,
}

/// Arrays of a block on the device.
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

    /// First error of the device, or a failed allocation.
    fn refusal(&self) -> Error {
        let device = self.queue.device();
        device.check().err().unwrap_or_else(|| Error::Driver {
            device: device.name().into(),
            call: "allocate",
            message: "not enough memory for a matrix".into(),
        })
    }

    /// Type and address of the values.
    pub(super) fn table(&self, x: View) -> Result<(TableType, Address)> {
        let (kind, at) = x.on_device(&self.memory).ok_or_else(|| self.refusal())?;
        Ok((kind, Address(at)))
    }

    /// Address of values to read.
    ///
    /// # Panics
    /// The values are 16-bit floats, which only operations on tables support: a bug in the caller.
    pub(super) fn read(&self, x: View) -> Result<Address> {
        let (kind, at) = self.table(x)?;
        assert_eq!(kind, TableType::F32, "tables of 16-bit floats must be gathered first");
        Ok(at)
    }

    /// Address of values to overwrite.
    pub(super) fn write(&self, x: ViewMut) -> Result<Address> {
        self.place(x, false)
    }

    /// Address of values to update.
    pub(super) fn change(&self, x: ViewMut) -> Result<Address> {
        self.place(x, true)
    }

    /// Address of values to write, and to read first if `keeps`.
    pub(super) fn place(&self, x: ViewMut, keeps: bool) -> Result<Address> {
        x.on_device(&self.memory, keeps).map(Address).ok_or_else(|| self.refusal())
    }

    /// The block on the device.
    pub(super) fn block(&self, block: &Block) -> Result<OnDevice> {
        Ok(OnDevice(Resident::of(self.queue, block)?))
    }

    /// Allocates scratch for `values` values.
    pub(super) fn scratch<T>(&self, values: usize) -> Result<Buffer> {
        self.queue.take(values * size_of::<T>())
    }

    /// Launches a kernel for `groups` groups of `lanes` lanes.
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
        // SAFETY: by the caller's guarantee
        unsafe { self.queue.run(name, groups.saturating_mul(lanes as usize), arguments) }
    }

    /// Launches a kernel in blocks of 256 threads.
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
        // SAFETY: by the caller's guarantee
        unsafe { self.queue.launch(name, shape, arguments) }
    }

    /// Sets f32 values.
    ///
    /// # Errors
    /// The driver fails.
    ///
    /// # Safety
    /// `values` values are at `at`.
    pub(super) unsafe fn fill(&self, at: Address, value: f32, values: usize) -> Result<()> {
        if values == 0 {
            return Ok(());
        }
        // SAFETY: by the caller's guarantee
        unsafe { self.queue.device().driver().fill(at, value.to_bits(), values, self.queue.stream()) }
    }
}

/// Number of edges from which a whole block of threads shares a row.
const LONG_ROW: usize = 128;
/// Threads of such a block.
const LONG_THREADS: u32 = 512;

/// Rows of a kernel. Long rows are listed on the device: see `kernels/long_rows.cuh`.
pub(super) struct Rows {
    count: usize,
    /// Number of edges of all rows.
    edges: usize,
    /// Maximum number of long rows, with buffers for their number and for the list.
    long: Option<(usize, Buffer, Buffer)>,
}

impl Rows {
    /// Number of lanes that share the edges of a row.
    pub(super) fn lanes(&self) -> u32 {
        edge_lanes(self.edges, self.count)
    }
}

impl Work<'_> {
    /// Lists the long ones of `count` rows with `edges` edges in total.
    ///
    /// # Errors
    /// The driver fails.
    ///
    /// # Safety
    /// `indptr` has `count + 1` values, and counts at most `edges` edges.
    pub(super) unsafe fn list_rows(&self, indptr: Address, edges: usize, count: usize) -> Result<Rows> {
        let most = (edges / LONG_ROW).min(count);
        if most == 0 {
            return Ok(Rows { count, edges, long: None });
        }
        let (listed, list) = (self.scratch::<u32>(1)?, self.scratch::<u32>(most)?);
        let arguments = arguments![indptr, count, LONG_ROW as u32, listed.address(), list.address()];
        // SAFETY: one word is there; by the caller's guarantee, and the list has an entry for every
        // long row
        unsafe {
            self.fill(listed.address(), 0.0, 1)?;
            self.queue.run("list_long_rows", count, arguments)?;
        }
        Ok(Rows { count, edges, long: Some((most, listed, list)) })
    }

    /// Launches an operation's kernel for rows of `items` items each, with a group of lanes per
    /// item, and its second kernel for the long rows, with a block per item. `arguments` come first
    /// in both, followed by arguments specific to each.
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
        let long_from = if rows.long.is_some() { LONG_ROW as u32 } else { u32::MAX };
        let of_all = [arguments, &arguments![rows.count, long_from][..]].concat();
        // SAFETY: by the caller's guarantee
        unsafe { self.groups(name, rows.count * items, lanes, &of_all)? };
        let Some((most, listed, list)) = &rows.long else { return Ok(()) };
        let blocks = (most * items).min(8 * self.queue.device().properties().multiprocessors as usize);
        if blocks == 0 {
            return Ok(());
        }
        let shape = Shape { grid: [blocks as u32, 1, 1], block: [LONG_THREADS, 1, 1], shared: 0 };
        let of_long = [arguments, &arguments![listed.address(), list.address()][..]].concat();
        // SAFETY: by the caller's guarantee
        unsafe { self.queue.launch(long_name, shape, &of_long) }
    }
}

/// Address of a buffer, or null.
pub(super) fn address(buffer: Option<&Buffer>) -> Address {
    buffer.map_or(Address(0), Buffer::address)
}

/// Returns true if rows of `cols` values of 4 or 2 bytes can be read four values at a time from
/// these addresses.
pub(super) fn wide(cols: usize, addresses: &[(Address, usize)]) -> bool {
    cols.is_multiple_of(4) && addresses.iter().all(|&(at, width)| at.0.is_multiple_of(4 * width as u64))
}

/// Number of lanes for a row of `cols` columns, `vector` columns per lane.
pub(super) fn lanes(cols: usize, vector: usize) -> u32 {
    (cols.div_ceil(vector).clamp(4, WARP as usize) as u32).next_power_of_two()
}

/// Number of lanes that share the edges of a row, if `rows` rows have `edges` edges in total.
pub(super) fn edge_lanes(edges: usize, rows: usize) -> u32 {
    lanes(edges / rows.max(1) + 1, 1)
}
