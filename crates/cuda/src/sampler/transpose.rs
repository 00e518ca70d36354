//! A drawn block's edges by source.

use std::sync::Arc;

use super::{
    hop::Drawn,
    zeros::{TILE_THREADS, Zeros, edge_tiles},
};
use crate::{Buffer, Queue, Result, arguments, block::ResidentTransposed, driver::Address};

/// Values of a digit (`kernels/transpose.cu`).
const DIGITS: usize = 256;

/// Edges by source. Buffers may be longer than what is in them.
pub(super) struct Transposed {
    starts: Buffer,
    dst: Buffer,
    edge: Buffer,
}

impl Transposed {
    /// As part of a block of so many sources and edges.
    pub(super) fn resident(self, num_src: usize, num_edges: usize) -> ResidentTransposed {
        ResidentTransposed { num_src, num_edges, indptr: self.starts, dst: self.dst, edge: self.edge }
    }
}

/// Digits of the sources' numbers.
fn passes(sources: usize) -> usize {
    let bits = usize::BITS - sources.saturating_sub(1).leading_zeros();
    bits.div_ceil(8).max(1) as usize
}

/// Words that are to be 0, of at most so many edges and sources.
pub(super) fn words(edges: usize, sources: usize) -> usize {
    passes(sources) * (DIGITS + 1 + edge_tiles(edges) * DIGITS)
}

/// Groups the edges by source, of `sources` at most, destinations ascending within each. O(E log S)
/// by a radix sort of one kernel a digit, 20 bytes an edge while it lasts.
///
/// # Errors
/// There is not enough memory, or the driver fails.
///
/// # Safety
/// At `sizes` are the numbers of the block's destinations, edges and sources, which are not more
/// than what `drawn` and `sources` say; edges have local sources.
pub(super) unsafe fn transpose(
    queue: &Arc<Queue>,
    sources: usize,
    drawn: &Drawn,
    sizes: Address,
    zeros: &mut Zeros,
) -> Result<Transposed> {
    let (edges, passes) = (drawn.most, passes(sources));
    let (indices, indptr) = (drawn.indices.address(), drawn.indptr.address());
    let threads = TILE_THREADS * edge_tiles(edges);
    let counts = zeros.take(passes * DIGITS);
    let mut keys: [Buffer; 2] = [queue.scratch(4 * edges)?, queue.scratch(4 * edges)?];
    let mut values: [Buffer; 2] = [queue.take(4 * edges)?, queue.take(4 * edges)?];
    let (starts, dst) = (queue.take(4 * (sources + 1))?, queue.take(4 * edges)?);
    // SAFETY: a count for every digit of every pass
    unsafe { queue.run("transpose_count", threads, arguments![indices, sizes, passes, counts])? };
    for pass in 0..passes {
        // the first reads the block's own edges
        let (from, from_values) =
            if pass == 0 { (indices, Address(0)) } else { (keys[0].address(), values[0].address()) };
        let (to, to_values) = (keys[1].address(), values[1].address());
        let dealt = zeros.take(1 + edge_tiles(edges) * DIGITS);
        let of_pass = counts.offset(8 * DIGITS * pass);
        let to_dst = if pass + 1 == passes { dst.address() } else { Address(0) };
        #[rustfmt::skip]
        let arguments = arguments![
            from, from_values, sizes, 8 * pass, of_pass, dealt, to, to_values, indptr, to_dst
        ];
        // SAFETY: a word for every digit of every tile, and room for every edge on both sides
        unsafe { queue.run("transpose_place", threads, arguments)? };
        keys.swap(0, 1);
        values.swap(0, 1);
    }
    let arguments = arguments![keys[0].address(), sizes, starts.address()];
    // SAFETY: a start for every source and one more
    unsafe { queue.run("transpose_starts", sources + 1, arguments)? };
    let [edge, _] = values;
    Ok(Transposed { starts, dst, edge })
}
