//! Features that stay in a file.
//!
//! A request's rows are read in the order of the file, those in the same or neighbouring blocks
//! together (`plan`), many reads in flight (`uring`) or many threads reading (`queue`), past the
//! system's page cache where the file system can (`opened`). The loop around the reads (`reader`)
//! knows neither: a queue is a trait, where tests put short reads and errors. Bytes go from a
//! bounded set of buffers, made once, to the rows' places, 16-bit floats widened on the way.
//!
//! Memory: of each reader `depth` buffers of the largest read, 64 MiB at most unless one row is
//! longer; as many readers as there are threads that read at once. Sorting takes 8 bytes a row of
//! the request.
//!
//! DGL's GraphBolt reads rows through io_uring likewise (`graphbolt/src/cnumpy.cc`): each row by
//! itself, in the order asked for, blocks of 4096 bytes. Rows that share a block are one read here.

mod maker;
mod opened;
mod options;
mod plan;
mod queue;
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

use graphmill_core::{Error, NodeId, ObjectPool, Result, matrix::TableType};
use half::{bf16, f16, slice::HalfFloatSliceExt};
pub use options::{Direct, DiskOptions, ReaderKind};
use rayon::prelude::*;

use self::{
    maker::Maker,
    opened::{Opened, PAGE},
    plan::{Layout, Piece, node, number},
    queue::Queue,
    reader::{Cause, Fault, Reader},
};
use super::{Capabilities, Feature, Places, TierTraffic, Traffic, scatter::Scatter, widen::widen_f16};

/// Bytes of a reader's buffers, unless one row is longer.
const BUFFERS: usize = 64 << 20;
/// Bytes of the longest row.
const LONGEST: u64 = 1 << 30;
/// Threads that read where each has one read in flight.
const PREAD_THREADS: usize = 32;
/// Rows that are worth another thread.
const SHARE: usize = 8;

/// A table of rows in a file.
pub struct Disk {
    file: Arc<Opened>,
    layout: Layout,
    dim: usize,
    rows: usize,
    kind: TableType,
    make: Box<dyn Fn() -> std::io::Result<Box<dyn Queue>> + Send + Sync>,
    reader: ReaderKind,
    buffers: usize,
    threads: usize,
    /// Its own threads: they wait for the disk while others compute.
    pool: Option<rayon::ThreadPool>,
    idle: Mutex<Vec<Reader>>,
    keys: ObjectPool<Vec<u64>>,
}

impl Disk {
    /// The `rows` rows of `dim` values of type `kind` that begin at byte `offset` of the file at
    /// `path`.
    ///
    /// # Errors
    /// The file cannot be opened or is too short, or the options ask for what the system does not
    /// have.
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

