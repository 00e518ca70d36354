//! Writing of a partition of a dataset of several types, part by part.
//!
//! Memory holds 8 bytes per node, two windows of each column, and 8 bytes per edge among the own
//! nodes of a part by one edge type.

use std::path::Path;

use graphmill_core::{
    Error, NodeId, Result, memory,
    progress::{Progress, Quiet, Unit},
};

use super::{
    BOOK, NEIGHBORS, NODES, PartitionBook, TOPOLOGY, TypedPartitionDir, WHOLE,
    manifest::{Counts, EdgeTypeCounts, FILE_NAME, Manifest, NodeTypeCounts},
    neighbors, part_name,
};
use crate::{
    atomic::{self, Disk, Real},
    dataset::files,
    external::Scratch,
    npy::{Element, Writer},
    partition::{Description, check_target},
    reorder::{Orders, Seconds, rearrange},
    signed::{FileEntry, SignedManifest},
    typed::{
        EdgeData, FeatureTable, NodeData, TableData, Task, TaskKind, TaskOn, TypedDataset, Values,
        checksum_of,
    },
    verification::leaves,
};

/// Memory budget of a part's columns, in bytes; larger ones go to disk.
const MEMORY: u64 = 1 << 30;

/// Writes `data`, partitioned by `book` over the global ids of all types, to the directory `dst`,
/// which must be missing or empty, and opens it: `dst` is written atomically. O(V (F + C) + E).
///
/// # Errors
/// The book belongs to another dataset, a part has no node, `dst` is not empty, or writing fails.
pub fn write_types(
    data: &TypedDataset,
    book: &PartitionBook,
    what: &Description,
    dst: &Path,
    progress: &dyn Progress,
) -> Result<TypedPartitionDir> {
    check_target(dst)?;
    let nodes = data.num_nodes();
    if book.num_nodes() != nodes {
        let message = format!("a partition of {} nodes, but there are {nodes}", book.num_nodes());
        return Err(Error::invalid(message));
    }
    if let Some(part) = book.sizes().iter().position(|&size| size == 0) {
        return Err(Error::invalid(format!("part {part} has no node: choose fewer parts or another method")));
    }
    let mut m = Manifest::new(what.method, book.parts());
    m.seed = what.seed;
    (m.options, m.statistics) = (what.options.clone(), what.statistics.clone());
    (m.source, m.source_checksum) = (data.name.clone(), data.checksum.clone());
    let node_type = |of: &NodeData| NodeTypeCounts { name: of.name.clone(), nodes: of.count };
    m.node_types = data.nodes.iter().map(node_type).collect();
    let edge_type = |of: &EdgeData| EdgeTypeCounts {
        edge_type: of.edge_type.clone(),
        edges: of.num_edges(),
        weighted: of.weights.is_some(),
        timed: of.time.is_some(),
        features: of.features.as_ref().map_or(0, |table| table.width),
    };
    m.edge_types = data.edges.iter().map(edge_type).collect();

    atomic::write_dir(dst, false, |dir| {
        files::write(&mut m.files, dir, BOOK, book.buffer(), &[nodes])?;
        let whole = dir.join(WHOLE);
        tasks_of_nodes(data).save(&whole)?;
        m.whole = checksum_of(&whole)?;
        progress.stage("writing the topology", None, Unit::Rows);
        let topology = dir.join(TOPOLOGY);
        edges_of_all_parts(data).save(&topology)?;
        m.topology = Some(checksum_of(&topology)?);
        progress.stage("writing the parts", Some(nodes as u64), Unit::Rows);
        let mut written = 0;
        for part in 0..book.parts() {
            progress.check()?;
            let writer = PartWriter { data, part, orders: orders(data, book, part)? };
            writer.write(dir, &mut m)?;
            written += writer.orders.iter().map(Vec::len).sum::<usize>() as u64;
            progress.done(written);
        }
        let (path, text) = (dir.join(FILE_NAME), m.signed()?.1);
        Real.write(&path, |file| file.write_all(text.as_bytes())).map_err(|e| Error::io(&path, "write", e))
    })?;
    TypedPartitionDir::open(dst)
}

