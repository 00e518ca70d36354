//! Row-major f32 matrices and runs of their rows.
//!
//! Layers pass matrices around and never look inside: only a backend calls [`View::host`], or
//! [`View::on_device`] for a device. A matrix knows where its newest values are and copies them
//! when the other side reads them (`matrix/mirror.rs`).
//!
//! A feature table may be shared as a matrix without copying it, even if it holds 16-bit floats,
//! which need half the memory and half the traffic. The two operations that read tables ask for
//! [`View::table`].
//!
//! Rows with few values that are not zero may be stored sparse ([`View::sparse`]): for gathers, and
//! for products, which are then sums of few rows of the other factor.
//!
//! | file | contents |
//! | --- | --- |
//! | `matrix.rs` | [`Matrix`]: its shape and its storage |
//! | `view.rs` | [`View`], [`ViewMut`]: runs of rows in host memory |
//! | `table.rs` | [`TableData`]: read-only tables of f32, f16 or bf16 |
//! | `sparse.rs` | [`Sparse`]: sparse rows |
//! | `file.rs` | values in a file, of tables larger than memory |
//! | `device.rs`, `mirror.rs` | values on devices, and which copies of them are newest |
//! | `tally.rs` | [`Tally`]: bytes that the matrices of some work hold |

#![forbid(unsafe_code)]

mod device;
mod file;
mod mirror;
mod slots;
mod sparse;
mod table;
mod tally;
mod view;

use std::ops::Range;

use self::{mirror::Mirror, tally::Charge};
use crate::{Block, FileArray, SparseRows, huge_pages, memory};

pub use self::{
    slots::Slots,
    sparse::Sparse,
    table::{Table, TableData, TableType},
    tally::{Tally, count_scratch},
    view::{View, ViewMut},
};

/// A cache line of values: vectors of these are aligned for the widest registers.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// `rows x cols`, row-major. Resizing keeps the memory, so a matrix that lives across batches stops
/// allocating once it has seen the largest of them. If the system refuses memory, the thread
/// unwinds ([`memory::demand`]).
pub struct Matrix {
    rows: usize,
    cols: usize,
    storage: Storage,
    /// Values on a device, and which are newer.
    mirror: Mirror,
    /// Bytes of own memory, as they are counted.
    charge: Charge,
}

impl Clone for Matrix {
    /// A copy in host memory.
    fn clone(&self) -> Self {
        let (rows, cols) = (self.rows, self.cols);
        let storage = match self.mirror.fetched(rows * cols) {
            Some(newest) => Storage::Owned(copied(newest)),
            None => self.storage.copy(),
        };
        let mut copy = Self { rows, cols, storage, ..Self::default() };
        copy.recount();
        copy
    }
}

enum Storage {
    /// Own memory, aligned; may be longer than `rows * cols`, and shorter until the host writes to
    /// it.
    Owned(Vec<Line>),
    /// A read-only table, such as a dataset's features.
    Shared(TableData),
    /// A read-only table of sparse rows, to gather from.
    SparseTable(SparseRows),
    /// Own sparse rows. `X W` is the weighted aggregation of the rows of `W` over a block whose
    /// destinations are the rows of `X` and whose sources are its columns, and `X^T Y` that over
    /// its transpose.
    Sparse(Box<Block>),
    /// Rows of a cache, followed by rows of a batch.
    Slots(Box<slots::SlotRows>),
    /// Own values in a file.
    File(Box<FileArray<f32>>),
}

impl Default for Storage {
    fn default() -> Self {
        Self::Owned(Vec::new())
    }
}

impl Storage {
    /// A copy in memory. Tables are shared.
    fn copy(&self) -> Self {
        match self {
            Self::Owned(data) => Self::Owned(copied(data)),
            Self::Shared(table) => Self::Shared(table.clone()),
            Self::SparseTable(rows) => Self::SparseTable(rows.clone()),
            Self::Sparse(block) => Self::Sparse(block.clone()),
            Self::Slots(rows) => Self::Slots(rows.clone()),
            Self::File(values) => {
                let mut lines: Vec<Line> = memory::demand_zeros(values.len().div_ceil(16));
                bytemuck::cast_slice_mut(&mut lines)[..values.len()].copy_from_slice(values);
                Self::Owned(lines)
            }
        }
    }
}

/// A copy of lines. Unwinds as [`memory::demand`].
fn copied(lines: &[Line]) -> Vec<Line> {
    let mut copy = Vec::new();
    memory::demand_copy(&mut copy, lines);
    copy
}

impl Default for Matrix {
    fn default() -> Self {
        let (storage, mirror, charge) = Default::default();
        Self { rows: 0, cols: 0, storage, mirror, charge }
    }
}

