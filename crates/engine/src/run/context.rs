//! What a run is given besides its configuration and dataset.

use super::observer::Observer;
use crate::RunDir;

/// Directory, observer and interrupt of a run.
pub struct RunContext<'j> {
    /// Directory that the run records itself in, if any.
    pub run: Option<&'j RunDir>,
    /// Whether to continue from the checkpoint in that directory.
    pub resume: bool,
    /// Receives the events of the run.
    pub observer: &'j mut dyn Observer,
    /// Asked after every batch: whether to stop.
    pub stop: &'j (dyn Fn() -> bool + Sync),
}
