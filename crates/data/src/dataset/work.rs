//! Creation of a dataset in a scratch directory beside its destination, within a memory budget.

use std::path::Path;

use graphmill_core::{
    Result, memory,
    progress::{Progress, Quiet, Unit},
};

use super::{Dataset, native::check_target};
use crate::{atomic, external::Scratch};

/// Settings shared by imports and generators.
pub struct Work {
    /// Memory budget in bytes; `None` takes half of the available memory.
    pub memory: Option<u64>,
    /// True to replace an existing dataset.
    pub replace: bool,
    /// Receiver of progress, which may cancel the work.
    pub progress: Box<dyn Progress>,
}

impl Default for Work {
    fn default() -> Self {
        Self { memory: None, replace: false, progress: Box::new(Quiet) }
    }
}

/// Creates the dataset directory `dst` through `make`; `identity` describes everything the result
/// depends on. The scratch directory is `dst` with `suffix` appended: a killed process leaves it,
/// and the same work resumes there; after an error it is removed.
///
/// Returns the dataset, mapped from the files written on the way.
///
/// # Errors
/// Errors of `identity` and `make`; `dst` is not empty; the disk is too small; `progress` cancels
/// the work.
pub(crate) fn run(
    work: Work,
    dst: &Path,
    suffix: &str,
    identity: impl FnOnce() -> Result<String>,
    make: impl FnOnce(&Scratch) -> Result<Dataset>,
) -> Result<Dataset> {
    let replace = work.replace;
    run_saved(work, dst, suffix, identity, make, |dataset, scratch| {
        dataset.save_by_way_of(scratch, dst, replace)
    })
}

/// Creates a directory as [`run`] does, of any kind of dataset that `save` writes.
///
/// # Errors
/// As for [`run`].
pub(crate) fn run_saved<D>(
    work: Work,
    dst: &Path,
    suffix: &str,
    identity: impl FnOnce() -> Result<String>,
    make: impl FnOnce(&Scratch) -> Result<D>,
    save: impl FnOnce(&D, &Scratch) -> Result<()>,
) -> Result<D> {
    check_target(dst, work.replace)?;
    let memory = work.memory.or_else(|| Some(memory::available()? / 2)).unwrap_or(1 << 30);
    let scratch = Scratch::open(&atomic::suffixed(dst, suffix), &identity()?, memory, work.progress)?;
    let made = make(&scratch).and_then(|dataset| {
        scratch.check()?;
        scratch.stage("writing the dataset", None, Unit::Bytes);
        save(&dataset, &scratch).map(|()| dataset)
    });
    // After an error the first one is returned.
    let removed = scratch.remove();
    let dataset = made?;
    removed?;
    Ok(dataset)
}