impl Matrix {
    /// A matrix of zeros.
    pub fn zeros(rows: usize, cols: usize) -> Self {
        let mut matrix = Self::default();
        matrix.resize(rows, cols);
        matrix.view_mut().host().fill(0.0);
        matrix
    }

    /// A copy of `data`, which holds `rows * cols` values.
    ///
    /// # Panics
    /// The lengths disagree.
    pub fn from_slice(rows: usize, cols: usize, data: &[f32]) -> Self {
        let mut matrix = Self::default();
        matrix.resize(rows, cols);
        matrix.view_mut().host().copy_from_slice(data);
        matrix
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn num_cols(&self) -> usize {
        self.cols
    }

    /// Takes a new shape. The values are unspecified afterwards. Memory is reused, and grows only
    /// when values are written.
    pub fn resize(&mut self, rows: usize, cols: usize) {
        if !matches!(self.storage, Storage::Owned(_)) {
            self.storage = Storage::default();
            self.recount();
        }
        self.mirror.forget_values();
        self.rows = rows;
        self.cols = cols;
    }

    /// Makes host memory the place of the newest values.
    fn move_to_host(&mut self) {
        let values = self.rows * self.cols;
        let Storage::Owned(data) = &mut self.storage else { return };
        let before = data.len();
        if let Some(newest) = self.mirror.fetched(values) {
            memory::demand_copy(data, newest);
        }
        huge_pages::lengthen(data, values.div_ceil(16), Line([0.0; 16]));
        let has_changed = data.len() != before;
        self.mirror.forget_device();
        if has_changed {
            self.recount();
        }
    }

    /// Counts the bytes of own memory, after they have changed. Memory that a vector reserves
    /// beyond its values is never touched, and not counted.
    fn recount(&mut self) {
        let lines = match &self.storage {
            Storage::Owned(data) => data.len(),
            Storage::Slots(rows) => rows.staged.len(),
            Storage::Shared(_) | Storage::SparseTable(_) | Storage::Sparse(_) | Storage::File(_) => 0,
        };
        self.charge.set(size_of::<Line>() as u64 * lines as u64);
    }

    /// Adds columns of zeros at the end of each row, up to `cols`, in place. O(rows cols).
    ///
    /// # Panics
    /// The rows are longer already, or shared or sparse.
    pub fn widen(&mut self, cols: usize) {
        let (rows, old) = (self.rows, self.cols);
        assert!(old <= cols, "{cols} columns of {old}");
        self.move_to_host();
        self.cols = cols;
        let all = self.view_mut().host();
        // from the last row, so that none is overwritten before it moves
        for r in (0..rows).rev() {
            all.copy_within(r * old..(r + 1) * old, r * cols);
            all[r * cols + old..(r + 1) * cols].fill(0.0);
        }
    }

    /// Takes more rows, whose values are unspecified; the others keep theirs.
    ///
    /// # Panics
    /// There are more already, or the matrix does not own its values in memory.
    pub fn grow(&mut self, rows: usize) {
        assert!(rows >= self.rows, "{rows} rows of {}", self.rows);
        assert!(matches!(self.storage, Storage::Owned(_)), "only own values take more rows");
        self.move_to_host();
        self.rows = rows;
    }

    /// Keeps the first `rows` rows, with their values.
    ///
    /// # Panics
    /// There are fewer.
    pub fn truncate(&mut self, rows: usize) {
        assert!(rows <= self.rows, "{rows} rows of {}", self.rows);
        self.rows = rows;
    }

    /// All rows.
    pub fn view(&self) -> View<'_> {
        View { matrix: self, start: 0, rows: self.rows, values: None }
    }

    /// Some rows.
    pub fn rows(&self, range: Range<usize>) -> View<'_> {
        assert!(range.start <= range.end && range.end <= self.rows, "rows {range:?} of {}", self.rows);
        View { matrix: self, start: range.start, rows: range.len(), values: None }
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
        if self.is_sparse() {
            return write!(f, "Matrix({} x {}, sparse)", self.rows, self.cols);
        }
        if self.view().slots().is_some() {
            return write!(f, "Matrix({} x {}, by slot)", self.rows, self.cols);
        }
        let Table::F32(data) = self.view().table() else {
            return write!(f, "Matrix({} x {}, 16-bit floats)", self.rows, self.cols);
        };
        write!(f, "Matrix({} x {}, {:?}", self.rows, self.cols, &data[..data.len().min(8)])?;
        write!(f, "{})", if data.len() > 8 { " .." } else { "" })
    }
}

#[cfg(test)]
mod tests;
