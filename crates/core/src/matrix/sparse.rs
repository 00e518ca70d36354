//! Sparse rows: tables of them to gather from, and gathered ones that products read.

use super::{Matrix, Mirror, Storage, View};
use crate::{NodeId, SparseRows, block::Transposed, sparse};

/// Gathered sparse rows, for products.
#[derive(Clone, Copy, Debug)]
pub struct Sparse<'a> {
    /// Start of each row's stored values in `indices` and `values`, and the end of the last row's.
    pub indptr: &'a [u32],
    /// Columns of the stored values of the whole matrix, ascending within a row.
    pub indices: &'a [u32],
    /// The stored values of the whole matrix.
    pub values: &'a [f32],
    /// Number of the first of these rows in the whole matrix.
    pub first: usize,
    /// Stored values of the whole matrix by column, rows ascending, after
    /// [`Matrix::transpose_sparse`].
    pub transposed: &'a Transposed,
}

impl Matrix {
    /// A read-only table around sparse rows without copying them.
    pub fn sparse_table(rows: SparseRows) -> Self {
        let (num_rows, cols) = (rows.num_rows(), rows.num_cols());
        Self { rows: num_rows, cols, storage: Storage::SparseTable(rows), ..Self::default() }
    }

    /// Becomes the rows `ids` of `from`, which are sparse, in that order. Parallel; memory is
    /// reused.
    ///
    /// # Panics
    /// `from` is dense, or the rows store more than 2^32 - 1 values.
    pub fn gather_sparse(&mut self, from: View, ids: &[NodeId]) {
        let row = |v: NodeId| from.sparse_row(v as usize).expect("sparse rows are gathered from sparse rows");
        self.gather_sparse_with(from.num_cols(), ids, row);
    }

    /// Becomes the sparse rows of `cols` columns that `row` returns for each of `ids`, in that
    /// order: columns, ascending, and values. Parallel; memory is reused.
    ///
    /// # Panics
    /// The rows store more than 2^32 - 1 values.
    pub fn gather_sparse_with<'r>(
        &mut self,
        cols: usize,
        ids: &[NodeId],
        row: impl Fn(NodeId) -> (&'r [u32], &'r [f32]) + Copy + Sync,
    ) {
        if !matches!(self.storage, Storage::Sparse(_)) {
            self.storage = Storage::Sparse(Box::default());
            self.recount();
        }
        self.mirror = Mirror::default();
        let Storage::Sparse(block) = &mut self.storage else { unreachable!("it was just made") };
        sparse::gather(ids, row, block);
        (block.num_dst, block.num_src) = (ids.len(), cols);
        (self.rows, self.cols) = (ids.len(), cols);
    }

    /// Lists the stored values by column too, for products with the transpose. Parallel if that
    /// pays.
    ///
    /// # Panics
    /// The rows were not made by [`Matrix::gather_sparse`].
    pub fn transpose_sparse(&mut self) {
        match &mut self.storage {
            Storage::Sparse(block) => block.par_transpose(),
            _ => panic!("only gathered sparse rows are transposed"),
        }
    }

    /// Reports whether the rows are sparse.
    pub fn is_sparse(&self) -> bool {
        matches!(self.storage, Storage::SparseTable(_) | Storage::Sparse(_))
    }
}

impl<'a> View<'a> {
    /// Reports whether the rows are sparse.
    pub fn is_sparse(&self) -> bool {
        self.matrix.is_sparse()
    }

    /// The rows for products, if they are sparse and gathered.
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

    /// Columns and values stored of row `i`, if rows are sparse.
    #[inline]
    pub fn sparse_row(&self, i: usize) -> Option<(&'a [u32], &'a [f32])> {
        assert!(i < self.rows, "row {i} of {}", self.rows);
        match &self.matrix.storage {
            Storage::SparseTable(rows) => Some(rows.row(self.start + i)),
            Storage::Sparse(block) => {
                let run = block.edges(self.start + i);
                Some((&block.indices[run.clone()], &self.values.unwrap_or(&block.edge_weight)[run]))
            }
            Storage::Owned(_) | Storage::Shared(_) | Storage::Slots(_) | Storage::File(_) => None,
        }
    }

    /// The same sparse rows with other values, one for each stored value of the whole matrix, in
    /// its order.
    ///
    /// # Panics
    /// The rows are not gathered sparse rows, or the number of values differs.
    pub fn with_values(self, values: &'a [f32]) -> Self {
        let stored = self.sparse().expect("gathered sparse rows").values.len();
        assert_eq!(values.len(), stored, "as many values as are stored");
        Self { values: Some(values), ..self }
    }
}
