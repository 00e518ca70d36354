//! A file opened for reading, past the page cache where that is wanted and can be had.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use bytemuck::{Pod, Zeroable};
use graphmill_core::{Error, Result};

use super::Direct;

/// What buffers are made of: aligned as the strictest block devices ask for.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
pub(super) struct Page([u8; PAGE]);

/// Bytes of a [`Page`].
pub(super) const PAGE: usize = 4096;

/// An open file.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// What offsets, lengths and buffers of reads must be multiples of: 1 through the page cache.
    pub(super) align: u64,
}

impl Opened {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// It cannot be opened, is no file, or cannot be read past the page cache though that must be.
    pub(super) fn new(path: &Path, direct: Direct) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
        let about = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?;
        if !about.is_file() {
            return Err(Error::format(path, "file", "feature rows are read from a file, and this is none"));
        }
        if direct != Direct::Off
            && let Some((file, align)) = past_the_cache(path, about.len())
        {
            return Ok(Self { path: path.to_path_buf(), file, align });
        }
        if direct == Direct::On {
            let message = "the file system has no direct I/O for this file; read it through the page cache \
                           (direct: auto or off), or move it to a disk";
            return Err(Error::format(path, "direct I/O", message));
        }
        expect_random_reads(&file);
        Ok(Self { path: path.to_path_buf(), file, align: 1 })
    }

    /// Bytes of the file now.
    pub(super) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

/// Reads what is at `offset` into `buffer`, at least some of it unless the file ends there.
pub(super) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_at(file, buffer, offset);
    #[cfg(windows)]
    return std::os::windows::fs::FileExt::seek_read(file, buffer, offset);
}

/// The file opened with `O_DIRECT`, and the least alignment with which a read of it succeeds.
/// Reading is the one probe that no file system answers wrongly: some open such files and then
/// refuse every read.
#[cfg(target_os = "linux")]
fn past_the_cache(path: &Path, len: u64) -> Option<(File, u64)> {
    use std::os::unix::fs::OpenOptionsExt;

    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let mut room = [Page::zeroed(); 2];
    let room: &mut [u8] = bytemuck::cast_slice_mut(&mut room);
    // the smaller blocks are tried where only they fit: neither the place nor the buffer is a
    // multiple of the next size
    let reads = |align: usize, room: &mut [u8]| {
        (len >= 2 * align as u64 || align == PAGE)
            && read_at(&file, &mut room[align % PAGE..][..align], (align % PAGE) as u64).is_ok()
    };
    let align = [512, PAGE].into_iter().find(|&align| reads(align, room))?;
    Some((file, align as u64))
}

#[cfg(not(target_os = "linux"))]
fn past_the_cache(_: &Path, _: u64) -> Option<(File, u64)> {
    None
}

/// Tells the system to read nothing ahead; it may not listen.
fn expect_random_reads(file: &File) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}
