//! Row-major f32 matrices and runs of their rows.
//!
//! Layers pass matrices around and never look inside: only a backend calls [`View::host`]. That is
//! the seam where memory on a device will come in.
//!
//! A feature table may be shared as a matrix without copying it, also where it holds 16-bit floats: half the
//! memory and half the traffic. Those are for the two operations that read tables, which ask for [`View::table`].

use std::ops::Range;

use half::{bf16, f16};

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
    Shared(TableData),
}

/// A read-only table in host memory. Cloning shares the memory.
#[derive(Clone, Debug)]
pub enum TableData {
    /// 32-bit floats.
    F32(Buffer<f32>),
    /// 16-bit floats of IEEE 754: 11 significant bits.
    F16(Buffer<f16>),
    /// The upper halves of 32-bit floats: their range, 8 significant bits.
    Bf16(Buffer<bf16>),
}

/// A type of values that a table may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableType {
    /// See [`TableData::F32`].
    F32,
    /// See [`TableData::F16`].
    F16,
    /// See [`TableData::Bf16`].
    Bf16,
}

impl TableType {
    /// All, with the names that users write.
    pub const ALL: [(&'static str, Self); 3] = [("f32", Self::F32), ("f16", Self::F16), ("bf16", Self::Bf16)];

    /// Bytes of a value.
    pub fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

impl TableData {
    /// The type of the values.
    pub fn kind(&self) -> TableType {
        match self {
            Self::F32(_) => TableType::F32,
            Self::F16(_) => TableType::F16,
            Self::Bf16(_) => TableType::Bf16,
        }
    }

    /// How many values.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(data) => data.len(),
            Self::F16(data) => data.len(),
            Self::Bf16(data) => data.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The values of a [`View`], as they are stored.
#[derive(Clone, Copy, Debug)]
pub enum Table<'a> {
    /// See [`TableData::F32`].
    F32(&'a [f32]),
    /// See [`TableData::F16`].
    F16(&'a [f16]),
    /// See [`TableData::Bf16`].
    Bf16(&'a [bf16]),
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
    pub fn shared(data: TableData, cols: usize) -> Self {
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

    /// Whether the values are f32.
    pub fn is_wide(&self) -> bool {
        match &self.storage {
            Storage::Owned(_) => true,
            Storage::Shared(data) => data.kind() == TableType::F32,
        }
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
        let Table::F32(data) = self.view().table() else {
            return write!(f, "Matrix({} x {}, 16-bit floats)", self.rows, self.cols);
        };
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
    ///
    /// # Panics
    /// They are 16-bit floats, which only operations that read a [`Table`] take: a bug in the caller.
    pub fn host(&self) -> &'a [f32] {
        match self.table() {
            Table::F32(data) => data,
            Table::F16(_) | Table::Bf16(_) => panic!("a table of 16-bit floats: gather its rows first"),
        }
    }

    /// The values, `rows * cols`, in host memory, as they are stored.
    pub fn table(&self) -> Table<'a> {
        let range = self.start * self.matrix.cols..(self.start + self.rows) * self.matrix.cols;
        match &self.matrix.storage {
            Storage::Owned(data) => Table::F32(&bytemuck::cast_slice(data)[range]),
            Storage::Shared(TableData::F32(data)) => Table::F32(&data[range]),
            Storage::Shared(TableData::F16(data)) => Table::F16(&data[range]),
            Storage::Shared(TableData::Bf16(data)) => Table::Bf16(&data[range]),
        }
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
    fn shared_tables_are_read_as_they_are_stored() {
        let wide = Matrix::shared(TableData::F32(vec![1.0, 2.0, 3.0, 4.0].into()), 2);
        assert_eq!(wide.rows(1..2).host(), [3.0, 4.0]);
        let half = [1.0, 2.0, 3.0, 4.0].map(bf16::from_f32);
        let half = Matrix::shared(TableData::Bf16(half.to_vec().into()), 2);
        let Table::Bf16(row) = half.rows(1..2).table() else { panic!() };
        assert_eq!(row, [3.0, 4.0].map(bf16::from_f32));
        assert_eq!(format!("{half:?}"), "Matrix(2 x 2, 16-bit floats)");
    }

    #[test]
    #[should_panic(expected = "gather its rows first")]
    fn half_tables_are_not_read_as_f32() {
        Matrix::shared(TableData::F16(vec![f16::ONE].into()), 1).view().host();
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
