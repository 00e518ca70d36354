//! Who is told how far long work is, and may end it.

use crate::{Error, Result};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of the source.
    Bytes,
    /// Edges.
    Edges,
    /// Rows of a table.
    Rows,
}

/// Is told how far long work is; every method may do nothing. Called from one thread at a time, a few hundred times a
/// second at most.
pub trait Watch: Send + Sync {
    /// A stage begins: `what` it does ("reading edges.txt.gz"), and how much there is to do where that is known.
    fn stage(&self, what: &str, total: Option<u64>, unit: Unit) {
        let _ = (what, total, unit);
    }

    /// So much of the stage is done, from its beginning.
    fn done(&self, amount: u64) {
        let _ = amount;
    }

    /// Something worth a line of its own.
    fn note(&self, message: &str) {
        let _ = message;
    }

    /// Whether the work is to end early. Asked from any thread, and often: it takes no longer than reading a flag.
    fn is_stopped(&self) -> bool {
        false
    }

    /// Whether to go on: what long work asks between two pieces of it.
    ///
    /// # Errors
    /// [`Error::Stopped`]; what was made so far is removed, as after every error.
    fn check(&self) -> Result<()> {
        if self.is_stopped() { Err(Error::Stopped) } else { Ok(()) }
    }
}

/// Says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Watch for Quiet {}