/// Own nodes of each type in part `part`, ascending.
fn orders(data: &TypedDataset, book: &PartitionBook, part: u16) -> Result<Vec<Vec<NodeId>>> {
    let schema = data.schema()?;
    let of_type = |ends: &[u64]| {
        let of = &book.of()[ends[0] as usize..ends[1] as usize];
        (0..of.len() as NodeId).filter(|&v| of[v as usize] == part).collect()
    };
    Ok(schema.offsets().windows(2).map(of_type).collect())
}

/// All node types without columns but times, and the tasks on nodes without given negatives, with
/// the record of the import, which names the datasets that this one extends. An edge is visible
/// from the time of its source on, which another part may own.
fn tasks_of_nodes(data: &TypedDataset) -> TypedDataset {
    let bare = |of: &NodeData| NodeData {
        name: of.name.clone(),
        count: of.count,
        time: of.time.clone(),
        ..NodeData::default()
    };
    let is_on_nodes = |task: &&Task| matches!(task.on, TaskOn::Nodes(_));
    TypedDataset {
        name: data.name.clone(),
        nodes: data.nodes.iter().map(bare).collect(),
        tasks: data.tasks.iter().filter(is_on_nodes).cloned().collect(),
        preprocessing: data.preprocessing.clone(),
        ..TypedDataset::default()
    }
}

/// All node types without columns, all edges without features, and the tasks on links, which
/// [`TypedPartitionDir::topology`] opens.
fn edges_of_all_parts(data: &TypedDataset) -> TypedDataset {
    let bare = |of: &NodeData| NodeData { name: of.name.clone(), count: of.count, ..NodeData::default() };
    let is_on_links = |task: &&Task| task.kind() == Some(TaskKind::LinkPrediction);
    TypedDataset {
        name: data.name.clone(),
        nodes: data.nodes.iter().map(bare).collect(),
        edges: data.edges.iter().map(|of| EdgeData { features: None, ..of.clone() }).collect(),
        tasks: data.tasks.iter().filter(is_on_links).cloned().collect(),
        ..TypedDataset::default()
    }
}

/// Writer of one part.
struct PartWriter<'a> {
    data: &'a TypedDataset,
    part: u16,
    /// Own nodes of each type, ascending.
    orders: Vec<Vec<NodeId>>,
}

impl PartWriter<'_> {
    fn write(&self, dir: &Path, m: &mut Manifest) -> Result<()> {
        let name = part_name(self.part);
        let path = dir.join(&name);
        let scratch = Scratch::open(&dir.join("scratch"), &name, MEMORY, Box::new(Quiet))?;
        let orders = Orders { by_type: &self.orders, is_selection: true };
        let own = rearrange(self.data, orders, &scratch, &mut Seconds::default())?;
        own.save_by_way_of(&scratch, &path, false)?;
        drop(own);
        scratch.remove()?;

        let schema = self.data.schema()?;
        let mut ids: Vec<NodeId> = Vec::new();
        for (order, &first) in self.orders.iter().zip(schema.offsets()) {
            ids.extend(order.iter().map(|v| first as NodeId + v));
        }
        files::write(&mut m.files, dir, &format!("{name}/{NODES}"), &ids, &[ids.len()])?;
        let make =
            |path: &Path| Real.create_dir(path).map_err(|e| Error::io(path, "create the directory", e));
        make(&path.join(NEIGHBORS))?;
        let mut counts = Vec::with_capacity(self.data.edges.len());
        for (r, edges) in self.data.edges.iter().enumerate() {
            let own = &self.orders[schema.ends(r).1];
            let of = path.join(NEIGHBORS).join(r.to_string());
            make(&of)?;
            let mut indptr = memory::reserve(own.len() + 1)?;
            indptr.push(0u64);
            own.iter().for_each(|&v| indptr.push(indptr[indptr.len() - 1] + edges.row(v).len() as u64));
            files::write(&mut m.files, dir, &neighbors(self.part, r, "indptr"), &indptr, &[indptr.len()])?;
            rows(m, dir, &neighbors(self.part, r, "indices"), own, edges, &edges.indices)?;
            if let Some(weights) = &edges.weights {
                rows(m, dir, &neighbors(self.part, r, "weights"), own, edges, weights)?;
            }
            if let Some(time) = &edges.time {
                rows(m, dir, &neighbors(self.part, r, "time"), own, edges, time)?;
            }
            if let Some(table) = &edges.features {
                features(m, dir, &neighbors(self.part, r, "features"), (own, edges), table)?;
            }
            counts.push(indptr[own.len()] as usize);
            atomic::sync_dir(&mut Real, &of)?;
        }
        atomic::sync_dir(&mut Real, &path.join(NEIGHBORS))?;
        atomic::sync_dir(&mut Real, &path)?;
        m.each.push(Counts {
            nodes: self.orders.iter().map(Vec::len).collect(),
            neighbors: counts,
            checksum: checksum_of(&path)?,
        });
        Ok(())
    }
}

