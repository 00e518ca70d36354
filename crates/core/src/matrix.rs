//! Row-major f32 matrices and runs of their rows.
//!
//! Layers pass matrices around and never look inside: only a backend calls [`View::host`], or one for a device
//! [`View::on_device`]. A matrix remembers where its newest values are and copies them to whoever asks from the other side
//! (`matrix/mirror.rs`).
//!
//! A feature table may be shared as a matrix without copying it, also where it holds 16-bit floats: half the
//! memory and half the traffic. Those are for the two operations that read tables, which ask for [`View::table`].
//!
//! Rows of which few values are not zero may be held as such ([`View::sparse`]): for the products, which are then sums of few
//! rows of the other factor, and for gathers.

mod mirror;

use std::{ops::Range, sync::Arc};

use half::{bf16, f16};
use mirror::Mirror;

use crate::{
    Block, Buffer, NodeId, SparseRows,
    accelerator::{Accelerator, DeviceMemory},
    block::Transposed,
    sparse,
};

/// A cache line of values: vectors of these are aligned for the widest registers.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// `rows x cols`, row-major. Resizing keeps the memory, so a matrix that lives across batches stops
/// allocating once it has seen the largest of them.
pub struct Matrix {
    rows: usize,
    cols: usize,
    storage: Storage,
    /// The values on a device, and which are newer.
    mirror: Mirror,
}

impl Clone for Matrix {
    /// A copy in host memory.
    fn clone(&self) -> Self {
        let (rows, cols) = (self.rows, self.cols);
        let storage = match self.mirror.fetched(rows * cols) {
            Some(newest) => Storage::Owned(newest.to_vec()),
            None => self.storage.clone(),
        };
        Self { rows, cols, storage, mirror: Mirror::default() }
    }
}

#[derive(Clone)]
enum Storage {
    /// Aligned memory of our own; may be longer than `rows * cols`, and shorter until the host writes to it.
    Owned(Vec<Line>),
    /// A read-only table, such as a dataset's features.
    Shared(TableData),
    /// A read-only table of sparse rows, to gather from.
    SparseTable(SparseRows),
    /// Sparse rows of our own. `X W` is the weighted aggregation of the rows of `W` over a block whose destinations are
    /// the rows of `X` and whose sources are its columns, and `X^T Y` that over its transpose.
    Sparse(Box<Block>),
}