    /// As [`Disk::open`], in blocks of at least so many bytes.
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
        let file = Arc::new(Opened::new(path, options.direct)?);
        let row = (dim as u64).saturating_mul(kind.width() as u64);
        let end = row.checked_mul(rows as u64).and_then(|bytes| bytes.checked_add(offset));
        let found = file.len().map_err(|e| Error::io(path, "read the size of", e))?;
        if end.is_none_or(|end| end > found) {
            let message = format!(
                "the file ends here, {rows} rows of {row} bytes from byte {offset} on are longer; \
                 restore it or import the data again"
            );
            return Err(Error::format(path, format!("byte {found}"), message));
        }
        if row > LONGEST {
            let message = format!("rows of {row} bytes; up to {LONGEST} are read from a file");
            return Err(Error::format(path, "rows", message));
        }
        let align = file.align.max(block);
        // any row with the blocks it begins and ends in
        let longest = (row + 2 * (align - 1)).next_multiple_of(PAGE as u64);
        let most = longest.max(options.read_bytes as u64);
        let size = (most as usize).next_multiple_of(PAGE);
        let layout = Layout { offset, row, align, gap: options.gap, most };
        let slots = options.depth.min((BUFFERS / size).max(1));
        let mut maker = Maker { file: Arc::clone(&file), kind: options.reader, slots, size };
        let first = match options.reader {
            ReaderKind::Auto => {
                maker.kind = ReaderKind::Uring;
                maker.make().or_else(|_| {
                    maker.kind = ReaderKind::Pread;
                    maker.make()
                })
            }
            _ => maker.make(),
        };
        let first = first.map_err(|e| {
            let message = format!("io_uring cannot be had ({e}); choose the reader auto or pread");
            Error::format(path, "reader", message)
        })?;
        let reader = maker.kind;
        maker.kind = if reader == ReaderKind::Uring { options.reader } else { reader };
        let threads = match (options.threads, reader) {
            (0, ReaderKind::Pread) => PREAD_THREADS,
            (0, _) => 1,
            (threads, _) => threads,
        };
        let pool = pool(threads).map_err(|e| {
            let message = format!("{threads} threads that read cannot be had ({e}); ask for fewer");
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
            make: Box::new(move || maker.make()),
        })
    }

    /// What asks for the bytes: never `Auto`.
    pub fn reader(&self) -> ReaderKind {
        self.reader
    }

    /// Bytes that offsets and lengths of reads are multiples of, past the page cache; none where
    /// reads go through it.
    pub fn block(&self) -> Option<u64> {
        Some(self.layout.align).filter(|&align| align > 1)
    }

    /// Bytes of memory that one request at a time takes.
    pub fn buffer_bytes(&self) -> usize {
        self.buffers
    }

    /// Reads sorted keys, by as many threads as are to.
    fn read_keys(&self, keys: &[u64], out: &Scatter) -> Result<u64, Fault> {
        let most = keys.len().div_ceil(SHARE);
        let parts = match self.reader {
            _ if self.threads == 1 => 1,
            // more than threads, since some reads take longer than others
            ReaderKind::Pread => (4 * self.threads).min(most),
            _ => self.threads.min(most),
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

    /// Reads some of the keys. Parts of different calls must not overlap while `out` is the same.
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
            .read(&self.file, &self.layout, keys, range, |piece, bytes| self.take(keys, piece, bytes, out));
        // one that failed has reads in flight: it waits for them and is gone
        if read.is_ok() {
            self.put_back(reader);
        }
        read
    }

    /// Copies the rows of one read to their places.
    fn take(&self, keys: &[u64], piece: &Piece, bytes: &[u8], out: &Scatter) {
        let row = self.layout.row as usize;
        for &key in &keys[piece.keys.clone()] {
            let start = (self.layout.start(key) - piece.offset) as usize;
            // SAFETY: `keys` has every number of the request once, since it was made by counting;
            // parts of it and pieces of parts do not overlap, and a piece is taken once.
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
            Cause::System(e) => format!(
                "feature rows cannot be read: {e}; run again, and if it fails again look for faults of the disk"
            ),
            Cause::Ends(len) => format!(
                "the file has shrunk to {len} bytes since it was opened, when it had the {} of {} rows of {} bytes from byte {} on; \
                 restore it or import the data again",
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

    fn read_to(&self, ids: &[NodeId], places: Places, out: &mut [f32]) -> Result<Traffic> {
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
                let message = format!("row {last} asked for, there are {}", self.rows);
                return Err(Error::format(&self.file.path, "rows", message));
            }
            self.read_keys(keys, &out).map_err(|fault| self.error(&fault))
        });
        let disk = TierTraffic::since(began, ids.len() as u64, read?);
        Ok(Traffic { disk, ..Traffic::default() })
    }

    fn row_bytes(&self) -> u64 {
        self.layout.row
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}

/// Threads of their own, unless it is the caller's alone.
fn pool(threads: usize) -> Result<Option<rayon::ThreadPool>, rayon::ThreadPoolBuildError> {
    let named = |i| format!("disk {i}");
    (threads > 1)
        .then(|| rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(named).build())
        .transpose()
}

/// A lock whatever has happened: what it guards are spare things, whole at any moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A row as it is stored, at any alignment, as 32-bit floats.
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

/// Values of two bytes at an odd address.
fn pairs(from: &[u8], to: &mut [f32], value: impl Fn([u8; 2]) -> f32) {
    let (pairs, _) = from.as_chunks::<2>();
    pairs.iter().zip(to).for_each(|(&pair, to)| *to = value(pair));
}
