//! Sparse rows: bags of words, one-hot codes, lists of ids.

#![forbid(unsafe_code)]

use rayon::prelude::*;

use crate::{
    Block, Buffer, Error, NodeId, Result, memory,
    search::{pair_position, position},
};

/// Minimum number of rows per task.
const MIN_TASK_LEN: usize = 1 << 10;

/// `R x F` matrix in compressed sparse rows: row `i` holds `values[k]` in column `indices[k]` for
/// `k` in `indptr[i]..indptr[i + 1]`, and zeros elsewhere. Columns are ascending and unique within
/// a row; values are finite (and may be zero).
///
/// ```
/// use graphmill_core::SparseRows;
/// // 0 5 0
/// // 7 0 8
/// let rows = SparseRows::new(3, vec![0, 1, 3].into(), vec![1, 0, 2].into(), vec![5.0, 7.0, 8.0].into())?;
/// assert_eq!(rows.row(1), (&[0, 2][..], &[7.0, 8.0][..]));
/// assert_eq!(rows.to_dense()?, [0.0, 5.0, 0.0, 7.0, 0.0, 8.0]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SparseRows {
    columns: usize,
    indptr: Buffer<u64>,
    indices: Buffer<u32>,
    values: Buffer<f32>,
}

impl SparseRows {
    /// Creates rows from `indptr` (`R + 1`), `indices` and `values` of `columns` columns after
    /// checking them. O(R + stored), parallel.
    ///
    /// # Errors
    /// `indptr` is empty, does not start at 0, decreases, or does not end at the number of indices;
    /// a column is not below `columns` or does not ascend; the numbers of values and indices
    /// differ, or a value is not finite.
    pub fn new(
        columns: usize,
        indptr: Buffer<u64>,
        indices: Buffer<u32>,
        values: Buffer<f32>,
    ) -> Result<Self> {
        let Some(&last) = indptr.last() else {
            return Err(Error::invalid("indptr is empty: it needs one entry more than there are rows"));
        };
        if indptr[0] != 0 || last != indices.len() as u64 {
            return Err(Error::invalid(format!(
                "indptr runs from {} to {last}, but must run from 0 to the number of stored values, {}",
                indptr[0],
                indices.len()
            )));
        }
        if values.len() != indices.len() {
            return Err(Error::invalid(format!("{} values for {} columns", values.len(), indices.len())));
        }
        if let Some(i) = pair_position(&indptr, |start, end| start > end) {
            let (start, end) = (indptr[i], indptr[i + 1]);
            return Err(Error::invalid(format!("indptr decreases after row {i}: {start} to {end}")));
        }
        let rows = Self { columns, indptr, indices, values };
        if let Some(message) = rows.first_fault() {
            return Err(Error::invalid(message));
        }
        Ok(rows)
    }

    /// Creates rows from arrays that [`SparseRows::new`] accepted before, such as those of a file
    /// that was verified.
    pub fn of_sound(columns: usize, indptr: Buffer<u64>, indices: Buffer<u32>, values: Buffer<f32>) -> Self {
        debug_assert_eq!(indptr.last(), Some(&(indices.len() as u64)));
        Self { columns, indptr, indices, values }
    }

    /// Creates a table of `columns` columns without rows.
    pub fn empty(columns: usize) -> Self {
        Self { columns, indptr: vec![0].into(), indices: Buffer::default(), values: Buffer::default() }
    }

    /// Extracts the nonzero values of a dense row-major table of `columns` columns. O(R F).
    ///
    /// # Errors
    /// The values do not form whole rows, or one is not finite.
    pub fn from_dense(columns: usize, table: &[f32]) -> Result<Self> {
        if !table.len().is_multiple_of(columns.max(1)) || columns > u32::MAX as usize {
            return Err(Error::invalid(format!("{} values do not make rows of {columns}", table.len())));
        }
        let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        for row in table.chunks(columns.max(1)) {
            for (j, &x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
                indices.push(j as u32);
                values.push(x);
            }
            indptr.push(indices.len() as u64);
        }
        Self::new(columns, indptr.into(), indices.into(), values.into())
    }

    /// Describes the first invalid column or value.
    fn first_fault(&self) -> Option<String> {
        let sound = |i: &usize| {
            let (columns, values) = self.row(*i);
            // Columns are ascending, so the last one is the largest.
            columns.is_sorted_by(|a, b| a < b)
                && columns.last().is_none_or(|&j| (j as usize) < self.columns)
                && values.iter().fold(true, |all, x| all & x.is_finite())
        };
        let i = (0..self.num_rows()).into_par_iter().with_min_len(MIN_TASK_LEN).find_first(|i| !sound(i))?;
        let (columns, values) = self.row(i);
        if let Some(k) = position(values, |x| !x.is_finite()) {
            return Some(format!("feature {} of node {i} is not a finite number", columns[k]));
        }
        if let Some(&j) = columns.iter().find(|j| **j as usize >= self.columns) {
            return Some(format!(
                "row {i} has a value in column {j}, but there are {} columns",
                self.columns
            ));
        }
        let pair = columns.windows(2).find(|pair| pair[0] >= pair[1])?;
        Some(format!("the columns of row {i} do not ascend: {} after {}", pair[1], pair[0]))
    }

