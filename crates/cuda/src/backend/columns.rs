//! Sums over rows, in two stages of fixed order.

use super::work::Work;
use crate::{Buffer, Result, arguments, driver::Address};

/// Columns of a block of threads.
const COLUMNS: usize = 32;
/// Rows of a run, at least.
const ROWS: usize = 64;
/// Blocks of the first stage, about: enough for the largest devices. It depends on no device, and
/// so do the sums.
const BLOCKS: usize = 2048;

/// How the first stage is cut: blocks across and down.
pub(super) fn grid(rows: usize, cols: usize) -> [usize; 2] {
    let across = cols.div_ceil(COLUMNS);
    [across, rows.div_ceil(ROWS).min((BLOCKS / across.max(1)).max(1))]
}

/// The result of the first stage: sums of `width` columns over each of some runs of rows.
pub(super) struct Partial {
    sums: Buffer,
    runs: usize,
    width: usize,
}

/// The columns that the second stage makes, and where they go.
pub(super) struct Total {
    /// The sums are divided by it.
    pub(super) count: usize,
    /// Whether they are added to the old values.
    pub(super) keeps: bool,
    /// Where the first `split` columns go, and where the others.
    pub(super) out: [Address; 2],
    /// See `out`.
    pub(super) split: usize,
}

impl Partial {
    /// Memory for the sums of the first stage.
    pub(super) fn new(work: &Work, runs: usize, width: usize) -> Result<Self> {
        Ok(Self { sums: work.scratch::<f64>(runs * width)?, runs, width })
    }

    /// Where the first stage writes.
    pub(super) fn address(&self) -> Address {
        self.sums.address()
    }

    /// The second stage.
    pub(super) fn total(&self, work: &Work, total: Total) -> Result<()> {
        let &Self { ref sums, runs, width } = self;
        let Total { count, keeps, out, split } = total;
        let arguments =
            arguments![sums.address(), runs, width, split, count, u32::from(keeps), out[0], out[1]];
        // SAFETY: `runs` times `width` sums are there, and as many results as columns
        unsafe { work.blocks("columns_total", [width.div_ceil(COLUMNS), 1, 1], arguments) }
    }

    /// The second stage, added to the values at `out`.
    pub(super) fn add_to(&self, work: &Work, out: Address) -> Result<()> {
        self.total(work, Total { count: 1, keeps: true, out: [out; 2], split: self.width })
    }
}
