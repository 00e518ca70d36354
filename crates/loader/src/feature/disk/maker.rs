//! The kinds of queues that reads may go through.

use std::{io, sync::Arc};

use super::{
    ReaderKind,
    opened::Opened,
    queue::{Pread, Queue},
    uring,
};

/// Makes queues of a kind, with slots of a size.
#[derive(Debug)]
pub(super) struct Maker {
    pub(super) file: Arc<Opened>,
    pub(super) kind: ReaderKind,
    pub(super) slots: usize,
    /// A multiple of a page.
    pub(super) size: usize,
}

impl Maker {
    /// A queue.
    ///
    /// # Errors
    /// The system refuses it.
    pub(super) fn make(&self) -> io::Result<Box<dyn Queue>> {
        let pread = || -> Box<dyn Queue> { Box::new(Pread::new(Arc::clone(&self.file), self.size)) };
        let uring = || uring::new(Arc::clone(&self.file), self.slots, self.size);
        match self.kind {
            ReaderKind::Uring => uring(),
            // also where there were rings before: systems bound how many a user has
            ReaderKind::Auto => Ok(uring().unwrap_or_else(|_| pread())),
            ReaderKind::Pread => Ok(pread()),
        }
    }
}
