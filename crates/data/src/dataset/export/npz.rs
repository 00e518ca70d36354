//! Export of one `.npz` file with the keys of the Shchur benchmark datasets, which PyG
//! (`read_npz`), DGL and our importer read:
//!
//! ```text
//! adj_data f4, adj_indices, adj_indptr i4 or i8, adj_shape i8   CSR by source: row i holds the destinations of
//!                                                               node i; the data are weights, or ones
//! attr_data f4, attr_indices, attr_indptr, attr_shape           CSR features
//! labels                                                        i4 [V], -1 unknown, or u1 [V, C]
//! feature_normalization                                         U []  rows or standard; only if features are normalized
//! feature_mean, feature_deviation                               f8 [F]  the statistics of standard, the mean only if
//!                                                               features were centred
//! class_names                                                   U [C], the classes' numbers
//! train_mask, val_mask, test_mask                               b1 [V], the nonempty parts
//! ```
//!
//! Masks have the names of PyG's `Data`; the plural keys of the heterophilous datasets hold many
//! splits, whereas a dataset has one. PyG sets features above 0 to 1 and drops self-loops when it
//! reads these files; the exported values are complete.
//!
//! Members are stored, as NumPy's `savez` does, or deflated (by one thread, because a member is one
//! stream). Their rows by source are the graph's own if it is symmetric, and otherwise those of its
//! transpose, which is built within the scratch directory.

use std::{
    cell::Cell,
    io::{self, Seek, Write},
    path::Path,
};

use graphmill_core::{
    EdgeOptions, Error, Features, Graph, Labels, NodeId, Result, memory, symmetry::is_symmetric,
};
use rayon::prelude::*;
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use super::{
    DEVIATION, ExportOptions, MEAN, normalized, ordered::in_order, rows, several_columns, with_scratch,
};
use crate::{
    Dataset, atomic,
    dataset::Normalization,
    external::Scratch,
    npy::{Dtype, Header},
};

/// Edges or values processed at a time.
const CHUNK_LEN: usize = 1 << 16;
/// Buffer size for small writes, in bytes.
const BUFFER: usize = 1 << 20;

/// Writes the file `dst`.
pub(super) fn write(dataset: &Dataset, dst: &Path, options: &ExportOptions) -> Result<Vec<String>> {
    let mut lost = Vec::new();
    if !dataset.graphs.is_empty() {
        lost.push("which nodes belong to which of the graphs".to_string());
    }
    if dataset.original_ids.is_some() {
        lost.push("the ids that nodes had before they were reordered".to_string());
    }
    if let Some(metric) = &dataset.metric {
        lost.push(format!("the name of the metric, {metric}"));
    }
    lost.extend(normalized(dataset, "the member feature_normalization"));
    if dataset.labels.is_multi() && dataset.labels.classes() == 0 {
        return Err(Error::invalid("sets of labels without any class: there is nothing to export"));
    }
    if !dataset.labels.columns().is_empty() {
        return Err(several_columns("npz"));
    }
    if is_symmetric(&dataset.graph, false) {
        write_archive(dataset, &dataset.graph, dst, options)?;
    } else {
        with_scratch(dst, |scratch| {
            write_archive(dataset, &transpose(&dataset.graph, scratch)?, dst, options)
        })?;
    }
    Ok(lost)
}

fn write_archive(dataset: &Dataset, by_source: &Graph, dst: &Path, options: &ExportOptions) -> Result<()> {
    atomic::write(dst, |file| {
        let mut archive = Archive::new(file, options.compress);
        adjacency(&mut archive, &dataset.graph, by_source)?;
        attributes(&mut archive, &dataset.features, dataset.num_nodes())?;
        dataset.normalization.iter().try_for_each(|how| normalization(&mut archive, how))?;
        labels(&mut archive, &dataset.labels, dataset.num_nodes())?;
        for (name, (_, ids)) in ["train_mask", "val_mask", "test_mask"].iter().zip(dataset.split.parts()) {
            if !ids.is_empty() {
                mask(&mut archive, name, ids, dataset.num_nodes())?;
            }
        }
        archive.finish()
    })
}

