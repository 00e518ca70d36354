//! The directory of a partitioned dataset: what every machine knows, and a directory for each.
//!
//! ```text
//! partition.json            what it is, counts, statistics, and type, shape, size and checksum of every file below that no part's own
//!                           manifest lists
//! book.npy                  u16 [V]  the part of every node
//! degrees.npy               u32 [V]  in-degrees
//! train.npy valid.npy test.npy  u32  the split, in global ids, ascending
//! part-0000/                a dataset of the part's own nodes, ascending by global id, and the edges among them (see
//!                           [`native`](crate::dataset::native)): it opens alone in every command
//!   nodes.npy               u32 [n]  the global id of every local one
//!   neighbors/indptr.npy    u64 [n + 1]  row starts of
//!   neighbors/indices.npy   u32      all in-neighbours of the part's nodes, in the source's order, by global ids
//!   neighbors/edge_weight.npy  f4    their weights, where the source has any
//! part-0001/ ...
//! ```

mod manifest;
mod owned;
mod part;
mod write;

use std::path::{Path, PathBuf};

use manifest::Manifest;
pub use part::{Neighbors, Part};
pub use write::{Description, check_target, write};

use graphmill_core::{Buffer, Error, NodeId, Result, Split, place::At};

use super::PartitionBook;
use crate::{dataset::files::Files, signed::SignedManifest};

const BOOK: &str = "book.npy";
const DEGREES: &str = "degrees.npy";
const SPLIT: [&str; 3] = ["train.npy", "valid.npy", "test.npy"];

/// The directory of part `part`.
fn part_name(part: u16) -> String {
    format!("part-{part:04}")
}

/// An open partition directory: what is known of all nodes. [`PartitionDir::part`] opens one part of it.
#[derive(Clone, Debug)]
pub struct PartitionDir {
    path: PathBuf,
    manifest: Manifest,
    /// The part of every node (`V`).
    pub book: PartitionBook,
    /// In-degree of every node (`V`).
    pub degrees: Buffer<u32>,
    /// The whole dataset's split, in global ids.
    pub split: Split,
}

impl PartitionDir {
    /// Opens the directory `dir` after checking all that is known of all nodes: manifest, sizes, types and checksums of the files
    /// beside it, part numbers, degrees and the split. O(V), parallel. The parts are checked when they are opened.
    ///
    /// # Errors
    /// The first fault, with the file and the place.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let path = dir.as_ref().to_path_buf();
        let manifest = Manifest::read(&path)?;
        let files = Files { dir: &path, manifest: manifest::FILE_NAME, entries: &manifest.files };
        let (nodes, edges) = (manifest.nodes, manifest.edges);
        let of = files.read::<u16>(BOOK, &[nodes])?;
        let book = At::new(&path.join(BOOK), "contents").locate(PartitionBook::new(manifest.parts, of))?;
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

    /// Opens part `part` after checking all of it, against what is known of all nodes too. O(n F + edges), parallel.
    ///
    /// # Errors
    /// There is no such part, or the first fault with the file and the place.
    pub fn part(&self, part: u16) -> Result<Part> {
        if part >= self.parts() {
            return Err(Error::invalid(format!(
                "{}: part {part} of {}: they are numbered from 0",
                self.path.display(),
                self.parts()
            )));
        }
        part::open(self, part)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `K`.
    pub fn parts(&self) -> u16 {
        self.manifest.parts
    }

    /// `V` of the whole dataset.
    pub fn num_nodes(&self) -> usize {
        self.manifest.nodes
    }

    /// `E` of the whole dataset.
    pub fn num_edges(&self) -> usize {
        self.manifest.edges
    }

    /// Whether edges have weights.
    pub fn is_weighted(&self) -> bool {
        self.manifest.weighted
    }

    /// The name of the dataset that was partitioned.
    pub fn source(&self) -> &str {
        &self.manifest.source
    }

    /// The checksum of the dataset that was partitioned, where it was read from a directory.
    pub fn source_checksum(&self) -> Option<&str> {
        self.manifest.source_checksum.as_deref()
    }

    /// The checksum of this partition: of its manifest, which holds those of all files.
    pub fn checksum(&self) -> &str {
        &self.manifest.checksum
    }

    /// The name of the method that made it.
    pub fn method(&self) -> &str {
        &self.manifest.method
    }

    /// The seed of what the method drew.
    pub fn seed(&self) -> u64 {
        self.manifest.seed
    }

    /// What the method was told besides.
    pub fn options(&self) -> &serde_json::Value {
        &self.manifest.options
    }

    /// What was measured of it.
    pub fn statistics(&self) -> &serde_json::Value {
        &self.manifest.statistics
    }

    /// The directory of part `part`: a dataset.
    pub fn part_path(&self, part: u16) -> PathBuf {
        self.path.join(part_name(part))
    }

    fn files(&self) -> Files<'_> {
        Files { dir: &self.path, manifest: manifest::FILE_NAME, entries: &self.manifest.files }
    }
}

#[cfg(test)]
mod tests;
