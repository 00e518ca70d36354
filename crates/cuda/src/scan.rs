//! Prefix sums on a device.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::Arc;

use crate::{
    Queue, Result, arguments,
    driver::{Address, Shape},
};

/// Values per tile (`kernels/scan.cu`).
const TILE: usize = 2048;

/// Replaces the `count` values (u32) at `values` by the sums of the values before each, and the
/// value after them by the total, which is also written to `total` as u64. Sums beyond 32 bits
/// wrap, except for the total. O(count), three kernels.
///
/// # Errors
/// Memory is insufficient, or the driver fails.
///
/// # Safety
/// `values` has `count + 1` values on the queue's device, and `total` one of 64 bits.
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
    // SAFETY: there is a sum for each tile; by the caller's guarantee for the rest
    unsafe {
        queue.run("scan_sums", tiles * TILE / 8, arguments![values, count, sums.address()])?;
        queue.launch("scan_tiles", one, arguments![sums.address(), tiles, total])?;
        queue.run("scan_values", threads, arguments![values, count, sums.address(), total])
    }
}