/// Transposes the graph.
fn transpose(graph: &Graph, scratch: &Scratch) -> Result<Graph> {
    let mut edges = scratch.edges(EdgeOptions { keep_duplicates: true, ..EdgeOptions::DIRECTED });
    for v in 0..graph.num_nodes() as NodeId {
        for run in graph.in_neighbors(v).chunks(CHUNK_LEN) {
            edges.extend(&vec![v; run.len()], run)?;
        }
    }
    edges.build(graph.num_nodes())
}

fn adjacency<W: Write + Seek>(archive: &mut Archive<W>, graph: &Graph, by_source: &Graph) -> io::Result<()> {
    let (nodes, count) = (by_source.num_nodes(), by_source.num_edges());
    archive.start("adj_data", "<f4", &[count])?;
    match graph.edge_weight() {
        Some(weights) if is_symmetric(graph, true) => archive.write(weights)?,
        Some(weights) => {
            let most = memory::available().map_or(1 << 28, |bytes| bytes / 8).max(1 << 20) as usize;
            weights_by_source(graph, weights, by_source.indptr(), most, |run| archive.write(run))?;
        }
        None => {
            let ones = [1f32; CHUNK_LEN];
            for start in (0..count).step_by(CHUNK_LEN) {
                archive.write(&ones[..CHUNK_LEN.min(count - start)])?;
            }
        }
    }
    archive.start("adj_indices", index_type(nodes), &[count])?;
    archive.write_ids(by_source.indices(), nodes)?;
    archive.start("adj_indptr", index_type(count), &[nodes + 1])?;
    // The empty graph has an empty indptr in memory; the matrix has a single zero.
    let indptr = by_source.indptr();
    archive.write_offsets(if indptr.is_empty() { &[0] } else { indptr }, count)?;
    archive.start("adj_shape", "<i8", &[2])?;
    archive.write(&[nodes as i64; 2])
}

/// Passes the weights of the edges on in the order of the transpose, whose row starts are `indptr`:
/// by source, then by destination, then in the order of `graph`. Keeps about `most` of them in
/// memory and reads the graph once per such batch.
fn weights_by_source(
    graph: &Graph,
    weights: &[f32],
    indptr: &[u64],
    most: usize,
    mut take: impl FnMut(&[f32]) -> io::Result<()>,
) -> io::Result<()> {
    let nodes = graph.num_nodes();
    let mut first = 0;
    while first < nodes {
        let start = indptr[first];
        let fits =
            indptr[first + 1..].partition_point(|&end| end - start <= most as u64).clamp(1, most.max(1));
        let sources = first as NodeId..(first + fits) as NodeId;
        let mut places: Vec<usize> =
            indptr[first..first + fits].iter().map(|&place| (place - start) as usize).collect();
        let count = (indptr[first + fits] - start) as usize;
        let mut run: Vec<f32> = memory::zeroed(count).map_err(io::Error::other)?;
        for (u, weight) in graph.indices().iter().zip(weights).filter(|(u, _)| sources.contains(u)) {
            let place = &mut places[*u as usize - first];
            run[*place] = *weight;
            *place += 1;
        }
        take(&run)?;
        first += fits;
    }
    Ok(())
}

/// Writes features as CSR, even if there are none, because PyG expects the keys.
fn attributes<W: Write + Seek>(
    archive: &mut Archive<W>,
    features: &Features,
    nodes: usize,
) -> io::Result<()> {
    let rows = (CHUNK_LEN / features.dim.max(1)).max(1);
    let pieces = nodes.div_ceil(rows);
    let piece = |i: usize| i * rows..((i + 1) * rows).min(nodes);
    let counts = |i: usize| {
        let (mut counts, count) = (Vec::new(), Cell::new(0u64));
        rows::visit(features, piece(i), |_, _| count.set(count.get() + 1), || counts.push(count.take()));
        counts
    };
    let count: u64 = (0..pieces).into_par_iter().map(|i| counts(i).into_iter().sum::<u64>()).sum();
    let count = count as usize;
    archive.start("attr_data", "<f4", &[count])?;
    let values = |i: usize| {
        let mut values = Vec::new();
        rows::visit(features, piece(i), |_, x| values.push(x), || {});
        values
    };
    in_order(pieces, values, |values| archive.write(&values))?;
    archive.start("attr_indices", index_type(features.dim), &[count])?;
    let columns = |i: usize| {
        let mut columns = Vec::new();
        rows::visit(features, piece(i), |j, _| columns.push(j), || {});
        columns
    };
    in_order(pieces, columns, |columns| archive.write_ids(&columns, features.dim))?;
    archive.start("attr_indptr", index_type(count), &[nodes + 1])?;
    archive.write_offsets(&[0], count)?;
    let mut sum = 0;
    in_order(pieces, counts, |mut ends| {
        for end in &mut ends {
            sum += *end;
            *end = sum;
        }
        archive.write_offsets(&ends, count)
    })?;
    archive.start("attr_shape", "<i8", &[2])?;
    archive.write(&[nodes as i64, features.dim as i64])
}

