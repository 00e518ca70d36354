//! Features that stay in a file.
//!
//! A request's rows are read in file order, with rows in the same or neighbouring blocks together
//! (`plan`). Many reads are in flight (`uring`), or many threads read (`queue`), past the system's
//! page cache if the file system supports it (`open_file`). The loop around the reads (`reader`) is
//! independent of both: a queue is a trait, through which tests inject short reads and errors.
//! Bytes go from a fixed set of buffers to the rows' positions; 16-bit floats are converted on the
//! way.
//!
//! A file that was not verified when its dataset was opened has a verifier: before the first row of
//! a chunk of 1 MiB is read, the chunk is read whole and compared with its checksum (`chunk`).
//!
//! Memory: `depth` buffers of the largest read for each reader, at most 64 MiB unless one row is
//! longer, and as many readers as threads that read at once. Sorting takes 8 bytes per row of the
//! request.
//!
//! DGL's GraphBolt reads rows through io_uring as well (`graphbolt/src/cnumpy.cc`), but each row
//! separately, in the requested order, and in blocks of 4096 bytes. Here rows that share a block
//! are one read.

mod chunk;
mod open_file;
mod options;
mod plan;
mod queue;
mod queue_factory;
mod reader;
#[cfg(test)]
mod tests;
mod uring;

