//! A file opened for reading, past the page cache if requested and supported.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use bytemuck::{Pod, Zeroable};
use graphmill_core::{Error, Result};

use super::Direct;

/// Unit of buffers, aligned as the strictest block devices require.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(4096))]
pub(super) struct Page([u8; PAGE]);

/// Size of a [`Page`] in bytes.
pub(super) const PAGE: usize = 4096;

/// Allocates zeroed pages.
///
/// # Errors
/// The system refuses the memory.
pub(super) fn zeroed_pages(count: usize) -> io::Result<Vec<Page>> {
    bytemuck::allocation::try_zeroed_vec(count).map_err(|()| io::ErrorKind::OutOfMemory.into())
}

/// An open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// Size of which offsets, lengths and addresses of reads are multiples; 1 through the page
    /// cache.
    pub(super) align: u64,
}

impl OpenFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// The file cannot be opened, is not a regular file, or does not support required direct I/O.
    pub(super) fn new(path: &Path, direct: Direct) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, "open", e))?;
        let metadata = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?;
        if !metadata.is_file() {
            return Err(Error::format(path, "file", "this is not a regular file; give the path of a file"));
        }
        if direct != Direct::Off
            && let Some((file, align)) = open_direct(path, metadata.len())
        {
            return Ok(Self { path: path.to_path_buf(), file, align });
        }
        if direct == Direct::On {
            let message = "the file system does not support direct I/O for this file; read it through the \
                           page cache (direct: auto or off), or move it to a disk";
            return Err(Error::format(path, "direct I/O", message));
        }
        expect_random_reads(&file);
        Ok(Self { path: path.to_path_buf(), file, align: 1 })
    }

    /// Present size of the file in bytes.
    pub(super) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

/// Reads bytes at `offset` into `buffer`, at least one unless the file ends there.
pub(super) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_at(file, buffer, offset);
    #[cfg(windows)]
    return std::os::windows::fs::FileExt::seek_read(file, buffer, offset);
}

/// Opens the file with `O_DIRECT` and returns the smallest alignment with which a read succeeds. A
/// read is the only reliable probe: some file systems open such files and then reject every read.
#[cfg(target_os = "linux")]
fn open_direct(path: &Path, len: u64) -> Option<(File, u64)> {
    use std::os::unix::fs::OpenOptionsExt;

    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let mut buffer = [Page::zeroed(); 2];
    let buffer: &mut [u8] = bytemuck::cast_slice_mut(&mut buffer);
    // A smaller block is probed where only it fits: neither the offset nor the address is a
    // multiple of the next size.
    let reads = |align: usize, buffer: &mut [u8]| {
        (len >= 2 * align as u64 || align == PAGE)
            && read_at(&file, &mut buffer[align % PAGE..][..align], (align % PAGE) as u64).is_ok()
    };
    let align = [512, PAGE].into_iter().find(|&align| reads(align, buffer))?;
    Some((file, align as u64))
}

#[cfg(not(target_os = "linux"))]
fn open_direct(_: &Path, _: u64) -> Option<(File, u64)> {
    None
}

/// Advises the system not to read ahead; it may ignore the advice.
fn expect_random_reads(file: &File) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random);
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}
