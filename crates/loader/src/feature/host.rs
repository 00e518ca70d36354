//! Features in host memory: f32 rows are copied, rows of 16-bit floats converted, and sparse rows
//! gathered in sparse form.

use std::time::Instant;

use graphmill_core::{
    Buffer, Error, Features, Matrix, NodeId, Result, SparseRows,
    features::FeatureData,
    matrix::{TableData, TableType},
    verifier::ChunkVerifier,
};
use half::{bf16, f16, slice::HalfFloatSliceExt};
use rayon::prelude::*;

use super::{
    Capabilities, Feature, OutputRows, TierTraffic, Traffic, in_runs, stream::stream, widen::widen_f16,
};
use crate::prefetch::prefetch;

/// Number of rows between a prefetch and the copy.
const PREFETCH_DISTANCE: usize = 8;
/// Number of rows that one task copies.
const TASK_LEN: usize = 1024;
/// Minimum number of values of a result that is written past the caches: more than they hold.
const MIN_STREAM_LEN: usize = 8 << 20;
/// Number of values that are staged before they are written past the caches.
const STAGE_LEN: usize = 4096;

/// A table in host memory (owned, in huge pages, or mapped from a file).
#[derive(Clone, Debug)]
pub struct Host {
    dim: usize,
    data: Stored,
    /// Verifier of rows that were not verified when they were opened.
    verifier: Option<ChunkVerifier>,
}

/// Storage of the rows.
#[derive(Clone, Debug)]
enum Stored {
    Dense(TableData),
    /// Sparse rows, and the same rows as a matrix.
    Sparse(SparseRows, Box<Matrix>),
}

impl Stored {
    fn sparse(rows: SparseRows) -> Self {
        Self::Sparse(rows.clone(), Box::new(Matrix::sparse_table(rows)))
    }
}

impl Host {
    /// Reads from the memory of `features`. Rows that were not verified when they were opened are
    /// verified when they are read for the first time; [`Host::matrix`] and [`Host::table`] return
    /// them as they are.
    pub fn new(features: &Features) -> Self {
        let data = match &features.data {
            FeatureData::F32(data) => Stored::Dense(TableData::F32(data.clone())),
            FeatureData::F16(data) => Stored::Dense(TableData::F16(data.clone())),
            FeatureData::Csr(rows) => Stored::sparse(rows.clone()),
        };
        Self { dim: features.dim, data, verifier: features.verifier().cloned() }
    }

    /// Reads from a dense table of rows of `dim` values.
    pub(super) fn of_table(dim: usize, data: TableData) -> Self {
        Self { dim, data: Stored::Dense(data), verifier: None }
    }

    /// The rows, if they are sparse.
    pub(super) fn sparse(&self) -> Option<&SparseRows> {
        match &self.data {
            Stored::Dense(_) => None,
            Stored::Sparse(rows, _) => Some(rows),
        }
    }

    /// Copies sparse rows, in sparse form, into huge pages.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn resident_sparse(rows: &SparseRows) -> Result<Self> {
        Ok(Self { dim: rows.num_cols(), data: Stored::sparse(rows.to_huge_pages()?), verifier: None })
    }

    /// Returns all rows as a matrix that shares their memory.
    pub fn matrix(&self) -> Matrix {
        match &self.data {
            Stored::Dense(data) => Matrix::shared(data.clone(), self.dim),
            Stored::Sparse(_, table) => Matrix::clone(table),
        }
    }

    /// Copies `features` into huge pages, as a dense table of values of type `kind` (rounded to
    /// nearest), so that random rows cause fewer TLB misses. Verifies them before, unless that was
    /// done when they were opened.
    ///
    /// # Errors
    /// The memory cannot be allocated, the features are damaged, or a value is beyond the range of
    /// `kind`.
    pub fn resident(features: &Features, kind: TableType) -> Result<Self> {
        use FeatureData as From;
        if let From::Csr(data) = &features.data {
            return Self::resident(&Features::f32(features.dim, data.to_dense()?), kind);
        }
        features.verify()?;
        let data = match (&features.data, kind) {
            (From::F32(data), TableType::F32) => TableData::F32(data.to_huge_pages()?),
            (From::F32(data), TableType::F16) => TableData::F16(in_range(
                data.convert_to_huge_pages(|from, to: &mut [f16]| to.convert_from_f32_slice(from))?,
                |x| x.is_finite(),
                "f16 (up to 65504)",
            )?),
            (From::F32(data), TableType::Bf16) => TableData::Bf16(in_range(
                data.convert_to_huge_pages(|from, to: &mut [bf16]| to.convert_from_f32_slice(from))?,
                |x| x.is_finite(),
                "bf16",
            )?),
            (From::F16(data), TableType::F32) => {
                TableData::F32(data.convert_to_huge_pages(|from, to| from.convert_to_f32_slice(to))?)
            }
            (From::F16(data), TableType::F16) => TableData::F16(data.to_huge_pages()?),
            (From::F16(data), TableType::Bf16) => {
                TableData::Bf16(data.convert_to_huge_pages(|from, to| {
                    from.iter().zip(to).for_each(|(x, to)| *to = bf16::from_f32(x.to_f32()));
                })?)
            }
            (From::Csr(_), _) => unreachable!("made dense above"),
        };
        Ok(Self { dim: features.dim, data: Stored::Dense(data), verifier: None })
    }
}

