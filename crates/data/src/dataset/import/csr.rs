//! Compressed sparse rows as stored by SciPy: a sparse feature matrix or sets of classes.

use graphmill_core::{Result, location::Location, memory, parallel, search::position};
use rayon::prelude::*;

use super::claims;
use crate::npz::Npz;

/// Sparse matrix: row `i` holds `data[k]` at column `indices[k]` for `k` in `indptr[i]..indptr[i +
/// 1]`.
#[derive(Debug, Default)]
pub(crate) struct Csr {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) indptr: Vec<u64>,
    pub(crate) indices: Vec<u32>,
    /// Values of the entries.
    pub(crate) data: Vec<f32>,
}

impl Csr {
    /// Reads the arrays `{prefix}indptr`, `{prefix}indices`, `{prefix}shape` and `{prefix}data`.
    pub(crate) fn from_npz(npz: &mut Npz, prefix: &str) -> Result<Self> {
        let path = npz.path().to_path_buf();
        let name = |array: &str| format!("{prefix}{array}");
        let place = |array: &str| format!("member {prefix}{array}.npy");
        let shape = npz.read_as::<u64>(&name("shape"))?.data;
        let &[rows, columns] = &shape[..] else {
            return Err(
                Location::new(&path, place("shape")).error(format!("two numbers expected, {shape:?} found"))
            );
        };
        let entries = npz.header(&name("indices"))?.len();
        let values = npz.header(&name("data"))?.len();
        if entries != values {
            let message = format!("{values} values for the {entries} column numbers of {prefix}indices");
            return Err(Location::new(&path, place("data")).error(message));
        }
        let csr = Self {
            rows: usize::try_from(rows).unwrap_or(usize::MAX),
            columns: usize::try_from(columns).unwrap_or(usize::MAX),
            indptr: npz.read_as(&name("indptr"))?.data,
            indices: npz.read_as(&name("indices"))?.data,
            data: npz.read_as(&name("data"))?.data,
        };
        csr.check(&Location::new(&path, place("indptr")), &Location::new(&path, place("indices")))?;
        Ok(csr)
    }

    /// Checks that the arrays are consistent; errors of the row starts and of the column numbers
    /// have separate locations.
    pub(crate) fn check(&self, indptr: &Location, indices: &Location) -> Result<()> {
        check_row_starts(&self.indptr, self.rows, self.indices.len(), indptr)?;
        if let Some(k) = position(&self.indices, |&j| j as usize >= self.columns) {
            return Err(indices.error(format!(
                "entry {k} is in column {}, but there are {} columns",
                self.indices[k], self.columns
            )));
        }
        Ok(())
    }

    /// Sorts the columns of every row, merges duplicates and drops zeros: duplicates are summed in
    /// their order, as by SciPy. In a pattern every entry becomes a 1, however often it occurs.
    pub(crate) fn canonical(mut self, at: &Location) -> Result<Self> {
        let pattern = self.data.is_empty();
        if pattern {
            self.data = at.locate(memory::reserve(self.indices.len()))?;
            self.data.resize(self.indices.len(), 1.0);
        }
        let ascends = |i: usize| {
            let run = self.indptr[i] as usize..self.indptr[i + 1] as usize;
            self.indices[run].is_sorted_by(|a, b| a < b)
        };
        if position(&self.data, |&x| x == 0.0).is_none()
            && parallel::first_index(self.rows, |i| !ascends(i)).is_none()
        {
            return Ok(self);
        }
        // Rows only become shorter, so they are rewritten in place.
        let (mut end, mut row) = (0, Vec::new());
        for i in 0..self.rows {
            let run = self.indptr[i] as usize..self.indptr[i + 1] as usize;
            row.clear();
            row.extend(self.indices[run.clone()].iter().copied().zip(self.data[run].iter().copied()));
            row.sort_by_key(|&(j, _)| j); // stable: equal columns keep their order
            self.indptr[i] = end as u64;
            for same in row.chunk_by(|a, b| a.0 == b.0) {
                let sum = same[1..].iter().fold(same[0].1, |sum, (_, x)| sum + x);
                let x = if pattern { 1.0 } else { sum };
                if x != 0.0 {
                    (self.indices[end], self.data[end]) = (same[0].0, x);
                    end += 1;
                }
            }
        }
        self.indptr[self.rows] = end as u64;
        self.indices.truncate(end);
        self.data.truncate(end);
        Ok(self)
    }

