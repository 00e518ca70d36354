//! The directory format: `graphmill.json` and `.npy` files that NumPy opens and Graphmill maps.
//!
//! ```text
//! graphmill.json    manifest: counts, the names of several graphs, and type, shape, size and checksum of every file
//! indptr.npy        u64 [V + 1]     row starts of the CSC graph
//! indices.npy       u32 [E]         in-neighbours
//! edge_weight.npy   f4  [E]         only where edges have weights
//! features.npy      f4 or f2 [V, F] only where nodes have features
//!                                   or, where that takes fewer bytes, what of them is not zero, by rows:
//! features_indptr.npy   u64 [V + 1]     row starts
//! features_indices.npy  u32 [stored]    columns, ascending within a row
//! features_values.npy   f4  [stored]
//! feature_mean.npy      f8 [F]      only where columns were standardized and centred
//! feature_deviation.npy f8 [F]      only where columns were standardized: see [`super::Normalization`]
//! labels.npy        i4 [V] (-1 unknown) or u1 [V, C] (0 and 1)
//! train.npy valid.npy test.npy      u32, ascending and disjoint
//! original_ids.npy  u32 [V]         only in a reordered dataset: what each node was called before, a permutation
//! ```
//!
//! Beside them there may be `edge_alias.bin`, which the manifest does not know: the alias tables of the weights, kept by the first who drew by
//! them ([`graphmill_core::Graph::alias_tables`]). It may be deleted at any time.

mod check;
mod names;
mod read;
mod write;

use std::path::Path;

pub use check::check_target;
use graphmill_core::{Result, memory};
pub(super) use names::{FEATURES, FEATURES_INDPTR};
use read::open;
use write::Unwritten;

use super::{Dataset, manifest::Manifest};
use crate::{external::Scratch, signed::SignedManifest};

impl Dataset {
    /// Writes the dataset to the directory `dir`, which must be missing or empty. Everything is
    /// written to a sibling directory, synced, and moved into place: `dir` holds the whole dataset
    /// or is as it was.
    ///
    /// # Errors
    /// The dataset does not [`validate`](Dataset::validate), `dir` holds something, or writing
    /// fails.
    pub fn save(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.save_to(dir.as_ref(), false)
    }

    /// As [`Dataset::save`], but a dataset that is already in `dir` is replaced. A directory that
    /// holds anything else is still refused.
    ///
    /// # Errors
    /// As for [`Dataset::save`].
    pub fn save_replacing(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.save_to(dir.as_ref(), true)
    }

    /// Maps the dataset in `dir` after checking it: manifest, sizes, shapes, types and checksums
    /// of all files, ids, labels, finite features. Reads every byte once, in parallel, and gives pages back as it goes.
    ///
    /// Features that [`is_too_large_to_verify`] are not read: of those only length, type and header are checked.
    /// [`Dataset::open_verified`] reads them too.
    ///
    /// # Errors
    /// The first fault, with the file and the place.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        open(dir.as_ref(), is_too_large_to_verify)
    }

    /// As [`Dataset::open`], and reads every byte however large the files are.
    ///
    /// # Errors
    /// As for [`Dataset::open`].
    pub fn open_verified(dir: impl AsRef<Path>) -> Result<Self> {
        open(dir.as_ref(), |_| false)
    }

    fn save_to(&self, dir: &Path, replace: bool) -> Result<()> {
        self.save_by_way_of(&Scratch::in_memory(), dir, replace)
    }

    /// As [`Dataset::save`] or [`Dataset::save_replacing`], made within the scratch.
    pub(crate) fn save_by_way_of(&self, scratch: &Scratch, dir: &Path, replace: bool) -> Result<()> {
        self.validate()?;
        let exists = check_target(dir, replace)?;
        scratch.publish(dir, exists, |dir| self.write_files(dir))
    }

    /// The checksum by which the dataset is known wherever it lies: that of its directory's manifest, or
    /// of the manifest that [`Dataset::save`] would write. Of a dataset in memory all arrays are read, at
    /// the speed of the memory.
    ///
    /// # Errors
    /// The manifest would be too long.
    pub fn identity(&self) -> Result<String> {
        match &self.checksum {
            Some(checksum) => Ok(checksum.clone()),
            None => Ok(self.manifest(&mut Unwritten)?.signed()?.0),
        }
    }
}

/// Whether features of that many bytes are more than a quarter of the machine's memory. Reading them whenever they are
/// opened would take longer than many things that are then done with them, and would push everything else out of the
/// system's cache.
pub fn is_too_large_to_verify(bytes: u64) -> bool {
    memory::total().is_some_and(|total| bytes > total / 4)
}

/// The checksum of the dataset in `dir`, by its manifest.
pub(crate) fn checksum_of(dir: &Path) -> Result<String> {
    Ok(Manifest::read(dir)?.checksum)
}

#[cfg(test)]
mod tests;
