//! Writing of a partition directory, part by part.
//!
//! Memory holds `8 V` bytes and two windows of each table; a part's tables go to disk as they are
//! computed. If the dataset exceeds memory, each part reads the pages that contain its rows: in the
//! worst case the whole dataset once per part. The topology is copied from where it is.

use std::{fs, io, path::Path};

use graphmill_core::{
    Error, Graph, NodeId, Result, Split, memory,
    progress::{Progress, Quiet, Unit},
};
use rayon::prelude::*;

use super::{
    BOOK, DEGREES, PartitionBook, PartitionDir, SEARCHES, SPLIT,
    manifest::{Counts, FILE_NAME, Manifest},
    neighbors::{EDGE_WEIGHT, INDICES, INDPTR, TOPOLOGY},
    part::{NEIGHBORS, NODES},
    part_name,
};
use crate::{
    Dataset,
    atomic::{self, Disk, Real},
    dataset::{files, native, restrict},
    external::Scratch,
    npy::{Element, Writer},
    reorder::{relabel, rows::ragged},
    signed::{FileEntry, SignedManifest},
};

/// Memory budget of a part's tables, in bytes; larger ones go to disk.
const MEMORY: u64 = 1 << 30;

/// Metadata of a partition's manifest.
#[derive(Clone, Debug, Default)]
pub struct Description<'a> {
    /// Name of the method.
    pub method: &'a str,
    /// Seed of the method.
    pub seed: u64,
    /// Other options of the method.
    pub options: serde_json::Value,
    /// Recorded statistics of the partition.
    pub statistics: serde_json::Value,
    /// Training nodes in the order of searches over the whole graph, which orders of the seeds need
    /// over ranks; empty to store no searches.
    pub searches: &'a [Vec<NodeId>],
}

/// Writes `dataset`, partitioned by `book`, to the directory `dst`, which must be missing or empty,
/// and opens it: `dst` is written atomically. O(V (F + C) + E) and one read of the written files.
///
/// # Errors
/// The book belongs to another dataset, a part has no node, `dst` is not empty, or writing fails.
pub fn write(
    dataset: &Dataset,
    book: &PartitionBook,
    what: &Description,
    dst: &Path,
    progress: &dyn Progress,
) -> Result<PartitionDir> {
    check_target(dst)?;
    let (nodes, edges) = (dataset.num_nodes(), dataset.graph.num_edges());
    if book.num_nodes() != nodes {
        let message = format!("a partition of {} nodes, but there are {nodes}", book.num_nodes());
        return Err(Error::invalid(message));
    }
    let (by_part, starts) = book.by_part()?;
    if let Some(part) = starts.windows(2).position(|ends| ends[0] == ends[1]) {
        return Err(Error::invalid(format!("part {part} has no node: choose fewer parts or another method")));
    }
    let mut local: Vec<NodeId> = memory::zeroed(nodes)?;
    for ends in starts.windows(2) {
        by_part[ends[0]..ends[1]].iter().enumerate().for_each(|(i, &v)| local[v as usize] = i as NodeId);
    }
    let mut m = Manifest::new(what.method, book.parts());
    m.seed = what.seed;
    (m.options, m.statistics) = (what.options.clone(), what.statistics.clone());
    (m.source, m.source_checksum) = (dataset.name.clone(), dataset.checksum.clone());
    (m.nodes, m.edges, m.weighted) = (nodes, edges, dataset.graph.edge_weight().is_some());
    (m.train, m.valid, m.test) =
        (dataset.split.train.len(), dataset.split.valid.len(), dataset.split.test.len());

    atomic::write_dir(dst, false, |dir| {
        files::write(&mut m.files, dir, BOOK, book.buffer(), &[nodes])?;
        let degrees = degrees(&dataset.graph)?;
        files::write(&mut m.files, dir, DEGREES, &degrees, &[nodes])?;
        for (name, (_, ids)) in SPLIT.iter().zip(dataset.split.parts()) {
            files::write(&mut m.files, dir, name, ids, &[ids.len()])?;
        }
        if !what.searches.is_empty() && m.train > 0 {
            files::write(
                &mut m.files,
                dir,
                SEARCHES,
                &what.searches.concat(),
                &[what.searches.len(), m.train],
            )?;
        }
        progress.stage("writing the topology", None, Unit::Rows);
        write_topology(&dataset.graph, dir, &mut m)?;
        progress.stage("writing the parts", Some(nodes as u64), Unit::Rows);
        for part in 0..book.parts() {
            progress.check()?;
            let of_part = &by_part[starts[usize::from(part)]..starts[usize::from(part) + 1]];
            let writer = PartWriter { dataset, book, local: &local, part, nodes: of_part };
            writer.write(dir, &mut m)?;
            progress.done(starts[usize::from(part) + 1] as u64);
        }
        let (path, text) = (dir.join(FILE_NAME), m.signed()?.1);
        Real.write(&path, |file| file.write_all(text.as_bytes())).map_err(|e| Error::io(&path, "write", e))
    })?;
    PartitionDir::open(dst)
}

