//! Context of an operation: addresses of its matrices, its block on the device, and kernel
//! launches.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::Arc;

use graphmill_core::{
    Block,
    block::DeviceBlock,
    matrix::{View, ViewMut},
};

use crate::{
    Buffer, Error, Queue, Result,
    block::Resident,
    device::{THREADS, WARP},
    driver::{Address, Shape},
    kernels::{self, In, Kernel, Out, RowKernel, Table, Wide},
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

    /// Rows of any type to read.
    pub(super) fn table(&self, x: View) -> Result<Table> {
        let (kind, at) = x.on_device(&self.memory).ok_or_else(|| self.refusal())?;
        Ok(Table { kind, at: Address(at), len: x.num_rows() * x.num_cols() })
    }

    /// Values to read.
    ///
    /// # Panics
    /// See [`Table::floats`].
    pub(super) fn read(&self, x: View) -> Result<In<f32>> {
        Ok(self.table(x)?.floats())
    }

    /// Values to overwrite.
    pub(super) fn write(&self, x: ViewMut) -> Result<Out<f32>> {
        self.place(x, false)
    }

    /// Values to update.
    pub(super) fn change(&self, x: ViewMut) -> Result<Out<f32>> {
        self.place(x, true)
    }

    /// Values to write, and to read first if `keeps`.
    pub(super) fn place(&self, x: ViewMut, keeps: bool) -> Result<Out<f32>> {
        let len = x.num_rows() * x.num_cols();
        let at = x.on_device(&self.memory, keeps).ok_or_else(|| self.refusal())?;
        Ok(Out::new(Address(at), len))
    }

    /// The block on the device.
    pub(super) fn block(&self, block: &Block) -> Result<OnDevice> {
        Ok(OnDevice(Resident::of(self.queue, block)?))
    }

    /// Allocates scratch for `values` values.
    pub(super) fn scratch<T>(&self, values: usize) -> Result<Buffer<T>> {
        self.queue.take(values)
    }

    /// Launches a kernel for `groups` groups of `lanes` lanes.
    ///
    /// # Errors
    /// See [`crate::Device::launch`].
    ///
    /// # Safety
    /// See [`crate::Device::launch`].
    pub(super) unsafe fn groups(&self, groups: usize, lanes: u32, kernel: &impl Kernel) -> Result<()> {
        // SAFETY: by the caller's guarantee
        unsafe { self.queue.run(groups.saturating_mul(lanes as usize), kernel) }
    }

    /// Launches a kernel in blocks of 256 threads.
    ///
    /// # Errors
    /// See [`crate::Device::launch`].
    ///
    /// # Safety
    /// See [`crate::Device::launch`].
    pub(super) unsafe fn blocks(&self, grid: [usize; 3], kernel: &impl Kernel) -> Result<()> {
        let shape = Shape { grid: grid.map(|blocks| blocks as u32), block: [THREADS, 1, 1], shared: 0 };
        // SAFETY: by the caller's guarantee
        unsafe { self.queue.launch(shape, kernel.call()) }
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
    long: Option<(usize, Buffer<u32>, Buffer<u32>)>,
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
    pub(super) unsafe fn list_rows(&self, indptr: In<u32>, edges: usize, count: usize) -> Result<Rows> {
        let most = (edges / LONG_ROW).min(count);
        if most == 0 {
            return Ok(Rows { count, edges, long: None });
        }
        let (mut listed, mut list) = (self.scratch::<u32>(1)?, self.scratch::<u32>(most)?);
        let (counter, from) = (listed.write(), LONG_ROW as u32);
        let kernel = kernels::ListLongRows { indptr, rows: count, from, count: counter, list: list.write() };
        // SAFETY: one word is there; by the caller's guarantee, and the list has an entry for every
        // long row
        unsafe {
            self.fill(listed.address(), 0.0, 1)?;
            self.queue.run(count, &kernel)?;
        }
        Ok(Rows { count, edges, long: Some((most, listed, list)) })
    }

    /// Launches an operation's kernel for rows of `items` items each, with a group of lanes per
    /// item, and its second kernel for the long rows, with a block per item.
    ///
    /// # Errors
    /// See [`crate::Device::launch`].
    ///
    /// # Safety
    /// See [`crate::Device::launch`].
    pub(super) unsafe fn rows(
        &self,
        rows: &Rows,
        items: usize,
        lanes: u32,
        kernel: &impl RowKernel,
    ) -> Result<()> {
        let long_from = if rows.long.is_some() { LONG_ROW as u32 } else { u32::MAX };
        let threads = (rows.count * items).saturating_mul(lanes as usize);
        // SAFETY: by the caller's guarantee
        unsafe { self.queue.launch(self.queue.shape(threads), kernel.short_rows(rows.count, long_from))? };
        let Some((most, listed, list)) = &rows.long else { return Ok(()) };
        let blocks = (most * items).min(8 * self.queue.device().properties().multiprocessors as usize);
        if blocks == 0 {
            return Ok(());
        }
        let shape = Shape { grid: [blocks as u32, 1, 1], block: [LONG_THREADS, 1, 1], shared: 0 };
        // SAFETY: by the caller's guarantee
        unsafe { self.queue.launch(shape, kernel.long_rows(rows.count, listed.read(), list.read())) }
    }
}

/// Reads of rows of `cols` values: four values at a time if the width and all addresses allow it.
pub(super) fn wide(cols: usize, addresses: &[bool]) -> Wide {
    Wide(cols.is_multiple_of(4) && addresses.iter().all(|&is_wide| is_wide))
}

/// Number of lanes for a row of `cols` columns, `vector` columns per lane.
pub(super) fn lanes(cols: usize, vector: usize) -> u32 {
    (cols.div_ceil(vector).clamp(4, WARP as usize) as u32).next_power_of_two()
}

/// Number of lanes that share the edges of a row, if `rows` rows have `edges` edges in total.
pub(super) fn edge_lanes(edges: usize, rows: usize) -> u32 {
    lanes(edges / rows.max(1) + 1, 1)
}
