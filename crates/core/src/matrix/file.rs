//! Values in a file without a name, for tables that are larger than memory.
//!
//! The file is mapped, so the system reads the rows that are used, keeps them while there is memory
//! for them, and writes them back. It never has a name on Linux, and elsewhere loses it before its
//! first value is written: it ends with its matrix, or with the process, however that ends.

#![allow(unsafe_code, reason = "mapped files")]

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Write},
    ops::Range,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use memmap2::{MmapMut, MmapOptions};

use super::{Matrix, Storage};
use crate::{
    Buffer, Error, Result,
    maps::{self, Listed},
};

/// Bytes that are written at once where space cannot be reserved.
const CHUNK: usize = 1 << 20;

/// Values in a mapped file without a name.
pub(super) struct FileValues {
    // dropped before the memory is unmapped
    _listed: Listed,
    map: MmapMut,
    dir: PathBuf,
}

impl FileValues {
    /// Zeros in a file in `dir`.
    fn new(dir: &Path, count: usize) -> Result<Self> {
        let bytes = (count as u64).saturating_mul(size_of::<f32>() as u64).max(1);
        let (file, path) = unnamed(dir)?;
        reserve(&file, bytes).map_err(|e| Error::io(dir, "reserve space for the rows of a table in", e))?;
        // SAFETY: the file has no name, so no other process opens it, changes it or makes it
        // shorter. This value holds its only map, so references to the map are the only ones to its
        // bytes. Its bytes are there, so a write fails only if the disk does, which raises
        // SIGBUS, as with every map (`maps::find`).
        let map = unsafe { MmapOptions::new().map_mut(&file) }.map_err(|e| Error::io(&path, "map", e))?;
        #[cfg(unix)]
        let _ = map.advise(memmap2::Advice::Random); // rows are read at random; a refusal costs speed only
        let start = map.as_ptr() as usize;
        let listed = Listed::new(&path, start..start + map.len());
        Ok(Self { _listed: listed, map, dir: dir.to_path_buf() })
    }

    pub(super) fn values(&self) -> &[f32] {
        bytemuck::cast_slice(&self.map[..self.map.len() / 4 * 4])
    }

    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        let len = self.map.len() / 4 * 4;
        bytemuck::cast_slice_mut(&mut self.map[..len])
    }
}

/// Creates a file without a name in `dir`; the path is for messages.
fn unnamed(dir: &Path) -> Result<(File, PathBuf)> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{Mode, OFlags, open};
        // file systems that have no such files refuse in several ways
        if let Ok(file) = open(dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
        {
            return Ok((file.into(), dir.join("rows of a table")));
        }
    }
    named_and_removed(dir)
}

/// Creates a file in `dir` and removes its name, where files always have one at first.
fn named_and_removed(dir: &Path) -> Result<(File, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Relaxed);
        let path = dir.join(format!(".rows-{}-{number}.tmp", process::id()));
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path).map_err(|e| Error::io(&path, "remove", e))?;
                return Ok((file, path));
            }
            // left by a process that was killed between the two steps
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::io(&path, "create", e)),
        }
    }
}

/// Makes the file `bytes` zeros long, with space on the disk for all of them.
fn reserve(file: &File, bytes: u64) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
        done => return done.map_err(Into::into),
    }
    let (mut file, zeros) = (file, vec![0; CHUNK]);
    let mut left = bytes;
    while left > 0 {
        let now = left.min(CHUNK as u64);
        file.write_all(&zeros[..now as usize])?;
        left -= now;
    }
    Ok(())
}

impl Matrix {
    /// Zeros in a file without a name in the directory `dir`, for a table that may be larger than
    /// memory. The file ends with the matrix. A copy of the matrix is in memory.
    ///
    /// # Errors
    /// The directory cannot be written, or the disk has too little space.
    pub fn in_file(rows: usize, cols: usize, dir: &Path) -> Result<Self> {
        let values = FileValues::new(dir, rows.saturating_mul(cols))?;
        Ok(Self { rows, cols, storage: Storage::File(Box::new(values)), ..Self::default() })
    }

    /// Zeros of this shape, in a file in the same directory if this matrix is in one.
    ///
    /// # Errors
    /// Those of [`Matrix::in_file`].
    pub fn zeros_like(&self) -> Result<Self> {
        match &self.storage {
            Storage::File(values) => Self::in_file(self.rows, self.cols, &values.dir),
            _ => Ok(Self::zeros(self.rows, self.cols)),
        }
    }

