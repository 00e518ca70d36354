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

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

use graphmill_core::{
    Buffer, Error, Features, Graph, Result, block::Aggregation, disk, features::FeatureData, memory,
};
use half::f16;
use rayon::prelude::*;

use crate::{
    atomic,
    checksum::{Tree, checksum},
    dataset::{StoredTable, files::checksum_of},
    npy::Element,
    verification::{Verify, verified},
};

/// Bytes of the header: a multiple of the values' alignment.
const HEAD: usize = 256;
/// Bytes of the trailer.
const TAIL: usize = 32;
/// Aggregates that are computed before they are written, in bytes.
const PART: usize = 8 << 20;

/// Returns true if `name` is the name of such a file, finished or temporary.
pub(crate) fn is_bottom_file(name: &str) -> bool {
    let kinds = [Aggregation::Mean, Aggregation::Sum, Aggregation::Symmetric];
    kinds.into_iter().flat_map(|kind| [file_name(kind), record_name(kind)]).any(|finished| {
        let temporary = name.strip_prefix('.').and_then(|name| name.strip_prefix(&finished));
        name == finished || temporary.is_some_and(|rest| rest.ends_with(atomic::TEMPORARY_SUFFIX))
    })
}

/// Name of the file with aggregates of that kind.
fn file_name(aggregation: Aggregation) -> String {
    format!("bottom_{}.bin", word(aggregation))
}

/// Name of the record of the file's verification.
fn record_name(aggregation: Aggregation) -> String {
    format!("bottom_{}.verified.json", word(aggregation))
}

/// Word for an aggregation in the file.
fn word(aggregation: Aggregation) -> &'static str {
    match aggregation {
        Aggregation::Mean => "mean",
        Aggregation::Sum => "sum",
        Aggregation::Symmetric => "symmetric",
        Aggregation::Other => "other",
    }
}

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
    let needed = 2 * features.bytes() as u64 + (HEAD + TAIL) as u64;
    let path = dir.join(file_name(aggregation));
    if path.metadata().is_ok_and(|found| found.len() == needed) {
        return Ok(());
    }
    fits(needed, dir)?;
    let (name, process) = (file_name(aggregation), std::process::id());
    let probe = dir.join(format!(".{name}.probe-{process}{}", atomic::TEMPORARY_SUFFIX));
    let made = File::create_new(&probe).and_then(|_| fs::remove_file(&probe));
    made.map_err(|error| format!("the aggregates cannot be stored in {} ({error})", dir.display()))
}

/// Checks the free space on the disk of `dir`, if the system reports it.
fn fits(needed: u64, dir: &Path) -> std::result::Result<(), String> {
    match disk::free(dir) {
        Ok(free) if free < needed => {
            let there = dir.display();
            Err(format!("the aggregates take {needed} bytes, but {there} has {free} bytes free"))
        }
        _ => Ok(()),
    }
}

/// File in `dir` that holds a table of [`stacked`]; `None` for sparse rows.
pub fn stored(stacked: &Features, aggregation: Aggregation, dir: &Path) -> Option<StoredTable> {
    let rows = stacked.len().checked_div(stacked.dim).unwrap_or(0);
    let path = dir.join(file_name(aggregation));
    Some(StoredTable { path, offset: HEAD as u64, rows, dim: stacked.dim, kind: stacked.data.kind()? })
}

/// Number type of feature values.
trait Value: Element + Send + Sync {
    const NAME: &'static str;
    fn widen(self) -> f64;
    fn round(value: f64) -> Self;
}

impl Value for f32 {
    const NAME: &'static str = "f32";

    fn widen(self) -> f64 {
        self.into()
    }

    fn round(value: f64) -> Self {
        value as Self
    }
}

impl Value for f16 {
    const NAME: &'static str = "f16";

    fn widen(self) -> f64 {
        self.into()
    }

