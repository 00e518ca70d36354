//! Column sums, in two stages of fixed order.

#![allow(unsafe_code, reason = "device memory and kernels")]

use super::work::Work;
use crate::{
    Buffer, Result,
    kernels::{self, Out},
};

/// Columns per block of threads.
const COLUMNS: usize = 32;
/// Minimum number of rows per run.
const ROWS: usize = 64;
/// Approximate number of blocks in the first stage: enough for the largest devices, and independent
/// of the device so that the sums are too.
const BLOCKS: usize = 2048;

/// Grid of the first stage: blocks across columns and down rows.
pub(super) fn grid(rows: usize, cols: usize) -> [usize; 2] {
    let across = cols.div_ceil(COLUMNS);
    [across, rows.div_ceil(ROWS).min((BLOCKS / across.max(1)).max(1))]
}

/// Result of the first stage: sums of `width` columns over each run of rows.
pub(super) struct Partial {
    sums: Buffer<f64>,
    runs: usize,
    width: usize,
}

/// Output of the second stage.
pub(super) struct Total {
    /// Divisor of the sums.
    pub(super) count: usize,
    /// If true, the sums are added to the old values.
    pub(super) keeps: bool,
    /// Places of the first `split` columns and of the others.
    pub(super) out: [Out<f32>; 2],
    /// Number of columns at the first place.
    pub(super) split: usize,
}

impl Partial {
    /// Allocates memory for the sums of the first stage.
    pub(super) fn new(work: &Work, runs: usize, width: usize) -> Result<Self> {
        Ok(Self { sums: work.scratch::<f64>(runs * width)?, runs, width })
    }

    /// Output of the first stage.
    pub(super) fn write(&mut self) -> Out<f64> {
        self.sums.write()
    }

    /// Runs the second stage.
    pub(super) fn total(&self, work: &Work, total: Total) -> Result<()> {
        let &Self { ref sums, runs, width } = self;
        let Total { count, keeps, out: [out, rest], split } = total;
        let partial = sums.read();
        let kernel = kernels::ColumnsTotal { partial, runs, width, cols: split, count, keeps, out, rest };
        // SAFETY: `runs` times `width` sums are allocated, and one result per column
        unsafe { work.blocks([width.div_ceil(COLUMNS), 1, 1], &kernel) }
    }

    /// Runs the second stage and adds to the values at `out`.
    pub(super) fn add_to(&self, work: &Work, out: Out<f32>) -> Result<()> {
        self.total(work, Total { count: 1, keeps: true, out: [out; 2], split: self.width })
    }
}
