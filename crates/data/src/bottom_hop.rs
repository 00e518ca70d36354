//! Feature rows with the aggregates of their in-neighbours, which do not depend on parameters.
//!
//! # Algorithm
//!
//! A layer that sums the rows of a node's in-neighbours with fixed coefficients computes `A X` in
//! the bottom layer of every batch. [`stacked`] computes it once for all nodes, and returns `X` and
//! `A X` as one table of `2 V` rows: row `v` holds the features of node `v`, row `V + v` its
//! aggregate. Each sum is in double precision, in the order of the node's edges.
//!
//! ```text
//! bottom_mean.bin    256-byte text header: format and version, aggregation, shape, number type,
//!                    checksums of the graph's row starts and edges and of the features, those of
//!                    their files in a dataset;
//!                    then 2 V rows of F values, little endian, in the number type of the features;
//!                    then the checksum of these rows, as 32 hexadecimal digits
//! bottom_mean.verified.json    state in which the file was verified
//! ```
//!
//! No manifest lists the files, because their contents can be recomputed at any time. A file that
//! belongs to another graph, other features or another version, or is damaged or truncated, is
//! replaced.
//!
//! # Source
//!
//! Chen, Zhu and Song, *Stochastic Training of Graph Convolutional Networks with Variance
//! Reduction*, ICML 2018, section 4.4 (preprocessing).
//!
//! # Cost
//!
//! O(E F) once. The checksums of a dataset on disk are those of its manifest; in memory they take a
//! pass over graph and features. Opening a finished file takes one pass over it, or O(1) if it is
//! unchanged since an earlier opening verified it.
//!
//! # Memory
//!
//! A few MiB beside the mapped graph and features.

pub(crate) mod file;
pub(crate) mod sums;

use std::{io, path::Path};

use graphmill_core::{
    Buffer, Error, Features, Graph, Result, block::Aggregation, features::FeatureData, memory,
};
use rayon::prelude::*;

use crate::{
    dataset::{StoredTable, files::checksum_of},
    verification::Verify,
};
use file::{AggregateFile, CHUNK_BYTES, HEAD, Value, file_name, too_large, word};
use sums::NodeSum;

/// The features (`V` rows) followed by the aggregates of each node's in-neighbours (`V` rows), in
/// the number type of the features. With [`Aggregation::Symmetric`] an aggregate includes the
/// node's own row. The aggregate of a node without in-neighbours is otherwise zero.
///
/// The table is mapped from a file in `dir`, which is written first unless a valid one exists;
/// without `dir` it is in memory. With [`Verify::All`] a file is read again that was verified
/// before. O(E F) the first time. The result does not depend on threads.
///
/// # Errors
/// The features are sparse, damaged, or not of this graph, the aggregation has no fixed
/// coefficients, an aggregate exceeds the range of 16-bit floats, or the file cannot be written.
pub fn stacked(
    graph: &Graph,
    features: &Features,
    aggregation: Aggregation,
    dir: Option<&Path>,
    verify: Verify,
) -> Result<Features> {
    if aggregation == Aggregation::Other {
        return Err(Error::invalid("the aggregation depends on parameters, so it cannot be stored"));
    }
    if graph.num_nodes().checked_mul(features.dim) != Some(features.len()) {
        return Err(Error::invalid(format!(
            "{} feature values do not fill {} rows of {}",
            features.len(),
            graph.num_nodes(),
            features.dim
        )));
    }
    let dim = features.dim;
    let data = match &features.data {
        FeatureData::F32(x) => {
            FeatureData::F32(Rows { graph, x, dim, aggregation }.open(features, dir, verify)?)
        }
        FeatureData::F16(x) => {
            FeatureData::F16(Rows { graph, x, dim, aggregation }.open(features, dir, verify)?)
        }
        FeatureData::Csr(_) => {
            return Err(Error::invalid("the features are sparse; import them as dense rows"));
        }
    };
    Ok(Features { dim, data })
}

/// The table of [`stacked`] if a valid file in `dir` holds it; `None` otherwise.
pub fn opened(
    graph: &Graph,
    features: &Features,
    aggregation: Aggregation,
    dir: &Path,
    verify: Verify,
) -> Option<Features> {
    let is_of_graph = graph.num_nodes().checked_mul(features.dim) == Some(features.len());
    if aggregation == Aggregation::Other || !is_of_graph {
        return None;
    }
    let dim = features.dim;
    let data = match &features.data {
        FeatureData::F32(x) => FeatureData::F32(Rows { graph, x, dim, aggregation }.found(dir, verify)?),
        FeatureData::F16(x) => FeatureData::F16(Rows { graph, x, dim, aggregation }.found(dir, verify)?),
        FeatureData::Csr(_) => return None,
    };
    Some(Features { dim, data })
}

