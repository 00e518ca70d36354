//! How a file is read.

use graphmill_core::{Error, Result};

/// What asks the system for the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReaderKind {
    /// `Uring` where the system has it and allows it (many containers do not), `Pread` elsewhere.
    #[default]
    Auto,
    /// io_uring: many reads in flight from one thread.
    Uring,
    /// A system call a read, and as many in flight as there are threads.
    Pread,
}

impl ReaderKind {
    /// All, with the names that users write.
    pub const ALL: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("uring", Self::Uring), ("pread", Self::Pread)];
}

/// Whether reads go around the system's page cache (`O_DIRECT`): in whole blocks, straight into our
/// buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Where the file system can.
    #[default]
    Auto,
    /// Or not at all.
    On,
    /// Through the page cache.
    Off,
}

impl Direct {
    /// All, with the names that users write.
    pub const ALL: [(&'static str, Self); 3] = [("auto", Self::Auto), ("on", Self::On), ("off", Self::Off)];
}

/// How a [`Disk`](super::Disk) reads. `cargo bench -p graphmill-loader --bench disk` compares the
/// choices; on the disks it was run on the differences were within the noise, so the defaults are
/// common sense rather than measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// What asks for the bytes.
    pub reader: ReaderKind,
    /// Past the page cache or through it.
    pub direct: Direct,
    /// Reads in flight of a ring: 1 to 4096.
    pub depth: usize,
    /// Threads that read for one request, each with a ring or a read of its own: 1 to 256, or 0 for
    /// what suits the reader.
    pub threads: usize,
    /// Bytes between two rows' blocks that are rather read than left out.
    pub gap: u64,
    /// Bytes of the largest read: 4 KiB to 16 MiB. A row that is longer is read whole.
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
    /// Whether every number is within its range.
    pub(super) fn check(&self) -> Result<()> {
        let within = |name: &str, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Error::invalid(format!("{name} is {value}; from {least} to {most} can be had")))
        };
        within("the number of reads in flight", self.depth, 1, 4096)?;
        within("the number of threads that read", self.threads, 0, 256)?;
        within("the largest read in bytes", self.read_bytes, 4 << 10, 16 << 20)?;
        within("the gap between rows in bytes", usize::try_from(self.gap).unwrap_or(usize::MAX), 0, 16 << 20)
    }
}
