//! Stored aggregates of the in-neighbours of a part's nodes, whose rows other parts may hold.
//!
//! # Algorithm
//!
//! The aggregates are those of [`bottom_hop`](crate::bottom_hop), bit by bit: a part has the
//! neighbours of its nodes in the order of the whole graph, and the in-degrees of all nodes. Its
//! edges are divided into runs. The caller reads the rows of the distinct neighbours in a run, and
//! the sums of the run's nodes continue in the next run if a node has more edges.
//!
//! ```text
//! bottom_mean_part-0003.bin    256-byte text header: format and version, aggregation, shape, number
//!                              type, checksum of the partition;
//!                              then n rows of F values, those of the part's nodes in ascending order,
//!                              little endian, in the number type of the features;
//!                              then the checksum of these rows, as 32 hexadecimal digits
//! bottom_mean_part-0003.verified.json    state in which the file was verified
//! ```
//!
//! # Source
//!
//! As [`bottom_hop`](crate::bottom_hop).
//!
//! # Cost
//!
//! O(E F + E log E) for the E edges into the part, once. A neighbour's row is read once for each
//! run that holds it.
//!
//! # Memory
//!
//! The rows of a run ([`RUN_BYTES`], or a single row), and a few MiB.

use std::{io, ops::Range, path::Path};

use graphmill_core::{Error, Features, NodeId, Result, block::Aggregation, features::FeatureData, memory};
use half::f16;
use rayon::prelude::*;

use super::{Part, PartitionDir};
use crate::{
    bottom_hop::{
        file::{AggregateFile, CHUNK_BYTES, HEAD, Value, can_store, file_name, too_large, word},
        sums::NodeSum,
    },
    dataset::StoredTable,
    verification::Verify,
};

/// Bytes of the rows that a run of edges reads.
const RUN_BYTES: usize = 128 << 20;

/// Reads the feature rows of nodes, by ascending global ids, in f32: one row after the other.
pub type ReadRows<'r> = dyn FnMut(&[NodeId], &mut [f32]) -> Result<()> + 'r;

/// Aggregates of the in-neighbours of a part's nodes, with fixed coefficients: a row for each node,
/// in the number type of the part's features.
#[derive(Clone, Copy, Debug)]
pub struct PartAggregates<'p> {
    dir: &'p PartitionDir,
    part: &'p Part,
    aggregation: Aggregation,
}

impl<'p> PartAggregates<'p> {
    /// Aggregates of a part of `dir`, whose features are dense.
    pub fn new(dir: &'p PartitionDir, part: &'p Part, aggregation: Aggregation) -> Self {
        Self { dir, part, aggregation }
    }

    /// The aggregates (`n x F`) if a valid file in `place` holds them. With [`Verify::All`] a file
    /// is read again that was verified before.
    pub fn opened(&self, place: &Path, verify: Verify) -> Option<Features> {
        let data = match &self.part.dataset.features.data {
            FeatureData::F32(_) => FeatureData::F32(self.file::<f32>().map(place, verify)?),
            FeatureData::F16(_) => FeatureData::F16(self.file::<f16>().map(place, verify)?),
            FeatureData::Csr(_) => return None,
        };
        Some(Features { dim: self.part.dataset.features.dim, data })
    }

    /// Computes the aggregates from the rows that `read` returns, and stores them in a file in
    /// `place`, from which they are mapped. The result does not depend on threads.
    ///
    /// # Errors
    /// Those of `read`; the features are sparse or damaged, the aggregation has no fixed
    /// coefficients, an aggregate exceeds the range of 16-bit floats, or the file cannot be
    /// written.
    pub fn store(&self, place: &Path, verify: Verify, read: &mut ReadRows) -> Result<Features> {
        let row_bytes = 4 * self.part.dataset.features.dim;
        self.store_in_runs((RUN_BYTES / row_bytes.max(1)).max(1), place, verify, read)
    }

