//! Directory of a partitioned dataset of several types: data shared by all machines, and one
//! directory per part.
//!
//! The node types share one id space, in which the book assigns every node to a part. Ids of
//! neighbours are local to their types, as in the dataset.
//!
//! ```text
//! partition.json            version 2: types, counts, statistics, and type, shape, size and checksum of every
//!                           file below that no other manifest lists
//! book.npy                  u16 [V]  the part of every node, by global ids
//! whole/                    a dataset of all node types and the tasks on nodes, with targets and splits,
//!                           without columns of the nodes but their times, and without edges
//! topology/                 a dataset of all node types without columns, all edges of every type
//!                           with their weights and times, and the tasks on links
//! part-0000/                a dataset of the part's own nodes of each type, ascending, and the edges among them
//!                           (see [`typed`](crate::typed)): every command opens it
//!   nodes.npy               u32 [n]  the global id of every node, in the order of the types
//!   neighbors/0/indptr.npy  u64 [n_t + 1]  row starts, for the own nodes of the destination type, of
//!   neighbors/0/indices.npy u32      all in-neighbours by edge type 0, in the dataset's order, by their ids there
//!   neighbors/0/weights.npy f4       their weights, if the edge type has any
//!   neighbors/0/time.npy    i64      their times, if the edge type has any
//!   neighbors/0/features.npy         f2 or f4 [n, F]  their feature rows, if the edge type has any
//! part-0001/ ...
//! ```

mod columns;
mod manifest;
mod part;
#[cfg(test)]
mod tests;
mod write;

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use graphmill_core::{
    Error, NodeId, Result,
    location::Location,
    typed::{NodeType, Relation, Schema},
};

pub use manifest::EdgeTypeCounts;
use manifest::Manifest;
pub use part::TypedPart;
pub use write::write_types;

use super::PartitionBook;
use crate::{
    dataset::files::Files,
    signed::{self, SignedManifest},
    typed::{self, TypedDataset},
    verification::Verify,
};

const BOOK: &str = "book.npy";
const WHOLE: &str = "whole";
const TOPOLOGY: &str = "topology";
const NODES: &str = "nodes.npy";
const NEIGHBORS: &str = "neighbors";

/// Directory name of part `part`.
fn part_name(part: u16) -> String {
    format!("part-{part:04}")
}

/// Relative path of an array of a part's in-neighbours by edge type `r`.
fn neighbors(part: u16, r: usize, array: &str) -> String {
    format!("{}/{NEIGHBORS}/{r}/{array}.npy", part_name(part))
}

/// Open directory of a partitioned dataset of several types: the data of all nodes.
/// [`TypedPartitionDir::part`] opens one part.
#[derive(Clone, Debug)]
pub struct TypedPartitionDir {
    path: PathBuf,
    manifest: Manifest,
    schema: Schema,
    /// Part of every node, by global ids (`V`).
    pub book: PartitionBook,
    /// All node types without columns but times, and the tasks on nodes.
    pub whole: TypedDataset,
}

impl TypedPartitionDir {
    /// Returns true if `dir` holds a partitioned dataset of several types.
    pub fn is_in(dir: impl AsRef<Path>) -> bool {
        signed::version_in::<Manifest>(dir.as_ref()) == Some(manifest::VERSION)
    }

