//! Row-major f32 matrices and runs of their rows.
//!
//! Layers pass matrices around and never look inside: only a backend calls [`View::host`]. That is
//! the seam where memory on a device will come in.

use std::ops::Range;

use crate::Buffer;

/// A cache line of values: vectors of these are aligned for the widest registers.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// `rows x cols`, row-major. Resizing keeps the memory, so a matrix that lives across batches stops
/// allocating once it has seen the largest of them.
#[derive(Clone)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    storage: Storage,
}

#[derive(Clone)]
enum Storage {
    /// Aligned memory of our own; may be longer than `rows * cols`.
    Owned(Vec<Line>),
    /// A read-only table, such as a dataset's features.
    Shared(Buffer<f32>),
}

impl Default for Matrix {
    fn default() -> Self {
        Self { rows: 0, cols: 0, storage: Storage::Owned(Vec::new()) }
    }
}

impl Matrix {
    /// All zeros.
    pub fn zeros(rows: usize, cols: usize) -> Self {
        let mut matrix = Self::default();
        matrix.resize(rows, cols);
        matrix.view_mut().host().fill(0.0);
        matrix
    }

    /// A copy of `data`, which holds `rows * cols` values.
    ///
    /// # Panics
    /// The length is another.
    pub fn from_slice(rows: usize, cols: usize, data: &[f32]) -> Self {
        let mut matrix = Self::default();
        matrix.resize(rows, cols);
        matrix.view_mut().host().copy_from_slice(data);
        matrix
    }

    /// A read-only table around `data` without copying it; `data.len()` is a multiple of `cols`.
    pub fn shared(data: Buffer<f32>, cols: usize) -> Self {
        let rows = data.len().checked_div(cols).unwrap_or(0);
        assert_eq!(rows * cols, data.len(), "{} values do not make rows of {cols}", data.len());
        Self { rows, cols, storage: Storage::Shared(data) }
    }

    /// How many rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// How many columns.
    pub fn num_cols(&self) -> usize {
        self.cols
    }

    /// Takes a new shape. The values are unspecified afterwards; memory is kept and grows only.
    pub fn resize(&mut self, rows: usize, cols: usize) {
        let lines = (rows * cols).div_ceil(16);
        match &mut self.storage {
            Storage::Owned(data) if data.len() >= lines => {}
            Storage::Owned(data) => data.resize(lines, Line([0.0; 16])),
            Storage::Shared(_) => self.storage = Storage::Owned(vec![Line([0.0; 16]); lines]),
        }
        self.rows = rows;
        self.cols = cols;
    }

    /// All rows.
    pub fn view(&self) -> View<'_> {
        View { matrix: self, start: 0, rows: self.rows }
    }

    /// Some rows.
    pub fn rows(&self, range: Range<usize>) -> View<'_> {
        assert!(range.start <= range.end && range.end <= self.rows, "rows {range:?} of {}", self.rows);
        View { matrix: self, start: range.start, rows: range.len() }
    }

    /// All rows, to be written.
    pub fn view_mut(&mut self) -> ViewMut<'_> {
        let rows = self.rows;
        self.rows_mut(0..rows)
    }

    /// Some rows, to be written.
    ///
    /// # Panics
    /// The range is outside, or the matrix wraps a shared table.
    pub fn rows_mut(&mut self, range: Range<usize>) -> ViewMut<'_> {
        assert!(range.start <= range.end && range.end <= self.rows, "rows {range:?} of {}", self.rows);
        ViewMut { start: range.start, rows: range.len(), matrix: self }
    }
}

impl std::fmt::Debug for Matrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let data = self.view().host();
        write!(f, "Matrix({} x {}, {:?}", self.rows, self.cols, &data[..data.len().min(8)])?;
        write!(f, "{})", if data.len() > 8 { " .." } else { "" })
    }
}

/// A run of rows of a [`Matrix`].
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    matrix: &'a Matrix,
    start: usize,
    rows: usize,
}

impl<'a> View<'a> {
    /// How many rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// How many columns.
    pub fn num_cols(&self) -> usize {
        self.matrix.cols
    }

    /// A run of these rows.
    pub fn rows(&self, range: Range<usize>) -> View<'a> {
        assert!(range.start <= range.end && range.end <= self.rows, "rows {range:?} of {}", self.rows);
        View { matrix: self.matrix, start: self.start + range.start, rows: range.len() }
    }

    /// The values, `rows * cols`, in host memory. For backends and tests.
    pub fn host(&self) -> &'a [f32] {
        let data: &[f32] = match &self.matrix.storage {
            Storage::Owned(data) => bytemuck::cast_slice(data),
            Storage::Shared(data) => data,
        };
        &data[self.start * self.matrix.cols..(self.start + self.rows) * self.matrix.cols]
    }
}

/// A run of rows of a [`Matrix`] that may be written.
#[derive(Debug)]
pub struct ViewMut<'a> {
    matrix: &'a mut Matrix,
    start: usize,
    rows: usize,
}

impl<'a> ViewMut<'a> {
    /// How many rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// How many columns.
    pub fn num_cols(&self) -> usize {
        self.matrix.cols
    }

    /// The same rows, to be read.
    pub fn as_view(&self) -> View<'_> {
        View { matrix: self.matrix, start: self.start, rows: self.rows }
    }

    /// The same rows, lent on.
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        ViewMut { matrix: self.matrix, start: self.start, rows: self.rows }
    }

    /// The values, `rows * cols`, in host memory. For backends and tests.
    ///
    /// # Panics
    /// The matrix wraps a shared table, which is read-only.
    pub fn host(self) -> &'a mut [f32] {
        let Self { matrix, start, rows } = self;
        let cols = matrix.cols;
        match &mut matrix.storage {
            Storage::Owned(data) => &mut bytemuck::cast_slice_mut(data)[start * cols..(start + rows) * cols],
            Storage::Shared(_) => panic!("a shared table is read-only"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_runs_of_rows() {
        let mut m = Matrix::from_slice(3, 2, &[1., 2., 3., 4., 5., 6.]);
        assert_eq!(m.rows(1..3).host(), [3., 4., 5., 6.]);
        assert_eq!(m.rows(1..3).rows(1..2).host(), [5., 6.]);
        m.rows_mut(0..1).host().fill(9.0);
        assert_eq!(m.view().host()[..3], [9., 9., 3.]);
        assert_eq!(m.view().host().as_ptr() as usize % 64, 0);
    }

    #[test]
    fn resizing_keeps_the_memory() {
        let mut m = Matrix::zeros(100, 10);
        let at = m.view().host().as_ptr();
        m.resize(10, 10);
        m.resize(100, 10);
        assert_eq!(at, m.view().host().as_ptr());
    }
}