/// Checks that writing to `dst` overwrites nothing. Writing repeats this check; an early check
/// avoids wasted work.
///
/// # Errors
/// The path is a file or a nonempty directory.
pub fn check_target(dst: &Path) -> Result<()> {
    let refuse = |message: &str| Err(Error::format(dst, "directory", message));
    match fs::read_dir(dst) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) if dst.join(FILE_NAME).exists() => {
                refuse("it already holds a partitioned dataset; choose another directory, or remove it first")
            }
            Some(_) => refuse("it is not empty; choose another directory (nothing was written)"),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            refuse("this is a file; choose another name for the directory")
        }
        Err(e) => Err(Error::io(dst, "look into", e)),
    }
}

fn degrees(graph: &Graph) -> Result<Vec<u32>> {
    let most = (0..graph.num_nodes() as NodeId).into_par_iter().map(|v| graph.in_degree(v)).max();
    if most.is_some_and(|most| u32::try_from(most).is_err()) {
        let message =
            format!("a node has {most:?} in-neighbours: degrees are 32-bit in a partitioned dataset");
        return Err(Error::invalid(message));
    }
    let mut degrees = memory::reserve(graph.num_nodes())?;
    degrees.par_extend((0..graph.num_nodes() as NodeId).into_par_iter().map(|v| graph.in_degree(v) as u32));
    Ok(degrees)
}

/// Writes the whole graph, which [`PartitionDir::topology`] opens.
fn write_topology(graph: &Graph, dir: &Path, m: &mut Manifest) -> Result<()> {
    let path = dir.join(TOPOLOGY);
    Real.create_dir(&path).map_err(|e| Error::io(&path, "create the directory", e))?;
    let name = |file: &str| format!("{TOPOLOGY}/{file}");
    files::write(&mut m.files, dir, &name(INDPTR), graph.indptr(), &[graph.num_nodes() + 1])?;
    files::write(&mut m.files, dir, &name(INDICES), graph.indices(), &[graph.num_edges()])?;
    if let Some(weight) = graph.edge_weight() {
        files::write(&mut m.files, dir, &name(EDGE_WEIGHT), weight, &[graph.num_edges()])?;
    }
    atomic::sync_dir(&mut Real, &path)
}

/// Writer of one part.
struct PartWriter<'a> {
    dataset: &'a Dataset,
    book: &'a PartitionBook,
    /// Position of every node within its part (`V`).
    local: &'a [NodeId],
    part: u16,
    /// Nodes of the part, ascending.
    nodes: &'a [NodeId],
}

