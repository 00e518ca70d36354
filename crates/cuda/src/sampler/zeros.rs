//! Zeroed words of a hop: counters from which its kernels take tiles and look back
//! (`kernels/lookback.cuh`). One fill zeroes those of all kernels of a hop.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::Arc;

use crate::{Buffer, Queue, Result, kernels::Out};

/// Destinations per tile of `sample_starts`, and edges per tile of `relabel_number` and of the
/// sort.
const STARTS_TILE: usize = 1024;
const TILE: usize = 2048;
/// Threads per block of those kernels.
pub(super) const TILE_THREADS: usize = 256;

/// Number of tiles for `rows` destinations.
pub(super) fn starts_tiles(rows: usize) -> usize {
    rows.div_ceil(STARTS_TILE).max(1)
}

/// Number of tiles for `edges` edges; at least one, which reports that there are 0.
pub(super) fn edge_tiles(edges: usize) -> usize {
    edges.div_ceil(TILE).max(1)
}

/// Number of words for `sample_starts`.
pub(super) fn of_starts(rows: usize) -> usize {
    1 + starts_tiles(rows)
}

/// Number of words for `relabel_number`.
pub(super) fn of_numbers(edges: usize) -> usize {
    1 + edge_tiles(edges)
}

/// 64-bit words, zeroed.
pub(super) struct Zeros {
    buffer: Buffer<u64>,
    taken: usize,
}

impl Zeros {
    /// Allocates `words` words, set to 0 in the queue's stream.
    ///
    /// # Errors
    /// Memory is insufficient, or the driver fails.
    pub(super) fn new(queue: &Arc<Queue>, words: usize) -> Result<Self> {
        let buffer = queue.scratch(words)?;
        // SAFETY: the buffer has this many words
        unsafe { queue.device().driver().fill(buffer.address(), 0, 2 * words, queue.stream())? };
        Ok(Self { buffer, taken: 0 })
    }

    /// Takes the next `words` words.
    ///
    /// # Panics
    /// Fewer words are left: a bug in the caller.
    pub(super) fn take(&mut self, words: usize) -> Out<u64> {
        let at = self.buffer.write().offset(self.taken);
        self.taken += words;
        assert!(self.taken <= self.buffer.len(), "{} words of {}", self.taken, self.buffer.len());
        at
    }
}