/// Sparse rows, as products read them.
#[derive(Clone, Copy, Debug)]
pub struct Sparse<'a> {
    /// Where the stored values of each row start, and the last end, in `indices` and `values`.
    pub indptr: &'a [u32],
    /// Column of every stored value of the whole matrix, ascending within a row.
    pub indices: &'a [u32],
    /// The stored values of the whole matrix.
    pub values: &'a [f32],
    /// The number in the whole matrix of the first of these rows.
    pub first: usize,
    /// The stored values of the whole matrix by column, rows ascending, where [`Matrix::transpose_sparse`] was called.
    pub transposed: &'a Transposed,
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

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

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
        Self { rows: 0, cols: 0, storage: Storage::Owned(Vec::new()), mirror: Mirror::default() }
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
        Self { rows, cols, storage: Storage::Shared(data), mirror: Mirror::default() }
    }

    /// A read-only table around sparse rows without copying them.
    pub fn sparse_table(rows: SparseRows) -> Self {
        let (num_rows, cols) = (rows.num_rows(), rows.num_cols());
        Self { rows: num_rows, cols, storage: Storage::SparseTable(rows), mirror: Mirror::default() }
    }

    /// Becomes the rows `ids` of `from`, which are sparse, in that order. Parallel; memory is kept and grows only.
    ///
    /// # Panics
    /// `from` is dense, or the rows store more than 2^32 - 1 values.
    pub fn gather_sparse(&mut self, from: View, ids: &[NodeId]) {
        if !matches!(self.storage, Storage::Sparse(_)) {
            self.storage = Storage::Sparse(Box::default());
        }
        self.mirror = Mirror::default();
        let Storage::Sparse(block) = &mut self.storage else { unreachable!("it was just made") };
        let row = |v: NodeId| from.sparse_row(v as usize).expect("sparse rows are gathered from sparse rows");
        sparse::gather(ids, row, block);
        (block.num_dst, block.num_src) = (ids.len(), from.num_cols());
        (self.rows, self.cols) = (ids.len(), from.num_cols());
    }

    /// Lists the stored values by column too, for products with the transpose. Over the threads of the pool where that pays.
    ///
    /// # Panics
    /// The rows were not made by [`Matrix::gather_sparse`].
    pub fn transpose_sparse(&mut self) {
        match &mut self.storage {
            Storage::Sparse(block) => block.par_transpose(),
            _ => panic!("only gathered sparse rows are transposed"),
        }
    }

    /// Whether the rows are sparse.
    pub fn is_sparse(&self) -> bool {
        matches!(self.storage, Storage::SparseTable(_) | Storage::Sparse(_))
    }

    /// How many rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// How many columns.
    pub fn num_cols(&self) -> usize {
        self.cols
    }

    /// Whether runs of rows can be multiplied where they are: the values are f32, and all are there.
    pub fn is_wide(&self) -> bool {
        match &self.storage {
            Storage::Owned(_) => true,
            Storage::Shared(data) => data.kind() == TableType::F32,
            Storage::SparseTable(_) | Storage::Sparse(_) => false,
        }
    }

    /// Takes a new shape. The values are unspecified afterwards; memory is kept and grows only, when somebody writes to it.
    pub fn resize(&mut self, rows: usize, cols: usize) {
        if !matches!(self.storage, Storage::Owned(_)) {
            self.storage = Storage::Owned(Vec::new());
        }
        self.mirror.forget_values();
        self.rows = rows;
        self.cols = cols;
    }

    /// Makes host memory the place of the newest values.
    fn move_to_host(&mut self) {
        let values = self.rows * self.cols;
        let Storage::Owned(data) = &mut self.storage else { return };
        if let Some(newest) = self.mirror.fetched(values) {
            data.clear();
            data.extend_from_slice(newest);
        }
        self.mirror.forget_device();
        let lines = values.div_ceil(16);
        if data.len() < lines {
            data.resize(lines, Line([0.0; 16]));
        }
    }

    /// Whether the newest values are on a device.
    pub fn is_on_device(&self) -> bool {
        self.mirror.is_newest()
    }

    /// The number of the device that the newest values are on, if they are on one.
    pub fn device(&self) -> Option<usize> {
        self.mirror.device()
    }

    /// The matrix of values that `memory` holds on a device, `rows * cols` f32 at least.
    pub fn set_device(&mut self, rows: usize, cols: usize, memory: Arc<dyn DeviceMemory>) {
        self.resize(rows, cols);
        self.mirror.put(memory);
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
    /// In the place of the stored values of sparse rows.
    values: Option<&'a [f32]>,
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
        View { start: self.start + range.start, rows: range.len(), ..*self }
    }

    /// Whether the rows are sparse.
    pub fn is_sparse(&self) -> bool {
        self.matrix.is_sparse()
    }

    /// The rows as products read them, where they are sparse and gathered.
    pub fn sparse(&self) -> Option<Sparse<'a>> {
        let Storage::Sparse(block) = &self.matrix.storage else { return None };
        Some(Sparse {
            indptr: &block.indptr[self.start..=self.start + self.rows],
            indices: &block.indices,
            values: self.values.unwrap_or(&block.edge_weight),
            first: self.start,
            transposed: &block.transposed,
        })
    }

    /// The columns and values stored of row `i`, where rows are sparse.
    #[inline]
    pub fn sparse_row(&self, i: usize) -> Option<(&'a [u32], &'a [f32])> {
        assert!(i < self.rows, "row {i} of {}", self.rows);
        match &self.matrix.storage {
            Storage::SparseTable(rows) => Some(rows.row(self.start + i)),
            Storage::Sparse(block) => {
                let run = block.edges(self.start + i);
                Some((&block.indices[run.clone()], &self.values.unwrap_or(&block.edge_weight)[run]))
            }
            Storage::Owned(_) | Storage::Shared(_) => None,
        }
    }

    /// The same sparse rows with other values: as many as the whole matrix stores, in its order.
    ///
    /// # Panics
    /// The rows are not gathered sparse rows, or the number of values is another.
    pub fn with_values(self, values: &'a [f32]) -> Self {
        let stored = self.sparse().expect("gathered sparse rows").values.len();
        assert_eq!(values.len(), stored, "as many values as are stored");
        Self { values: Some(values), ..self }
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
            Storage::SparseTable(_) | Storage::Sparse(_) => {
                panic!("sparse rows: only products and gathers read them")
            }
        }
    }
}

impl<'a> View<'a> {
    /// The values' type and where the first of these rows is on a device, which gets them where they are newer on the host. `None`
    /// where it has no memory for them, or they are sparse.
    pub fn on_device(&self, accelerator: &dyn Accelerator) -> Option<(TableType, u64)> {
        let Matrix { rows, cols, storage, mirror } = self.matrix;
        let host = |kind: TableType, bytes: &[u8], shared: bool| {
            let memory = mirror.uploaded(accelerator, bytes, shared)?;
            Some((kind, memory + (self.start * cols * kind.width()) as u64))
        };
        if let Some(newest) = mirror.on(accelerator.device()) {
            return Some((TableType::F32, newest + (self.start * cols * 4) as u64));
        }
        if let Some(copy) = mirror.copied(accelerator, 4 * rows * cols) {
            return Some((TableType::F32, copy + (self.start * cols * 4) as u64));
        }
        match storage {
            Storage::Sparse(_) | Storage::SparseTable(_) => None,
            Storage::Shared(data) => {
                let bytes: &[u8] = match data {
                    TableData::F32(data) => bytemuck::cast_slice(data),
                    TableData::F16(data) => bytemuck::cast_slice(data),
                    TableData::Bf16(data) => bytemuck::cast_slice(data),
                };
                host(data.kind(), bytes, true)
            }
            Storage::Owned(_) => {
                let whole = View { matrix: self.matrix, start: 0, rows: *rows, values: None };
                host(TableType::F32, bytemuck::cast_slice(whole.host()), false)
            }
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

    /// A run of these rows.
    pub fn rows(self, range: Range<usize>) -> ViewMut<'a> {
        assert!(range.start <= range.end && range.end <= self.rows, "rows {range:?} of {}", self.rows);
        ViewMut { start: self.start + range.start, rows: range.len(), matrix: self.matrix }
    }

    /// The same rows, to be read.
    pub fn as_view(&self) -> View<'_> {
        View { matrix: self.matrix, start: self.start, rows: self.rows, values: None }
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
        matrix.move_to_host();
        match &mut matrix.storage {
            Storage::Owned(data) => &mut bytemuck::cast_slice_mut(data)[start * cols..(start + rows) * cols],
            _ => panic!("shared tables and sparse rows are read-only"),
        }
    }