    /// [`PartAggregates::store`] with runs of at most `most` edges.
    fn store_in_runs(
        &self,
        most: usize,
        place: &Path,
        verify: Verify,
        read: &mut ReadRows,
    ) -> Result<Features> {
        if self.aggregation == Aggregation::Other {
            return Err(Error::invalid("the aggregation depends on parameters, so it cannot be stored"));
        }
        let features = &self.part.dataset.features;
        features.verify()?;
        let data = match &features.data {
            FeatureData::F32(x) => FeatureData::F32(self.stored_values(&x[..], most, place, verify, read)?),
            FeatureData::F16(x) => FeatureData::F16(self.stored_values(&x[..], most, place, verify, read)?),
            FeatureData::Csr(_) => {
                return Err(Error::invalid("the features are sparse; import them as dense rows"));
            }
        };
        Ok(Features { dim: features.dim, data })
    }

    /// Checks that the aggregates can be stored in `place`, whose disk must have free space for the
    /// file, unless one of its length is there.
    ///
    /// # Errors
    /// The reason why not.
    pub fn can_store(&self, place: &Path) -> std::result::Result<(), String> {
        can_store(place, &self.name(), self.part.dataset.features.bytes())
    }

    /// The file in `place` that holds the aggregates; `None` for sparse rows.
    pub fn table(&self, place: &Path) -> Option<StoredTable> {
        let (path, rows) = (place.join(self.name()), self.part.nodes.len());
        let features = &self.part.dataset.features;
        Some(StoredTable { path, offset: HEAD as u64, rows, dim: features.dim, kind: features.data.kind()? })
    }

    fn name(&self) -> String {
        file_name(self.aggregation, Some(self.part.number))
    }

    /// The file, with the header of values of this type.
    fn file<T: Value>(&self) -> AggregateFile {
        let Self { dir, part, aggregation } = self;
        let (rows, dim) = (part.nodes.len(), part.dataset.features.dim);
        let about = format!(
            "graphmill bottom hop of a part, version 1\n{} {rows} {dim} {}\npartition {}\n",
            word(*aggregation),
            T::NAME,
            dir.checksum(),
        );
        AggregateFile::new(*aggregation, Some(part.number), &about, rows.saturating_mul(dim))
    }

    /// Computes and stores the aggregates of a part whose own rows are `x`.
    fn stored_values<T: Value>(
        &self,
        x: &[T],
        most: usize,
        place: &Path,
        verify: Verify,
        read: &mut ReadRows,
    ) -> Result<graphmill_core::Buffer<T>> {
        let mut failed = None;
        let made = self.file::<T>().store(place, verify, |put| {
            self.each_chunk(x, most, read, put).map_err(|fault| match fault {
                Fault::Write(error) => error,
                Fault::Read(error) => {
                    failed = Some(error);
                    io::Error::other("feature rows cannot be read")
                }
            })
        });
        match failed {
            Some(error) => Err(error),
            None => made,
        }
    }

    /// Computes the aggregates of all nodes in ascending order, and passes them to `put`, a chunk
    /// of nodes at a time.
    fn each_chunk<T: Value>(
        &self,
        x: &[T],
        most: usize,
        read: &mut ReadRows,
        put: &mut dyn FnMut(&[T]) -> io::Result<()>,
    ) -> std::result::Result<(), Fault> {
        let Part { nodes, neighbors, dataset, .. } = self.part;
        let dim = dataset.features.dim;
        if dim == 0 {
            return Ok(());
        }
        let count = (CHUNK_BYTES / (dim * size_of::<T>())).max(1);
        let mut sums = vec![0.0f64; count.min(nodes.len()) * dim];
        let mut part = vec![T::zeroed(); count.min(nodes.len()) * dim];
        let mut run = Run::default();
        for start in (0..nodes.len()).step_by(count) {
            let chunk = start..nodes.len().min(start + count);
            let (sums, part) = (&mut sums[..chunk.len() * dim], &mut part[..chunk.len() * dim]);
            sums.fill(0.0);
            let [first, last] = [chunk.start, chunk.end].map(|i| neighbors.indptr()[i] as usize);
            for from in (first..last).step_by(most) {
                run.read(&neighbors.indices()[from..last.min(from + most)], dim, read)
                    .map_err(Fault::Read)?;
                self.add(&run, from..last.min(from + most), chunk.start, sums);
            }
            let rows = part.par_chunks_mut(dim).zip(sums.par_chunks_mut(dim)).enumerate();
            let bad = rows.map(|(i, (row, sums))| {
                let local = chunk.start + i;
                self.sum_of(local).finish(&x[local * dim..(local + 1) * dim], sums);
                row.iter_mut().zip(&*sums).for_each(|(to, &sum)| *to = T::round(sum));
                row.iter().all(|value| value.widen().is_finite()).then_some(()).ok_or(nodes[local])
            });
            if let Some(v) = bad.filter_map(std::result::Result::err).min() {
                return Err(Fault::Write(too_large::<T>(v as usize)));
            }
            put(part).map_err(Fault::Write)?;
        }
        Ok(())
    }

