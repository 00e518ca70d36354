//! After a few reads a cache allocates no memory, because readers reuse pooled scratch buffers.
//! Counted on one thread, where the count is exact (on several, rayon's queues may grow now and
//! then).

#![allow(unsafe_code, reason = "allocators of tests")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use graphmill_core::{Features, keyed, matrix::TableType};
use graphmill_loader::{
    Feature,
    feature::{
        Host,
        cached::{CacheLayout, Dynamic, Level, Pinned, Placement},
    },
    policy,
};

/// Counts the allocations of all threads.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting allocates no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        // SAFETY: the caller's guarantee holds for the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantee holds for the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        // SAFETY: the caller's guarantee holds for the system's allocator.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const ROWS: usize = 20_000;
const DIM: usize = 8;
const READ: usize = 5_000;

/// Rows of a batch: distinct, low ids more often than others.
fn batch(number: u64, ids: &mut Vec<u32>) {
    ids.clear();
    ids.extend((0..READ as u64).map(|i| (keyed::mix((number << 32) | i) % (1 + 4 * i)) as u32));
    ids.sort_unstable();
    ids.dedup();
}

#[test]
fn reads_allocate_no_memory_after_the_first_ones() {
    let features = Features::f32(DIM, (0..ROWS * DIM).map(|x| x as f32).collect::<Vec<f32>>());
    let behind = || Arc::new(Host::new(&features));
    let level = Level::Device { devices: 1, reader: 0 };
    let ranking: Vec<u32> = (0..ROWS as u32).collect();
    let layout = CacheLayout::new(&ranking, 2_000, 1, Placement::Interleave);
    let pinned = Pinned::new(layout, TableType::F32, behind(), level).unwrap();
    let mut caches: Vec<(&str, Box<dyn Feature>)> = vec![("pinned", Box::new(pinned))];
    for entry in &policy::TABLE {
        let dynamic = Dynamic::new(entry.make, 8_192, TableType::F32, behind(), level).unwrap();
        caches.push((entry.name, Box::new(dynamic)));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let counts: Vec<(&str, usize)> = pool.install(|| {
        let (mut ids, mut out) = (Vec::with_capacity(READ), vec![0.0; READ * DIM]);
        let mut count = |cache: &dyn Feature, batches: Range<u64>| {
            let before = COUNT.load(Relaxed);
            for number in batches {
                batch(number, &mut ids);
                let read = cache.read(&ids, &mut out[..ids.len() * DIM]).unwrap();
                assert!(read.device.rows > 0 || number == 0);
                assert!(read.host.rows > 0, "some rows always miss");
            }
            COUNT.load(Relaxed) - before
        };
        let mut both = |cache: &dyn Feature| {
            count(cache, 0..40);
            // the same batches again: no part of them is larger than before, except for a few
            // misses
            count(cache, 0..40)
        };
        caches.iter().map(|(name, cache)| (*name, both(&**cache))).collect()
    });
    assert!(counts.iter().all(|(_, count)| *count == 0), "{counts:?}");
}
