//! Directory of a partitioned dataset: data shared by all machines, and one directory per part.
//!
//! ```text
//! partition.json            counts, statistics, and type, shape, size and checksum of every file below that
//!                           no part's own manifest lists
//! book.npy                  u16 [V]  the part of every node
//! degrees.npy               u32 [V]  in-degrees
//! train.npy valid.npy test.npy  u32  the split, in global ids, ascending
//! searches.npy              u32 [S, T]  the training nodes in the order of each of S searches, if any
//! topology/indptr.npy       u64 [V + 1]  row starts of
//! topology/indices.npy      u32 [E]  all in-neighbours of all nodes, for runs on links
//! topology/edge_weight.npy  f4 [E]  their weights, if the source has any
//! part-0000/                a dataset of the part's own nodes, ascending by global id, and the edges among them
//!                           (see [`native`](crate::dataset::native)): every command opens it
//!   nodes.npy               u32 [n]  the global id of every local one
//!   neighbors/indptr.npy    u64 [n + 1]  row starts of
//!   neighbors/indices.npy   u32      all in-neighbours of the part's nodes, in the source's order, by global ids
//!   neighbors/edge_weight.npy  f4    their weights, if the source has any
//!   bottom_mean_part-0000.bin        aggregates of all in-neighbours' features, if a run stored them; no
//!                                    manifest lists them ([`PartAggregates`])
//! part-0001/ ...
//! ```
//!
//! `verified.json` in `topology/`, `part-0000/` and `part-0000/neighbors/` records the files there
//! that were verified, which are not read again until they change; it may be deleted.

mod aggregates;
mod manifest;
mod neighbors;
mod owned;
mod part;
mod write;

use std::path::{Path, PathBuf};

pub use aggregates::{PartAggregates, ReadRows};
use manifest::Manifest;
pub use neighbors::Neighbors;
pub use part::Part;
pub use write::{Description, check_target, write};

use graphmill_core::{Buffer, Error, NodeId, Result, Split, location::Location};

use super::PartitionBook;
use crate::{dataset::files::Files, signed::SignedManifest, verification::Verify};

const BOOK: &str = "book.npy";
const DEGREES: &str = "degrees.npy";
const SEARCHES: &str = "searches.npy";
const SPLIT: [&str; 3] = ["train.npy", "valid.npy", "test.npy"];

/// Directory name of part `part`.
fn part_name(part: u16) -> String {
    format!("part-{part:04}")
}

/// Open partition directory: the data of all nodes. [`PartitionDir::part`] opens one part.
#[derive(Clone, Debug)]
pub struct PartitionDir {
    path: PathBuf,
    manifest: Manifest,
    /// Part of every node (`V`).
    pub book: PartitionBook,
    /// In-degree of every node (`V`).
    pub degrees: Buffer<u32>,
    /// Split of the whole dataset, in global ids.
    pub split: Split,
}

