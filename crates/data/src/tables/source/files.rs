//! Files of a table: paths, patterns, directories, standard input, compression.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use graphmill_core::{Error, Result};

/// Bytes by which a format is recognized.
const START: u64 = 4096;
/// Bytes of a read.
const BUFFER: usize = 1 << 18;

/// Files that `pattern` names, in name order: a file, a directory (all its files), a pattern with
/// `*` and `?`, or `-` for standard input, which `spool` stores.
///
/// # Errors
/// No file is found, or standard input cannot be stored.
pub(crate) fn find(pattern: &str, base: &Path, spool: &mut Spool) -> Result<Vec<PathBuf>> {
    if pattern == "-" {
        return Ok(vec![spool.store()?]);
    }
    let path = base.join(pattern);
    if path.is_file() {
        return Ok(vec![path]);
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
        let missing = io::Error::from(io::ErrorKind::NotFound);
        return Err(Error::io(&path, "open", missing));
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
    Ok(files)
}

/// Copy of standard input in a file, because tables are read several times. The file is removed when
/// this is dropped.
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
pub(super) fn start(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(START).read_to_end(&mut bytes).map_err(|e| Error::io(path, "read", e))?;
    let skipped = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let skipped = skipped + bytes[skipped..].iter().take_while(|b| b.is_ascii_whitespace()).count();
    Ok(bytes.split_off(skipped))
}

/// Opens a file; gzip and Zstandard are decompressed.
pub(super) fn open(path: &Path) -> Result<Box<dyn BufRead + Send>> {
    let io = |e| Error::io(path, "open", e);
    let mut reader = BufReader::with_capacity(BUFFER, File::open(path).map_err(io)?);
    let magic = reader.fill_buf().map_err(|e| Error::io(path, "read", e))?;
    let decoder: Box<dyn Read + Send> = match magic {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(reader)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            Box::new(zstd::stream::read::Decoder::with_buffer(reader).map_err(io)?)
        }
        _ => return Ok(Box::new(reader)),
    };
    Ok(Box::new(BufReader::with_capacity(BUFFER, decoder)))
}
