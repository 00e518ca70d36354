//! Transpose of a drawn block: its edges by source.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::Arc;

use super::{
    hop::Drawn,
    zeros::{TILE_THREADS, Zeros, edge_tiles},
};
use crate::{Buffer, Queue, Result, arguments, block::ResidentTransposed, driver::Address};

/// Number of values of a digit (`kernels/transpose.cu`).
const DIGITS: usize = 256;

/// Edges by source. Buffers may be longer than their content.
pub(super) struct Transposed {
    starts: Buffer,
    dst: Buffer,
    edge: Buffer,
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
    sizes: Address,
    zeros: &mut Zeros,
) -> Result<Transposed> {
    let (edges, passes) = (drawn.max_edges, passes(sources));
    let (indices, indptr) = (drawn.indices.address(), drawn.indptr.address());
    let threads = TILE_THREADS * edge_tiles(edges);
    let counts = zeros.take(passes * DIGITS);
    let mut keys: [Buffer; 2] = [queue.scratch(4 * edges)?, queue.scratch(4 * edges)?];
    let mut values: [Buffer; 2] = [queue.take(4 * edges)?, queue.take(4 * edges)?];
    let (starts, dst) = (queue.take(4 * (sources + 1))?, queue.take(4 * edges)?);
    // SAFETY: there is a count for every digit of every pass
    unsafe { queue.run("transpose_count", threads, arguments![indices, sizes, passes, counts])? };
    for pass in 0..passes {
        // the first pass reads the block's own edges
        let (from, from_values) =
            if pass == 0 { (indices, Address(0)) } else { (keys[0].address(), values[0].address()) };
        let (to, to_values) = (keys[1].address(), values[1].address());
        let counters = zeros.take(1 + edge_tiles(edges) * DIGITS);
        let of_pass = counts.offset(8 * DIGITS * pass);
        let to_dst = if pass + 1 == passes { dst.address() } else { Address(0) };
        #[rustfmt::skip]
        let arguments = arguments![
            from, from_values, sizes, 8 * pass, of_pass, counters, to, to_values, indptr, to_dst
        ];
        // SAFETY: there is a word for every digit of every tile, and both sides have every edge
        unsafe { queue.run("transpose_place", threads, arguments)? };
        keys.swap(0, 1);
        values.swap(0, 1);
    }
    let arguments = arguments![keys[0].address(), sizes, starts.address()];
    // SAFETY: there is a start for every source and one more
    unsafe { queue.run("transpose_starts", sources + 1, arguments)? };
    let [edge, _] = values;
    Ok(Transposed { starts, dst, edge })
}
