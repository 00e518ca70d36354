//! Prefix sums on a device.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::Arc;

use crate::{
    Queue, Result,
    driver::Shape,
    kernels::{self, Kernel as _, Out},
};

/// Values per tile (`kernels/scan.cu`).
const TILE: usize = 2048;

/// Replaces the `count` values at `values` by the sums of the values before each, and the value
/// after them by the total, which is also written to `total`. Sums beyond 32 bits wrap, except for
/// the total. O(count), three kernels.
///
/// # Errors
/// Memory is insufficient, or the driver fails.
///
/// # Safety
/// `values` has `count + 1` values on the queue's device, and `total` one.
pub(crate) unsafe fn exclusive(
    queue: &Arc<Queue>,
    values: Out<u32>,
    count: usize,
    total: Out<u64>,
) -> Result<()> {
    let tiles = count.div_ceil(TILE);
    let mut sums = queue.scratch::<u64>(tiles)?;
    let one = Shape { grid: [1, 1, 1], block: [1024, 1, 1], shared: 0 };
    let threads = (tiles * TILE / 8).max(1);
    let of_tiles = kernels::ScanSums { values: values.into(), count, tiles: sums.write() };
    let before_tiles = kernels::ScanTiles { tiles: sums.write(), count: tiles, total };
    let before = kernels::ScanValues { values, count, tiles: sums.read(), total: total.into() };
    // SAFETY: there is a sum for each tile; by the caller's guarantee for the rest
    unsafe {
        queue.run(tiles * TILE / 8, &of_tiles)?;
        queue.launch(one, before_tiles.call())?;
        queue.run(threads, &before)
    }
}