/// Writes the normalization of the features for our importer: its name and the statistics.
fn normalization<W: Write + Seek>(archive: &mut Archive<W>, how: &Normalization) -> io::Result<()> {
    let name: Vec<u32> = how.name().chars().map(u32::from).collect();
    archive.start("feature_normalization", &format!("<U{}", name.len()), &[])?;
    archive.write(&name)?;
    for (member, values) in [MEAN, DEVIATION].iter().zip(how.statistics()) {
        if let Some(values) = values {
            archive.start(member, "<f8", &[values.len()])?;
            archive.write(values)?;
        }
    }
    Ok(())
}

fn labels<W: Write + Seek>(archive: &mut Archive<W>, labels: &Labels, nodes: usize) -> io::Result<()> {
    match labels {
        Labels::Single { class, .. } => {
            archive.start("labels", "<i4", &[nodes])?;
            archive.write(class)?;
        }
        // A single column would be imported as one class per node; CSR prevents that.
        Labels::Multi { member, classes: 1 } => {
            let count = member.iter().filter(|&&m| m == 1).count();
            archive.start("labels_data", "|u1", &[count])?;
            archive.write(&memory::filled(1u8, count).map_err(io::Error::other)?)?;
            archive.start("labels_indices", "<i4", &[count])?;
            archive.write(&memory::filled(0i32, count).map_err(io::Error::other)?)?;
            archive.start("labels_indptr", "<i8", &[nodes + 1])?;
            archive.write(&[0u64])?;
            let mut sum = 0u64;
            for &m in &member[..] {
                sum += u64::from(m);
                archive.write(&[sum])?;
            }
            archive.start("labels_shape", "<i8", &[2])?;
            archive.write(&[nodes as i64, 1])?;
        }
        Labels::Multi { member, classes } => {
            archive.start("labels", "|u1", &[nodes, *classes])?;
            archive.write(member)?;
        }
        Labels::Columns { .. } => return Err(io::Error::other(several_columns("npz"))),
        Labels::Values { values, width } => {
            archive.start("labels", "<f4", &[nodes, *width])?;
            return archive.write(values);
        }
    }
    let classes = labels.classes();
    let width = classes.saturating_sub(1).to_string().len();
    archive.start("class_names", &format!("<U{width}"), &[classes])?;
    for class in 0..classes {
        let name: Vec<u32> = class.to_string().chars().map(u32::from).collect();
        archive.write(&name)?;
        archive.write(&vec![0u32; width - name.len()])?;
    }
    Ok(())
}

fn mask<W: Write + Seek>(
    archive: &mut Archive<W>,
    name: &str,
    ids: &[NodeId],
    nodes: usize,
) -> io::Result<()> {
    archive.start(name, "|b1", &[nodes])?;
    let mut rest = ids;
    let mut piece = Vec::with_capacity(CHUNK_LEN);
    for start in (0..nodes).step_by(CHUNK_LEN) {
        piece.clear();
        piece.resize(CHUNK_LEN.min(nodes - start), 0u8);
        let here = rest.partition_point(|&v| (v as usize) < start + piece.len());
        rest[..here].iter().for_each(|&v| piece[v as usize - start] = 1);
        rest = &rest[here..];
        archive.write(&piece)?;
    }
    Ok(())
}

/// Narrowest type that SciPy uses for numbers up to `most`.
fn index_type(most: usize) -> &'static str {
    if is_narrow(most) { "<i4" } else { "<i8" }
}

fn is_narrow(most: usize) -> bool {
    most <= i32::MAX as usize
}

/// Archive whose members are written sequentially, in chunks.
pub(super) struct Archive<W: Write + Seek> {
    zip: ZipWriter<W>,
    options: SimpleFileOptions,
    /// Bytes not yet written to the member.
    buffer: Vec<u8>,
}