    /// Where the first of these rows is on a device, to be written there: the values on the host are then old. Where `keeps`, the
    /// device gets the values first if they are newer on the host; without, those of these rows are unspecified. `None` where it has no memory
    /// for them.
    ///
    /// # Panics
    /// As [`ViewMut::host`].
    pub fn on_device(self, accelerator: &dyn Accelerator, keeps: bool) -> Option<u64> {
        let Self { matrix, start, rows } = self;
        let (values, offset) = (matrix.rows * matrix.cols, (start * matrix.cols * 4) as u64);
        if let Some(newest) = matrix.mirror.on(accelerator.device()) {
            matrix.mirror.written();
            return Some(newest + offset);
        }
        assert!(matches!(matrix.storage, Storage::Owned(_)), "shared tables and sparse rows are read-only");
        let all = start == 0 && rows == matrix.rows;
        if !all || keeps {
            // what was never written is not worth a copy
            if matrix.mirror.is_newest() || matrix.mirror.is_written_on_host() {
                let bytes: &[u8] = bytemuck::cast_slice(matrix.view().host());
                matrix.mirror.uploaded(accelerator, bytes, false)?;
                return matrix.mirror.take_over(accelerator.device()).map(|address| address + offset);
            }
        }
        matrix.mirror.room(accelerator, 4 * values).map(|address| address + offset)
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
    fn sparse_rows_are_gathered_and_transposed() {
        let indptr = vec![0, 1, 1, 3];
        let rows = SparseRows::new(4, indptr.into(), vec![2, 0, 2].into(), vec![5.0, 1.0, 3.0].into());
        let table = Matrix::sparse_table(rows.unwrap());
        let mut batch = Matrix::default();
        batch.gather_sparse(table.view(), &[2, 0, 1]);
        batch.transpose_sparse();
        let sparse = batch.view().sparse().unwrap();
        assert_eq!((sparse.indptr, sparse.indices), (&[0, 2, 3, 3][..], &[0, 2, 2][..]));
        assert_eq!((sparse.values, &sparse.transposed.dst[..]), (&[1.0, 3.0, 5.0][..], &[0, 0, 1][..]));
        assert_eq!(sparse.transposed.indptr, [0, 1, 1, 3, 3]);
        let other = [7.0, 8.0, 9.0];
        let view = batch.view().with_values(&other).rows(1..3);
        assert_eq!(view.sparse_row(0), Some((&[2][..], &[9.0][..])));
        assert_eq!((view.sparse().unwrap().indptr, view.sparse().unwrap().first), (&[2, 3, 3][..], 1));
        // and from there on
        let mut again = Matrix::zeros(3, 3);
        again.gather_sparse(batch.view(), &[1, 1]);
        assert_eq!(again.view().sparse().unwrap().values, [5.0, 5.0]);
        assert_eq!(format!("{again:?}"), "Matrix(2 x 4, sparse)");
        assert!(table.view().sparse().is_none() && table.is_sparse() && !table.is_wide());
    }

    #[test]
    fn many_sparse_rows_are_gathered_as_few_are() {
        let n: u32 = 5000;
        let indptr: Vec<u64> = (0..=u64::from(n)).map(|v| v * (v + 1) / 2 % 7 + 3 * v).collect();
        let indptr: Vec<u64> =
            (0..indptr.len()).map(|v| indptr[..=v].iter().copied().max().unwrap()).collect();
        let indices: Vec<u32> = indptr.windows(2).flat_map(|pair| 0..(pair[1] - pair[0]) as u32).collect();
        let values: Vec<f32> = (0..indices.len()).map(|k| k as f32).collect();
        let indptr: Vec<u64> = indptr.iter().map(|start| start - indptr[0]).collect();
        let rows = SparseRows::new(40, indptr.into(), indices.into(), values.into()).unwrap();
        let ids: Vec<u32> = (0..n).map(|i| i * 37 % n).collect();
        let expected = rows.select(&ids).unwrap();
        let mut batch = Matrix::default();
        batch.gather_sparse(Matrix::sparse_table(rows).view(), &ids);
        let sparse = batch.view().sparse().unwrap();
        assert_eq!((sparse.indices, sparse.values), (&expected.indices()[..], &expected.values()[..]));
        assert!(sparse.indptr.iter().zip(&expected.indptr()[..]).all(|(&a, &b)| u64::from(a) == b));
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