    /// Converts to a dense row-major matrix; duplicates are summed, as by SciPy.
    pub(crate) fn to_dense(&self, at: &Location) -> Result<Vec<f32>> {
        self.check_width(at)?;
        let size = self.rows.saturating_mul(self.columns);
        claims::dense(self.rows, self.columns, self.indices.len() + self.rows, at)?;
        let mut dense: Vec<f32> = at.locate(memory::zeroed(size))?;
        if self.columns > 0 {
            dense.par_chunks_mut(self.columns).zip(self.indptr.par_windows(2)).for_each(|(row, pair)| {
                let run = pair[0] as usize..pair[1] as usize;
                for (&j, &x) in self.indices[run.clone()].iter().zip(&self.data[run]) {
                    row[j as usize] += x;
                }
            });
        }
        Ok(dense)
    }

    /// Rejects a width that no entry backs, because the shape is damaged: some trailing columns may
    /// be empty, but not most.
    pub(crate) fn check_width(&self, at: &Location) -> Result<()> {
        let used = self.indices.par_iter().max().map_or(0, |&j| j as usize + 1);
        if self.columns > 2 * used + 1024 {
            return Err(at.error(format!(
                "the shape claims {} columns, but no entry is beyond column {used}: the shape is damaged",
                self.columns
            )));
        }
        Ok(())
    }
}

/// Checks the row starts of a matrix with `rows` rows and `entries` entries.
pub(crate) fn check_row_starts(starts: &[u64], rows: usize, entries: usize, at: &Location) -> Result<()> {
    if Some(starts.len()) != rows.checked_add(1) {
        return Err(at.error(format!("{} row starts, but {rows} rows need one more than that", starts.len())));
    }
    let (first, last) = (starts[0], starts[rows]);
    if first != 0 || last != entries as u64 {
        return Err(
            at.error(format!("row starts run from {first} to {last}, but there are {entries} entries"))
        );
    }
    if let Some(i) = starts.windows(2).position(|pair| pair[0] > pair[1]) {
        return Err(at.error(format!(
            "row starts decrease after row {i}: {} to {}",
            starts[i],
            starts[i + 1]
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn csr(indptr: &[u64], indices: &[u32], columns: usize) -> Csr {
        Csr {
            rows: indptr.len() - 1,
            columns,
            indptr: indptr.to_vec(),
            indices: indices.to_vec(),
            data: (0..indices.len()).map(|k| k as f32 + 1.0).collect(),
        }
    }

    #[test]
    fn dense_rows_match_the_entries() {
        let at = Location::new(Path::new("a"), "m");
        let matrix = csr(&[0, 2, 2, 4], &[0, 2, 1, 1], 3);
        matrix.check(&at, &at).unwrap();
        assert_eq!(matrix.to_dense(&at).unwrap(), [1., 0., 2., 0., 0., 0., 0., 7., 0.]);
    }

    #[test]
    fn rows_become_ascending_and_unique() {
        let at = Location::new(Path::new("a"), "m");
        let matrix = |data: &[f32]| Csr { data: data.to_vec(), ..csr(&[0, 4, 4, 6], &[2, 0, 2, 1, 1, 0], 3) };
        let sorted = matrix(&[1., 2., 3., 0., 5., -0.]).canonical(&at).unwrap();
        assert_eq!((&sorted.indptr[..], &sorted.indices[..]), (&[0, 2, 2, 3][..], &[0, 2, 1][..]));
        assert_eq!(sorted.data, [2., 4., 5.]);
        let pattern = matrix(&[]).canonical(&at).unwrap();
        assert_eq!((&pattern.indptr[..], &pattern.indices[..]), (&[0, 3, 3, 5][..], &[0, 1, 2, 0, 1][..]));
        assert_eq!(pattern.data, [1.; 5]);
        let already = csr(&[0, 2, 3], &[0, 2, 1], 3).canonical(&at).unwrap();
        assert_eq!(already.indices, [0, 2, 1]);
    }

    #[test]
    fn inconsistent_arrays_are_rejected() {
        let at = Location::new(Path::new("a"), "m");
        let fails = |matrix: Csr, why: &str| {
            let error = matrix.check(&at, &at).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        fails(csr(&[0, 3], &[0], 1), "to 3");
        fails(csr(&[1, 1], &[0], 1), "from 1");
        fails(csr(&[0, 2, 1, 2], &[0, 0], 1), "after row 1");
        fails(csr(&[0, 1], &[5], 5), "column 5");
        fails(Csr { rows: usize::MAX, ..csr(&[0], &[], 0) }, "row starts");
        let wide = csr(&[0, 1], &[0], 1 << 40).to_dense(&at).unwrap_err().to_string();
        assert!(wide.contains("claims"), "{wide}");
        let corner = csr(&[0, 1], &[1 << 30], (1 << 30) + 1).to_dense(&at).unwrap_err().to_string();
        assert!(corner.contains("the file holds 2 values"), "{corner}");
    }
}