use std::{
    ops::Range,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use graphmill_core::{Error, NodeId, ObjectPool, Result, matrix::TableType, verifier::ChunkVerifier};
use half::{bf16, f16, slice::HalfFloatSliceExt};
pub use options::{Direct, DiskOptions, ReaderKind};
use rayon::prelude::*;

use self::{
    open_file::{OpenFile, PAGE},
    plan::{Layout, PlannedRead, node, number},
    queue::Queue,
    queue_factory::QueueFactory,
    reader::{Cause, Fault, Reader},
};
use super::{Capabilities, Feature, OutputRows, TierTraffic, Traffic, scatter::Scatter, widen::widen_f16};

/// Maximum size of a reader's buffers in bytes, unless one row is longer.
const MAX_BUFFER_BYTES: usize = 64 << 20;
/// Maximum size of a row in bytes.
const MAX_ROW_BYTES: u64 = 1 << 30;
/// Default number of threads if each has one read in flight.
const PREAD_THREADS: usize = 32;
/// Minimum number of rows per thread.
const MIN_ROWS_PER_THREAD: usize = 8;

/// A table of feature rows in a file.
pub struct Disk {
    file: Arc<OpenFile>,
    layout: Layout,
    dim: usize,
    rows: usize,
    kind: TableType,
    make: Box<dyn Fn() -> std::io::Result<Box<dyn Queue>> + Send + Sync>,
    reader: ReaderKind,
    buffers: usize,
    threads: usize,
    /// Threads that wait for the disk while the others compute.
    pool: Option<rayon::ThreadPool>,
    idle: Mutex<Vec<Reader>>,
    keys: ObjectPool<Vec<u64>>,
    verifier: Option<ChunkVerifier>,
}

impl Disk {
    /// Opens `rows` rows of `dim` values of type `kind`, which begin at byte `offset` of the file
    /// at `path`.
    ///
    /// # Errors
    /// The file cannot be opened or is too short, or the system does not support the options.
    pub fn open(
        path: impl AsRef<Path>,
        offset: u64,
        dim: usize,
        kind: TableType,
        rows: usize,
        options: &DiskOptions,
    ) -> Result<Self> {
        Self::open_in_blocks(path.as_ref(), offset, dim, kind, rows, options, 1)
    }

    /// Verifies the file by `verifier` where its rows are read for the first time.
    #[must_use]
    pub fn verified_by(self, verifier: Option<&ChunkVerifier>) -> Self {
        Self { verifier: verifier.cloned(), ..self }
    }

    /// As [`Disk::open`], in blocks of at least `block` bytes.
    fn open_in_blocks(
        path: &Path,
        offset: u64,
        dim: usize,
        kind: TableType,
        rows: usize,
        options: &DiskOptions,
        block: u64,
    ) -> Result<Self> {
        options.check()?;
        let file = Arc::new(OpenFile::new(path, options.direct)?);
        let row = (dim as u64).saturating_mul(kind.width() as u64);
        let end = row.checked_mul(rows as u64).and_then(|bytes| bytes.checked_add(offset));
        let found = file.len().map_err(|e| Error::io(path, "read the size of", e))?;
        if end.is_none_or(|end| end > found) {
            let message = format!(
                "the file ends here, before the end of {rows} rows of {row} bytes from byte {offset} on; \
                 restore it or import the data again"
            );
            return Err(Error::format(path, format!("byte {found}"), message));
        }
        if row > MAX_ROW_BYTES {
            let message = format!("a row has {row} bytes; use rows of at most {MAX_ROW_BYTES} bytes");
            return Err(Error::format(path, "rows", message));
        }
        let align = file.align.max(block);
        // any row, with the blocks in which it begins and ends
        let longest = (row + 2 * (align - 1)).next_multiple_of(PAGE as u64);
        let max_len = longest.max(options.read_bytes as u64);
        let size = (max_len as usize).next_multiple_of(PAGE);
        let layout = Layout { offset, row, align, gap: options.gap, max_len };
        let slots = options.depth.min((MAX_BUFFER_BYTES / size).max(1));
        let mut factory = QueueFactory { file: Arc::clone(&file), kind: options.reader, slots, size };
        let first = match options.reader {
            ReaderKind::Auto => {
                factory.kind = ReaderKind::Uring;
                factory.make().or_else(|_| {
                    factory.kind = ReaderKind::Pread;
                    factory.make()
                })
            }
            _ => factory.make(),
        };
        let first = first.map_err(|e| {
            if e.kind() == std::io::ErrorKind::OutOfMemory {
                return Error::Memory(format!("cannot reserve memory for reads of {}", path.display()));
            }
            let message = format!("io_uring is not available ({e}); use the reader auto or pread");
            Error::format(path, "reader", message)
        })?;
        let reader = factory.kind;
        factory.kind = if reader == ReaderKind::Uring { options.reader } else { reader };
        let threads = match (options.threads, reader) {
            (0, ReaderKind::Pread) => PREAD_THREADS,
            (0, _) => 1,
            (threads, _) => threads,
        };
        let pool = pool(threads).map_err(|e| {
            let message = format!("cannot start {threads} threads to read ({e}); use fewer threads");
            Error::format(path, "threads", message)
        })?;
        Ok(Self {
            file,
            layout,
            dim,
            rows,
            kind,
            reader,
            buffers: first.slots() * size * threads,
            threads,
            pool,
            idle: Mutex::new(vec![Reader::new(first)]),
            keys: ObjectPool::default(),
            verifier: None,
            make: Box::new(move || factory.make()),
        })
    }

    /// Type of the stored values.
    pub fn kind(&self) -> TableType {
        self.kind
    }

    /// Reader in use, never `Auto`.
    pub fn reader(&self) -> ReaderKind {
        self.reader
    }

    /// Size in bytes of which offsets and lengths of reads past the page cache are multiples;
    /// `None` if reads go through it.
    pub fn block(&self) -> Option<u64> {
        Some(self.layout.align).filter(|&align| align > 1)
    }

    /// Memory in bytes that one request at a time takes.
    pub fn buffer_bytes(&self) -> usize {
        self.buffers
    }

    /// Verifies the chunks of sorted keys that were not verified before, and returns the number of
    /// bytes read for it.
    fn verify(&self, keys: &[u64]) -> Result<u64> {
        let Some(verifier) = self.verifier.as_ref().filter(|verifier| !verifier.is_done()) else {
            return Ok(0);
        };
        let start = |&key: &u64| self.layout.start(key);
        let rows = keys.iter().map(|key| start(key)..start(key) + self.layout.row);
        let verify = || {
            verifier.verify_ranges(rows, &|range, see| {
                chunk::read(&self.file, range, see).map_err(|fault| self.error(&fault))
            })
        };
        match &self.pool {
            Some(pool) => pool.install(verify),
            None => verify(),
        }
    }

    /// Reads sorted keys on the configured number of threads.
    fn read_keys(&self, keys: &[u64], out: &Scatter) -> Result<u64, Fault> {
        let max_parts = keys.len().div_ceil(MIN_ROWS_PER_THREAD);
        let parts = match self.reader {
            _ if self.threads == 1 => 1,
            // more parts than threads, because some reads take longer than others
            ReaderKind::Pread => (4 * self.threads).min(max_parts),
            _ => self.threads.min(max_parts),
        };
        let read = |part: usize| {
            let cut = |part| self.layout.cut(keys, part, parts);
            self.read_part(keys, cut(part)..cut(part + 1), out)
        };
        match &self.pool {
            Some(pool) if parts > 1 => pool.install(|| {
                (0..parts).into_par_iter().with_max_len(1).map(read).try_reduce(|| 0, |a, b| Ok(a + b))
            }),
            _ => read(0),
        }
    }

    /// Reads some of the keys. Parts of different calls must not overlap for the same `out`.
    fn read_part(&self, keys: &[u64], range: Range<usize>, out: &Scatter) -> Result<u64, Fault> {
        if range.is_empty() {
            return Ok(0);
        }
        let mut reader = match lock(&self.idle).pop() {
            Some(reader) => reader,
            None => Reader::new((self.make)().map_err(|e| Fault {
                bytes: self.layout.start(keys[range.start])
                    ..self.layout.start(keys[range.end - 1]) + self.layout.row,
                cause: Cause::System(e),
            })?),
        };
        let read = reader
            .read(&self.file, &self.layout, keys, range, |read, bytes| self.take(keys, read, bytes, out));
        // a failed reader may have reads in flight: it waits for them and is dropped
        if read.is_ok() {
            self.put_back(reader);
        }
        read
    }

    /// Copies the rows of one read to their positions.
    #[allow(unsafe_code, reason = "disjoint parallel writes")]
    fn take(&self, keys: &[u64], read: &PlannedRead, bytes: &[u8], out: &Scatter) {
        let row = self.layout.row as usize;
        for &key in &keys[read.keys.clone()] {
            let start = (self.layout.start(key) - read.offset) as usize;
            // SAFETY: `keys` has every number of the request once, because `sort` enumerates them;
            // parts of it and reads of parts do not overlap, and a read is taken once.
            let to = unsafe { out.row(number(key)) };
            widen(&bytes[start..start + row], self.kind, to);
        }
    }

    fn put_back(&self, reader: Reader) {
        let mut idle = lock(&self.idle);
        if idle.len() < self.threads.max(rayon::current_num_threads()) {
            idle.push(reader);
        }
    }

    fn error(&self, fault: &Fault) -> Error {
        let Range { start, end } = fault.bytes;
        let message = match &fault.cause {
            Cause::System(e) => {
                format!("feature rows cannot be read: {e}; run again, and check the disk if it fails again")
            }
            Cause::Ends(len) => format!(
                "the file has shrunk to {len} bytes; when it was opened it had the {} of {} rows of {} bytes \
                 from byte {} on; restore it or import the data again",
                self.layout.offset + self.rows as u64 * self.layout.row,
                self.rows,
                self.layout.row,
                self.layout.offset,
            ),
        };
        Error::format(&self.file.path, format!("bytes {start} to {end}"), message)
    }
}

impl Feature for Disk {
    fn dim(&self) -> usize {
        self.dim
    }

    fn num_rows(&self) -> usize {
        self.rows
    }

    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        let began = Instant::now();
        let out = Scatter::new(out, self.dim, ids.len(), places);
        if ids.is_empty() || self.dim == 0 {
            let disk = TierTraffic::since(began, ids.len() as u64, 0);
            return Ok(Traffic { disk, ..Traffic::default() });
        }
        let read = self.keys.with(|keys| {
            plan::sort(ids, keys);
            let last = node(keys[keys.len() - 1]);
            if last >= self.rows as u64 {
                let message = format!("row {last} is out of range: the file has {} rows", self.rows);
                return Err(Error::format(&self.file.path, "rows", message));
            }
            let verified = self.verify(keys)?;
            let read = self.read_keys(keys, &out).map_err(|fault| self.error(&fault))?;
            Ok(verified + read)
        });
        let disk = TierTraffic::since(began, ids.len() as u64, read?);
        Ok(Traffic { disk, ..Traffic::default() })
    }

    fn row_bytes(&self) -> u64 {
        self.layout.row
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::stored_in(self.kind)
    }
}

