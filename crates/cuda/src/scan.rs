//! Prefix sums on a device.

use std::sync::Arc;

use crate::{
    Queue, Result, arguments,
    driver::{Address, Shape},
};

/// Values of a tile (`kernels/scan.cu`).
const TILE: usize = 2048;

/// Replaces the `count` values (u32) at `values` by the sums of those before each, and the one
/// behind them by the sum of all, which also goes to `total` as u64. Sums beyond 32 bits wrap, but
/// for the total. O(count), three kernels.
///
/// # Errors
/// There is not enough memory, or the driver fails.
///
/// # Safety
/// `values` has room for `count + 1` values of the queue's device, and `total` for one of 64 bits.
pub(crate) unsafe fn exclusive(
    queue: &Arc<Queue>,
    values: Address,
    count: usize,
    total: Address,
) -> Result<()> {
    let tiles = count.div_ceil(TILE);
    let sums = queue.scratch(8 * tiles)?;
    let one = Shape { grid: [1, 1, 1], block: [1024, 1, 1], shared: 0 };
    let threads = (tiles * TILE / 8).max(1);
    // SAFETY: a sum for each tile; the caller's promise for the rest
    unsafe {
        queue.run("scan_sums", tiles * TILE / 8, arguments![values, count, sums.address()])?;
        queue.launch("scan_tiles", one, arguments![sums.address(), tiles, total])?;
        queue.run("scan_values", threads, arguments![values, count, sums.address(), total])
    }
}
