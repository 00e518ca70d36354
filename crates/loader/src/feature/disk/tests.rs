use std::{collections::VecDeque, fs::File, io, path::PathBuf, sync::atomic::AtomicU64};

use graphmill_core::keyed;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// A file of random bytes that are finite values in every type.
struct TestFile {
    _dir: TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl TestFile {
    fn new(len: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows");
        // the high bytes of floats stay below the exponent of infinity
        let bytes: Vec<u8> = (0..len as u64).map(|i| (keyed::mix(i) % 0x3f) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        Self { _dir: dir, path, bytes }
    }

    /// The row of a plain read.
    fn row(&self, offset: usize, dim: usize, kind: TableType, v: u32) -> Vec<f32> {
        let width = kind.width();
        let row = &self.bytes[offset + v as usize * dim * width..][..dim * width];
        let value = |x: &[u8]| match kind {
            TableType::F32 => f32::from_le_bytes(x.try_into().unwrap()),
            TableType::F16 => f16::from_le_bytes(x.try_into().unwrap()).to_f32(),
            TableType::Bf16 => bf16::from_le_bytes(x.try_into().unwrap()).to_f32(),
        };
        row.chunks_exact(width).map(value).collect()
    }

    fn open(&self, rows: usize, options: &DiskOptions) -> Disk {
        Disk::open(&self.path, OFFSET as u64, DIM, TableType::F32, rows, options).unwrap()
    }

    fn check(&self, disk: &Disk, ids: &[u32]) -> Result<()> {
        let mut out = vec![-1.0; ids.len() * DIM];
        let disk = disk.read(ids, &mut out)?.disk;
        assert!(disk.rows == ids.len() as u64 && (disk.bytes > 0 || ids.is_empty()));
        for (&v, row) in ids.iter().zip(out.chunks_exact(DIM)) {
            assert_eq!(row, self.row(OFFSET, DIM, TableType::F32, v), "row {v}");
        }
        Ok(())
    }
}

const OFFSET: usize = 128;
const DIM: usize = 100;

/// Readers that this system supports.
fn readers() -> Vec<ReaderKind> {
    let file = TestFile::new(1);
    let has = |reader| {
        let options = DiskOptions { reader, ..DiskOptions::default() };
        Disk::open(&file.path, 0, 1, TableType::F32, 0, &options).is_ok()
    };
    [ReaderKind::Uring, ReaderKind::Pread].into_iter().filter(|&reader| has(reader)).collect()
}

/// Fault of each read, by its number.
type Fate = fn(u64) -> Fault;

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Returns this many sixteenths of the bytes.
    Short(usize),
    Error(i32),
}

const EINTR: i32 = 4;
const EIO: i32 = 5;
const EAGAIN: i32 = 11;

/// A queue with faulty reads.
struct Faulty {
    inner: Box<dyn Queue>,
    fate: Fate,
    count: Arc<AtomicU64>,
    failed: VecDeque<(usize, i32)>,
    cut: Vec<Fault>,
}

impl Queue for Faulty {
    fn slots(&self) -> usize {
        self.inner.slots()
    }

