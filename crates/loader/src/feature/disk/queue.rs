//! Interface of reads in flight, through which tests inject faults.

use std::{fs::File, io, sync::Arc};

use super::open_file::{OpenFile, PAGE, Page, read_at, zeroed_pages};

/// Reads in flight, each into its own slot. A queue owns the slots' memory.
pub(super) trait Queue: Send {
    /// Number of slots.
    fn slots(&self) -> usize;

    /// Starts to read `len` bytes at `offset` of the file to byte `at` of an idle slot.
    fn start(&mut self, slot: usize, at: usize, len: usize, offset: u64);

    /// Waits for any read in flight, and returns its slot and the number of bytes, which may be
    /// smaller than requested.
    ///
    /// # Errors
    /// The queue is broken; its reads may still be in flight.
    fn finish(&mut self) -> io::Result<(usize, io::Result<usize>)>;

    /// Memory of an idle slot.
    fn bytes(&self, slot: usize) -> &[u8];
}

/// One blocking read at a time.
pub(super) struct Pread {
    file: Arc<OpenFile>,
    memory: Vec<Page>,
    outcome: Option<io::Result<usize>>,
}

impl Pread {
    /// Creates a reader with a slot of `size` bytes, a multiple of a page.
    ///
    /// # Errors
    /// The system refuses the memory.
    pub(super) fn new(file: Arc<OpenFile>, size: usize) -> io::Result<Self> {
        Ok(Self { file, memory: zeroed_pages(size / PAGE)?, outcome: None })
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
        let mut memory = std::mem::take(&mut self.memory);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
        self.outcome = Some(read_at(self.file(), &mut bytes[at..at + len], offset));
        self.memory = memory;
    }

    fn finish(&mut self) -> io::Result<(usize, io::Result<usize>)> {
        Ok((0, self.outcome.take().expect("a read was started")))
    }

    fn bytes(&self, _: usize) -> &[u8] {
        bytemuck::cast_slice(&self.memory)
    }
}