impl PartWriter<'_> {
    fn write(&self, dir: &Path, m: &mut Manifest) -> Result<()> {
        let name = part_name(self.part);
        let path = dir.join(&name);
        let scratch = Scratch::open(&dir.join("scratch"), &name, MEMORY, Box::new(Quiet))?;
        let dataset = self.dataset(&scratch)?;
        dataset.save_by_way_of(&scratch, &path, false)?;
        let edges = dataset.graph.num_edges();
        drop(dataset);
        scratch.remove()?;

        let in_folder = |file: &str| format!("{name}/{NEIGHBORS}/{file}");
        let enter = |m: &mut Manifest, file: &str, entry: FileEntry| {
            m.files.insert(in_folder(file), entry);
        };
        files::write(&mut m.files, dir, &format!("{name}/{NODES}"), self.nodes, &[self.nodes.len()])?;
        let neighbors = path.join(NEIGHBORS);
        Real.create_dir(&neighbors).map_err(|e| Error::io(&neighbors, "create the directory", e))?;
        let graph = &self.dataset.graph;
        let mut starts: Vec<u64> = memory::reserve(self.nodes.len() + 1)?;
        starts.push(0);
        self.nodes.iter().for_each(|&v| starts.push(starts[starts.len() - 1] + graph.in_degree(v) as u64));
        files::write(&mut m.files, dir, &in_folder(INDPTR), &starts, &[starts.len()])?;
        enter(m, INDICES, self.rows(graph.indices(), &neighbors.join(INDICES))?);
        if let Some(weight) = graph.edge_weight() {
            enter(m, EDGE_WEIGHT, self.rows(weight, &neighbors.join(EDGE_WEIGHT))?);
        }
        atomic::sync_dir(&mut Real, &neighbors)?;
        atomic::sync_dir(&mut Real, &path)?;
        let counts = Counts {
            nodes: self.nodes.len(),
            edges,
            neighbors: starts[self.nodes.len()] as usize,
            checksum: native::checksum_of(&path)?,
        };
        m.each.push(counts);
        Ok(())
    }

    /// Writes one value per edge for the rows of the part's nodes.
    fn rows<T: Element>(&self, values: &[T], path: &Path) -> Result<FileEntry> {
        let indptr = self.dataset.graph.indptr();
        let mut to = Writer::create(path)?;
        for &v in self.nodes {
            to.extend(&values[indptr[v as usize] as usize..indptr[v as usize + 1] as usize])?;
        }
        let length = to.len() as usize;
        to.finish(&[length])
    }

    /// Builds the dataset of the part's nodes and the edges among them.
    fn dataset(&self, scratch: &Scratch) -> Result<Dataset> {
        let of = self.dataset;
        let part = |ids: &[NodeId]| {
            let own = ids.iter().filter(|&&v| self.book.part_of(v) == self.part);
            own.map(|&v| self.local[v as usize]).collect::<Vec<_>>().into()
        };
        let [train, valid, test] = of.split.parts().map(|(_, ids)| part(ids));
        Ok(Dataset {
            name: format!("{}-{}", of.name, part_name(self.part)),
            graph: self.topology(scratch)?,
            features: relabel::features(&of.features, self.nodes, scratch)?,
            labels: relabel::labels(&of.labels, self.nodes, scratch)?,
            split: Split { train, valid, test },
            graphs: restrict(&of.graphs, self.nodes),
            metric: of.metric.clone(),
            normalization: of.normalization.clone(),
            checksum: None,
            directory: None,
            original_ids: None,
            keys: of.keys.as_ref().map(|keys| keys.gather(self.nodes)).transpose()?,
        })
    }

    /// Builds the graph of the edges among the part's nodes; rows are ascending, because local ids
    /// follow the order of global ids.
    fn topology(&self, scratch: &Scratch) -> Result<Graph> {
        let graph = &self.dataset.graph;
        let is_own = |&&u: &&NodeId| self.book.part_of(u) == self.part;
        let mut starts: Vec<u64> = memory::reserve(self.nodes.len() + 1)?;
        starts.push(0);
        let length = |&v: &NodeId| graph.in_neighbors(v).iter().filter(is_own).count() as u64;
        starts.par_extend(self.nodes.par_iter().with_min_len(1 << 8).map(length));
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let row = |i: usize, ids: &mut [NodeId], weights: &mut [f32]| {
            let v = self.nodes[i];
            let own = graph.in_neighbors(v).iter().filter(is_own);
            ids.iter_mut().zip(own).for_each(|(id, &u)| *id = self.local[u as usize]);
            if let Some(all) = graph.edge_weight().filter(|_| !weights.is_empty()) {
                let all = &all[graph.indptr()[v as usize] as usize..];
                let own = graph.in_neighbors(v).iter().zip(all).filter(|(u, _)| is_own(u));
                weights.iter_mut().zip(own).for_each(|(weight, (_, w))| *weight = *w);
            }
        };
        let weights = graph.edge_weight().map(|_| scratch.column("edge_weight")).transpose()?;
        let (ids, weights) = ragged(&starts, scratch.column("indices")?, weights, row)?;
        Ok(Graph::sorted(starts.into(), ids, weights))
    }
}
