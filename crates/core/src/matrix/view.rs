//! Runs of rows of a matrix, to be read or written.

use std::ops::Range;

use super::{Matrix, Storage, Table, TableData};

/// A run of rows of a [`Matrix`].
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub(super) matrix: &'a Matrix,
    pub(super) start: usize,
    pub(super) rows: usize,
    /// Values that replace the stored values of sparse rows.
    pub(super) values: Option<&'a [f32]>,
}

impl<'a> View<'a> {
    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn num_cols(&self) -> usize {
        self.matrix.cols
    }

    /// A run of these rows.
    pub fn rows(&self, range: Range<usize>) -> View<'a> {
        assert!(range.start <= range.end && range.end <= self.rows, "rows {range:?} of {}", self.rows);
        View { start: self.start + range.start, rows: range.len(), ..*self }
    }

    /// The values, `rows * cols`, in host memory. For backends and tests.
    ///
    /// # Panics
    /// They are 16-bit floats, which only operations that read a [`Table`] take: a bug in the
    /// caller.
    pub fn host(&self) -> &'a [f32] {
        match self.table() {
            Table::F32(data) => data,
            Table::F16(_) | Table::Bf16(_) => panic!("a table of 16-bit floats: gather its rows first"),
        }
    }

    /// The values, `rows * cols`, in host memory, as they are stored.
    pub fn table(&self) -> Table<'a> {
        let range = self.start * self.matrix.cols..(self.start + self.rows) * self.matrix.cols;
        if let Some(newest) = self.matrix.mirror.fetched(self.matrix.rows * self.matrix.cols) {
            return Table::F32(&bytemuck::cast_slice(newest)[range]);
        }
        match &self.matrix.storage {
            Storage::Owned(data) if range.end > 16 * data.len() => {
                let all = self.matrix.mirror.unwritten(self.matrix.rows * self.matrix.cols);
                Table::F32(&bytemuck::cast_slice(all)[range])
            }
            Storage::Owned(data) => Table::F32(&bytemuck::cast_slice(data)[range]),
            Storage::Shared(TableData::F32(data)) => Table::F32(&data[range]),
            Storage::Shared(TableData::F16(data)) => Table::F16(&data[range]),
            Storage::Shared(TableData::Bf16(data)) => Table::Bf16(&data[range]),
            Storage::File(values) => Table::F32(&values[range]),
            Storage::Slots(_) => panic!("rows by slot: only sums and gathers read them"),
            Storage::SparseTable(_) | Storage::Sparse(_) => {
                panic!("sparse rows: only products and gathers read them")
            }
        }
    }
}

/// A run of rows of a [`Matrix`] that may be written.
#[derive(Debug)]
pub struct ViewMut<'a> {
    pub(super) matrix: &'a mut Matrix,
    pub(super) start: usize,
    pub(super) rows: usize,
}

impl<'a> ViewMut<'a> {
    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn num_cols(&self) -> usize {
        self.matrix.cols
    }

    /// A run of these rows.
    pub fn rows(self, range: Range<usize>) -> ViewMut<'a> {
        assert!(range.start <= range.end && range.end <= self.rows, "rows {range:?} of {}", self.rows);
        ViewMut { start: self.start + range.start, rows: range.len(), matrix: self.matrix }
    }

    /// The same rows, to be read.
    pub fn as_view(&self) -> View<'_> {
        View { matrix: self.matrix, start: self.start, rows: self.rows, values: None }
    }

    /// The same rows, borrowed for a shorter time.
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
        matrix.move_to_host();
        match &mut matrix.storage {
            Storage::Owned(data) => &mut bytemuck::cast_slice_mut(data)[start * cols..(start + rows) * cols],
            Storage::File(values) => &mut values[start * cols..(start + rows) * cols],
            _ => panic!("shared tables and sparse rows are read-only"),
        }
    }
}
