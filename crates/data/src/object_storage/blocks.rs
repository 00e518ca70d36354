//! Reader of any bytes of an object, for formats with an index: the object is read in blocks by
//! requests of ranges, and some blocks are kept.

use std::{
    io::{self, Read, Seek, SeekFrom},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use super::object::Object;

/// Bytes of all blocks that are kept.
const CACHE_BYTES: usize = 64 << 20;
/// Least and greatest number of bytes of a block.
const BLOCK_LEN: (usize, usize) = (1 << 16, 4 << 20);
/// Blocks per position, so that a reader at the end of one does not evict another's.
const BLOCKS_EACH: usize = 2;

/// Reader of an object. Clones share the blocks and have positions of their own.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    shared: Arc<Shared>,
    at: u64,
}

#[derive(Debug)]
struct Shared {
    object: Object,
    block_len: u64,
    most: usize,
    cache: Mutex<Cache>,
}

/// Blocks by number, with the time of their last use.
#[derive(Debug, Default)]
struct Cache {
    blocks: Vec<(u64, u64, Bytes)>,
    clock: u64,
}

impl Object {
    /// Reader of any bytes; about `positions` of them are read at the same time.
    pub(crate) fn blocks(&self, positions: usize) -> Blocks {
        Blocks::new(self.clone(), positions)
    }
}

impl Blocks {
    /// Creates a reader for about `positions` simultaneous positions.
    fn new(object: Object, positions: usize) -> Self {
        let block_len = CACHE_BYTES / (BLOCKS_EACH * positions.max(1));
        let block_len = block_len.clamp(BLOCK_LEN.0, BLOCK_LEN.1);
        let most = (CACHE_BYTES / block_len).max(BLOCKS_EACH);
        let cache = Mutex::default();
        Self { shared: Arc::new(Shared { object, block_len: block_len as u64, most, cache }), at: 0 }
    }

    /// Number of bytes of the object.
    pub(crate) fn size(&self) -> u64 {
        self.shared.object.size
    }

    /// Reads the bytes from `at` on.
    ///
    /// # Errors
    /// A request fails, or the object ends before.
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        Self { shared: self.shared.clone(), at }.read_exact(buffer)
    }
}

impl Shared {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        // A cache is whole at any time.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn block(&self, number: u64) -> io::Result<Bytes> {
        let mut cache = self.cache();
        cache.clock += 1;
        let now = cache.clock;
        if let Some((_, used, bytes)) = cache.blocks.iter_mut().find(|(known, ..)| *known == number) {
            *used = now;
            return Ok(bytes.clone());
        }
        drop(cache);
        let start = number * self.block_len;
        let bytes = self.object.read(start..(start + self.block_len).min(self.object.size))?;
        let mut cache = self.cache();
        if cache.blocks.len() >= self.most {
            let oldest = (0..cache.blocks.len()).min_by_key(|&i| cache.blocks[i].1).unwrap_or_default();
            cache.blocks.swap_remove(oldest);
        }
        cache.blocks.push((number, now, bytes.clone()));
        Ok(bytes)
    }
}

impl Read for Blocks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Shared { object, block_len, .. } = &*self.shared;
        let left = object.size.saturating_sub(self.at);
        let wanted = (buffer.len() as u64).min(left) as usize;
        if wanted == 0 {
            return Ok(0);
        }
        // A long read needs no block.
        if wanted as u64 >= *block_len {
            let wanted = wanted.min(BLOCK_LEN.1);
            let bytes = object.read(self.at..self.at + wanted as u64)?;
            buffer[..wanted].copy_from_slice(&bytes);
            self.at += wanted as u64;
            return Ok(wanted);
        }
        let block = self.shared.block(self.at / block_len)?;
        let rest = &block[(self.at % block_len) as usize..];
        let read = wanted.min(rest.len());
        buffer[..read].copy_from_slice(&rest[..read]);
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for Blocks {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.size().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        let message = "a position before the start of the file";
        self.at = at.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, message))?;
        Ok(self.at)
    }
}
