//! Table of rows in host memory that a device's kernels read.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{sync::Arc, time::Instant};

use graphmill_core::{
    Block, Error, Matrix, NodeId, Result,
    matrix::{TableData, TableType},
};
use graphmill_loader::{
    Traffic,
    feature::{OutputRows, TierTraffic},
};

use crate::{
    Buffer, Device, Queue,
    block::Resident,
    device::WARP,
    driver::Address,
    kernels::{Copying, In},
    mapped::Mapped,
};

/// All rows, dense, in page-locked host memory that the devices of a process share.
#[derive(Debug)]
pub struct Stored {
    mapped: Mapped,
    data: TableData,
    dim: usize,
}

impl Copying {
    /// The widest reads of rows of `dim` values that both a table at this address and aligned
    /// device memory allow.
    pub(super) fn of(dim: usize, kind: TableType, table: Address) -> Self {
        let row_bytes = dim * kind.width();
        let aligned = row_bytes as u64 | table.0;
        let unit = [16u64, 4].into_iter().find(|unit| aligned.is_multiple_of(*unit)).unwrap_or(2);
        let lanes = (row_bytes as u64).div_ceil(unit).next_power_of_two().min(WARP.into());
        let kind = match kind {
            TableType::F32 => 0,
            TableType::F16 => 1,
            TableType::Bf16 => 2,
        };
        Self { row_bytes, unit: unit as u32, group: lanes as u32, kind }
    }
}

/// Numbers of rows on the device.
pub(super) enum Ids {
    On(In<u32>),
    Copied(Buffer<u32>),
}

impl Ids {
    /// The numbers at an address of the device, if they are there; else copies them.
    pub(super) fn of(queue: &Arc<Queue>, ids: &[NodeId], on_device: Option<Address>) -> Result<Self> {
        Ok(match on_device {
            Some(at) => Self::On(In::at(at)),
            None => Self::Copied(queue.upload(ids)?),
        })
    }

    /// The numbers, for kernels.
    pub(super) fn read(&self) -> In<u32> {
        match self {
            Self::On(ids) => *ids,
            Self::Copied(ids) => ids.read(),
        }
    }
}

impl Stored {
    /// Locks the table in place, or copies it if the system cannot lock its memory (for example a
    /// mapped file).
    ///
    /// # Errors
    /// Memory for the copy is insufficient.
    pub fn new(device: &Arc<Device>, data: &TableData, dim: usize) -> Result<Arc<Self>> {
        let bytes: &[u8] = match data {
            TableData::F32(data) => bytemuck::cast_slice(data),
            TableData::F16(data) => bytemuck::cast_slice(data),
            TableData::Bf16(data) => bytemuck::cast_slice(data),
        };
        // SAFETY: a clone of shared immutable values keeps them in place.
        let mapped = unsafe { Mapped::new(device, bytes, data.clone())? };
        Ok(Arc::new(Self { mapped, data: data.clone(), dim }))
    }

    /// Width of a row, `F`.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Number of rows, `V`.
    pub fn num_rows(&self) -> usize {
        self.data.len().checked_div(self.dim).unwrap_or(0)
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.dim * self.data.kind().width()
    }

    /// The table.
    pub fn data(&self) -> &TableData {
        &self.data
    }

    /// Device address of the table.
    pub fn mapped(&self) -> &Mapped {
        &self.mapped
    }

    /// Bytes of the table, for kernels.
    pub(super) fn bytes(&self) -> In<u8> {
        In::at(self.mapped.address())
    }

    /// The widest reads that both the table's rows and aligned device memory allow.
    pub(super) fn copying(&self) -> Copying {
        Copying::of(self.dim, self.data.kind(), self.mapped.address())
    }

    /// Checks that all rows exist.
    ///
    /// # Errors
    /// A row is beyond the table.
    pub(super) fn check(&self, ids: &[NodeId]) -> Result<()> {
        check(ids, self.num_rows())
    }
}

/// Checks that all of these rows of a table with `rows` exist.
///
/// # Errors
/// A row is beyond the table.
pub(super) fn check(ids: &[NodeId], rows: usize) -> Result<()> {
    let last = ids.iter().copied().max().unwrap_or(0);
    if ids.is_empty() || (last as usize) < rows {
        return Ok(());
    }
    Err(Error::invalid(format!("row {last} is beyond the feature table of {rows} rows")))
}

/// Copies blocks that the host drew to the device, in a stream other than the compute stream.
pub(super) fn place_blocks(queue: &Arc<Queue>, blocks: &[Block]) -> Result<()> {
    for block in blocks {
        Resident::of(queue, block)?;
    }
    Ok(queue.synchronize()?)
}

/// Sets `out` to the result of `read`: rows on a device, with their traffic.
pub(super) fn gather(
    ids: &[NodeId],
    dim: usize,
    out: &mut Matrix,
    read: impl FnOnce() -> Result<(Buffer<f32>, Traffic)>,
) -> Result<Traffic> {
    if ids.is_empty() || dim == 0 {
        out.resize(ids.len(), dim);
        return Ok(Traffic::default());
    }
    let (rows, traffic) = read()?;
    out.set_device(ids.len(), dim, Arc::new(rows));
    Ok(traffic)
}

/// Copies the result of `read`, rows on a device, to `places` in host memory.
pub(super) fn read_to(
    ids: &[NodeId],
    dim: usize,
    places: OutputRows,
    out: &mut [f32],
    read: impl FnOnce() -> Result<(Buffer<f32>, Traffic)>,
) -> Result<Traffic> {
    if ids.is_empty() || dim == 0 {
        return Ok(Traffic::default());
    }
    let began = Instant::now();
    let (rows, mut traffic) = read()?;
    match places {
        OutputRows::InOrder => rows.download(&mut out[..ids.len() * dim])?,
        OutputRows::At(at) => {
            let mut all = vec![0f32; ids.len() * dim];
            rows.download(&mut all)?;
            for (&at, row) in at.iter().zip(all.chunks_exact(dim)) {
                out[at as usize * dim..(at as usize + 1) * dim].copy_from_slice(row);
            }
        }
    }
    traffic.device.nanos = TierTraffic::since(began, 0, 0).nanos;
    Ok(traffic)
}

/// Reads the row counts that a kernel wrote, and waits for it.
pub(super) fn counts<const N: usize>(queue: &Arc<Queue>, from: &Buffer<u64>) -> Result<[u64; N]> {
    let mut counts = [0; N];
    from.download(&mut counts)?;
    queue.device().check()?;
    Ok(counts)
}