/// Returns `data` if all its values are finite.
fn in_range<T: bytemuck::Pod + Sync>(
    data: Buffer<T>,
    finite: impl Fn(&T) -> bool + Sync,
    kind: &str,
) -> Result<Buffer<T>> {
    if data.par_chunks(1 << 14).all(|run| run.iter().all(&finite)) {
        return Ok(data);
    }
    let first = data.iter().position(|x| !finite(x)).unwrap_or(0);
    Err(Error::invalid(format!(
        "value {first} of the feature table is beyond the range of {kind}; store the table in f32"
    )))
}

impl Feature for Host {
    fn dim(&self) -> usize {
        self.dim
    }

    fn num_rows(&self) -> usize {
        match &self.data {
            Stored::Dense(data) => data.len().checked_div(self.dim).unwrap_or(0),
            Stored::Sparse(rows, _) => rows.num_rows(),
        }
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        let began = Instant::now();
        let (dim, rows) = (self.dim, ids.len() as u64);
        let bytes = match &self.data {
            Stored::Sparse(rows, _) => {
                widen(rows, dim, ids, places, out);
                sparse_bytes(rows, ids)
            }
            Stored::Dense(data) => {
                if let Some(verifier) = &self.verifier {
                    verifier.verify_rows(ids, self.row_bytes() as usize)?;
                }
                match data {
                    TableData::F32(data) => {
                        gather(data, dim, ids, places, out, |from, to| to.copy_from_slice(from));
                    }
                    TableData::F16(data) => gather(data, dim, ids, places, out, widen_f16),
                    TableData::Bf16(data) => {
                        gather(data, dim, ids, places, out, |from, to| from.convert_to_f32_slice(to));
                    }
                }
                rows * self.row_bytes()
            }
        };
        Ok(Traffic { host: TierTraffic::since(began, rows, bytes), ..Traffic::default() })
    }

    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        let Stored::Sparse(rows, table) = &self.data else {
            out.resize(ids.len(), self.dim());
            return self.read(ids, out.view_mut().host());
        };
        let began = Instant::now();
        out.gather_sparse(table.view(), ids);
        let bytes = sparse_bytes(rows, ids);
        Ok(Traffic { host: TierTraffic::since(began, ids.len() as u64, bytes), ..Traffic::default() })
    }

    fn row_bytes(&self) -> u64 {
        match &self.data {
            Stored::Dense(data) => (self.dim * data.kind().width()) as u64,
            Stored::Sparse(rows, _) => rows.bytes().checked_div(rows.num_rows()).unwrap_or(0) as u64,
        }
    }

    fn capabilities(&self) -> Capabilities<'_> {
        match &self.data {
            Stored::Dense(data) => Capabilities::stored_in(data.kind()),
            Stored::Sparse(..) => Capabilities::default(),
        }
    }
}

impl Host {
    /// Returns the whole table (`V x F`) if it is dense, so that it can be read in place.
    pub fn table(&self) -> Option<TableData> {
        match &self.data {
            Stored::Dense(data) => Some(data.clone()),
            Stored::Sparse(..) => None,
        }
    }
}

/// Size of sparse rows in bytes: a start for each, and columns and values.
fn sparse_bytes(rows: &SparseRows, ids: &[NodeId]) -> u64 {
    let stored: usize = ids.iter().map(|&v| rows.row(v as usize).0.len()).sum();
    8 * (ids.len() + stored) as u64
}