/// Checks that [`stacked`] can store the aggregates of these features in `dir`, whose disk must
/// have free space for the file, unless one of its length is there.
///
/// # Errors
/// The reason why not.
pub fn can_store(
    features: &Features,
    aggregation: Aggregation,
    dir: &Path,
) -> std::result::Result<(), String> {
    file::can_store(dir, &file_name(aggregation, None), 2 * features.bytes())
}

/// File in `dir` that holds a table of [`stacked`]; `None` for sparse rows.
pub fn stored(stacked: &Features, aggregation: Aggregation, dir: &Path) -> Option<StoredTable> {
    let rows = stacked.len().checked_div(stacked.dim).unwrap_or(0);
    let path = dir.join(file_name(aggregation, None));
    Some(StoredTable { path, offset: HEAD as u64, rows, dim: stacked.dim, kind: stacked.data.kind()? })
}

/// Feature rows (`V x dim`) and the graph over which they are aggregated.
struct Rows<'a, T> {
    graph: &'a Graph,
    x: &'a Buffer<T>,
    dim: usize,
    aggregation: Aggregation,
}

impl<T: Value> Rows<'_, T> {
    /// Maps the table from its file in `dir`, or makes it from the rows of `features`.
    fn open(&self, features: &Features, dir: Option<&Path>, verify: Verify) -> Result<Buffer<T>> {
        let Some(dir) = dir else {
            features.verify()?;
            let mut values = memory::reserve(self.x.len().saturating_mul(2))?;
            values.extend_from_slice(self.x);
            let added = self.each_part(|part| {
                values.extend_from_slice(part);
                Ok(())
            });
            return added.map(|()| values.into()).map_err(|e| Error::invalid(e.to_string()));
        };
        let file = self.file();
        if let Some(found) = file.map(dir, verify) {
            return Ok(found);
        }
        features.verify()?;
        file.store(dir, verify, |put| {
            self.x.chunks(CHUNK_BYTES / size_of::<T>()).try_for_each(&mut *put)?;
            self.each_part(put)
        })
    }

    /// Maps the table from its file in `dir`, if that is valid.
    fn found(&self, dir: &Path, verify: Verify) -> Option<Buffer<T>> {
        if !dir.join(file_name(self.aggregation, None)).is_file() {
            return None; // checksums in memory would be computed in vain
        }
        self.file().map(dir, verify)
    }

    /// The file of the table.
    fn file(&self) -> AggregateFile {
        let Self { graph, x, dim, aggregation } = self;
        let (nodes, (indptr, indices)) = (graph.num_nodes(), graph.buffers());
        let about = format!(
            "graphmill bottom hop, version 2\n{} {nodes} {dim} {}\nindptr {}\nindices {}\nfeatures {}\n",
            word(*aggregation),
            T::NAME,
            checksum_of(indptr, &[indptr.len()]),
            checksum_of(indices, &[indices.len()]),
            checksum_of(x, &[nodes, *dim]),
        );
        AggregateFile::new(*aggregation, None, &about, x.len().saturating_mul(2))
    }

    /// Computes the aggregates of all nodes in ascending order, a part at a time, and passes each
    /// part to `take`.
    fn each_part(&self, mut take: impl FnMut(&[T]) -> io::Result<()>) -> io::Result<()> {
        let (nodes, dim) = (self.graph.num_nodes(), self.dim);
        if dim == 0 {
            return Ok(());
        }
        let count = (CHUNK_BYTES / (dim * size_of::<T>())).max(1);
        let mut part = vec![T::zeroed(); count.min(nodes) * dim];
        for start in (0..nodes).step_by(count) {
            let part = &mut part[..count.min(nodes - start) * dim];
            let rows = part.par_chunks_mut(dim).enumerate();
            let bad = rows.map_init(
                || vec![0.0; dim],
                |sums, (i, row)| {
                    self.sum(start + i, sums);
                    row.iter_mut().zip(&*sums).for_each(|(to, &sum)| *to = T::round(sum));
                    row.iter().all(|value| value.widen().is_finite()).then_some(()).ok_or(start + i)
                },
            );
            if let Some(v) = bad.filter_map(Result::err).min() {
                return Err(too_large::<T>(v));
            }
            take(part)?;
        }
        Ok(())
    }

    /// Computes the aggregate of node `v` in `sums` (`dim`).
    fn sum(&self, v: usize, sums: &mut [f64]) {
        let Self { graph, x, dim, aggregation } = self;
        let row = |u: usize| &x[u * dim..(u + 1) * dim];
        let sum = NodeSum::new(*aggregation, graph.in_degree(v as u32));
        sums.fill(0.0);
        for &u in graph.in_neighbors(v as u32) {
            sum.add(|| graph.in_degree(u), row(u as usize), sums);
        }
        sum.finish(row(v), sums);
    }
}

#[cfg(test)]
mod tests;
