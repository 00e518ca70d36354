//! Speed of reading rows from a file, compared with the disk itself: large sequential reads, and
//! random blocks of 4 KiB.
//!
//! `cargo bench -p graphmill-loader --bench disk [-- DIRECTORY [GIB]]`. The file is written to the
//! directory (by default a temporary one; it should be on a disk, not in memory) and removed.
//! Requests are of 50,000 random rows; each time is the best of seven, and options take turns.
//! Through the page cache (`off`), each request begins with an empty cache.

#![allow(unsafe_code, reason = "system calls")]

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("this bench measures Linux's direct I/O");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        fs::File,
        io::Write,
        os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
        path::Path,
        time::Instant,
    };

    use graphmill_core::{keyed, matrix::TableType};
    use graphmill_loader::{
        Feature,
        feature::disk::{Direct, Disk, DiskOptions, ReaderKind},
    };
    use io_uring::{IoUring, opcode, types::Fd};
    use rustix::fs::{Advice, OFlags, fadvise};

    /// Number of rows of a request.
    const BATCH: u64 = 50_000;
    /// Number of requests of each kind, of which the fastest counts.
    const ROUNDS: u64 = 7;
    /// Bytes before the first row, as NumPy's header.
    const OFFSET: u64 = 128;

    pub(super) fn main() {
        let mut words = std::env::args().skip(1).filter(|word| !word.starts_with("--"));
        let dir = words.next().map_or_else(tempfile::tempdir, tempfile::tempdir_in).expect("a directory");
        let gib: u64 = words.next().map_or(2, |word| word.parse().expect("GiB"));
        let path = dir.path().join("rows");
        let size = write(&path, gib << 30);
        let (large, _) = limit(&path, size, 1 << 20, 16, 1 << 10);
        println!("{gib} GiB; in order by 1 MiB: {large:.0} MB/s");
        for depth in [32, 128, 512] {
            let (small, rate) = limit(&path, size, 4096, depth, 50_000);
            println!("random 4 KiB, {depth} in flight: {small:.0} MB/s, {:.1} k reads/s", rate / 1e3);
        }
        println!(
            "{:>6} {:>6} {:>6} {:>6} {:>7} {:>6} | useful MB/s  k rows/s  read/useful",
            "row", "reader", "direct", "depth", "threads", "gap"
        );
        let base =
            DiskOptions { reader: ReaderKind::Uring, direct: Direct::On, gap: 0, ..DiskOptions::default() };
        for row in [400, 512, 1024] {
            let off = DiskOptions { direct: Direct::Off, ..base.clone() };
            let mut all = vec![base.clone(), off.clone(), DiskOptions { reader: ReaderKind::Pread, ..off }];
            let pread = DiskOptions { reader: ReaderKind::Pread, ..base.clone() };
            all.extend([2, 16, 32, 64].map(|threads| DiskOptions { threads, ..pread.clone() }));
            measure(&path, size, row, &all);
        }
        let mut all =
            [8, 16, 32, 64, 128, 256, 512].map(|depth| DiskOptions { depth, ..base.clone() }).to_vec();
        all.push(DiskOptions { threads: 2, ..base.clone() });
        measure(&path, size, 512, &all);
        for row in [400, 512, 1024] {
            let all = [0, 4 << 10, 16 << 10, 64 << 10].map(|gap| DiskOptions { gap, ..base.clone() });
            measure(&path, size, row, &all);
        }
        for read_bytes in [16 << 10, 64 << 10, 128 << 10, 512 << 10] {
            print!("in order by {:>4} KiB ", read_bytes >> 10);
            in_order(&path, size, &DiskOptions { read_bytes, ..base.clone() });
        }
    }

    /// Writes a file of `size` bytes, without holes, to the disk.
    fn write(path: &Path, size: u64) -> u64 {
        let mut file = File::create(path).expect("a file");
        let mut words = vec![0u64; 1 << 17];
        for chunk in 0..size >> 20 {
            words.iter_mut().zip(chunk << 17..).for_each(|(word, i)| *word = keyed::mix(i));
            file.write_all(bytemuck::cast_slice(&words)).expect("free space on the disk");
        }
        file.sync_all().expect("a disk");
        size
    }

    fn seconds(mut run: impl FnMut(u64)) -> f64 {
        let time = |i| {
            let clock = Instant::now();
            run(i);
            clock.elapsed().as_secs_f64()
        };
        (0..3).map(time).fold(f64::INFINITY, f64::min)
    }

    /// MB and reads per second of `count` reads of `block` bytes past the page cache, with all
    /// slots busy: sequential for large blocks, random for small ones.
    fn limit(path: &Path, size: u64, block: u64, depth: usize, count: u64) -> (f64, f64) {
        let file = File::options()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(path)
            .expect("direct I/O");
        let mut ring = IoUring::new(depth as u32).expect("io_uring");
        let mut memory = vec![0u8; depth * block as usize + 4096];
        let start = memory.as_mut_ptr().align_offset(4096);
        let blocks = size / block;
        let best = seconds(|round| {
            let (mut begun, mut done) = (0, 0);
            let mut free: Vec<usize> = (0..depth).collect();
            while done < count {
                while begun < count
                    && let Some(slot) = free.pop()
                {
                    let at = if block > 4096 { begun % blocks } else { keyed::key(&[round, begun]) % blocks };
                    let to = memory[start + slot * block as usize..][..block as usize].as_mut_ptr();
                    let read = opcode::Read::new(Fd(file.as_raw_fd()), to, block as u32).offset(at * block);
                    // SAFETY: no code accesses the slot's memory until its read is done, and the
                    // memory lives until all reads are done, below.
                    unsafe { ring.submission().push(&read.build().user_data(slot as u64)) }
                        .expect("the ring has an entry per slot");
                    begun += 1;
                }
                ring.submit_and_wait(1).expect("reads");
                for outcome in ring.completion() {
                    assert_eq!(outcome.result() as u64, block);
                    free.push(outcome.user_data() as usize);
                    done += 1;
                }
            }
        });
        (count as f64 * block as f64 / best / 1e6, count as f64 / best)
    }

    /// Drops the file from the page cache.
    fn forget(path: &Path) {
        let file = File::open(path).expect("the file");
        fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
    }

    /// Prints a line for each of the options, which take turns because the speed of a shared disk
    /// varies.
    fn measure(path: &Path, size: u64, row: u64, options: &[DiskOptions]) {
        let (dim, rows) = (row as usize / 4, (size - OFFSET) / row);
        let open = |options| Disk::open(path, OFFSET, dim, TableType::F32, rows as usize, options);
        let disks: Vec<Disk> = options.iter().map(|options| open(options).expect("a reader")).collect();
        let mut out = vec![0.0; BATCH as usize * dim];
        let mut best = vec![(f64::INFINITY, 0); disks.len()];
        for round in 0..ROUNDS {
            for (disk, best) in disks.iter().zip(&mut best) {
                let ids: Vec<u32> = (0..BATCH).map(|i| (keyed::key(&[9, round, i]) % rows) as u32).collect();
                if disk.block().is_none() {
                    forget(path);
                }
                let traffic = disk.read(&ids, &mut out).expect("rows").disk;
                *best = (best.0.min(traffic.nanos as f64 / 1e9), traffic.bytes);
            }
        }
        for ((disk, options), (seconds, bytes)) in disks.iter().zip(options).zip(best) {
            let useful = (BATCH * row) as f64;
            println!(
                "{row:>6} {:>6} {:>6} {:>6} {:>7} {:>6} | {:>11.1} {:>9.1} {:>12.2}",
                format!("{:?}", disk.reader()).to_lowercase(),
                if disk.block().is_some() { "on" } else { "off" },
                options.depth,
                options.threads,
                options.gap,
                useful / seconds / 1e6,
                BATCH as f64 / seconds / 1e3,
                bytes as f64 / useful
            );
        }
    }

    /// Prints the speed of reading all rows of 512 bytes in order.
    fn in_order(path: &Path, size: u64, options: &DiskOptions) {
        let rows = ((size - OFFSET) / 512) as usize;
        let disk = Disk::open(path, OFFSET, 128, TableType::F32, rows, options).expect("a table");
        let mut out = vec![0.0; BATCH as usize * 128];
        let best = seconds(|round| {
            let first = (round as u32 * 200_000).min(rows as u32 / 2);
            for start in (first..).step_by(BATCH as usize).take(8) {
                let ids: Vec<u32> = (start..start + BATCH as u32).collect();
                disk.read(&ids, &mut out).expect("rows");
            }
        });
        println!("{:.0} MB/s", (8 * BATCH * 512) as f64 / best / 1e6);
    }
}
