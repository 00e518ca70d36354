//! Work that a signal cancels.

#![forbid(unsafe_code)]

use std::sync::Arc;

use graphmill_core::progress::{Progress, Unit};

use crate::{output, signals};

/// Wraps `progress` so that the first Ctrl-C or SIGTERM cancels the work and the second ends the
/// process.
///
/// # Errors
/// Another signal handler is installed.
pub(crate) fn until_signal(progress: Box<dyn Progress>) -> anyhow::Result<Box<dyn Progress>> {
    signals::catch(|| output::note("stopping; repeat to stop at once"))?;
    Ok(Box::new(UntilSignal(progress.into())))
}

/// Progress that a signal cancels.
pub(crate) struct UntilSignal(pub(crate) Arc<dyn Progress>);

impl Progress for UntilSignal {
    fn stage(&self, what: &str, total: Option<u64>, unit: Unit) {
        self.0.stage(what, total, unit);
    }

    fn resume(&self, amount: u64) {
        self.0.resume(amount);
    }

    fn done(&self, amount: u64) {
        self.0.done(amount);
    }

    fn note(&self, message: &str) {
        self.0.note(message);
    }

    fn is_stopped(&self) -> bool {
        signals::is_stopped() || self.0.is_stopped()
    }
}
