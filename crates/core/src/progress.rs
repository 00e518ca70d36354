//! Progress and cancellation of long work.
//!
//! Imports, generators, partitioners, downloads and evaluation report to a [`Progress`]: a terminal
//! draws a bar, Python forwards events, and [`Quiet`] ignores all of it.

#![forbid(unsafe_code)]

use crate::{Error, Result};

/// Unit of a stage's amounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of a file.
    Bytes,
    /// Edges.
    Edges,
    /// Rows of a table.
    Rows,
}

/// Receives the progress of long work, stage by stage, and may cancel it. Every method has a
/// default that does nothing. Work reports from one thread at a time, a few thousand times a second
/// at most.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use graphmill_core::progress::Progress;
///
/// /// Stops the work after 100 units.
/// struct Limit(AtomicU64);
///
/// impl Progress for Limit {
///     fn done(&self, amount: u64) {
///         self.0.store(amount, Relaxed);
///     }
///     fn is_stopped(&self) -> bool {
///         self.0.load(Relaxed) >= 100
///     }
/// }
///
/// let limit = Limit(AtomicU64::new(0));
/// limit.done(60);
/// assert!(limit.check().is_ok());
/// limit.done(120);
/// assert!(limit.check().is_err());
/// ```
pub trait Progress: Send + Sync {
    /// Starts a stage with a description `what` ("reading edges.txt.gz"), and its `total` amount if
    /// known.
    fn stage(&self, what: &str, total: Option<u64>, unit: Unit) {
        let _ = (what, total, unit);
    }

    /// Reports the amount that an earlier, interrupted run had done of the stage; it does not count
    /// for the rate. Follows [`stage`](Self::stage).
    fn resume(&self, amount: u64) {
        self.done(amount);
    }

    /// Reports the amount done since the beginning of the stage.
    fn done(&self, amount: u64) {
        let _ = amount;
    }

    /// Reports a message for a separate line.
    fn note(&self, message: &str) {
        let _ = message;
    }

    /// Returns `true` if the work should end early. Called often, from any thread: implementations
    /// only read a flag.
    fn is_stopped(&self) -> bool {
        false
    }

    /// Returns an error if the work was cancelled; called between two chunks of long work.
    ///
    /// # Errors
    /// [`Error::Stopped`]; partial results are removed, as after every error.
    fn check(&self) -> Result<()> {
        if self.is_stopped() { Err(Error::Stopped) } else { Ok(()) }
    }
}

impl std::fmt::Debug for dyn Progress + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Progress")
    }
}

/// Ignores all progress and never cancels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {}
