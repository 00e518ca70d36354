//! One `.npz` file with the keys of the Shchur benchmark sets, which PyG (`read_npz`), DGL and our importer read:
//!
//! ```text
//! adj_data f4, adj_indices, adj_indptr i4 or i8, adj_shape i8   CSR by source: row i holds the ends of edges from i
//! attr_data f4, attr_indices, attr_indptr, attr_shape           CSR features
//! labels                                                        i4 [V], -1 unknown, or u1 [V, C]
//! class_names                                                   U [C], the classes' numbers
//! train_mask, val_mask, test_mask                               b1 [V], parts that are not empty
//! ```
//!
//! Masks are called as PyG's `Data` calls them; the heterophilous sets' keys in the plural hold many splits, and a dataset
//! has one. PyG sets features above 0 to 1 and drops self-loops when it reads these files; the values here are whole.
//!
//! Members are stored, as NumPy's `savez` does, or deflated. Their rows by source come from the graph itself where it is
//! symmetric, else from its transpose, which is made within the scratch.

use std::{
    io::{self, Seek, Write},
    path::Path,
};

use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use super::{ExportOptions, rows, with_scratch};
use crate::symmetry::is_symmetric;
use crate::{
    Dataset, EdgeOptions, Error, Features, Graph, Labels, NodeId, Result, atomic,
    external::Scratch,
    npy::{Dtype, Header},
};

/// Edges or values handled at a time.
const PIECE: usize = 1 << 16;

/// Writes the file `dst`.
pub(super) fn write(dataset: &Dataset, dst: &Path, options: &ExportOptions) -> Result<Vec<String>> {
    let mut lost = Vec::new();
    if dataset.graph.edge_weight().is_some() {
        lost.push("the weights of the edges".to_string());
    }
    if !dataset.graphs.is_empty() {
        lost.push("which nodes belong to which of the graphs".to_string());
    }
    if dataset.labels.is_multi() && dataset.labels.classes() == 0 {
        return Err(Error::invalid("sets of labels without any class: there is nothing to export"));
    }
    if is_symmetric(&dataset.graph) {
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
        adjacency(&mut archive, by_source)?;
        attributes(&mut archive, &dataset.features, dataset.num_nodes())?;
        labels(&mut archive, &dataset.labels, dataset.num_nodes())?;
        for (name, (_, ids)) in ["train_mask", "val_mask", "test_mask"].iter().zip(dataset.split.parts()) {
            if !ids.is_empty() {
                mask(&mut archive, name, ids, dataset.num_nodes())?;
            }
        }
        archive.finish()
    })
}

/// The same edges, each turned around.
fn transpose(graph: &Graph, scratch: &Scratch) -> Result<Graph> {
    let mut edges = scratch.edges(EdgeOptions { keep_duplicates: true, ..EdgeOptions::DIRECTED });
    for v in 0..graph.num_nodes() as NodeId {
        for run in graph.in_neighbors(v).chunks(PIECE) {
            edges.extend(&vec![v; run.len()], run)?;
        }
    }
    edges.build(graph.num_nodes())
}

fn adjacency<W: Write + Seek>(archive: &mut Archive<W>, by_source: &Graph) -> io::Result<()> {
    let (nodes, count) = (by_source.num_nodes(), by_source.num_edges());
    archive.start("adj_data", "<f4", &[count])?;
    let ones = [1f32; PIECE];
    for start in (0..count).step_by(PIECE) {
        archive.write(&ones[..PIECE.min(count - start)])?;
    }
    archive.start("adj_indices", index_type(nodes), &[count])?;
    for run in by_source.indices().chunks(PIECE) {
        archive.write_indices(run.iter().map(|&v| u64::from(v)), nodes)?;
    }
    archive.start("adj_indptr", index_type(count), &[nodes + 1])?;
    // The empty graph has an empty indptr in memory; the matrix has its one zero.
    let indptr = by_source.indptr();
    for run in if indptr.is_empty() { &[0] } else { indptr }.chunks(PIECE) {
        archive.write_indices(run.iter().copied(), count)?;
    }
    archive.start("adj_shape", "<i8", &[2])?;
    archive.write(&[nodes as i64; 2])
}