/// Writes a value for each edge into the nodes `own`, and enters the file.
fn rows<T: Element>(
    m: &mut Manifest,
    dir: &Path,
    name: &str,
    own: &[NodeId],
    edges: &EdgeData,
    values: &[T],
) -> Result<()> {
    let mut to = Writer::create(&dir.join(name))?;
    own.iter().try_for_each(|&v| to.extend(&values[edges.row(v)]))?;
    let length = to.len() as usize;
    m.files.insert(name.into(), to.finish(&[length])?);
    Ok(())
}

/// Writes the feature row of each edge into the nodes `own`, and enters the file. Rows that are
/// neither dense f16 nor dense f32 are written as dense f32, as training reads them.
fn features(
    m: &mut Manifest,
    dir: &Path,
    name: &str,
    (own, edges): (&[NodeId], &EdgeData),
    table: &FeatureTable,
) -> Result<()> {
    table.verify()?;
    let width = table.width;
    let (entry, leaves) = match &table.data {
        TableData::Dense(Values::F16(values)) => dense(&dir.join(name), own, edges, (values, width))?,
        TableData::Dense(Values::F32(values)) => dense(&dir.join(name), own, edges, (values, width))?,
        _ => {
            let mut to = Writer::create(&dir.join(name))?;
            let (mut row, mut narrow) = (vec![0.0; width], vec![0f32; width]);
            for e in own.iter().flat_map(|&v| edges.row(v)) {
                table.copy_row(e, &mut row);
                narrow.iter_mut().zip(&row).for_each(|(to, &x)| *to = x as f32);
                if let Some(i) = narrow.iter().position(|x| !x.is_finite()) {
                    return Err(Error::invalid(format!(
                        "feature {i} of edge {e} of type '{}' is {}, beyond the range of f32; scale the \
                         column",
                        edges.edge_type, row[i]
                    )));
                }
                to.extend(&narrow)?;
            }
            finish(to, width)?
        }
    };
    m.files.insert(name.into(), entry);
    leaves::write(dir, name, &leaves)
}

/// Entry of a file, and the checksum of each of its chunks.
type Finished = (FileEntry, Vec<u128>);

/// Writes the rows of `width` values of the edges into the nodes `own`.
fn dense<T: Element>(
    path: &Path,
    own: &[NodeId],
    edges: &EdgeData,
    (values, width): (&[T], usize),
) -> Result<Finished> {
    let mut to = Writer::create(path)?;
    own.iter().try_for_each(|&v| {
        let row = edges.row(v);
        to.extend(&values[row.start * width..row.end * width])
    })?;
    finish(to, width)
}

fn finish<T: Element>(to: Writer<T>, width: usize) -> Result<Finished> {
    let rows = to.len() as usize / width.max(1);
    to.finish_with_leaves(&[rows, width])
}
