//! A table of rows in host memory as a device's kernels read it.

use std::{sync::Arc, time::Instant};

use graphmill_core::{
    Block, Error, Matrix, NodeId, Result,
    matrix::{TableData, TableType},
};
use graphmill_loader::{
    Traffic,
    feature::{Places, TierTraffic},
};

use crate::{Buffer, Device, Queue, block::Resident, device::WARP, mapped::Mapped};

/// All rows, dense, in page-locked host memory. Devices of one process share it.
#[derive(Debug)]
pub struct Stored {
    mapped: Mapped,
    data: TableData,
    dim: usize,
}

/// How rows are copied: by `group` lanes, `unit` bytes each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copying {
    pub(super) row_bytes: usize,
    pub(super) unit: u32,
    pub(super) group: u32,
    /// Of stored values, among the kernels.
    pub(super) kind: u32,
}

impl Stored {
    /// Locks the table where it is, or copies it where the system does not lock such memory (a
    /// mapped file, say).
    ///
    /// # Errors
    /// There is no memory for the copy.
    pub fn new(device: &Arc<Device>, data: &TableData, dim: usize) -> Result<Arc<Self>> {
        let bytes: &[u8] = match data {
            TableData::F32(data) => bytemuck::cast_slice(data),
            TableData::F16(data) => bytemuck::cast_slice(data),
            TableData::Bf16(data) => bytemuck::cast_slice(data),
        };
        let mapped = Mapped::new(device, bytes, data.clone())?;
        Ok(Arc::new(Self { mapped, data: data.clone(), dim }))
    }

    /// `F`.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// `V`.
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

    /// Where devices read it.
    pub fn mapped(&self) -> &Mapped {
        &self.mapped
    }

    /// The widest reads that rows allow, here and in memory of a device, which is aligned.
    pub(super) fn copying(&self) -> Copying {
        let row_bytes = self.row_bytes();
        let aligned = row_bytes as u64 | self.mapped.address().0;
        let unit = [16u64, 4].into_iter().find(|unit| aligned.is_multiple_of(*unit)).unwrap_or(2);
        let lanes = (row_bytes as u64).div_ceil(unit).next_power_of_two().min(WARP.into());
        let kind = match self.data.kind() {
            TableType::F32 => 0,
            TableType::F16 => 1,
            TableType::Bf16 => 2,
        };
        Copying { row_bytes, unit: unit as u32, group: lanes as u32, kind }
    }

    /// # Errors
    /// A row that is not there.
    pub(super) fn check(&self, ids: &[NodeId]) -> Result<()> {
        let last = ids.iter().copied().max().unwrap_or(0);
        if ids.is_empty() || (last as usize) < self.num_rows() {
            return Ok(());
        }
        Err(Error::invalid(format!("row {last}: the feature table has {} rows", self.num_rows())))
    }
}

/// Copies of blocks that the host drew, made in a stream that does not train.
pub(super) fn place_blocks(queue: &Arc<Queue>, blocks: &[Block]) -> Result<()> {
    for block in blocks {
        Resident::of(queue, block)?;
    }
    Ok(queue.synchronize()?)
}

/// Makes `out` what `read` gives: rows on a device, and what they cost.
pub(super) fn gather(
    ids: &[NodeId],
    dim: usize,
    out: &mut Matrix,
    read: impl FnOnce() -> Result<(Buffer, Traffic)>,
) -> Result<Traffic> {
    if ids.is_empty() || dim == 0 {
        out.resize(ids.len(), dim);
        return Ok(Traffic::default());
    }
    let (rows, traffic) = read()?;
    out.set_device(ids.len(), dim, Arc::new(rows));
    Ok(traffic)
}

/// Copies what `read` gives, rows on a device, to their places in host memory.
pub(super) fn read_to(
    ids: &[NodeId],
    dim: usize,
    places: Places,
    out: &mut [f32],
    read: impl FnOnce() -> Result<(Buffer, Traffic)>,
) -> Result<Traffic> {
    if ids.is_empty() || dim == 0 {
        return Ok(Traffic::default());
    }
    let began = Instant::now();
    let (rows, mut traffic) = read()?;
    match places {
        Places::InOrder => rows.download(&mut out[..ids.len() * dim])?,
        Places::At(at) => {
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

/// Counts of rows as a kernel leaves them. Waits.
pub(super) fn counts<const N: usize>(queue: &Arc<Queue>, from: &Buffer) -> Result<[u64; N]> {
    let mut counts = [0; N];
    from.download(&mut counts)?;
    queue.device().check()?;
    Ok(counts)
}