/// As CSR, also where there are none: PyG expects the keys.
fn attributes<W: Write + Seek>(
    archive: &mut Archive<W>,
    features: &Features,
    nodes: usize,
) -> io::Result<()> {
    let mut count = 0usize;
    let nothing = || Ok(());
    rows::visit(
        features,
        nodes,
        |_, _| {
            count += 1;
            Ok(())
        },
        nothing,
    )?;
    archive.start("attr_data", "<f4", &[count])?;
    rows::visit(features, nodes, |_, x| archive.write(&[x]), nothing)?;
    archive.start("attr_indices", index_type(features.dim), &[count])?;
    rows::visit(features, nodes, |j, _| archive.write_indices([u64::from(j)], features.dim), nothing)?;
    archive.start("attr_indptr", index_type(count), &[nodes + 1])?;
    archive.write_indices([0], count)?;
    let so_far = std::cell::Cell::new(0u64);
    rows::visit(
        features,
        nodes,
        |_, _| {
            so_far.set(so_far.get() + 1);
            Ok(())
        },
        || archive.write_indices([so_far.get()], count),
    )?;
    archive.start("attr_shape", "<i8", &[2])?;
    archive.write(&[nodes as i64, features.dim as i64])
}

fn labels<W: Write + Seek>(archive: &mut Archive<W>, labels: &Labels, nodes: usize) -> io::Result<()> {
    match labels {
        Labels::Single { class, .. } => {
            archive.start("labels", "<i4", &[nodes])?;
            archive.write(class)?;
        }
        // A single column would be read as one class per node: as CSR it cannot be.
        Labels::Multi { member, classes: 1 } => {
            let count = member.iter().filter(|&&m| m == 1).count();
            archive.start("labels_data", "|u1", &[count])?;
            archive.write(&vec![1u8; count])?;
            archive.start("labels_indices", "<i4", &[count])?;
            archive.write(&vec![0i32; count])?;
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
    let mut piece = Vec::with_capacity(PIECE);
    for start in (0..nodes).step_by(PIECE) {
        piece.clear();
        piece.resize(PIECE.min(nodes - start), 0u8);
        let here = rest.partition_point(|&v| (v as usize) < start + piece.len());
        rest[..here].iter().for_each(|&v| piece[v as usize - start] = 1);
        rest = &rest[here..];
        archive.write(&piece)?;
    }
    Ok(())
}

/// The narrowest type SciPy uses for numbers up to `most`.
fn index_type(most: usize) -> &'static str {
    if most <= i32::MAX as usize { "<i4" } else { "<i8" }
}

/// An archive whose members are written one after the other, in pieces.
struct Archive<W: Write + Seek> {
    zip: ZipWriter<W>,
    options: SimpleFileOptions,
    /// Bytes on their way to the member.
    buffer: Vec<u8>,
}

impl<'a> Archive<zip::write::StreamWriter<Deaf<'a>>> {
    fn new(file: &'a mut dyn Write, compress: bool) -> Self {
        let method = if compress { CompressionMethod::Deflated } else { CompressionMethod::Stored };
        Self {
            zip: ZipWriter::new_stream(Deaf { file, failed: false }),
            options: SimpleFileOptions::default().compression_method(method),
            buffer: Vec::with_capacity(1 << 20),
        }
    }
}

impl<W: Write + Seek> Archive<W> {
    /// Begins the array `name`, whose values are to follow.
    fn start(&mut self, name: &str, dtype: &str, shape: &[usize]) -> io::Result<()> {
        self.flush()?;
        let dtype = Dtype::parse(dtype).expect("a type of this file");
        let header = Header { dtype, shape: shape.to_vec(), fortran_order: false };
        // Members of 4 GiB and more need the wider records, which some readers do not know.
        let large = header.bytes() as u64 > u64::from(u32::MAX) - (1 << 20);
        self.zip.start_file(format!("{name}.npy"), self.options.large_file(large))?;
        self.buffer.extend(header.to_bytes());
        Ok(())
    }

    /// Values of the array in hand.
    fn write<T: bytemuck::NoUninit>(&mut self, values: &[T]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytemuck::cast_slice(values));
        if self.buffer.len() >= 1 << 20 { self.flush() } else { Ok(()) }
    }

    /// Numbers of the array in hand, in the type for numbers up to `most`.
    fn write_indices(&mut self, values: impl IntoIterator<Item = u64>, most: usize) -> io::Result<()> {
        let narrow = index_type(most) == "<i4";
        for value in values {
            if narrow {
                self.buffer.extend_from_slice(&(value as i32).to_le_bytes());
            } else {
                self.buffer.extend_from_slice(&(value as i64).to_le_bytes());
            }
        }
        if self.buffer.len() >= 1 << 20 { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.zip.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.zip.finish()?;
        Ok(())
    }
}

/// Takes whatever is written after an error has been told: an archive that is dropped writes its end, and would complain
/// on standard error that it cannot.
struct Deaf<'a> {
    file: &'a mut dyn Write,
    failed: bool,
}

impl Write for Deaf<'_> {
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
