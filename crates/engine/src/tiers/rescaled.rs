//! Feature rows of one dataset converted to the scale of another.

use std::sync::Arc;

use graphmill_core::{NodeId, Result};
use graphmill_data::dataset::Rescaling;
use graphmill_loader::{
    Feature,
    feature::{Capabilities, OutputRows, Traffic},
};
use rayon::prelude::*;

/// Minimum number of rows that a parallel task converts.
const MIN_TASK_LEN: usize = 256;

/// Rows of another tier, converted in the caller's buffer on each read.
pub(crate) struct Rescaled {
    rows: Arc<dyn Feature>,
    rescaling: Rescaling,
}

impl Rescaled {
    /// Wraps `rows` with `rescaling`.
    pub(crate) fn new(rows: Arc<dyn Feature>, rescaling: Rescaling) -> Self {
        Self { rows, rescaling }
    }
}

impl Feature for Rescaled {
    fn dim(&self) -> usize {
        self.rows.dim()
    }

    fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        let traffic = self.rows.read_to(ids, places, out)?;
        let dim = self.dim();
        if dim == 0 {
            return Ok(traffic);
        }
        match places {
            OutputRows::InOrder => out
                .par_chunks_exact_mut(dim)
                .with_min_len(MIN_TASK_LEN)
                .for_each(|row| self.rescaling.apply(row)),
            OutputRows::At(at) => {
                for &i in at {
                    self.rescaling.apply(&mut out[i as usize * dim..][..dim]);
                }
            }
        }
        Ok(traffic)
    }

    fn row_bytes(&self) -> u64 {
        self.rows.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}
