//! A drawn block's edges by source.

use std::sync::Arc;

use crate::{Buffer, Queue, Result, arguments, block::ResidentTransposed, driver::Shape, scan};

/// Edges of a tile, threads of its block and values of a digit (`kernels/transpose.cu`).
const TILE: usize = 2048;
const DIGITS: usize = 256;

/// Groups the edges of `rows` destinations by source, of `sources`, destinations ascending within each. O(E log S) by a radix sort, 24 bytes an
/// edge while it lasts.
///
/// # Errors
/// There is not enough memory, or the driver fails.
///
/// # Safety
/// `indptr` holds `rows + 1` starts, and `indices` `edges` numbers below `sources`.
pub(super) unsafe fn transpose(
    queue: &Arc<Queue>,
    rows: usize,
    sources: usize,
    indptr: &Buffer,
    indices: &Buffer,
    edges: usize,
) -> Result<ResidentTransposed> {
    let bits = usize::BITS - sources.saturating_sub(1).leading_zeros();
    let passes = bits.div_ceil(8).max(1);
    let tiles = edges.div_ceil(TILE);
    let (counts, total) = (queue.scratch(4 * (DIGITS * tiles + 1))?, queue.scratch(8)?);
    let mut keys: [Buffer; 2] = [queue.scratch(4 * edges)?, queue.scratch(4 * edges)?];
    let mut values: [Buffer; 2] = [queue.take(4 * edges)?, queue.take(4 * edges)?];
    let most = 32 * queue.device().properties().multiprocessors.max(1) as usize;
    let shape = Shape { grid: [tiles.min(most) as u32, 1, 1], block: [DIGITS as u32, 1, 1], shared: 0 };
    for pass in 0..passes {
        let shift = 8 * pass;
        // the first reads the block's own edges
        let from = if pass == 0 { indices.address() } else { keys[0].address() };
        let from_values = if pass == 0 { crate::driver::Address(0) } else { values[0].address() };
        let (to, to_values) = (keys[1].address(), values[1].address());
        // SAFETY: a count for every digit of every tile and one more, and room for every edge on both sides
        unsafe {
            let at = counts.address();
            queue.launch("transpose_count", shape, arguments![from, edges, shift, tiles, at])?;
            scan::exclusive(queue, at, DIGITS * tiles, total.address())?;
            let arguments = arguments![from, from_values, edges, shift, tiles, at, to, to_values];
            queue.launch("transpose_place", shape, arguments)?;
        }
        keys.swap(0, 1);
        values.swap(0, 1);
    }
    let (starts, dst) = (queue.take(4 * (sources + 1))?, queue.take(4 * edges)?);
    let [edge, _] = values;
    // SAFETY: a start for every source and one more, a destination for every edge
    unsafe {
        let arguments = arguments![keys[0].address(), edges, sources, starts.address()];
        queue.run("transpose_starts", sources + 1, arguments)?;
        let arguments = arguments![edge.address(), edges, indptr.address(), rows, dst.address()];
        queue.run("transpose_destinations", edges, arguments)?;
    }
    Ok(ResidentTransposed { num_src: sources, num_edges: edges, indptr: starts, dst, edge })
}
