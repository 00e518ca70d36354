//! Arrays in files without names, for values that are larger than memory.
//!
//! The file is mapped, so the system reads the values that are used, keeps them while there is
//! memory for them, and writes them back. It never has a name on Linux, and elsewhere loses it
//! before its first value is written: it ends with its array, or with the process, however that
//! ends.

#![allow(unsafe_code, reason = "mapped files")]

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Write},
    marker::PhantomData,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use bytemuck::Pod;
use memmap2::{MmapMut, MmapOptions};

use crate::{
    Buffer, Error, Result,
    maps::{self, Listed},
};

/// Bytes that are written at once where space cannot be reserved.
pub(crate) const CHUNK: usize = 1 << 20;

/// Values of `T` in a mapped file without a name.
///
/// ```
/// use graphmill_core::FileArray;
///
/// let dir = std::env::temp_dir();
/// let mut array = FileArray::<u64>::zeros(3, &dir)?;
/// array[1] = 7;
/// array.release();
/// assert_eq!(array[..], [0, 7, 0]);
/// assert_eq!(array.freeze()?[..], [0, 7, 0]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub struct FileArray<T> {
    // dropped before the memory is unmapped
    listed: Listed,
    map: MmapMut,
    path: PathBuf,
    dir: PathBuf,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Pod> FileArray<T> {
    /// Creates `len` zeros in a file in the directory `dir`, with space on the disk for all.
    ///
    /// # Errors
    /// The directory cannot be written, or the disk has too little space.
    pub fn zeros(len: usize, dir: &Path) -> Result<Self> {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64).max(1);
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
        Ok(Self { listed, map, path, dir: dir.to_path_buf(), len, of: PhantomData })
    }

    /// Directory of the file.
    pub fn directory(&self) -> &Path {
        &self.dir
    }

    /// Takes all values out of the memory of this process, until they are used again.
    pub fn release(&self) {
        maps::release(&self[..]);
    }

    /// The values, read-only from now on. They leave the memory of this process.
    ///
    /// # Errors
    /// The system cannot protect the memory.
    pub fn freeze(self) -> Result<Buffer<T>> {
        self.release();
        Buffer::of_file_map(self.map, self.listed, &self.path, self.len)
    }
}

impl<T: Pod> Deref for FileArray<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.map[..self.len * size_of::<T>()])
    }
}

impl<T: Pod> DerefMut for FileArray<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.map[..self.len * size_of::<T>()])
    }
}

impl<T> std::fmt::Debug for FileArray<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileArray(len {})", self.len)
    }
}

impl<T: Pod> Buffer<T> {
    /// A copy in a file without a name in the directory `dir`, for values that are read beside
    /// others that are larger than memory.
    ///
    /// # Errors
    /// Those of [`FileArray::zeros`].
    pub fn copied_to_file(values: &[T], dir: &Path) -> Result<Self> {
        let mut array = FileArray::zeros(values.len(), dir)?;
        let run = (CHUNK / size_of::<T>().max(1)).max(1);
        for (to, from) in array.chunks_mut(run).zip(values.chunks(run)) {
            to.copy_from_slice(from);
            maps::release(to);
        }
        array.freeze()
    }
}

/// Creates a file without a name in `dir`; the path is for messages.
pub(crate) fn unnamed(dir: &Path) -> Result<(File, PathBuf)> {
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
    {
        let all = || rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes);
        // some file systems stop for a signal, as that of a user who ends the run after this batch
        match rustix::io::retry_on_intr(all) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
            done => return done.map_err(Into::into),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn arrays_have_their_values_after_a_release_and_frozen() {
        let dir = tempfile::tempdir().unwrap();
        for len in [0, 1, 700_000] {
            let mut array = FileArray::<i64>::zeros(len, dir.path()).unwrap();
            assert!(array.len() == len && array.iter().all(|&x| x == 0));
            array.iter_mut().zip(-5..).for_each(|(to, x)| *to = x);
            array.release();
            assert!(array.iter().zip(-5..).all(|(&to, x)| to == x));
            let copy = Buffer::copied_to_file(&array, dir.path()).unwrap();
            let frozen = array.freeze().unwrap();
            for buffer in [&frozen, &copy] {
                assert!(buffer.is_mapped() == (len > 0) && buffer.len() == len, "{len}");
                buffer.release(0..len);
                assert!(buffer.iter().zip(-5..).all(|(&to, x)| to == x), "{len}");
            }
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "no file has a name");
        let message = FileArray::<u8>::zeros(1, Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert!(message.contains("/nowhere/at/all"), "{message}");
    }
}