    /// Adds the edges `edges` of the run to the sums of the nodes from `first` on.
    fn add(&self, run: &Run, edges: Range<usize>, first: usize, sums: &mut [f64]) {
        let (dim, neighbors) = (self.part.dataset.features.dim, &self.part.neighbors);
        sums.par_chunks_mut(dim).enumerate().for_each(|(i, sums)| {
            let [from, to] = [first + i, first + i + 1].map(|row| neighbors.indptr()[row] as usize);
            let own = from.max(edges.start)..to.min(edges.end);
            if own.is_empty() {
                return;
            }
            let sum = self.sum_of(first + i);
            for &u in &neighbors.indices()[own] {
                sum.add(|| self.dir.degrees[u as usize] as usize, run.row(u, dim), sums);
            }
        });
    }

    fn sum_of(&self, local: usize) -> NodeSum {
        NodeSum::new(self.aggregation, self.part.neighbors.degree(local as NodeId))
    }
}

/// Error while aggregates are computed.
enum Fault {
    /// Rows of neighbours cannot be read.
    Read(Error),
    /// An aggregate cannot be written.
    Write(io::Error),
}

/// Rows of the distinct neighbours in a run of edges.
#[derive(Default)]
struct Run {
    ids: Vec<NodeId>,
    rows: Vec<f32>,
}

impl Run {
    /// Reads the rows of these neighbours, of `dim` values each.
    fn read(&mut self, neighbors: &[NodeId], dim: usize, read: &mut ReadRows) -> Result<()> {
        self.ids.clear();
        self.ids.extend_from_slice(neighbors);
        self.ids.par_sort_unstable();
        self.ids.dedup();
        let values = self.ids.len() * dim;
        if self.rows.capacity() < values {
            self.rows = memory::reserve(values)?;
        }
        self.rows.resize(values, 0.0);
        read(&self.ids, &mut self.rows)
    }

    /// Row of the neighbour `u`, which the run has.
    fn row(&self, u: NodeId, dim: usize) -> &[f32] {
        let at = self.ids.binary_search(&u).unwrap_or(0);
        &self.rows[at * dim..(at + 1) * dim]
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use graphmill_core::progress::Quiet;

    use super::*;
    use crate::{
        Dataset,
        bottom_hop::{file::is_bottom_file, stacked},
        generate::{GenerateOptions, generate},
        partition::{Description, PartitionBook, write},
    };

    const DIM: usize = 5;
    const KINDS: [Aggregation; 3] = [Aggregation::Mean, Aggregation::Sum, Aggregation::Symmetric];

    fn data(half: bool) -> Dataset {
        let options = GenerateOptions {
            nodes: 120,
            degree: Some(7.0),
            classes: 3,
            dim: DIM,
            ..GenerateOptions::default()
        };
        let mut data = generate("sbm", &options).unwrap();
        if let (FeatureData::F32(x), true) = (&data.features.data, half) {
            let x: Vec<f16> = x.iter().map(|&x| f16::from_f32(x)).collect();
            data.features.data = FeatureData::F16(x.into());
        }
        data
    }

    fn partitioned(data: &Dataset, dir: &Path) -> PartitionDir {
        let book = PartitionBook::new(3, (0..120).map(|v| v * 7 % 3).collect::<Vec<u16>>()).unwrap();
        write(data, &book, &Description::default(), dir, &Quiet).unwrap()
    }

    fn widened(features: &Features) -> Vec<f32> {
        match &features.data {
            FeatureData::F32(x) => x.to_vec(),
            FeatureData::F16(x) => x.iter().map(|&x| x.into()).collect(),
            FeatureData::Csr(_) => unreachable!("no test has sparse rows"),
        }
    }

    /// Reads rows of a table of all nodes.
    fn reader(table: &[f32]) -> impl FnMut(&[NodeId], &mut [f32]) -> Result<()> + '_ {
        |ids, out| {
            assert!(ids.is_sorted_by(|a, b| a < b), "distinct and ascending");
            for (&v, to) in ids.iter().zip(out.chunks_exact_mut(DIM)) {
                to.copy_from_slice(&table[v as usize * DIM..][..DIM]);
            }
            Ok(())
        }
    }

