//! Constructor of the queue that a reader kind names.

use std::{io, sync::Arc};

use super::{
    ReaderKind,
    open_file::OpenFile,
    queue::{Pread, Queue},
    uring,
};

/// Constructor of queues of a kind, with slots of a size.
#[derive(Debug)]
pub(super) struct QueueFactory {
    pub(super) file: Arc<OpenFile>,
    pub(super) kind: ReaderKind,
    pub(super) slots: usize,
    /// Size of a slot in bytes, a multiple of a page.
    pub(super) size: usize,
}

impl QueueFactory {
    /// Makes a queue.
    ///
    /// # Errors
    /// The system rejects it, or refuses its memory.
    pub(super) fn make(&self) -> io::Result<Box<dyn Queue>> {
        let pread =
            || -> io::Result<Box<dyn Queue>> { Ok(Box::new(Pread::new(Arc::clone(&self.file), self.size)?)) };
        let uring = || uring::new(Arc::clone(&self.file), self.slots, self.size);
        match self.kind {
            ReaderKind::Uring => uring(),
            // also after earlier rings: systems limit the number of rings per user
            ReaderKind::Auto => uring().or_else(|_| pread()),
            ReaderKind::Pread => pread(),
        }
    }
}