    /// Number of rows, `R`.
    pub fn num_rows(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of columns, `F`.
    pub fn num_cols(&self) -> usize {
        self.columns
    }

    /// Number of stored values.
    pub fn stored(&self) -> usize {
        self.values.len()
    }

    /// Row starts, `R + 1`.
    pub fn indptr(&self) -> &Buffer<u64> {
        &self.indptr
    }

    /// Column of every stored value.
    pub fn indices(&self) -> &Buffer<u32> {
        &self.indices
    }

    /// Stored values.
    pub fn values(&self) -> &Buffer<f32> {
        &self.values
    }

    /// Columns and values of row `i`.
    #[inline]
    pub fn row(&self, i: usize) -> (&[u32], &[f32]) {
        let run = self.indptr[i] as usize..self.indptr[i + 1] as usize;
        (&self.indices[run.clone()], &self.values[run])
    }

    /// Bytes of `rows` rows with `stored` values.
    pub fn bytes_of(rows: usize, stored: usize) -> usize {
        8 * (rows + 1) + 8 * stored
    }

    /// Bytes at rest.
    pub fn bytes(&self) -> usize {
        Self::bytes_of(self.num_rows(), self.stored())
    }

    /// Expands to a dense row-major table: `R x F`. Parallel.
    ///
    /// # Errors
    /// The allocation fails.
    pub fn to_dense(&self) -> Result<Vec<f32>> {
        let mut dense: Vec<f32> = memory::zeroed(self.num_rows().saturating_mul(self.columns))?;
        if self.columns > 0 {
            dense.par_chunks_mut(self.columns).enumerate().for_each(|(i, row)| {
                let (columns, values) = self.row(i);
                columns.iter().zip(values).for_each(|(&j, &x)| row[j as usize] = x);
            });
        }
        Ok(dense)
    }

    /// Selects the rows `kept`, in that order.
    ///
    /// # Errors
    /// The allocation fails.
    pub fn select(&self, kept: &[NodeId]) -> Result<Self> {
        let stored = kept.iter().map(|&v| self.row(v as usize).0.len()).sum();
        let mut indptr: Vec<u64> = memory::reserve(kept.len() + 1)?;
        let (mut indices, mut values) = (memory::reserve(stored)?, memory::reserve(stored)?);
        indptr.push(0);
        for &v in kept {
            let (columns, of_row) = self.row(v as usize);
            indices.extend_from_slice(columns);
            values.extend_from_slice(of_row);
            indptr.push(indices.len() as u64);
        }
        let columns = self.columns;
        Ok(Self { columns, indptr: indptr.into(), indices: indices.into(), values: values.into() })
    }

    /// Divides every row by the sum of its values; rows that sum to zero are unchanged. Parallel.
    ///
    /// # Errors
    /// The allocation fails, or a quotient is not finite.
    pub fn normalized(&self) -> Result<Self> {
        let mut values: Vec<f32> = memory::reserve(self.stored())?;
        for i in 0..self.num_rows() {
            let (_, row) = self.row(i);
            let sum: f64 = row.iter().map(|&x| f64::from(x)).sum();
            let divisor = if sum == 0.0 { 1.0 } else { sum };
            values.extend(row.iter().map(|&x| (f64::from(x) / divisor) as f32));
        }
        Self::new(self.columns, self.indptr.clone(), self.indices.clone(), values.into())
    }

    /// Divides every value by the divisor of its column (`F`). O(stored), single-threaded.
    ///
    /// # Errors
    /// The allocation fails, the number of divisors differs from the columns, or a quotient is not
    /// finite.
    pub fn scaled(&self, divisors: &[f64]) -> Result<Self> {
        if divisors.len() != self.columns {
            let message = format!("{} divisors for {} columns", divisors.len(), self.columns);
            return Err(Error::invalid(message));
        }
        let mut values: Vec<f32> = memory::reserve(self.stored())?;
        let quotient = |(&j, &x): (&u32, &f32)| (f64::from(x) / divisors[j as usize]) as f32;
        values.extend(self.indices.iter().zip(&self.values[..]).map(quotient));
        Self::new(self.columns, self.indptr.clone(), self.indices.clone(), values.into())
    }

    /// Copies to anonymous huge pages (see [`Buffer::to_huge_pages`]).
    ///
    /// # Errors
    /// The allocation fails.
    pub fn to_huge_pages(&self) -> Result<Self> {
        Ok(Self {
            columns: self.columns,
            indptr: self.indptr.to_huge_pages()?,
            indices: self.indices.to_huge_pages()?,
            values: self.values.to_huge_pages()?,
        })
    }
}

/// Fills the edges of `block` and their weights with the rows `ids`, in that order: a row is a
/// destination, its columns are sources. Parallel.
///
/// Unwinds as [`memory::demand`] if the system refuses the memory; then the block is half written.
///
/// # Panics
/// The values exceed a block's 32-bit positions.
pub(crate) fn gather<'r>(
    ids: &[NodeId],
    row: impl Fn(NodeId) -> (&'r [u32], &'r [f32]) + Copy + Sync,
    block: &mut Block,
) {
    let Block { indptr, indices, edge_weight, transposed, .. } = block;
    transposed.indptr.clear();
    indptr.clear();
    memory::demand(indptr, ids.len() + 1);
    indptr.push(0);
    let mut end = 0;
    for &v in ids {
        end += row(v).0.len() as u64;
        indptr.push(u32::try_from(end).expect("fewer than 2^32 stored values in the rows of a batch"));
    }
    // Every entry is written below.
    memory::demand_len(indices, end as usize, 0);
    memory::demand_len(edge_weight, end as usize, 0.0);
    copy(ids, row, indptr, indices, edge_weight);
}

