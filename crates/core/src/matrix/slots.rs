//! Rows in two memories: a cache that batches share, and the rows of one batch that it lacks.

use super::{Line, Matrix, Storage, View};
use crate::{Buffer, memory};

/// Rows of f32 in a cache, followed by those of a batch.
#[derive(Clone, Default)]
pub(super) struct SlotRows {
    /// Empty until the cache is known.
    cached: Option<Buffer<f32>>,
    pub(super) staged: Vec<Line>,
}

/// Values of a [`View`] of rows in two memories: row `r` lies in `cached` if that has more than `r`
/// rows, else in `staged`.
#[derive(Clone, Copy, Debug)]
pub struct Slots<'a> {
    /// Rows of the cache (`C x F`).
    pub cached: &'a [f32],
    /// Rows of the batch, from row `C` on.
    pub staged: &'a [f32],
}

impl Matrix {
    /// Makes this the rows of `cached` (`C x cols`), not copied, followed by `staged` rows, and
    /// returns those, to be written. Reuses the memory of earlier staged rows.
    ///
    /// Only gathers and sums over a block read such rows ([`View::slots`]).
    pub fn set_slots(&mut self, cached: &Buffer<f32>, staged: usize, cols: usize) -> &mut [f32] {
        let held = cached.len().checked_div(cols).unwrap_or(0);
        self.mirror.forget_values();
        (self.rows, self.cols) = (held + staged, cols);
        if !matches!(self.storage, Storage::Slots(_)) {
            self.storage = Storage::Slots(Box::default());
        }
        let Storage::Slots(rows) = &mut self.storage else { unreachable!("it was just made") };
        rows.cached = Some(cached.clone());
        let values = staged * cols;
        if rows.staged.len() < values.div_ceil(16) {
            memory::demand_len(&mut rows.staged, values.div_ceil(16), Line([0.0; 16]));
        }
        self.recount();
        let Storage::Slots(rows) = &mut self.storage else { unreachable!("it was just made") };
        &mut bytemuck::cast_slice_mut(&mut rows.staged)[..values]
    }
}

impl<'a> View<'a> {
    /// The values, if the rows are in two memories and the view holds all of them.
    pub fn slots(&self) -> Option<Slots<'a>> {
        let Storage::Slots(rows) = &self.matrix.storage else { return None };
        assert!(self.start == 0 && self.rows == self.matrix.rows, "rows by slot are read whole");
        let cached: &[f32] = rows.cached.as_ref()?;
        let staged = self.rows * self.matrix.cols - cached.len();
        Some(Slots { cached, staged: &bytemuck::cast_slice(&rows.staged)[..staged] })
    }
}
