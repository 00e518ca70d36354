//! Text of a file, gzipped or not, and the number of bytes read.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use flate2::bufread::MultiGzDecoder;
use graphmill_core::{Error, Result};

/// Reader of a file's text; gzip is recognized by its first bytes.
pub(crate) struct Unpacked {
    text: Box<dyn Read + Send>,
    progress: BytesRead,
}

/// Progress within a file, readable from other threads.
#[derive(Clone)]
pub(crate) struct BytesRead {
    /// Size of the file on disk, in bytes.
    pub(crate) size: u64,
    taken: Arc<AtomicU64>,
}

impl Unpacked {
    /// Opens `path` with a read buffer of `piece` bytes.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub(crate) fn open(path: &Path, piece: usize) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
        let size = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?.len();
        let progress = BytesRead { size, taken: Arc::default() };
        let mut file =
            BufReader::with_capacity(piece, Counted { inner: file, taken: progress.taken.clone() });
        let head = file.fill_buf().map_err(|e| Error::io(path, "read", e))?;
        let text: Box<dyn Read + Send> = if head.starts_with(&[0x1f, 0x8b]) {
            Box::new(MultiGzDecoder::new(file))
        } else {
            Box::new(file)
        };
        Ok(Self { text, progress })
    }

    /// Shared view of the progress.
    pub(crate) fn progress(&self) -> BytesRead {
        self.progress.clone()
    }
}

impl BytesRead {
    /// Number of bytes read.
    pub(crate) fn taken(&self) -> u64 {
        // Relaxed: the counter orders nothing.
        self.taken.load(Relaxed)
    }
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.text.read(buffer)
    }
}

/// Reader that counts the bytes.
struct Counted {
    inner: File,
    taken: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.taken.fetch_add(read as u64, Relaxed);
        Ok(read)
    }
}