    /// Returns true if the values are in a file.
    pub fn is_in_file(&self) -> bool {
        matches!(self.storage, Storage::File(_))
    }

    /// Announces that rows in a file will soon be used, so that the system reads them ahead.
    ///
    /// # Panics
    /// The range is outside.
    pub fn expect(&self, rows: Range<usize>) {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        if self.is_in_file() {
            maps::expect(self.rows(rows).host());
        }
    }

    /// Takes rows in a file out of the memory of this process, until they are used again.
    ///
    /// # Panics
    /// The range is outside.
    pub fn release(&self, rows: Range<usize>) {
        if self.is_in_file() {
            maps::release(self.rows(rows).host());
        }
    }

    /// A copy of the values in another file without a name in the same directory, or in memory if
    /// they are in memory.
    ///
    /// # Errors
    /// The directory cannot be written, or the disk has too little space.
    pub fn copy_in_place(&self) -> Result<Buffer<f32>> {
        let Storage::File(values) = &self.storage else { return Ok(self.view().host().to_vec().into()) };
        let (mut file, path) = unnamed(&values.dir)?;
        let all = &values.values()[..self.rows * self.cols];
        for run in all.chunks(CHUNK) {
            file.write_all(bytemuck::cast_slice(run)).map_err(|e| Error::io(&values.dir, "write", e))?;
            maps::release(run);
        }
        Buffer::map(&file, &path, 0, all.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_a_file_are_those_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let mut matrix = Matrix::in_file(1000, 9, dir.path()).unwrap();
        assert!(matrix.view().host().iter().all(|&x| x == 0.0));
        let values: Vec<f32> = (0..9000).map(|i| i as f32).collect();
        matrix.view_mut().host().copy_from_slice(&values);
        matrix.expect(0..1000);
        matrix.release(0..1000);
        assert_eq!(matrix.view().host(), values);
        assert_eq!(matrix.rows(7..9).host(), &values[63..81]);
        // a copy is in memory, and zeros of the same shape in another file
        let copy = matrix.clone();
        assert!(!copy.is_in_file() && copy.view().host() == values);
        let zeros = matrix.zeros_like().unwrap();
        assert!(zeros.is_in_file() && zeros.view().host().iter().all(|&x| x == 0.0));
        assert!(!copy.zeros_like().unwrap().is_in_file());
        let [kept, owned] = [&matrix, &copy].map(|matrix| matrix.copy_in_place().unwrap());
        assert!(kept.is_mapped() && !owned.is_mapped() && *kept == values[..] && *owned == values[..]);
        // no file has a name
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn released_rows_leave_the_memory_of_the_process() {
        let dir = tempfile::tempdir().unwrap();
        // pages of files of the directory that this process has mapped
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let mut of_rows = false;
            let mut kib = 0;
            for line in status.lines() {
                if line.contains(':') && line.split(' ').next().is_some_and(|word| word.contains('-')) {
                    of_rows = line.contains(dir.path().to_str().unwrap());
                }
                if let Some(rest) = line.strip_prefix("Rss:").filter(|_| of_rows) {
                    kib += rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
                }
            }
            kib
        };
        let mut matrix = Matrix::in_file(4096, 1024, dir.path()).unwrap();
        matrix.view_mut().host().fill(1.0);
        assert!(resident() >= 16 << 10, "{} KiB", resident());
        matrix.release(0..2048);
        assert!(resident() < 9 << 10, "{} KiB", resident());
        matrix.release(2048..4096);
        assert!(resident() < 1 << 10, "{} KiB", resident());
        assert!(matrix.view().host().iter().all(|&x| x == 1.0));
    }

    #[test]
    fn a_file_that_had_a_name_has_none_when_it_is_returned() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join(format!(".rows-{}-0.tmp", process::id()));
        std::fs::write(&left, "of a process that was killed").unwrap();
        let (mut file, _) = named_and_removed(dir.path()).unwrap();
        file.write_all(b"rows").unwrap();
        assert!(std::fs::read_dir(dir.path()).unwrap().all(|entry| entry.unwrap().path() == left));
    }

    #[test]
    fn a_directory_that_is_missing_is_named() {
        let message = Matrix::in_file(1, 1, Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert!(message.contains("/nowhere/at/all"), "{message}");
    }

    #[test]
    fn no_rows_take_no_space() {
        let dir = tempfile::tempdir().unwrap();
        let mut matrix = Matrix::in_file(0, 5, dir.path()).unwrap();
        assert!(matrix.view_mut().host().is_empty());
        matrix.release(0..0);
    }
}
