//! What reads are handed to: the seam between what is read and how, where tests put faults.

use std::{fs::File, io, sync::Arc};

use super::ReaderKind;
use super::{
    opened::{Opened, PAGE, Page, read_at},
    uring,
};

/// Reads in flight, each into a slot of its own. A queue owns the slots' memory.
pub(super) trait Queue: Send {
    /// How many slots there are.
    fn slots(&self) -> usize;

    /// Begins to read `len` bytes at `offset` of the file to byte `at` of a slot that nothing is being read to.
    fn start(&mut self, slot: usize, at: usize, len: usize, offset: u64);

    /// Waits for any read that was begun, and says which and how many bytes came; fewer than asked for may.
    ///
    /// # Errors
    /// The queue is broken; its reads may be in flight still.
    fn finish(&mut self) -> io::Result<(usize, io::Result<usize>)>;

    /// A slot that nothing is being read to.
    fn bytes(&self, slot: usize) -> &[u8];
}

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

/// One read at a time, done when it is begun.
pub(super) struct Pread {
    file: Arc<Opened>,
    room: Vec<Page>,
    outcome: Option<io::Result<usize>>,
}

impl Pread {
    fn new(file: Arc<Opened>, size: usize) -> Self {
        Self { file, room: bytemuck::zeroed_vec(size / PAGE), outcome: None }
    }

    fn file(&self) -> &File {
        &self.file.file
    }
}

impl Queue for Pread {
    fn slots(&self) -> usize {
        1
    }

    fn start(&mut self, _: usize, at: usize, len: usize, offset: u64) {
        let mut room = std::mem::take(&mut self.room);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut room);
        self.outcome = Some(read_at(self.file(), &mut bytes[at..at + len], offset));
        self.room = room;
    }

    fn finish(&mut self) -> io::Result<(usize, io::Result<usize>)> {
        Ok((0, self.outcome.take().expect("a read was begun")))
    }

    fn bytes(&self, _: usize) -> &[u8] {
        bytemuck::cast_slice(&self.room)
    }
}