    fn round(value: f64) -> Self {
        Self::from_f64(value)
    }
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
        let head = self.head();
        if let Some(found) = self.map(dir, &head, verify) {
            return Ok(found);
        }
        features.verify()?;
        let path = dir.join(file_name(self.aggregation));
        atomic::write(&path, |file| self.write(&head, file))?;
        self.map(dir, &head, verify).ok_or_else(|| {
            Error::format(&path, "aggregates", "it changed while it was written; run the command again")
        })
    }

    /// Maps the table from its file in `dir`, if that is valid.
    fn found(&self, dir: &Path, verify: Verify) -> Option<Buffer<T>> {
        if !dir.join(file_name(self.aggregation)).is_file() {
            return None; // checksums in memory would be computed in vain
        }
        self.map(dir, &self.head(), verify)
    }

    /// Maps the values of the file in `dir` if it has this header, is complete and undamaged.
    fn map(&self, dir: &Path, head: &[u8; HEAD], verify: Verify) -> Option<Buffer<T>> {
        let name = file_name(self.aggregation);
        let path = &dir.join(&name);
        let mut file = File::open(path).ok()?;
        let count = self.x.len().checked_mul(2)?;
        let bytes = count.checked_mul(size_of::<T>())?.checked_add(HEAD + TAIL)?;
        if file.metadata().ok()?.len() != bytes as u64 {
            return None;
        }
        let mut found = [0; HEAD];
        file.read_exact(&mut found).ok()?;
        if found != *head {
            return None;
        }
        let tail: Buffer<u8> = Buffer::map(&file, path, bytes - TAIL, TAIL).ok()?;
        let values: Buffer<T> = Buffer::map(&file, path, HEAD, count).ok()?;
        let is_sound = || tail[..] == *checksum(bytemuck::cast_slice(&values)).as_bytes();
        let of = String::from_utf8_lossy(head);
        let names = (&name[..], &record_name(self.aggregation)[..]);
        verified::once(dir, names, of.trim_end(), verify, is_sound).then_some(values)
    }

    /// Builds the header.
    fn head(&self) -> [u8; HEAD] {
        let Self { graph, x, dim, aggregation } = self;
        let (nodes, (indptr, indices)) = (graph.num_nodes(), graph.buffers());
        let text = format!(
            "graphmill bottom hop, version 2\n{} {nodes} {dim} {}\nindptr {}\nindices {}\nfeatures {}\n",
            word(*aggregation),
            T::NAME,
            checksum_of(indptr, &[indptr.len()]),
            checksum_of(indices, &[indices.len()]),
            checksum_of(x, &[nodes, *dim]),
        );
        let mut head = [b' '; HEAD];
        head[..text.len()].copy_from_slice(text.as_bytes());
        head[HEAD - 1] = b'\n';
        head
    }

    /// Writes header, features, aggregates and trailer.
    fn write(&self, head: &[u8], file: &mut dyn Write) -> io::Result<()> {
        file.write_all(head)?;
        let (mut tree, mut pending) = (Tree::default(), Vec::new());
        let mut put = |part: &[T]| -> io::Result<()> {
            pending.extend_from_slice(bytemuck::cast_slice(part));
            let whole = pending.len() / Tree::CHUNK * Tree::CHUNK;
            pending[..whole].chunks(Tree::CHUNK).for_each(|chunk| tree.add(chunk));
            file.write_all(&pending[..whole])?;
            pending.drain(..whole);
            Ok(())
        };
        self.x.chunks(PART / size_of::<T>()).try_for_each(&mut put)?;
        self.each_part(put)?;
        if !pending.is_empty() {
            tree.add(&pending);
            file.write_all(&pending)?;
        }
        file.write_all(tree.finish().as_bytes())
    }

    /// Computes the aggregates of all nodes in ascending order, a part at a time, and passes each
    /// part to `take`.
    fn each_part(&self, mut take: impl FnMut(&[T]) -> io::Result<()>) -> io::Result<()> {
        let (nodes, dim) = (self.graph.num_nodes(), self.dim);
        if dim == 0 {
            return Ok(());
        }
        let count = (PART / (dim * size_of::<T>())).max(1);
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
                return Err(io::Error::other(format!(
                    "the aggregate of node {v} exceeds the range of {}; store the features in f32, or \
                     normalize them",
                    T::NAME
                )));
            }
            take(part)?;
        }
        Ok(())
    }

    /// Computes the aggregate of node `v` in `sums` (`dim`).
    fn sum(&self, v: usize, sums: &mut [f64]) {
        let graph = self.graph;
        let inv_sqrt = |v: usize| 1.0 / (graph.in_degree(v as u32) as f64 + 1.0).sqrt();
        let add = |u: usize, factor: f64, sums: &mut [f64]| {
            let row = &self.x[u * self.dim..(u + 1) * self.dim];
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += factor * x.widen());
        };
        sums.fill(0.0);
        let symmetric = self.aggregation == Aggregation::Symmetric;
        let own = inv_sqrt(v);
        for &u in graph.in_neighbors(v as u32) {
            add(u as usize, if symmetric { own * inv_sqrt(u as usize) } else { 1.0 }, sums);
        }
        match self.aggregation {
            Aggregation::Symmetric => add(v, own * own, sums),
            Aggregation::Mean => {
                let degree = graph.in_degree(v as u32).max(1) as f64;
                sums.iter_mut().for_each(|sum| *sum /= degree);
            }
            Aggregation::Sum | Aggregation::Other => {}
        }
    }
}

#[cfg(test)]
mod tests;
