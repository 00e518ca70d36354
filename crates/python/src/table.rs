//! Tables whose rows are gathered for a batch: node features, labels, edge attributes.

#![allow(unsafe_code, reason = "foreign libraries")]

use std::{any::Any, slice, sync::Arc};

use bytemuck::Pod;
use graphmill_core::{Buffer, prefetch::prefetch};
use graphmill_loader::{Feature, feature::OutputRows};

use crate::{fault::Fault, tiered::Tiered};

/// Number of rows between a prefetch and its copy.
const PREFETCH_DISTANCE: usize = 8;

/// A table of rows.
#[derive(Clone)]
pub enum Table {
    /// Rows in memory, of any type.
    Rows(Rows),
    /// Rows of a dataset in memory, converted to `f32`.
    Feature(Arc<dyn Feature>),
    /// Rows of a dataset in tiers.
    Tiered(Arc<Tiered>),
}

impl Table {
    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.num_rows,
            Self::Feature(feature) => feature.num_rows(),
            Self::Tiered(tiered) => tiered.num_rows(),
        }
    }

    /// Bytes of a gathered row.
    pub fn row_bytes(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.row_bytes,
            Self::Feature(feature) => feature.dim() * size_of::<f32>(),
            Self::Tiered(tiered) => tiered.row_bytes(),
        }
    }

    /// Copies the rows of `ids` to `out`, consecutively. O(`ids` x row bytes).
    ///
    /// # Errors
    /// The rows cannot be read.
    ///
    /// # Panics
    /// An id is out of range, or `out` has the wrong size; callers have checked both.
    pub fn gather_nodes(&self, ids: &[u32], out: &mut [u8]) -> Result<(), Fault> {
        match self {
            Self::Rows(rows) => rows.gather(ids, |&id| id as usize, out),
            Self::Feature(feature) => {
                feature.read_to(ids, OutputRows::InOrder, bytemuck::cast_slice_mut(out))?;
            }
            Self::Tiered(tiered) => tiered.gather(ids, out)?,
        }
        Ok(())
    }

    /// Copies rows of edges, like [`Table::gather_nodes`]; only [`Table::Rows`] has rows of edges.
    pub fn gather_edges(&self, ids: &[i64], out: &mut [u8]) {
        if let Self::Rows(rows) = self {
            rows.gather(ids, |&id| id as usize, out);
        }
    }
}

/// Rows of bytes in memory that another object owns.
#[derive(Clone)]
pub struct Rows {
    start: *const u8,
    row_bytes: usize,
    num_rows: usize,
    /// Keeps the memory alive and in place.
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the memory is only read, and `_owner`, which may be dropped on any thread, keeps it
// alive.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

impl Rows {
    /// Rows of `row_bytes` bytes from `start`.
    ///
    /// # Safety
    /// `num_rows * row_bytes` bytes from `start` on are initialised and readable while `owner`
    /// lives. They are not written while a batch is made; a user's program that writes to its array
    /// anyway gets torn rows, as from every loader that reads arrays in place.
    pub unsafe fn new(
        start: *const u8,
        row_bytes: usize,
        num_rows: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { start, row_bytes, num_rows, _owner: owner }
    }

    /// Rows of `dim` values each of a buffer.
    pub fn of<T: Pod + Send + Sync>(buffer: &Buffer<T>, dim: usize) -> Self {
        let values: &[T] = buffer;
        let num_rows = values.len() / dim.max(1);
        // SAFETY: a buffer's values stay in place while a clone of it lives, and are never written.
        unsafe { Self::new(values.as_ptr().cast(), dim * size_of::<T>(), num_rows, Arc::new(buffer.clone())) }
    }

    /// All rows.
    fn bytes(&self) -> &[u8] {
        if self.num_rows * self.row_bytes == 0 {
            return &[];
        }
        // SAFETY: the caller of `new` guarantees the bytes, which live as long as `self`.
        unsafe { slice::from_raw_parts(self.start, self.num_rows * self.row_bytes) }
    }

    fn gather<I>(&self, ids: &[I], at: impl Fn(&I) -> usize, out: &mut [u8]) {
        // short rows of constant size compile to loads and stores
        match self.row_bytes {
            0 => {}
            1 => self.gather_of::<1, I>(ids, at, out),
            4 => self.gather_of::<4, I>(ids, at, out),
            8 => self.gather_of::<8, I>(ids, at, out),
            width => {
                let bytes = self.bytes();
                for (i, (id, to)) in ids.iter().zip(out.chunks_exact_mut(width)).enumerate() {
                    if let Some(ahead) = ids.get(i + PREFETCH_DISTANCE) {
                        // the hardware prefetches the rest of long rows
                        let start = at(ahead) * width;
                        (start..start + width).step_by(64).take(16).for_each(|byte| prefetch(bytes, byte));
                    }
                    to.copy_from_slice(&bytes[at(id) * width..][..width]);
                }
            }
        }
    }

    fn gather_of<const WIDTH: usize, I>(&self, ids: &[I], at: impl Fn(&I) -> usize, out: &mut [u8]) {
        let rows = self.bytes().as_chunks::<WIDTH>().0;
        let out = out.as_chunks_mut::<WIDTH>().0;
        for (i, (id, to)) in ids.iter().zip(out).enumerate() {
            if let Some(ahead) = ids.get(i + 2 * PREFETCH_DISTANCE) {
                prefetch(rows, at(ahead));
            }
            *to = rows[at(id)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_width_are_gathered() {
        for dim in [1, 4, 8, 13, 100, 1200] {
            let buffer: Buffer<u8> = (0..50 * dim).map(|i| (i * 7 % 251) as u8).collect::<Vec<_>>().into();
            let table = Table::Rows(Rows::of(&buffer, dim));
            assert_eq!((table.num_rows(), table.row_bytes()), (50, dim));
            let ids: Vec<u32> = (0..70).map(|i| i * 31 % 50).collect();
            let (mut out, mut of_edges) = (vec![0; 70 * dim], vec![0; 70 * dim]);
            table.gather_nodes(&ids, &mut out).unwrap();
            table.gather_edges(&ids.iter().map(|&id| id.into()).collect::<Vec<_>>(), &mut of_edges);
            let expected: Vec<u8> =
                ids.iter().flat_map(|&id| buffer[id as usize * dim..][..dim].to_vec()).collect();
            assert!(out == expected && of_edges == expected, "{dim}");
        }
        let none = Table::Rows(Rows::of(&Buffer::<f32>::default(), 0));
        none.gather_nodes(&[], &mut []).unwrap();
    }
}
