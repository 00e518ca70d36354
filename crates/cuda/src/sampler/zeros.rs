//! Words that are 0 when a hop begins: what its kernels deal out and look back at
//! (`kernels/lookback.cuh`). One fill makes them for all kernels of a hop.

use std::sync::Arc;

use crate::{Buffer, Queue, Result, driver::Address};

/// Destinations of a tile of `sample_starts`, and edges of one of `relabel_number` and of the sort.
const STARTS_TILE: usize = 1024;
const TILE: usize = 2048;
/// Threads of their blocks.
pub(super) const TILE_THREADS: usize = 256;

/// Tiles of so many destinations.
pub(super) fn starts_tiles(rows: usize) -> usize {
    rows.div_ceil(STARTS_TILE).max(1)
}

/// Tiles of so many edges. One where there is none: it says so.
pub(super) fn edge_tiles(edges: usize) -> usize {
    edges.div_ceil(TILE).max(1)
}

/// Words of `sample_starts`.
pub(super) fn of_starts(rows: usize) -> usize {
    1 + starts_tiles(rows)
}

/// Words of `relabel_number`.
pub(super) fn of_numbers(edges: usize) -> usize {
    1 + edge_tiles(edges)
}

/// Words of 64 bits.
pub(super) struct Zeros {
    buffer: Buffer,
    taken: usize,
}

impl Zeros {
    /// So many words, set to 0 in the queue's stream.
    ///
    /// # Errors
    /// There is not as much memory, or the driver fails.
    pub(super) fn new(queue: &Arc<Queue>, words: usize) -> Result<Self> {
        let buffer = queue.scratch(8 * words)?;
        // SAFETY: as many words were just taken
        unsafe { queue.device().driver().fill(buffer.address(), 0, 2 * words, queue.stream())? };
        Ok(Self { buffer, taken: 0 })
    }

    /// The next so many of them.
    ///
    /// # Panics
    /// There are not as many: a bug in the caller.
    pub(super) fn take(&mut self, words: usize) -> Address {
        let at = self.buffer.address().offset(8 * self.taken);
        self.taken += words;
        assert!(8 * self.taken <= self.buffer.len(), "{} words of {} bytes", self.taken, self.buffer.len());
        at
    }
}
