//! Transpose of a drawn block: its edges by source.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::Arc;

use super::{
    hop::Drawn,
    zeros::{TILE_THREADS, Zeros, edge_tiles},
};
use crate::{
    Buffer, Queue, Result,
    block::ResidentTransposed,
    kernels::{self, In},
};

/// Number of values of a digit (`kernels/transpose.cu`).
const DIGITS: usize = 256;

/// Edges by source. Buffers may be longer than their content.
pub(super) struct Transposed {
    starts: Buffer<u32>,
    dst: Buffer<u32>,
    edge: Buffer<u32>,
}

impl Transposed {
    /// Converts to the transpose of a block with these numbers of sources and edges.
    pub(super) fn resident(self, num_src: usize, num_edges: usize) -> ResidentTransposed {
        ResidentTransposed { num_src, num_edges, indptr: self.starts, dst: self.dst, edge: self.edge }
    }
}

/// Number of digits of the sources' ids.
fn passes(sources: usize) -> usize {
    let bits = usize::BITS - sources.saturating_sub(1).leading_zeros();
    bits.div_ceil(8).max(1) as usize
}

/// Number of zeroed words for at most this many edges and sources.
pub(super) fn words(edges: usize, sources: usize) -> usize {
    passes(sources) * (DIGITS + 1 + edge_tiles(edges) * DIGITS)
}

/// Groups the edges by source, with destinations ascending within each; `sources` is the maximum
/// number of sources. O(E log S) by a radix sort with one kernel per digit, and 20 bytes of
/// temporary memory per edge.
///
/// # Errors
/// Memory is insufficient, or the driver fails.
///
/// # Safety
/// At `sizes` are the numbers of the block's destinations, edges and sources, which do not exceed
/// those of `drawn` and `sources`; edges have local sources.
pub(super) unsafe fn transpose(
    queue: &Arc<Queue>,
    sources: usize,
    drawn: &Drawn,
    sizes: In<u64>,
    zeros: &mut Zeros,
) -> Result<Transposed> {
    let (edges, passes) = (drawn.max_edges, passes(sources));
    let (indices, indptr) = (drawn.indices.read(), drawn.indptr.read());
    let threads = TILE_THREADS * edge_tiles(edges);
    let counts = zeros.take(passes * DIGITS);
    let mut keys: [Buffer<u32>; 2] = [queue.scratch(edges)?, queue.scratch(edges)?];
    let mut values: [Buffer<u32>; 2] = [queue.take(edges)?, queue.take(edges)?];
    let (mut starts, mut dst) = (queue.take(sources + 1)?, queue.take(edges)?);
    let kernel = kernels::TransposeCount { keys: indices, sizes, passes: passes as u32, counts };
    // SAFETY: there is a count for every digit of every pass
    unsafe { queue.run(threads, &kernel)? };
    for pass in 0..passes {
        // the first pass reads the block's own edges
        let (from, from_values) =
            if pass == 0 { (indices, None) } else { (keys[0].read(), Some(values[0].read())) };
        let kernel = kernels::TransposePlace {
            keys: from,
            values: from_values,
            sizes,
            shift: 8 * pass as u32,
            counts: counts.offset(DIGITS * pass).into(),
            counters: zeros.take(1 + edge_tiles(edges) * DIGITS),
            keys_to: keys[1].write(),
            values_to: values[1].write(),
            indptr,
            dst: (pass + 1 == passes).then(|| dst.write()),
        };
        // SAFETY: there is a word for every digit of every tile, and both sides have every edge
        unsafe { queue.run(threads, &kernel)? };
        keys.swap(0, 1);
        values.swap(0, 1);
    }
    let kernel = kernels::TransposeStarts { keys: keys[0].read(), sizes, starts: starts.write() };
    // SAFETY: there is a start for every source and one more
    unsafe { queue.run(sources + 1, &kernel)? };
    let [edge, _] = values;
    Ok(Transposed { starts, dst, edge })
}
