//! Sums over rows, in two stages of fixed order.

use super::work::Work;
use crate::{Buffer, Result, driver::Address};

/// Columns of a block of threads.
const COLUMNS: usize = 32;
/// Rows of a run, at least.
const ROWS: usize = 64;
/// Blocks of the first stage, about: enough for the largest devices. It depends on no device, and so do the
/// sums.
const BLOCKS: usize = 2048;

/// How the first stage is cut: blocks across and down.
pub(super) fn grid(rows: usize, cols: usize) -> [usize; 2] {
    let across = cols.div_ceil(COLUMNS);
    [across, rows.div_ceil(ROWS).min((BLOCKS / across.max(1)).max(1))]
}

/// Room for the runs' sums, `width` of each.
pub(super) fn partial(work: &Work, runs: usize, width: usize) -> Result<Buffer> {
    work.scratch::<f64>(runs * width)
}

/// The second stage: the first `cols` columns' sums over `count` go to `out`, the others' to `rest`; where
/// `keeps`, they are added there.
#[allow(clippy::too_many_arguments, reason = "a kernel's arguments")]
pub(super) fn total(
    work: &Work,
    partial: &Buffer,
    runs: usize,
    width: usize,
    cols: usize,
    count: usize,
    keeps: bool,
    out: [Address; 2],
) -> Result<()> {
    let arguments =
        crate::arguments![partial.address(), runs, width, cols, count, u32::from(keeps), out[0], out[1]];
    // SAFETY: `runs` times `width` sums are there, and as many results as columns
    unsafe { work.blocks("columns_total", [width.div_ceil(COLUMNS), 1, 1], arguments) }
}
