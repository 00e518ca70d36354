//! Records in a file, divided by ranges of destinations.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom, Write},
    ops::Range,
    path::PathBuf,
};

use graphmill_core::{Error, NodeId, Result, memory};

use super::output::{Output, number};
use crate::{atomic, external::Scratch, npy::Element};

/// Buckets of a division.
const BUCKETS: u64 = 256;
/// Bytes of a bucket that are written at a time.
const BLOCK: usize = 1 << 16;

/// Records in a file, by range of destinations and in the order of the input within a range. The
/// file is not synced: an import that is repeated after a loss of power writes it again.
#[derive(Debug)]
pub(super) struct Buckets {
    path: PathBuf,
    file: File,
    /// Bytes written.
    end: u64,
    range: Range<u64>,
    /// Destinations of a bucket.
    width: u64,
    /// Bytes of a record.
    length: usize,
    open: Vec<Vec<u8>>,
    /// Offset and length of the blocks of each bucket.
    blocks: Vec<Vec<(u64, usize)>>,
}

impl Buckets {
    pub(super) fn create(path: PathBuf, range: Range<u64>, length: usize) -> Result<Self> {
        let file = atomic::create_fresh(&path).map_err(|e| Error::io(&path, "create", e))?;
        let width = (range.end - range.start).div_ceil(BUCKETS).max(1);
        let count = (range.end - range.start).div_ceil(width).max(1) as usize;
        let (open, blocks) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        Ok(Self { path, file, end: 0, range, width, length, open, blocks })
    }

    /// Adds records in order.
    pub(super) fn extend(&mut self, records: &[u8]) -> Result<()> {
        for record in records.chunks_exact(self.length) {
            let destination: NodeId = number(record, 0);
            let bucket = ((u64::from(destination) - self.range.start) / self.width) as usize;
            self.open[bucket].extend_from_slice(record);
            if self.open[bucket].len() >= BLOCK {
                self.write(bucket)?;
            }
        }
        Ok(())
    }

    /// Writes the records of a bucket that are in memory.
    fn write(&mut self, bucket: usize) -> Result<()> {
        let block = &mut self.open[bucket];
        if !block.is_empty() {
            self.file.write_all(block).map_err(|e| Error::io(&self.path, "write", e))?;
            self.blocks[bucket].push((self.end, block.len()));
            self.end += block.len() as u64;
            block.clear();
        }
        Ok(())
    }

    /// Reads a block into `to`.
    fn read(&mut self, (offset, length): (u64, usize), to: &mut Vec<u8>) -> Result<()> {
        let start = to.len();
        memory::resize(to, start + length, 0)?;
        let read =
            self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.read_exact(&mut to[start..]));
        read.map_err(|e| Error::io(&self.path, "read", e))
    }

    /// Passes all edges to `output`, bucket by bucket, and removes the file.
    pub(super) fn drain<F: Element>(
        mut self,
        scratch: &Scratch,
        most: u64,
        depth: usize,
        output: &mut Output<F>,
    ) -> Result<()> {
        for bucket in 0..self.open.len() {
            self.write(bucket)?;
        }
        for bucket in 0..self.open.len() {
            scratch.check()?;
            let first = self.range.start + bucket as u64 * self.width;
            let range = first..(first + self.width).min(self.range.end);
            let blocks = std::mem::take(&mut self.blocks[bucket]);
            let bytes: u64 = blocks.iter().map(|&(_, length)| length as u64).sum();
            let mut records = Vec::new();
            // The rules of a row need all of its edges.
            let is_whole = range.end - range.start == 1 && output.rules.needs_row();
            if bytes <= most || is_whole {
                records = memory::reserve(bytes as usize)?;
                blocks.into_iter().try_for_each(|block| self.read(block, &mut records))?;
                output.add(&records, range)?;
            } else if range.end - range.start == 1 {
                for block in blocks {
                    records.clear();
                    self.read(block, &mut records)?;
                    output.add_to_last(&records)?;
                }
                output.indptr.extend(&[output.edges])?;
            } else {
                let path = atomic::suffixed(&self.path, &format!("-{depth}"));
                let mut smaller = Self::create(path, range, self.length)?;
                for block in blocks {
                    records.clear();
                    self.read(block, &mut records)?;
                    smaller.extend(&records)?;
                }
                smaller.drain(scratch, most, depth + 1, output)?;
            }
            scratch.done(output.edges);
        }
        fs::remove_file(&self.path).map_err(|e| Error::io(&self.path, "remove", e))
    }
}