    fn start(&mut self, slot: usize, at: usize, len: usize, offset: u64) {
        let fault = (self.fate)(self.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        self.cut[slot] = fault;
        match fault {
            Fault::Error(number) => self.failed.push_back((slot, number)),
            _ => self.inner.start(slot, at, len, offset),
        }
    }

    fn finish(&mut self) -> io::Result<(usize, io::Result<usize>)> {
        if let Some((slot, number)) = self.failed.pop_front() {
            return Ok((slot, Err(io::Error::from_raw_os_error(number))));
        }
        let (slot, outcome) = self.inner.finish()?;
        Ok((
            slot,
            match self.cut[slot] {
                Fault::Short(part) => outcome.map(|count| count * part / 16),
                _ => outcome,
            },
        ))
    }

    fn bytes(&self, slot: usize) -> &[u8] {
        self.inner.bytes(slot)
    }
}

/// Injects faults into the reads of a disk.
fn with_faults(mut disk: Disk, fate: Fate) -> Disk {
    let make = std::mem::replace(&mut disk.make, Box::new(|| Err(io::Error::other("replaced"))));
    let count = Arc::new(AtomicU64::new(0));
    disk.make = Box::new(move || {
        let inner = make()?;
        let cut = vec![Fault::None; inner.slots()];
        Ok(Box::new(Faulty { inner, fate, count: Arc::clone(&count), failed: VecDeque::new(), cut }))
    });
    lock(&disk.idle).clear();
    disk
}

const FATES: [Fate; 4] = [
    |_| Fault::None,
    |i| if i % 3 == 0 { Fault::Short(i as usize % 16) } else { Fault::None },
    |i| [Fault::Error(EINTR), Fault::Error(EAGAIN), Fault::None][i as usize % 3],
    |i| match keyed::mix(i) % 5 {
        0 => Fault::Error(EINTR),
        1 => Fault::Short(0),
        2 => Fault::Short(9),
        _ => Fault::None,
    },
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_request_returns_the_rows_of_a_plain_read(
        (offset, dim, kind, rows) in (0..5000usize, 1..300usize, 0..3usize, 1..120usize),
        picks in prop::collection::vec((any::<u32>(), 0..3u32), 0..200),
        (ascending, placed, fate, block) in (any::<bool>(), any::<bool>(), 0..4usize, 0..3usize),
        (uring, direct, gap, depth, threads, max_len) in
            (any::<bool>(), any::<bool>(), 0..9000u64, 1..9usize, 1..4usize, 4096..20_000usize),
        tail in 0..600usize,
    ) {
        let kind = TableType::ALL[kind].1;
        let file = TestFile::new(offset + rows * dim * kind.width() + tail);
        let reader = if uring { ReaderKind::Auto } else { ReaderKind::Pread };
        let direct = if direct { Direct::Auto } else { Direct::Off };
        let options = DiskOptions { reader, direct, gap, depth, threads, read_bytes: max_len };
        let block = [1, 512, 4096][block];
        let disk = Disk::open_in_blocks(&file.path, offset as u64, dim, kind, rows, &options, block).unwrap();
        let disk = with_faults(disk, FATES[fate]);
        let mut ids: Vec<u32> = picks.iter().map(|pick| pick.0 % rows as u32).collect();
        if ascending {
            ids.sort_unstable();
        }
        let at: Vec<u32> = picks.iter().scan(0, |next, pick| { *next += 1 + pick.1; Some(*next) }).collect();
        let places = if placed { OutputRows::At(&at) } else { OutputRows::InOrder };
        let length = if placed { at.last().map_or(0, |&last| last as usize + 2) } else { ids.len() };
        let mut out = vec![-7.0; length * dim];
        let mut expected = out.clone();
        for (i, &v) in ids.iter().enumerate() {
            let to = if placed { at[i] as usize } else { i };
            expected[to * dim..(to + 1) * dim].copy_from_slice(&file.row(offset, dim, kind, v));
        }
        let traffic = disk.read_to(&ids, places, &mut out).unwrap();
        prop_assert_eq!(out, expected);
        prop_assert_eq!(traffic.total(), traffic.disk);
        prop_assert_eq!(traffic.disk.rows, ids.len() as u64);
    }
}

#[test]
fn each_block_is_read_once() {
    let file = TestFile::new(OFFSET + 400 * 1000 + 77);
    for reader in readers() {
        let disk = file.open(1000, &DiskOptions { reader, threads: 3, ..DiskOptions::default() });
        let ids: Vec<u32> = (0..3000).map(|i| i * 7 % 1000).collect();
        let mut out = vec![0.0; ids.len() * DIM];
        let bytes = disk.read(&ids, &mut out).unwrap().disk.bytes;
        // the last block is as long as the file
        let block = disk.block().unwrap_or(1);
        let first = OFFSET as u64 / block * block;
        let end = (OFFSET as u64 + 400_000).next_multiple_of(block).min(file.bytes.len() as u64);
        assert_eq!(bytes, end - first, "{reader:?}");
    }
}

#[test]
fn empty_requests_and_rows_read_nothing() {
    let file = TestFile::new(OFFSET + 4000);
    for reader in readers() {
        let options = DiskOptions { reader, ..DiskOptions::default() };
        file.check(&file.open(10, &options), &[]).unwrap();
        let none = Disk::open(&file.path, 4000, 0, TableType::F32, 1 << 40, &options).unwrap();
        let disk = none.read(&[7, 1 << 31], &mut []).unwrap().disk;
        assert_eq!((disk.rows, disk.bytes), (2, 0));
        let error = file.check(&file.open(9, &options), &[3, 9]).unwrap_err().to_string();
        assert!(error.contains("row 9 is out of range: the file has 9 rows"), "{error}");
    }
}

#[test]
fn open_errors_name_the_reason() {
    let file = TestFile::new(1000);
    let open = |path: &Path, offset, dim, rows, options: &DiskOptions| match Disk::open(
        path,
        offset,
        dim,
        TableType::F32,
        rows,
        options,
    ) {
        Ok(_) => String::new(),
        Err(e) => e.to_string(),
    };
    let options = DiskOptions::default();
    assert_eq!(open(&file.path, 0, 5, 50, &options), "");
    for (offset, dim, rows) in
        [(1, 5, 50), (0, 5, 51), (u64::MAX, 1, 1), (0, usize::MAX, 3), (0, 3, usize::MAX)]
    {
        let error = open(&file.path, offset, dim, rows, &options);
        assert!(error.contains("byte 1000: the file ends here"), "{error}");
    }
    let parent = file.path.parent().unwrap();
    assert!(open(parent, 0, 0, 0, &options).contains("this is not a regular file"));
    assert!(open(&parent.join("none"), 0, 0, 0, &options).contains("cannot open"));
    for (options, name) in [
        (DiskOptions { depth: 0, ..options.clone() }, "in flight is 0"),
        (DiskOptions { depth: 5000, ..options.clone() }, "in flight is 5000"),
        (DiskOptions { threads: 300, ..options.clone() }, "threads that read is 300"),
        (DiskOptions { read_bytes: 1, ..options.clone() }, "largest read in bytes is 1;"),
        (DiskOptions { gap: u64::MAX, ..options.clone() }, "gap between rows"),
    ] {
        let error = open(&file.path, 0, 5, 50, &options);
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn reads_after_an_error_are_right() {
    let file = TestFile::new(OFFSET + 400 * 2000);
    for reader in readers() {
        for threads in [1, 3] {
            let options = DiskOptions { reader, threads, depth: 8, gap: 0, ..DiskOptions::default() };
            let disk = with_faults(file.open(2000, &options), |i| {
                if i % 150 == 100 { Fault::Error(EIO) } else { Fault::None }
            });
            let mut failures = 0;
            for round in 0..60u32 {
                let ids: Vec<u32> = (0..90).map(|i| (i * 37 + round * 11) % 2000).collect();
                if let Err(e) = file.check(&disk, &ids) {
                    let text = e.to_string();
                    assert!(text.contains("rows: bytes") && text.contains("run again"), "{text}");
                    failures += 1;
                }
            }
            assert!((10..60).contains(&failures), "{failures} failures of {reader:?}");
        }
    }
}

#[test]
fn shrunken_files_are_named_and_may_be_restored() {
    let file = TestFile::new(OFFSET + 400 * 1000);
    for reader in readers() {
        for direct in [Direct::Auto, Direct::Off] {
            for (threads, len) in [(1, 100_000), (1, 100_001), (4, 100_224), (1, 0)] {
                let disk =
                    file.open(1000, &DiskOptions { reader, direct, threads, ..DiskOptions::default() });
                let ids: Vec<u32> = (0..1000).rev().collect();
                file.check(&disk, &ids).unwrap();
                std::fs::write(&file.path, &file.bytes[..len]).unwrap();
                let error = file.check(&disk, &ids).unwrap_err().to_string();
                assert!(error.contains(&format!("has shrunk to {len} bytes")), "{error}");
                assert!(error.contains("1000 rows of 400 bytes from byte 128"), "{error}");
                file.check(&disk, &[0, 5, 9][..3 * usize::from(len > 0)]).unwrap();
                std::fs::write(&file.path, &file.bytes).unwrap();
                file.check(&disk, &ids).unwrap();
            }
        }
    }
}

#[test]
fn files_may_shrink_during_reads() {
    for reader in readers() {
        let file = TestFile::new(OFFSET + 400 * 3000);
        let disk = file.open(3000, &DiskOptions { reader, threads: 2, gap: 0, ..DiskOptions::default() });
        let error = std::thread::scope(|scope| {
            let handle = scope.spawn(|| {
                // some rows before the cut and some after it
                let ids: Vec<u32> = (0..600).map(|i| i * 5).collect();
                (0..100_000).find_map(|_| file.check(&disk, &ids).err())
            });
            std::thread::sleep(std::time::Duration::from_millis(5));
            File::options().write(true).open(&file.path).unwrap().set_len(300_000).unwrap();
            handle.join().unwrap().unwrap().to_string()
        });
        assert!(error.contains("has shrunk to 300000 bytes"), "{error}");
    }
}

#[test]
fn concurrent_reads_return_their_rows() {
    let file = TestFile::new(OFFSET + 400 * 3000);
    for reader in readers() {
        for threads in [1, 4] {
            let disk = file.open(3000, &DiskOptions { reader, threads, depth: 16, ..DiskOptions::default() });
            std::thread::scope(|scope| {
                for thread in 0..8u64 {
                    let (file, disk) = (&file, &disk);
                    scope.spawn(move || {
                        for round in 0..10 {
                            let pick = |i| (keyed::mix(thread << 32 | round << 16 | i) % 3000) as u32;
                            file.check(disk, &(0..200).map(pick).collect::<Vec<_>>()).unwrap();
                        }
                    });
                }
            });
            assert!(lock(&disk.idle).len() <= threads.max(rayon::current_num_threads()));
        }
    }
}

#[test]
fn panics_leave_no_reads_in_flight() {
    let file = TestFile::new(OFFSET + 400 * 1000);
    for reader in readers() {
        let disk = file.open(1000, &DiskOptions { reader, gap: 0, threads: 1, ..DiskOptions::default() });
        let ids: Vec<u32> = (0..200).map(|i| i * 5).collect();
        let mut keys = Vec::new();
        plan::sort(&ids, &mut keys);
        for _ in 0..20 {
            let panic = || {
                let mut reader = Reader::new((disk.make)().unwrap());
                let mut left = 10;
                let _ = reader.read(&disk.file, &disk.layout, &keys, 0..keys.len(), |_, _| {
                    left -= 1;
                    assert!(left > 0, "on purpose");
                });
            };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panic)).is_err());
        }
        file.check(&disk, &ids).unwrap();
    }
}

#[test]
fn refused_memory_is_an_error() {
    let file = TestFile::new(1);
    let file = Arc::new(OpenFile::new(&file.path, Direct::Off).unwrap());
    // more than any address space
    let size = 1 << 60;
    for kind in [ReaderKind::Uring, ReaderKind::Auto, ReaderKind::Pread] {
        let made = QueueFactory { file: Arc::clone(&file), kind, slots: 1, size }.make();
        let error = made.err().unwrap().kind();
        // or the system has no rings
        assert!(error == io::ErrorKind::OutOfMemory || kind == ReaderKind::Uring, "{kind:?}: {error}");
    }
    let read = chunk::read(&file, 0..size as u64, &mut |_| ());
    assert!(read.is_err_and(|fault| matches!(fault.cause, reader::Cause::System(_))));
}