/// Copies sparse rows with their zeros.
fn widen(rows: &SparseRows, dim: usize, ids: &[NodeId], places: OutputRows, out: &mut [f32]) {
    in_runs(ids, places, dim, out, TASK_LEN, &|ids, at, out| {
        for (i, &v) in ids.iter().enumerate() {
            let out = row_of(out, dim, at, i);
            out.fill(0.0);
            let (columns, values) = rows.row(v as usize);
            columns.iter().zip(values).for_each(|(&j, &x)| out[j as usize] = x);
        }
    });
}

/// Row of a run's part of the result for the run's `i`-th row.
pub(super) fn row_of<'o>(
    out: &'o mut [f32],
    dim: usize,
    at: Option<(&[u32], u32)>,
    i: usize,
) -> &'o mut [f32] {
    let row = at.map_or(i, |(at, first)| (at[i] - first) as usize);
    &mut out[row * dim..(row + 1) * dim]
}

/// Copies row by row in parallel, with later rows prefetched.
fn gather<T: bytemuck::Pod + Send + Sync>(
    data: &Buffer<T>,
    dim: usize,
    ids: &[NodeId],
    places: OutputRows,
    out: &mut [f32],
    copy: impl Fn(&[T], &mut [f32]) + Sync,
) {
    if dim == 0 {
        return;
    }
    let data: &[T] = data;
    let step = (64 / size_of::<T>()).max(1);
    let row = |v: NodeId| &data[v as usize * dim..(v as usize + 1) * dim];
    let prefetch_row = |v: NodeId| {
        let start = v as usize * dim;
        (start..start + dim).step_by(step).for_each(|at| prefetch(data, at));
    };
    let streams = matches!(places, OutputRows::InOrder) && out.len() >= MIN_STREAM_LEN && dim <= STAGE_LEN;
    in_runs(ids, places, dim, out, TASK_LEN, &|ids, at, out| {
        let rows = |ids: &[NodeId], next: &[NodeId], out: &mut [f32]| {
            for (i, &v) in ids.iter().enumerate() {
                let later = |i: usize| ids.get(i).or_else(|| next.get(i - ids.len()));
                if let Some(&ahead) = later(i + PREFETCH_DISTANCE) {
                    prefetch_row(ahead);
                }
                copy(row(v), row_of(out, dim, at, i));
            }
        };
        if !streams {
            return rows(ids, &[], out);
        }
        let mut stage = [0.0; STAGE_LEN];
        let count = STAGE_LEN / dim;
        for (i, out) in out.chunks_mut(count * dim).enumerate() {
            let (now, next) = ids[i * count..].split_at(out.len() / dim);
            rows(now, next, &mut stage[..out.len()]);
            stream(&stage[..out.len()], out);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_storage_returns_rows_in_the_requested_order() {
        let values: Vec<f32> = (0..3000 * 5).map(|x| x as f32 * 0.5).collect();
        let ids: Vec<u32> = (0..2500).map(|i| (i * 37) % 3000).collect();
        let expected: Vec<f32> =
            ids.iter().flat_map(|&v| values[v as usize * 5..][..5].iter().copied()).collect();
        let plain = Features::f32(5, values.clone());
        for feature in [Host::new(&plain), Host::resident(&plain, TableType::F32).unwrap()] {
            let mut out = vec![0.0; 2500 * 5];
            let host = feature.read(&ids, &mut out).unwrap().host;
            assert_eq!(out, expected);
            assert_eq!((host.rows, host.bytes), (2500, 50_000));
            assert_eq!(feature.table().unwrap().len(), values.len());
        }
        // f16 has 11 significant bits: exact for small multiples of a half
        let small: Vec<f16> = (0..1000).map(|x| f16::from_f32(x as f32 * 0.5)).collect();
        let half = Host::new(&Features { dim: 5, data: FeatureData::F16(small.into()) });
        let mut out = vec![0.0; 10];
        assert_eq!(half.read(&[3, 0], &mut out).unwrap().host.bytes, 20);
        assert_eq!(out, [7.5, 8.0, 8.5, 9.0, 9.5, 0.0, 0.5, 1.0, 1.5, 2.0]);
        assert_eq!(half.num_rows(), 200);
    }

    #[test]
    fn only_the_given_positions_are_written() {
        let values: Vec<f32> = (0..4000 * 3).map(|x| x as f32).collect();
        let feature = Host::new(&Features::f32(3, values.clone()));
        let sparse = SparseRows::from_dense(3, &values).unwrap();
        let sparse = Host::new(&Features::csr(sparse));
        let at: Vec<u32> = (0..3500).filter(|i| i % 7 != 2).collect();
        let ids: Vec<u32> = at.iter().map(|i| i * 37 % 4000).collect();
        let mut expected = vec![-1.0; 3500 * 3];
        for (&v, &to) in ids.iter().zip(&at) {
            expected[to as usize * 3..][..3].copy_from_slice(&values[v as usize * 3..][..3]);
        }
        for feature in [feature, sparse] {
            let mut out = vec![-1.0; 3500 * 3];
            feature.read_to(&ids, OutputRows::At(&at), &mut out).unwrap();
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn sparse_rows_are_gathered_sparse_or_with_zeros() {
        let indptr: Vec<u64> = vec![0, 2, 2, 3];
        let rows =
            SparseRows::new(5, indptr.into(), vec![0, 4, 2].into(), vec![1.0, 2.0, 3.0].into()).unwrap();
        let features = Features::csr(rows.clone());
        let dense = Host::resident(&features, TableType::F32).unwrap();
        for host in [Host::new(&features), Host::resident_sparse(&rows).unwrap()] {
            assert_eq!((host.dim(), host.num_rows(), host.row_bytes()), (5, 3, 56 / 3));
            assert!(host.table().is_none() && host.matrix().is_sparse());
            let mut out = Matrix::default();
            let gathered = host.gather(&[2, 0, 1], &mut out).unwrap().host;
            assert_eq!((gathered.rows, gathered.bytes), (3, 48));
            assert_eq!(out.view().sparse().unwrap().values, [3.0, 1.0, 2.0]);
            let (mut wide, mut expected) = (vec![9.0; 15], vec![9.0; 15]);
            assert_eq!(host.read(&[2, 0, 1], &mut wide).unwrap().host.bytes, 48);
            assert_eq!(dense.read(&[2, 0, 1], &mut expected).unwrap().host.bytes, 60);
            assert_eq!(wide, expected);
        }
    }

    #[test]
    fn streamed_results_equal_plain_copies() {
        let values: Vec<f32> = (0..100 * 50).map(|x| x as f32).collect();
        let feature = Host::new(&Features::f32(50, values.clone()));
        let ids: Vec<u32> = (0..MIN_STREAM_LEN as u32 / 50 + 7).map(|i| i * 37 % 100).collect();
        let mut out = vec![0.0; ids.len() * 50];
        feature.read(&ids, &mut out).unwrap();
        for (&v, row) in ids.iter().zip(out.chunks_exact(50)) {
            assert_eq!(row, &values[v as usize * 50..][..50]);
        }
    }

    #[test]
    fn resident_tables_are_rounded_to_the_requested_type() {
        // three values are exact in all types, and the last in none
        let values = vec![1.5, -0.25, 3.0, 1.0 / 3.0];
        let stored: Vec<f16> = values.iter().map(|&x| f16::from_f32(x)).collect();
        for features in [
            Features::f32(2, values.clone()),
            Features { dim: 2, data: FeatureData::F16(stored.clone().into()) },
        ] {
            for (_, kind) in TableType::ALL {
                let host = Host::resident(&features, kind).unwrap();
                assert_eq!(host.table().unwrap().kind(), kind);
                let mut out = vec![0.0; 4];
                let bytes = host.read(&[0, 1], &mut out).unwrap().host.bytes;
                assert_eq!(bytes, 4 * kind.width() as u64);
                assert_eq!(out[..3], values[..3]);
                let error = match kind {
                    TableType::F32 | TableType::F16 => 2.0_f32.powi(-13),
                    TableType::Bf16 => 2.0_f32.powi(-10),
                };
                assert!((out[3] - 1.0 / 3.0).abs() <= error, "{kind:?}: {}", out[3]);
            }
        }
    }

    #[test]
    fn values_beyond_the_range_are_errors() {
        let wide = Features::f32(1, vec![1.0, 70_000.0]);
        let error = Host::resident(&wide, TableType::F16).unwrap_err().to_string();
        assert!(error.contains("value 1") && error.contains("f16"), "{error}");
        assert!(Host::resident(&wide, TableType::Bf16).is_ok());
    }
}