    /// Opens the directory `dir` after checking the shared data: manifest, book, types and tasks.
    /// O(V), parallel. The parts are checked when they are opened.
    ///
    /// # Errors
    /// The first fault, with its file and position.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let path = dir.as_ref().to_path_buf();
        let manifest = Manifest::read(&path)?;
        let schema = Location::new(&path.join(manifest::FILE_NAME), "types").locate(schema_of(&manifest))?;
        let files = files_of(&path, &manifest);
        let of = files.read::<u16>(BOOK, &[schema.num_nodes()])?;
        let at = path.join(BOOK);
        let book = Location::new(&at, "contents").locate(PartitionBook::new(manifest.parts, of))?;
        let dir = Self { whole: TypedDataset::default(), path, manifest, schema, book };
        for (part, (said, found)) in dir.manifest.each.iter().zip(dir.counts()).enumerate() {
            if found != said.nodes {
                let message = format!("part {part} has {found:?} nodes of the types, not {:?}", said.nodes);
                return Err(Error::format(at, "contents", message));
            }
        }
        Ok(Self { whole: dir.dataset(WHOLE, &dir.manifest.whole, Verify::Once)?, ..dir })
    }

    /// Opens the dataset of all nodes in the directory `name`, which has this checksum.
    fn dataset(&self, name: &str, checksum: &str, verify: Verify) -> Result<TypedDataset> {
        let path = self.path.join(name);
        let data = typed::open(&path, verify)?;
        let expected = self.schema.types().iter().map(|node| node.count);
        if data.checksum.as_deref() != Some(checksum) || !data.nodes.iter().map(|of| of.count).eq(expected) {
            let message = "this is another dataset than partition.json says; partition the dataset again";
            return Err(Error::format(path, "dataset", message));
        }
        Ok(data)
    }

    /// Opens all edges of every type, with their weights and times, and the tasks on links, as a
    /// dataset of all nodes without columns. `8 D + 4 E` mapped bytes for an edge type of `D`
    /// destinations and `E` edges, `4 E` for weights and `8 E` for times. As much is checked as
    /// `verify` says. O(V + E), parallel. `None` if an earlier version wrote the partition.
    ///
    /// # Errors
    /// The first fault, with its file and position.
    pub fn topology(&self, verify: Verify) -> Result<Option<TypedDataset>> {
        let checksum = self.manifest.topology.as_ref();
        checksum.map(|checksum| self.dataset(TOPOLOGY, checksum, verify)).transpose()
    }

    /// Texts of the manifests of the datasets that the partition in `dir` stores for all ranks,
    /// without a check of their checksums: that of the tasks on nodes, and that of the edges and of
    /// the tasks on links. `None` if it stores no edges, or if `dir` holds something else.
    pub fn manifest_texts(dir: impl AsRef<Path>) -> Option<[Vec<u8>; 2]> {
        let dir = dir.as_ref();
        let text = |name: &str| typed::manifest_text(dir.join(name));
        Self::is_in(dir).then(|| Some([text(WHOLE)?, text(TOPOLOGY)?])).flatten()
    }

    /// Number of nodes of each type in every part. O(V).
    fn counts(&self) -> Vec<Vec<usize>> {
        let types = self.schema.num_types();
        let mut counts = vec![vec![0; types]; usize::from(self.parts())];
        (0..types).for_each(|t| {
            self.book.of()[self.range(t)].iter().for_each(|&part| counts[usize::from(part)][t] += 1);
        });
        counts
    }

    /// Global ids of the nodes of type `t`.
    fn range(&self, t: usize) -> Range<usize> {
        let range = self.schema.range(t);
        range.start as usize..range.end as usize
    }

    /// Part of every node of type `t`, by local ids.
    ///
    /// # Errors
    /// None in practice: the book was checked.
    pub fn book_of(&self, t: usize) -> Result<PartitionBook> {
        PartitionBook::new(self.parts(), self.book.of()[self.range(t)].to_vec())
    }

    /// Own nodes of part `part` of type `t`, by ascending local ids. O(V_t).
    fn own(&self, part: u16, t: usize) -> Vec<NodeId> {
        let of_type = &self.book.of()[self.range(t)];
        (0..of_type.len() as NodeId).filter(|&v| of_type[v as usize] == part).collect()
    }

    /// Opens part `part` after checking all of it, also against the shared data, and verifies its
    /// dataset as `verify` says.
    ///
    /// # Errors
    /// The part does not exist, or the first fault with its file and position.
    pub fn part(&self, part: u16, verify: Verify) -> Result<TypedPart> {
        if part >= self.parts() {
            return Err(Error::invalid(format!(
                "{}: part {part} of {}: they are numbered from 0",
                self.path.display(),
                self.parts()
            )));
        }
        part::open(self, part, verify)
    }

    /// Directory of the partition.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of parts, `K`.
    pub fn parts(&self) -> u16 {
        self.manifest.parts
    }

    /// Node types with the numbers of their nodes, and edge types.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Edge types with the numbers of their edges.
    pub fn edge_types(&self) -> &[EdgeTypeCounts] {
        &self.manifest.edge_types
    }

    /// Number of edges of type `r` into own nodes of part `part`.
    pub fn num_edges_into(&self, part: u16, r: usize) -> usize {
        self.manifest.each[usize::from(part)].neighbors[r]
    }

    /// Number of edges of all types.
    pub fn num_edges(&self) -> usize {
        self.manifest.edge_types.iter().fold(0, |sum, of| sum.saturating_add(of.edges))
    }

    /// Name of the partitioned dataset.
    pub fn source(&self) -> &str {
        &self.manifest.source
    }

    /// Checksum of the partitioned dataset, if it was a directory.
    pub fn source_checksum(&self) -> Option<&str> {
        self.manifest.source_checksum.as_deref()
    }

    /// Checksum of the manifest, which identifies the partition.
    pub fn checksum(&self) -> &str {
        &self.manifest.checksum
    }

    /// Name of the method.
    pub fn method(&self) -> &str {
        &self.manifest.method
    }

    /// Recorded statistics of the partition.
    pub fn statistics(&self) -> &serde_json::Value {
        &self.manifest.statistics
    }

    fn files(&self) -> Files<'_> {
        files_of(&self.path, &self.manifest)
    }
}

/// Types of a manifest.
fn schema_of(manifest: &Manifest) -> Result<Schema> {
    let types: Vec<NodeType> =
        manifest.node_types.iter().map(|of| NodeType::new(&of.name, of.nodes)).collect();
    let find = |name: &String| {
        let unknown = || Error::invalid(format!("'{name}' is not a node type"));
        types.iter().position(|node| node.name == *name).ok_or_else(unknown)
    };
    let relation = |of: &EdgeTypeCounts| {
        let of = &of.edge_type;
        Ok(Relation::new(find(&of.source)?, &of.name, find(&of.destination)?))
    };
    let relations = manifest.edge_types.iter().map(relation).collect::<Result<_>>()?;
    Schema::new(types, relations)
}

fn files_of<'a>(dir: &'a Path, manifest: &'a Manifest) -> Files<'a> {
    let (entries, verify) = (&manifest.files, Verify::Once);
    Files { dir, manifest: manifest::FILE_NAME, entries, verify, record: None }
}
