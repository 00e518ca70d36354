//! Options of reading a file.

use graphmill_core::{Error, Result};

/// Interface through which bytes are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReaderKind {
    /// `Uring` if the system supports and allows it (many containers do not), otherwise `Pread`.
    #[default]
    Auto,
    /// io_uring, with many reads in flight from one thread.
    Uring,
    /// One system call per read, with as many reads in flight as threads.
    Pread,
}

impl ReaderKind {
    /// All readers, with the names that users write.
    pub const ALL: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("uring", Self::Uring), ("pread", Self::Pread)];
}

/// Use of direct I/O (`O_DIRECT`), which bypasses the system's page cache: reads of whole blocks,
/// straight into our buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Direct I/O if the file system supports it.
    #[default]
    Auto,
    /// Direct I/O, or an error.
    On,
    /// Reads through the page cache.
    Off,
}

impl Direct {
    /// All choices, with the names that users write.
    pub const ALL: [(&'static str, Self); 3] = [("auto", Self::Auto), ("on", Self::On), ("off", Self::Off)];
}

/// Options of a [`Disk`](super::Disk).
///
/// `cargo bench -p graphmill-loader --bench disk` compares them. On the disks that were measured
/// the differences were within the noise, so the defaults are not tuned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Interface through which bytes are read.
    pub reader: ReaderKind,
    /// Use of direct I/O.
    pub direct: Direct,
    /// Number of reads in flight per ring: 1 to 4096.
    pub depth: usize,
    /// Number of threads that read for one request, each with its own ring or read: 1 to 256, or 0
    /// for a number that suits the reader.
    pub threads: usize,
    /// Maximum gap in bytes between two rows' blocks that are read together.
    pub gap: u64,
    /// Maximum size of a read in bytes: 4 KiB to 16 MiB. A longer row is read whole.
    pub read_bytes: usize,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self {
            reader: ReaderKind::Auto,
            direct: Direct::Auto,
            depth: 128,
            threads: 0,
            gap: 4 << 10,
            read_bytes: 128 << 10,
        }
    }
}

impl DiskOptions {
    /// Checks that every number is within its range.
    pub(super) fn check(&self) -> Result<()> {
        let within = |name: &str, value: usize, min: usize, max: usize| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(Error::invalid(format!("{name} is {value}; use a number from {min} to {max}")))
        };
        within("the number of reads in flight", self.depth, 1, 4096)?;
        within("the number of threads that read", self.threads, 0, 256)?;
        within("the largest read in bytes", self.read_bytes, 4 << 10, 16 << 20)?;
        within("the gap between rows in bytes", usize::try_from(self.gap).unwrap_or(usize::MAX), 0, 16 << 20)
    }
}