/// Copies rows to their positions in `indptr`, recursively halved over the threads.
fn copy<'r>(
    ids: &[NodeId],
    row: impl Fn(NodeId) -> (&'r [u32], &'r [f32]) + Copy + Sync,
    indptr: &[u32],
    indices: &mut [u32],
    values: &mut [f32],
) {
    if ids.len() > MIN_TASK_LEN {
        let middle = ids.len() / 2;
        let at = (indptr[middle] - indptr[0]) as usize;
        let (ids, indices) = (ids.split_at(middle), indices.split_at_mut(at));
        let values = values.split_at_mut(at);
        rayon::join(
            || copy(ids.0, row, &indptr[..=middle], indices.0, values.0),
            || copy(ids.1, row, &indptr[middle..], indices.1, values.1),
        );
        return;
    }
    for (&v, ends) in ids.iter().zip(indptr.windows(2)) {
        let place = (ends[0] - indptr[0]) as usize..(ends[1] - indptr[0]) as usize;
        let (columns, of_row) = row(v);
        indices[place.clone()].copy_from_slice(columns);
        values[place].copy_from_slice(of_row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(columns: usize, indptr: &[u64], indices: &[u32], values: &[f32]) -> Result<SparseRows> {
        SparseRows::new(columns, indptr.to_vec().into(), indices.to_vec().into(), values.to_vec().into())
    }

    #[test]
    fn rows_are_accessed_selected_and_divided() {
        let sparse = rows(4, &[0, 2, 2, 3], &[0, 3, 1], &[1.0, 3.0, -2.0]).unwrap();
        assert_eq!((sparse.num_rows(), sparse.num_cols(), sparse.stored()), (3, 4, 3));
        assert_eq!(sparse.bytes(), 32 + 24);
        assert_eq!(sparse.to_dense().unwrap(), [1., 0., 0., 3., 0., 0., 0., 0., 0., -2., 0., 0.]);
        let some = sparse.select(&[2, 1, 0, 2]).unwrap();
        assert_eq!(some.indptr()[..], [0, 1, 1, 3, 4]);
        assert_eq!((&some.indices()[..], some.row(2).1), (&[1, 0, 3, 1][..], &[1.0, 3.0][..]));
        let again = SparseRows::from_dense(4, &sparse.to_dense().unwrap()).unwrap();
        assert_eq!(
            (&again.indptr()[..], &again.indices()[..]),
            (&sparse.indptr()[..], &sparse.indices()[..])
        );
        assert!(SparseRows::from_dense(3, &[1.0; 4]).is_err());
        assert_eq!(sparse.normalized().unwrap().values()[..], [0.25, 0.75, 1.0]);
        let zero = rows(2, &[0, 2], &[0, 1], &[1.0, -1.0]).unwrap();
        assert_eq!(zero.normalized().unwrap().values()[..], [1.0, -1.0]);
        assert_eq!(&sparse.to_huge_pages().unwrap().values()[..], &sparse.values()[..]);
        assert!(rows(0, &[0, 0], &[], &[]).unwrap().to_dense().unwrap().is_empty());
    }

    #[test]
    fn every_kind_of_damage_is_rejected() {
        let fails = |indptr: &[u64], indices: &[u32], values: &[f32], why: &str| {
            let error = rows(3, indptr, indices, values).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        fails(&[], &[], &[], "empty");
        fails(&[1, 1], &[0], &[1.0], "from 1");
        fails(&[0, 2], &[0], &[1.0], "to 2");
        fails(&[0, 2, 1, 2], &[0, 1], &[1.0, 1.0], "after row 1");
        fails(&[0, 1], &[0], &[1.0, 2.0], "2 values for 1");
        fails(&[0, 0, 1], &[3], &[1.0], "row 1 has a value in column 3");
        fails(&[0, 2], &[1, 1], &[1.0, 1.0], "row 0 do not ascend: 1 after 1");
        fails(&[0, 2], &[5, 1], &[1.0, 1.0], "column 5");
        fails(&[0, 1, 2], &[0, 2], &[1.0, f32::INFINITY], "feature 2 of node 1");
    }
}