/// Creates a thread pool, unless the caller's thread reads alone.
fn pool(threads: usize) -> Result<Option<rayon::ThreadPool>, rayon::ThreadPoolBuildError> {
    let named = |i| format!("disk {i}");
    (threads > 1)
        .then(|| rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(named).build())
        .transpose()
}

/// Locks a mutex, even a poisoned one: it guards spare objects, which are valid at any moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts a stored row, at any alignment, to 32-bit floats.
fn widen(from: &[u8], kind: TableType, to: &mut [f32]) {
    match kind {
        TableType::F32 => bytemuck::cast_slice_mut(to).copy_from_slice(from),
        TableType::F16 => match bytemuck::try_cast_slice::<u8, f16>(from) {
            Ok(from) => widen_f16(from, to),
            Err(_) => pairs(from, to, |pair| f16::from_le_bytes(pair).to_f32()),
        },
        TableType::Bf16 => match bytemuck::try_cast_slice::<u8, bf16>(from) {
            Ok(from) => from.convert_to_f32_slice(to),
            Err(_) => pairs(from, to, |pair| bf16::from_le_bytes(pair).to_f32()),
        },
    }
}

/// Converts values of two bytes at an odd address.
fn pairs(from: &[u8], to: &mut [f32], value: impl Fn([u8; 2]) -> f32) {
    let (pairs, _) = from.as_chunks::<2>();
    pairs.iter().zip(to).for_each(|(&pair, to)| *to = value(pair));
}
