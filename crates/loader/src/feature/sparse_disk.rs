//! Sparse features that stay in files.
//!
//! # Reads
//!
//! Columns and values of the stored values are two files. A row is a run of both, whose place the
//! starts of the rows give, so a request reads the stored values of its rows as rows of one value:
//! [`Disk`] joins those that lie together, within a row and between rows, to few reads.
//!
//! # Cost
//!
//! A sort of the request's stored values, and two requests of the disk.
//!
//! # Memory
//!
//! The starts of the rows (8 bytes each), and for a request 20 bytes per stored value. Files have
//! at most 2^32 - 1 stored values.

use std::time::Instant;

use graphmill_core::{Buffer, Error, Matrix, NodeId, ObjectPool, Result, memory};

use super::{
    Capabilities, Disk, Feature, OutputRows, TierTraffic, Traffic, cached::sparse_bytes, widen_sparse,
};

/// A table of sparse feature rows in two files.
pub struct SparseDisk {
    dim: usize,
    /// Number of the first stored value of each row, and of all.
    starts: Buffer<u64>,
    columns: Disk,
    values: Disk,
    scratch: ObjectPool<Scratch>,
}

/// Memory of a request.
#[derive(Default)]
struct Scratch {
    /// Numbers of the stored values, and the end of each row among them.
    numbers: Vec<u32>,
    ends: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f32>,
    rows: Matrix,
}

impl SparseDisk {
    /// Combines rows of `dim` columns. `starts` are the numbers of their first stored values, and
    /// the number of all of them; `columns` and `values` are tables of one value of 4 bytes a row.
    ///
    /// # Errors
    /// The tables have other shapes, or more values than 32 bits number.
    pub fn new(dim: usize, starts: Buffer<u64>, columns: Disk, values: Disk) -> Result<Self> {
        let stored = starts.last().copied().unwrap_or(0);
        let fits = |file: &Disk| file.num_rows() as u64 == stored && (file.dim(), file.row_bytes()) == (1, 4);
        if starts.is_empty() || !starts.is_sorted() || !fits(&columns) || !fits(&values) {
            return Err(Error::invalid(format!(
                "the files of sparse features differ from their {stored} stored values; restore the files \
                 or import the data again"
            )));
        }
        if stored > u64::from(u32::MAX) {
            return Err(Error::invalid(format!(
                "{stored} stored feature values exceed 2^32 - 1, the limit of sparse rows in files; import \
                 the data again with dense features"
            )));
        }
        Ok(Self { dim, starts, columns, values, scratch: ObjectPool::default() })
    }

    /// Number of stored values of `rows` rows.
    fn stored(&self) -> usize {
        self.columns.num_rows()
    }

    fn read_rows(&self, ids: &[NodeId], scratch: &mut Scratch) -> Result<Traffic> {
        let began = Instant::now();
        let Scratch { numbers, ends, columns, values, rows } = scratch;
        numbers.clear();
        ends.clear();
        memory::demand(ends, ids.len());
        for &v in ids {
            let run = self.starts[v as usize]..self.starts[v as usize + 1];
            memory::demand_extend(numbers, run.map(|number| number as u32));
            ends.push(numbers.len());
        }
        memory::demand_len(columns, numbers.len(), 0);
        memory::demand_len(values, numbers.len(), 0.0);
        if !numbers.is_empty() {
            // bits of 4 bytes are copied as they are
            self.columns.read(numbers, bytemuck::cast_slice_mut(&mut columns[..]))?;
            self.values.read(numbers, values)?;
        }
        if let Some(column) = columns.iter().find(|&&column| column as usize >= self.dim) {
            return Err(Error::invalid(format!(
                "the file of sparse features has column {column} in rows of {} columns; restore the file or \
                 import the data again",
                self.dim
            )));
        }
        let all = memory::demand_collect(0..ids.len() as NodeId);
        let (columns, values, ends) = (&columns[..], &values[..], &ends[..]);
        rows.gather_sparse_with(self.dim, &all, |i| {
            let run = (i as usize).checked_sub(1).map_or(0, |before| ends[before])..ends[i as usize];
            (&columns[run.clone()], &values[run])
        });
        let disk = TierTraffic::since(began, ids.len() as u64, sparse_bytes(ids.len(), columns.len()));
        Ok(Traffic { disk, ..Traffic::default() })
    }
}

impl Feature for SparseDisk {
    fn dim(&self) -> usize {
        self.dim
    }

    fn num_rows(&self) -> usize {
        self.starts.len() - 1
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        self.scratch.with(|scratch| {
            let traffic = self.read_rows(ids, scratch)?;
            widen_sparse(scratch.rows.view(), places, out);
            Ok(traffic)
        })
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        self.scratch.with(|scratch| {
            std::mem::swap(&mut scratch.rows, out);
            let read = self.read_rows(ids, scratch);
            std::mem::swap(&mut scratch.rows, out);
            read
        })
    }

    fn row_bytes(&self) -> u64 {
        sparse_bytes(1, self.stored().div_ceil(self.num_rows().max(1)))
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use graphmill_core::{SparseRows, matrix::TableType};

    use super::*;
    use crate::feature::DiskOptions;

    fn open(path: &Path, bytes: &[u8]) -> Disk {
        std::fs::write(path, bytes).unwrap();
        let options = DiskOptions::default();
        Disk::open(path, 0, 1, TableType::F32, bytes.len() / 4, &options).unwrap()
    }

    #[test]
    fn rows_are_those_of_memory() {
        let dim = 30;
        let mut table = vec![0.0; 200 * dim];
        for (v, row) in table.chunks_exact_mut(dim).enumerate() {
            (0..v % 5).for_each(|k| row[(v * 7 + 11 * k) % dim] = v as f32 + 0.25 * k as f32 + 1.0);
        }
        let rows = SparseRows::from_dense(dim, &table).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| open(&dir.path().join(name), bytes);
        let columns = || file("columns", bytemuck::cast_slice(rows.indices()));
        let values = file("values", bytemuck::cast_slice(rows.values()));
        let disk = SparseDisk::new(dim, rows.indptr().clone(), columns(), values).unwrap();
        assert_eq!((disk.dim(), disk.num_rows()), (dim, 200));
        let ids: Vec<NodeId> = (0..150).map(|i| i * 37 % 200).chain([3, 3, 5, 0]).collect();
        let mut out = Matrix::default();
        for ids in [&ids[..], &[5], &[]] {
            let traffic = disk.gather(ids, &mut out).unwrap();
            assert_eq!((traffic.total().rows, traffic.disk.rows), (ids.len() as u64, ids.len() as u64));
            for (i, &v) in ids.iter().enumerate() {
                assert_eq!(out.view().sparse_row(i).unwrap(), rows.row(v as usize), "row {v}");
            }
            let mut dense = vec![-1.0; ids.len() * dim];
            disk.read(ids, &mut dense).unwrap();
            for (row, &v) in dense.chunks_exact(dim).zip(ids) {
                assert_eq!(row, &table[v as usize * dim..][..dim], "row {v}");
            }
        }
        let short = file("short", bytemuck::cast_slice(&rows.values()[1..]));
        let error = SparseDisk::new(dim, rows.indptr().clone(), columns(), short).err().unwrap().to_string();
        assert!(error.contains("differ from their"), "{error}");
        let values = file("values", bytemuck::cast_slice(rows.values()));
        let narrow = SparseDisk::new(3, rows.indptr().clone(), columns(), values).unwrap();
        let error = narrow.gather(&ids, &mut out).unwrap_err().to_string();
        assert!(error.contains("in rows of 3 columns"), "{error}");
    }
}