impl PartitionDir {
    /// Opens the directory `dir` after checking the shared data: manifest, sizes, types and
    /// checksums of the files, part numbers, degrees and the split. O(V), parallel. The parts are
    /// checked when they are opened.
    ///
    /// # Errors
    /// The first fault, with its file and position.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let path = dir.as_ref().to_path_buf();
        let manifest = Manifest::read(&path)?;
        let files = files_of(&path, &manifest);
        let (nodes, edges) = (manifest.nodes, manifest.edges);
        let of = files.read::<u16>(BOOK, &[nodes])?;
        let book =
            Location::new(&path.join(BOOK), "contents").locate(PartitionBook::new(manifest.parts, of))?;
        if let Some((part, (found, said))) = book
            .sizes()
            .into_iter()
            .zip(manifest.each.iter().map(|part| part.nodes))
            .enumerate()
            .find(|(_, (found, said))| found != said)
        {
            return Err(Error::format(
                path.join(BOOK),
                "contents",
                format!("part {part} has {found} nodes, {} says {said}", manifest::FILE_NAME),
            ));
        }
        let degrees = files.read::<u32>(DEGREES, &[nodes])?;
        let sum: u64 = degrees.iter().map(|&degree| u64::from(degree)).sum();
        if sum != edges as u64 {
            let message = format!("the degrees add up to {sum}, but there are {edges} edges");
            return Err(Error::format(path.join(DEGREES), "contents", message));
        }
        let [train, valid, test] = SPLIT.map(|name| {
            let ids = files.read::<NodeId>(name, &[files.length(name)])?;
            if !ids.is_sorted_by(|a, b| a < b) || ids.last().is_some_and(|&v| v as usize >= nodes) {
                let message =
                    format!("the ids do not ascend, or one is not below {nodes}, the number of nodes");
                return Err(Error::format(path.join(name), "contents", message));
            }
            Ok(ids)
        });
        let split = Split { train: train?, valid: valid?, test: test? };
        Ok(Self { path, manifest, book, degrees, split })
    }

    /// Opens part `part` after checking all of it, also against the shared data. O(n F + edges),
    /// parallel; files that are unchanged since they were checked are not read again.
    ///
    /// # Errors
    /// The part does not exist, or the first fault with its file and position.
    pub fn part(&self, part: u16) -> Result<Part> {
        self.part_with(part, Verify::Once)
    }

    /// Opens a part as [`PartitionDir::part`] does, and verifies its dataset as `verify` says.
    ///
    /// # Errors
    /// As for [`PartitionDir::part`].
    pub fn part_with(&self, part: u16, verify: Verify) -> Result<Part> {
        if part >= self.parts() {
            return Err(Error::invalid(format!(
                "{}: part {part} of {}: they are numbered from 0",
                self.path.display(),
                self.parts()
            )));
        }
        part::open(self, part, verify)
    }

    /// Training nodes in the order of each search that was stored with the partition, from its
    /// seed; `None` if it stores no searches. O(S T log T).
    ///
    /// # Errors
    /// A search does not have every training node once.
    pub fn searches(&self) -> Result<Option<Vec<Vec<NodeId>>>> {
        let (files, train) = (self.files(), self.manifest.train);
        if !files.has(SEARCHES) {
            return Ok(None);
        }
        let ids = files.read::<NodeId>(SEARCHES, &[files.length(SEARCHES), train])?;
        let searches: Vec<Vec<NodeId>> = ids.chunks_exact(train.max(1)).map(<[_]>::to_vec).collect();
        for (number, search) in searches.iter().enumerate() {
            let mut sorted = search.clone();
            sorted.sort_unstable();
            if sorted[..] != self.split.train[..] {
                let message = format!("search {number} does not have every training node once");
                return Err(Error::format(self.path.join(SEARCHES), "contents", message));
            }
        }
        Ok(Some(searches))
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of parts, `K`.
    pub fn parts(&self) -> u16 {
        self.manifest.parts
    }

    /// Number of nodes of the whole dataset, `V`.
    pub fn num_nodes(&self) -> usize {
        self.manifest.nodes
    }

    /// Number of edges of the whole dataset, `E`.
    pub fn num_edges(&self) -> usize {
        self.manifest.edges
    }

    /// Returns true if edges have weights.
    pub fn is_weighted(&self) -> bool {
        self.manifest.weighted
    }

    /// Name of the partitioned dataset.
    pub fn source(&self) -> &str {
        &self.manifest.source
    }

    /// Checksum of the partitioned dataset, if it was read from a directory.
    pub fn source_checksum(&self) -> Option<&str> {
        self.manifest.source_checksum.as_deref()
    }

    /// Checksum of this partition: that of its manifest, which lists those of all files.
    pub fn checksum(&self) -> &str {
        &self.manifest.checksum
    }

    /// Name of the partitioning method.
    pub fn method(&self) -> &str {
        &self.manifest.method
    }

    /// Seed of the method.
    pub fn seed(&self) -> u64 {
        self.manifest.seed
    }

    /// Other options of the method.
    pub fn options(&self) -> &serde_json::Value {
        &self.manifest.options
    }

    /// Recorded statistics of the partition.
    pub fn statistics(&self) -> &serde_json::Value {
        &self.manifest.statistics
    }

    /// Path of part `part`, which is a dataset directory.
    pub fn part_path(&self, part: u16) -> PathBuf {
        self.path.join(part_name(part))
    }

    fn files(&self) -> Files<'_> {
        files_of(&self.path, &self.manifest)
    }
}

fn files_of<'a>(dir: &'a Path, manifest: &'a Manifest) -> Files<'a> {
    let (entries, verify) = (&manifest.files, Verify::Once);
    Files { dir, manifest: manifest::FILE_NAME, entries, verify, record: None }
}

#[cfg(test)]
mod tests;
