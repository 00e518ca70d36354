//! Directory format of datasets: `graphmill.json` and `.npy` files that NumPy opens and Graphmill
//! maps.
//!
//! ```text
//! graphmill.json    manifest: counts, the names of several graphs, and type, shape, size and checksum
//!                   of every file
//! indptr.npy        u64 [V + 1]     row starts of the CSC graph
//! indices.npy       u32 [E]         in-neighbours
//! edge_weight.npy   f4  [E]         only if edges have weights
//! features.npy      f4 or f2 [V, F] only if nodes have features
//!                                   or, if that takes fewer bytes, the nonzero values by rows:
//! features_indptr.npy   u64 [V + 1]     row starts
//! features_indices.npy  u32 [stored]    columns, ascending within a row
//! features_values.npy   f4  [stored]
//! feature_mean.npy      f8 [F]      only if columns were standardized and centred
//! feature_deviation.npy f8 [F]      only if columns were standardized: see [`super::Normalization`]
//! labels.npy        i4 [V] (-1 unknown) or u1 [V, C] (0 and 1)
//! train.npy valid.npy test.npy      u32, ascending and disjoint
//! original_ids.npy  u32 [V]         only in a reordered dataset: original node ids, a permutation
//! ```
//!
//! The directory may also hold files that the manifest does not list. `features_checksums.npy` has
//! the checksum of each MiB of `features.npy` ([`crate::verification`]), whose root is in the
//! manifest. `edge_alias.bin` is a cache of the alias tables of the edge weights
//! ([`graphmill_core::Graph::alias_tables`]), and `verified.json` records the files that were
//! verified at this place; both may be deleted at any time.

mod check;
mod names;
mod read;
mod write;

use std::path::Path;

pub use check::check_target;
use graphmill_core::Result;
pub(super) use names::{FEATURES, FEATURES_INDICES, FEATURES_INDPTR, FEATURES_VALUES};
use read::open;
use write::Unwritten;

use super::{Dataset, manifest::Manifest};
use crate::{
    external::Scratch,
    signed::SignedManifest,
    typed::{self, TypedDataset},
    verification::Verify,
};

impl Dataset {
    /// Writes the dataset to the directory `dir`, which must be missing or empty. All files are
    /// written to a sibling directory, synced, and moved into place: `dir` holds the whole dataset
    /// or is unchanged. A dataset with keys or values is written in format 2 ([`crate::typed`]).
    ///
    /// # Errors
    /// The dataset does not [`validate`](Dataset::validate), `dir` is not empty, or writing fails.
    pub fn save(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.save_to(dir.as_ref(), false)
    }

    /// Writes the dataset as [`Dataset::save`] does and replaces a dataset that is already in
    /// `dir`. A directory with any other contents is still rejected.
    ///
    /// # Errors
    /// As for [`Dataset::save`].
    pub fn save_replacing(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.save_to(dir.as_ref(), true)
    }

    /// Maps the dataset in `dir` after checking it: manifest, sizes, shapes, types and checksums of
    /// all files, ids, labels, finite features. Reads every byte once, in parallel, and releases
    /// pages on the way. Files that are unchanged since an earlier call verified them are not read
    /// again: `verified.json` records their sizes, times and inodes.
    ///
    /// A directory of format 2 ([`crate::typed`]) with one node type, one edge type and at
    /// most one task, the classification of its nodes, opens as well.
    ///
    /// Dense features that are larger than a quarter of the memory are not read: only their length,
    /// type and header are checked, and the first read of a row verifies its part of the file.
    /// [`Dataset::open_verified`] reads them too.
    ///
    /// # Errors
    /// The first fault, with its file and position.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, Verify::Once)
    }

    /// Maps a dataset as [`Dataset::open`] does, and reads every byte, however large the files are
    /// and whether or not they were verified before.
    ///
    /// # Errors
    /// As for [`Dataset::open`].
    pub fn open_verified(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, Verify::All)
    }

    /// Maps a dataset as [`Dataset::open`] does, and verifies its files as `verify` says.
    ///
    /// # Errors
    /// As for [`Dataset::open`].
    pub fn open_with(dir: impl AsRef<Path>, verify: Verify) -> Result<Self> {
        let dir = dir.as_ref();
        if typed::is_typed(dir) { typed::open_one_type(dir, verify) } else { open(dir, verify) }
    }

    fn save_to(&self, dir: &Path, replace: bool) -> Result<()> {
        self.save_by_way_of(&Scratch::in_memory(), dir, replace)
    }

    /// Saves as [`Dataset::save`] or [`Dataset::save_replacing`] does, through a directory within
    /// the scratch.
    pub(crate) fn save_by_way_of(&self, scratch: &Scratch, dir: &Path, replace: bool) -> Result<()> {
        if self.needs_format_2() {
            return TypedDataset::from_dataset(self).save_by_way_of(scratch, dir, replace);
        }
        self.validate()?;
        let exists = check_target(dir, replace)?;
        scratch.publish(dir, exists, |dir| self.write_files(dir))
    }

    /// Returns true if the dataset has keys, values or several columns of classes, which format 1
    /// does not hold.
    fn needs_format_2(&self) -> bool {
        self.keys.is_some() || self.labels.is_values() || !self.labels.columns().is_empty()
    }

    /// Computes the checksum that identifies the dataset regardless of its location: that of its
    /// directory's manifest, or of the manifest that [`Dataset::save`] would write. For a dataset
    /// in memory this reads all arrays, at memory speed.
    ///
    /// # Errors
    /// The manifest would be too long.
    pub fn identity(&self) -> Result<String> {
        match &self.checksum {
            Some(checksum) => Ok(checksum.clone()),
            None if self.needs_format_2() => TypedDataset::from_dataset(self).identity(),
            None => Ok(self.manifest(&mut Unwritten)?.signed()?.0),
        }
    }
}

/// Checksum of the dataset in `dir`, by its manifest.
pub(crate) fn checksum_of(dir: &Path) -> Result<String> {
    if typed::is_typed(dir) { typed::checksum_of(dir) } else { Ok(Manifest::read(dir)?.checksum) }
}

#[cfg(test)]
mod tests;
