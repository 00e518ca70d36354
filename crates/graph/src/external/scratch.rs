//! Where an import keeps what it has collected.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Edges, Quiet, Rows, Unit, Watch};
use crate::{EdgeOptions, Result, npy::Element};

/// Room for data on its way to a dataset: a budget of memory, perhaps a directory for what does not fit, and a watcher.
/// Clones share all three.
#[derive(Clone)]
pub struct Scratch {
    inner: Arc<Inner>,
}

struct Inner {
    dir: Option<PathBuf>,
    memory: u64,
    watch: Box<dyn Watch>,
}

impl Scratch {
    /// Everything stays in memory; nobody watches.
    pub fn in_memory() -> Self {
        Self { inner: Arc::new(Inner { dir: None, memory: u64::MAX, watch: Box::new(Quiet) }) }
    }

    /// The directory for what does not fit into memory.
    pub fn dir(&self) -> Option<&Path> {
        self.inner.dir.as_deref()
    }

    /// Bytes of memory that the work may take in all.
    pub fn memory(&self) -> u64 {
        self.inner.memory
    }

    /// An empty collection of edges, which [`Edges::build`] treats by `options`.
    pub fn edges(&self, options: EdgeOptions) -> Edges {
        Edges::new(self.clone(), options)
    }

    /// An empty table of `columns` columns; `name` is one of its own within this scratch.
    ///
    /// # Errors
    /// Its file cannot be created.
    pub fn rows<T: Element>(&self, name: &str, columns: usize) -> Result<Rows<T>> {
        Rows::new(self.clone(), name, columns)
    }

    /// Tells the watcher that a stage begins.
    pub fn stage(&self, what: &str, total: Option<u64>, unit: Unit) {
        self.inner.watch.stage(what, total, unit);
    }

    /// Tells the watcher how far the stage is.
    pub fn done(&self, amount: u64) {
        self.inner.watch.done(amount);
    }

    /// Tells the watcher something worth a line.
    pub fn note(&self, message: &str) {
        self.inner.watch.note(message);
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::in_memory()
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch")
            .field("dir", &self.inner.dir)
            .field("memory", &self.inner.memory)
            .finish_non_exhaustive()
    }
}