impl<'a> Archive<zip::write::StreamWriter<SilencedWriter<'a>>> {
    pub(super) fn new(file: &'a mut dyn Write, compress: bool) -> Self {
        let method = if compress { CompressionMethod::Deflated } else { CompressionMethod::Stored };
        Self {
            zip: ZipWriter::new_stream(SilencedWriter { file, failed: false }),
            options: SimpleFileOptions::default().compression_method(method),
            buffer: Vec::with_capacity(BUFFER),
        }
    }
}

impl<W: Write + Seek> Archive<W> {
    /// Begins the array `name`; its values follow.
    pub(super) fn start(&mut self, name: &str, dtype: &str, shape: &[usize]) -> io::Result<()> {
        self.flush()?;
        let dtype = Dtype::parse(dtype).expect("a type of this file");
        let header = Header { dtype, shape: shape.to_vec(), fortran_order: false };
        // Members of 4 GiB and more need 64-bit records, which some readers do not support.
        let large = header.bytes() as u64 > u64::from(u32::MAX) - (1 << 20);
        self.zip.start_file(format!("{name}.npy"), self.options.large_file(large))?;
        self.buffer.extend(header.to_bytes());
        Ok(())
    }

    /// Writes values of the current array.
    pub(super) fn write<T: bytemuck::NoUninit>(&mut self, values: &[T]) -> io::Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        if self.buffer.len() + bytes.len() < BUFFER {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        self.flush()?;
        self.zip.write_all(bytes)
    }

    /// Writes ids of the current array, in the type for numbers up to `most`.
    fn write_ids(&mut self, ids: &[NodeId], most: usize) -> io::Result<()> {
        if is_narrow(most) {
            return self.write(ids); // numbers below 2^31 are the same with and without a sign
        }
        ids.chunks(CHUNK_LEN)
            .try_for_each(|ids| self.write(&ids.iter().map(|&id| u64::from(id)).collect::<Vec<_>>()))
    }

    /// Writes offsets as [`Archive::write_ids`] writes ids.
    fn write_offsets(&mut self, offsets: &[u64], most: usize) -> io::Result<()> {
        if !is_narrow(most) {
            return self.write(offsets);
        }
        offsets
            .chunks(CHUNK_LEN)
            .try_for_each(|run| self.write(&run.iter().map(|&x| x as i32).collect::<Vec<_>>()))
    }

    /// Writes a text, which is not an array.
    pub(super) fn text(&mut self, name: &str, text: &[u8]) -> io::Result<()> {
        self.flush()?;
        self.zip.start_file(name, self.options)?;
        self.zip.write_all(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.zip.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.zip.finish()?;
        Ok(())
    }
}

/// Writer that discards all output after an error was reported: a dropped archive writes its end
/// and would print an error.
pub(super) struct SilencedWriter<'a> {
    file: &'a mut dyn Write,
    failed: bool,
}

impl Write for SilencedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed {
            return Ok(bytes.len());
        }
        let written = self.file.write(bytes);
        self.failed = written.as_ref().is_err_and(|e| e.kind() != io::ErrorKind::Interrupted);
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.failed { Ok(()) } else { self.file.flush() }
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::build;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares with a stable sort of the edges by source.
        #[test]
        fn weights_follow_their_edges(
            edges in prop::collection::vec((0u32..6, 0u32..6), 0..30), most in 1usize..40,
        ) {
            let (src, dst): (Vec<_>, Vec<_>) = edges.into_iter().unzip();
            let all = EdgeOptions { keep_duplicates: true, ..EdgeOptions::DIRECTED };
            let graph = build(6, &src, &dst, all).unwrap();
            let weights: Vec<f32> = (0..graph.num_edges()).map(|e| e as f32).collect();
            let by_source = transpose(&graph, &Scratch::in_memory()).unwrap();
            let mut found = Vec::new();
            weights_by_source(&graph, &weights, by_source.indptr(), most, |run| {
                found.extend_from_slice(run);
                Ok(())
            }).unwrap();
            let mut expected: Vec<(NodeId, f32)> = graph.indices().iter().copied().zip(weights).collect();
            expected.sort_by_key(|&(u, _)| u);
            prop_assert!(found.into_iter().eq(expected.into_iter().map(|(_, weight)| weight)));
        }
    }
}
