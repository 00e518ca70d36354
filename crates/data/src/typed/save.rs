//! Directories of typed datasets: opening and atomic writing.

use std::path::Path;

use graphmill_core::Result;

use super::{TypedDataset, Verify, read};
use crate::{dataset::native::check_target, external::Scratch};

/// Maps the dataset in the directory `dir` of format 2 after checking it, as `verify` says. Any
/// file that is missing, cut or has another shape is an error each time; damage within a file is
/// found when the file is read for the first time, or always under [`Verify::All`].
///
/// # Errors
/// The first file that is damaged, or all inconsistencies of the contents.
pub fn open(dir: impl AsRef<Path>, verify: Verify) -> Result<TypedDataset> {
    read::open(dir.as_ref(), verify)
}

impl TypedDataset {
    /// Writes the dataset to the directory `dir`, which must be missing or empty. All files are
    /// written to a sibling directory, synced, and moved into place: `dir` holds the whole dataset
    /// or is unchanged.
    ///
    /// # Errors
    /// The dataset does not [`validate`](TypedDataset::validate), `dir` is not empty, or writing
    /// fails.
    pub fn save(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.save_by_way_of(&Scratch::in_memory(), dir.as_ref(), false)
    }

    /// Writes the dataset as [`TypedDataset::save`] does and replaces a dataset that is already in
    /// `dir`. A directory with any other contents is still rejected.
    ///
    /// # Errors
    /// As for [`TypedDataset::save`].
    pub fn save_replacing(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.save_by_way_of(&Scratch::in_memory(), dir.as_ref(), true)
    }

    /// Saves as [`TypedDataset::save`] or [`TypedDataset::save_replacing`] does, through a
    /// directory within the scratch.
    pub(crate) fn save_by_way_of(&self, scratch: &Scratch, dir: &Path, replace: bool) -> Result<()> {
        self.validate()?;
        let exists = check_target(dir, replace)?;
        scratch.publish(dir, exists, |dir| self.write_files(dir))
    }
}