    #[test]
    fn aggregates_have_the_bits_of_those_of_the_whole_graph_for_any_runs_and_threads() {
        for half in [false, true] {
            let (data, dir) = (data(half), tempfile::tempdir().unwrap());
            let parts = partitioned(&data, &dir.path().join("parts"));
            let rows = widened(&data.features);
            for kind in KINDS {
                let all = widened(&stacked(&data.graph, &data.features, kind, None, Verify::Once).unwrap());
                for number in 0..3 {
                    let part = parts.part(number).unwrap();
                    let aggregates = PartAggregates::new(&parts, &part, kind);
                    let expected: Vec<f32> = part
                        .nodes
                        .iter()
                        .flat_map(|&v| &all[(120 + v as usize) * DIM..][..DIM])
                        .copied()
                        .collect();
                    for (most, threads) in [(1, 1), (7, 3), (1 << 20, 2)] {
                        let place = tempfile::tempdir().unwrap();
                        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                        let place = place.path();
                        assert!(aggregates.opened(place, Verify::Once).is_none());
                        aggregates.can_store(place).unwrap();
                        let made = pool.install(|| {
                            aggregates.store_in_runs(most, place, Verify::Once, &mut reader(&rows))
                        });
                        assert_eq!(widened(&made.unwrap()), expected, "{kind:?}, runs of {most}");
                        let found = aggregates.opened(place, Verify::All).unwrap();
                        assert_eq!(widened(&found), expected);
                        let table = aggregates.table(place).unwrap();
                        assert_eq!((table.rows, table.dim), (part.nodes.len(), DIM));
                        for file in fs::read_dir(place).unwrap() {
                            assert!(is_bottom_file(file.unwrap().file_name().to_str().unwrap()));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn files_of_other_partitions_and_damaged_ones_are_not_opened() {
        let (first, dir) = (data(false), tempfile::tempdir().unwrap());
        let parts = partitioned(&first, &dir.path().join("parts"));
        let part = parts.part(1).unwrap();
        let rows = widened(&first.features);
        let mut other = first.clone();
        other.features = Features::f32(DIM, rows.iter().map(|x| x + 1.0).collect::<Vec<f32>>());
        let others = partitioned(&other, &dir.path().join("others"));
        let other_part = others.part(1).unwrap();
        let place = parts.part_path(1);
        let [one, two] = [(&parts, &part), (&others, &other_part)]
            .map(|(parts, part)| PartAggregates::new(parts, part, Aggregation::Mean));
        one.store(&place, Verify::Once, &mut reader(&rows)).unwrap();
        assert!(one.opened(&place, Verify::Once).is_some() && two.opened(&place, Verify::Once).is_none());
        let path = one.table(&place).unwrap().path;
        let mut bytes = fs::read(&path).unwrap();
        bytes[HEAD + 3] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(one.opened(&place, Verify::All).is_none());
    }

    #[test]
    fn errors_of_reads_are_returned_and_leave_no_file() {
        let (data, dir) = (data(false), tempfile::tempdir().unwrap());
        let parts = partitioned(&data, &dir.path().join("parts"));
        let part = parts.part(0).unwrap();
        let place = tempfile::tempdir().unwrap();
        let aggregates = PartAggregates::new(&parts, &part, Aggregation::Mean);
        let mut lost =
            |_: &[NodeId], _: &mut [f32]| Err(Error::Peer { rank: 1, message: "it is silent".into() });
        let failed = aggregates.store(place.path(), Verify::Once, &mut lost).unwrap_err();
        assert!(matches!(failed, Error::Peer { rank: 1, .. }), "{failed}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        let other = PartAggregates::new(&parts, &part, Aggregation::Other);
        assert!(other.store(place.path(), Verify::Once, &mut lost).is_err());
    }
}
