//! What reads are handed to: the seam between what is read and how, where tests put faults.

use std::{fs::File, io, sync::Arc};

use super::opened::{Opened, PAGE, Page, read_at};

/// Reads in flight, each into a slot of its own. A queue owns the slots' memory.
pub(super) trait Queue: Send {
    /// How many slots there are.
    fn slots(&self) -> usize;

    /// Begins to read `len` bytes at `offset` of the file to byte `at` of a slot that nothing is
    /// being read to.
    fn start(&mut self, slot: usize, at: usize, len: usize, offset: u64);

    /// Waits for any read that was begun, and says which and how many bytes came; fewer than asked
    /// for may.
    ///
    /// # Errors
    /// The queue is broken; its reads may be in flight still.
    fn finish(&mut self) -> io::Result<(usize, io::Result<usize>)>;

    /// A slot that nothing is being read to.
    fn bytes(&self, slot: usize) -> &[u8];
}

/// One read at a time, done when it is begun.
pub(super) struct Pread {
    file: Arc<Opened>,
    memory: Vec<Page>,
    outcome: Option<io::Result<usize>>,
}

impl Pread {
    pub(super) fn new(file: Arc<Opened>, size: usize) -> Self {
        Self { file, memory: bytemuck::zeroed_vec(size / PAGE), outcome: None }
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
        Ok((0, self.outcome.take().expect("a read was begun")))
    }

    fn bytes(&self, _: usize) -> &[u8] {
        bytemuck::cast_slice(&self.memory)
    }
}
