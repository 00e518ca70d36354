//! Streaming writer of an `.npy` array whose length is known only at the end.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    marker::PhantomData,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytemuck::Pod;
use graphmill_core::{Buffer, Error, Result};

use super::{Element, Header};
use crate::{atomic, checksum::Tree, signed::FileEntry};

/// Tag of the buffer that maps an array file which this process wrote and checked value by value,
/// so that a dataset may adopt the file as it is.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) path: PathBuf,
    pub(crate) entry: FileEntry,
    /// Checksum of each chunk, unless an earlier process wrote the file.
    pub(crate) leaves: Option<Vec<u128>>,
}

/// Maps the array that was written to `path`, with the checksums of its chunks if they are known.
///
/// # Errors
/// As for [`super::open`].
pub(crate) fn map_written<T: Element>(
    path: PathBuf,
    entry: FileEntry,
    leaves: Option<Vec<u128>>,
) -> Result<Buffer<T>> {
    let buffer = super::open(&path)?.map::<T>()?;
    Ok(buffer.tagged(Arc::new(Written { path, entry, leaves })))
}

/// Returns the tag of `buffer` if it maps a whole file that this process wrote.
pub(crate) fn written<T: Pod>(buffer: &Buffer<T>) -> Option<&Written> {
    buffer.tag()
}

/// Bytes before the data: enough for any header of two axes.
const HEADER: usize = super::DATA;

/// Writer that appends values to a file and updates the checksum; the header, which contains their
/// number, is written at the end.
#[derive(Debug)]
pub(crate) struct Writer<T> {
    path: PathBuf,
    file: File,
    /// Current chunk, with the header if it is the first.
    chunk: Vec<u8>,
    /// First complete chunk, kept because its header changes at the end.
    first: Vec<u8>,
    /// Checksum state of the chunks before the current one.
    tree: Tree,
    /// Bytes before the current chunk.
    start: u64,
    of: PhantomData<T>,
}

