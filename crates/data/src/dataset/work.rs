//! A dataset made beside the place where it is to be, within a budget of memory.

use std::path::Path;

use graphmill_core::{
    Result, memory,
    progress::{Progress, Quiet, Unit},
};

use super::{Dataset, native::check_target};
use crate::{atomic, external::Scratch};

/// How an import or a generator goes about it.
pub struct Work {
    /// Bytes of memory to stay within; `None` takes half of what is available.
    pub memory: Option<u64>,
    /// A dataset that is there is replaced.
    pub replace: bool,
    /// Receives the progress of the work and may cancel it.
    pub progress: Box<dyn Progress>,
}

impl Default for Work {
    fn default() -> Self {
        Self { memory: None, replace: false, progress: Box::new(Quiet) }
    }
}

/// Makes the dataset directory `dst` by `make`; `identity` describes all that the outcome depends on. The scratch is the directory
/// `dst` with `suffix` behind its name: a process that is killed leaves it, and the same work goes on from there; after
/// an error it is removed.
///
/// Returns the dataset, mapped where it was written on the way.
///
/// # Errors
/// Those of `identity` and `make`; `dst` holds something already; there is not enough disk; `progress` cancels the work.
pub(crate) fn run(
    work: Work,
    dst: &Path,
    suffix: &str,
    identity: impl FnOnce() -> Result<String>,
    make: impl FnOnce(&Scratch) -> Result<Dataset>,
) -> Result<Dataset> {
    check_target(dst, work.replace)?;
    let memory = work.memory.or_else(|| Some(memory::available()? / 2)).unwrap_or(1 << 30);
    let scratch = Scratch::open(&atomic::suffixed(dst, suffix), &identity()?, memory, work.progress)?;
    let made = make(&scratch).and_then(|dataset| {
        scratch.check()?;
        scratch.stage("writing the dataset", None, Unit::Bytes);
        dataset.save_by_way_of(&scratch, dst, work.replace).map(|()| dataset)
    });
    // After an error the first one is the one to tell.
    let removed = scratch.remove();
    let dataset = made?;
    removed?;
    Ok(dataset)
}
