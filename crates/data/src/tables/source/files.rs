//! Files of a table: paths, patterns, directories, addresses, standard input, compression.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Seek},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use flate2::read::MultiGzDecoder;
use graphmill_core::{Error, Result};

use crate::object_storage::{self, Object};

/// Bytes by which a format is recognized.
const START: u64 = 4096;
/// Bytes of a read.
const BUFFER: usize = 1 << 18;

/// File of a table: on this machine, or in object storage.
#[derive(Clone, Debug)]
pub(crate) enum TableFile {
    /// Path.
    Local(PathBuf),
    /// Object.
    Object(Object),
}

/// Reader of any part of a file.
pub(super) trait ReadSeek: Read + Seek + Send {}

impl<R: Read + Seek + Send> ReadSeek for R {}

impl TableFile {
    /// Path or address, as in messages.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Local(path) => path,
            Self::Object(object) => object.address(),
        }
    }

    /// Name, size and version of the file, by which an import recognizes it.
    ///
    /// # Errors
    /// The file is missing.
    pub(crate) fn identity(&self) -> Result<String> {
        match self {
            Self::Local(path) => {
                let data = fs::metadata(path).map_err(|e| Error::io(path, "look at", e))?;
                let time = data.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                let nanos = time.map_or(0, |time| time.as_nanos());
                Ok(format!("{} {} {nanos}", path.display(), data.len()))
            }
            Self::Object(object) => Ok(object.identity()),
        }
    }

    /// Number of bytes.
    ///
    /// # Errors
    /// The file is missing.
    pub(crate) fn size(&self) -> Result<u64> {
        match self {
            Self::Local(path) => Ok(fs::metadata(path).map_err(|e| Error::io(path, "look at", e))?.len()),
            Self::Object(object) => Ok(object.size()),
        }
    }

    /// Reader of the bytes from the first on, without decompression.
    fn read(&self) -> Result<Box<dyn Read + Send>> {
        match self {
            Self::Local(path) => Ok(Box::new(File::open(path).map_err(|e| Error::io(path, "open", e))?)),
            Self::Object(object) => object.stream(),
        }
    }

    /// Reader of any part of the file.
    pub(super) fn seek(&self) -> Result<Box<dyn ReadSeek>> {
        match self {
            Self::Local(path) => Ok(Box::new(File::open(path).map_err(|e| Error::io(path, "open", e))?)),
            Self::Object(object) => Ok(Box::new(object.blocks(1))),
        }
    }
}

/// Files that `pattern` names, in name order: a file, a directory (all its files), a pattern with
/// `*` and `?`, an address of object storage, or `-` for standard input, which `spool` stores.
///
/// # Errors
/// No file is found, or standard input cannot be stored.
pub(crate) fn find(pattern: &str, base: &Path, spool: &mut Spool) -> Result<Vec<TableFile>> {
    if pattern == "-" {
        return Ok(vec![TableFile::Local(spool.store()?)]);
    }
    if object_storage::is_address(pattern) {
        let objects = object_storage::find(pattern)?;
        return Ok(objects.into_iter().map(TableFile::Object).collect());
    }
    let path = base.join(pattern);
    if path.is_file() {
        return Ok(vec![TableFile::Local(path)]);
    }
    let mut files = if path.is_dir() {
        let entries = fs::read_dir(&path).map_err(|e| Error::io(&path, "look into", e))?;
        let entries: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
        entries.map_err(|e| Error::io(&path, "look into", e))?
    } else if pattern.contains(['*', '?', '[']) {
        let found = glob::glob(&path.to_string_lossy());
        let found = found.map_err(|e| Error::invalid(format!("{}: {e}; fix the pattern", path.display())))?;
        found.filter_map(Result::ok).collect()
    } else {
        fs::metadata(&path).map_err(|e| Error::io(&path, "open", e))?;
        let message = "it is a pipe or a device, and a table is read several times; write it to a file, or \
                       pass the pipe as standard input (-)";
        return Err(Error::format(&path, "type", message));
    };
    // Hidden files, and those of Spark and pandas beside their parts.
    let is_part = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.is_file() && !name.starts_with(['.', '_'])
    };
    files.retain(is_part);
    files.sort_unstable();
    if files.is_empty() {
        return Err(Error::format(&path, "files", "no file is found; name a file, a directory or a pattern"));
    }
    Ok(files.into_iter().map(TableFile::Local).collect())
}

/// Copy of standard input in a file, because tables are read several times. The file is removed
/// when this is dropped, and is not synced: after a loss of power its input is gone as well.
#[derive(Debug)]
pub(crate) struct Spool {
    path: PathBuf,
    stored: bool,
}

impl Spool {
    /// Creates a spool that stores standard input in `path`.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, stored: false }
    }

    fn store(&mut self) -> Result<PathBuf> {
        if self.stored {
            return Err(Error::invalid(
                "two tables are '-', but standard input is one table; write the other to a file",
            ));
        }
        let mut file =
            crate::atomic::create_fresh(&self.path).map_err(|e| Error::io(&self.path, "create", e))?;
        self.stored = true;
        io::copy(&mut io::stdin().lock(), &mut file).map_err(|e| Error::io(&self.path, "write", e))?;
        Ok(self.path.clone())
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if self.stored {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// First bytes of a file, decompressed; whitespace and a byte order mark before them are skipped.
pub(super) fn start(file: &TableFile) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(file)?.take(START).read_to_end(&mut bytes).map_err(|e| Error::io(file.path(), "read", e))?;
    let skipped = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let skipped = skipped + bytes[skipped..].iter().take_while(|b| b.is_ascii_whitespace()).count();
    Ok(bytes.split_off(skipped))
}

/// Opens a file; gzip and Zstandard are decompressed.
pub(super) fn open(file: &TableFile) -> Result<Box<dyn BufRead + Send>> {
    let io = |e| Error::io(file.path(), "read", e);
    let mut reader = BufReader::with_capacity(BUFFER, file.read()?);
    let magic = reader.fill_buf().map_err(io)?;
    let decoder: Box<dyn Read + Send> = match magic {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(reader)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            Box::new(zstd::stream::read::Decoder::with_buffer(reader).map_err(io)?)
        }
        _ => return Ok(Box::new(reader)),
    };
    Ok(Box::new(BufReader::with_capacity(BUFFER, decoder)))
}