impl<T: Element> Writer<T> {
    /// Creates the file `path`, replacing an existing one.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = atomic::create_fresh(path).map_err(|e| Error::io(path, "create", e))?;
        Ok(Self::over(path, file))
    }

    fn over(path: &Path, file: File) -> Self {
        let mut chunk = Vec::with_capacity(Tree::CHUNK);
        chunk.resize(HEADER, 0);
        let (first, tree) = (Vec::new(), Tree::default());
        Self { path: path.to_path_buf(), file, chunk, first, tree, start: 0, of: PhantomData }
    }

    /// Resumes behind the first `len` values of a file that was synced with at least as many;
    /// `None` if it is shorter. Reads them once.
    pub(crate) fn resume(path: &Path, len: u64) -> Result<Option<Self>> {
        let io = |e| Error::io(path, "resume", e);
        let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(io)?;
        let bytes = (size_of::<T>() as u64).checked_mul(len).and_then(|data| data.checked_add(HEADER as u64));
        let size = file.metadata().map_err(io)?.len();
        let Some(bytes) = bytes.filter(|&bytes| bytes <= size) else {
            return Ok(None);
        };
        file.set_len(bytes).map_err(io)?;
        file.seek(SeekFrom::Start(HEADER as u64)).map_err(io)?;
        let mut writer = Self::over(path, file);
        loop {
            let capacity = (Tree::CHUNK - writer.chunk.len()) as u64;
            let read =
                Read::by_ref(&mut writer.file).take(capacity).read_to_end(&mut writer.chunk).map_err(io)?;
            if (read as u64) < capacity {
                break;
            }
            writer.pass_chunk();
        }
        Ok(Some(writer))
    }

    /// Number of values written.
    pub(crate) fn len(&self) -> u64 {
        (self.start + self.chunk.len() as u64 - HEADER as u64) / size_of::<T>() as u64
    }

    /// Appends values.
    pub(crate) fn extend(&mut self, values: &[T]) -> Result<()> {
        let mut bytes: &[u8] = bytemuck::cast_slice(values);
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(Tree::CHUNK - self.chunk.len()));
            self.chunk.extend_from_slice(now);
            bytes = later;
            if self.chunk.len() == Tree::CHUNK {
                self.write_chunk()?;
                self.pass_chunk();
            }
        }
        Ok(())
    }

    /// Syncs all values written so far.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.write_chunk()?;
        atomic::sync(&self.file, &self.path).map_err(|e| Error::io(&self.path, "sync", e))
    }

    /// Writes the header for `shape` (whose product is the number of values) and syncs the file.
    pub(crate) fn finish(self, shape: &[usize]) -> Result<FileEntry> {
        Ok(self.finish_with_leaves(shape)?.0)
    }

    /// Finishes the file as [`Writer::finish`] does, and returns the checksum of each chunk as
    /// well.
    pub(crate) fn finish_with_leaves(mut self, shape: &[usize]) -> Result<(FileEntry, Vec<u128>)> {
        let header =
            Header { dtype: T::DTYPE, shape: shape.to_vec(), fortran_order: false }.to_bytes_of(HEADER);
        let bytes = self.start + self.chunk.len() as u64;
        if self.start == 0 {
            self.chunk[..HEADER].copy_from_slice(&header);
        } else {
            self.first[..HEADER].copy_from_slice(&header);
            self.tree.replace_first(&self.first);
            let patched = self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.write_all(&header));
            patched.map_err(|e| Error::io(&self.path, "write", e))?;
        }
        self.write_chunk()?;
        if !self.chunk.is_empty() {
            self.tree.add(&self.chunk);
        }
        atomic::sync(&self.file, &self.path).map_err(|e| Error::io(&self.path, "sync", e))?;
        let checksum = self.tree.finish();
        let entry = FileEntry { dtype: T::DTYPE.to_string(), shape: shape.to_vec(), bytes, checksum };
        Ok((entry, self.tree.into_leaves()))
    }

    fn write_chunk(&mut self) -> Result<()> {
        let written: io::Result<()> =
            self.file.seek(SeekFrom::Start(self.start)).and_then(|_| self.file.write_all(&self.chunk));
        written.map_err(|e| Error::io(&self.path, "write", e))
    }

    /// Adds the full, written chunk to the checksum and begins the next.
    fn pass_chunk(&mut self) {
        self.tree.add(&self.chunk);
        self.start += self.chunk.len() as u64;
        if self.first.is_empty() {
            self.first = self.chunk.clone();
        }
        self.chunk.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checksum::checksum, npy};

    #[test]
    fn streaming_and_single_writes_give_identical_files() {
        let dir = tempfile::tempdir().unwrap();
        let (path, whole) = (dir.path().join("a.npy"), dir.path().join("b.npy"));
        for len in [0usize, 5, (Tree::CHUNK - HEADER) / 4, 600_001] {
            let data: Vec<u32> = (0..len as u32).collect();
            npy::write_new(&whole, &data, &[len]).unwrap();
            let expected = std::fs::read(&whole).unwrap();
            // Written in one go, and resumed after a sync of more values than were recorded.
            for stop in [None, Some(len / 3)] {
                let mut writer = Writer::create(&path).unwrap();
                if let Some(stop) = stop {
                    writer.extend(&data[..stop + len / 4]).unwrap();
                    writer.sync().unwrap();
                    drop(writer);
                    writer = Writer::resume(&path, stop as u64).unwrap().unwrap();
                    assert_eq!(writer.len(), stop as u64);
                }
                for piece in data[stop.unwrap_or(0)..].chunks(70_000) {
                    writer.extend(piece).unwrap();
                }
                assert_eq!(writer.len(), len as u64);
                let (entry, leaves) = writer.finish_with_leaves(&[len]).unwrap();
                assert!(std::fs::read(&path).unwrap() == expected, "{len} values, stopped at {stop:?}");
                assert_eq!((entry.checksum, entry.bytes), (checksum(&expected), expected.len() as u64));
                assert_eq!(leaves, crate::checksum::leaves(&expected));
            }
        }
        assert!(Writer::<u32>::resume(&path, 1 << 40).unwrap().is_none());
    }
}
