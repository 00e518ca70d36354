//! Directory, observer and interrupt of a run.

use std::path::PathBuf;

use super::observer::Observer;
use crate::RunDir;

/// Surroundings of a run: everything besides its configuration and dataset.
pub struct RunContext<'j> {
    /// Directory that the run records itself in, if any.
    pub run: Option<&'j RunDir>,
    /// True to continue from the checkpoint in that directory.
    pub resume: bool,
    /// Receives the events of the run.
    pub observer: &'j mut dyn Observer,
    /// Reports whether to stop; called after every batch. [`Observer::preparation`] stops the work
    /// before the first epoch.
    pub stop: &'j (dyn Fn() -> bool + Sync),
}

impl RunContext<'_> {
    /// Directory of files that end with the run: its own, or that of temporary files.
    pub(crate) fn directory(&self) -> PathBuf {
        self.run.map_or_else(std::env::temp_dir, |run| run.path().to_path_buf())
    }
}
