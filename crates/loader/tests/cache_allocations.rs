//! After a few reads a cache allocates no memory, because readers reuse pooled scratch buffers.
//! Counted on one thread, where the count is exact (on several, rayon's queues may grow now and
//! then). A minibatch whose memory is refused is an error.

#![allow(unsafe_code, reason = "allocators of tests")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ops::Range,
    ptr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use graphmill_core::{EdgeOptions, Error, Features, build, keyed, matrix::TableType, memory};
use graphmill_loader::{
    BatchKey, Feature, MinibatchSampler, Seeds, Workspace,
    feature::{
        Host,
        cached::{CacheLayout, Dynamic, Level, Pinned, Placement},
    },
    policy,
    sampler::{BatchRequest, HopStack, neighbor::Neighbor},
};

/// Counts the allocations of all threads.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Number of requests of [`LARGE`] bytes or more until all further ones are refused.
static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Lock of the tests, which share the counts.
static TURN: Mutex<()> = Mutex::new(());

/// Bytes from which on a request may be refused.
const LARGE: usize = 16 << 10;

/// Returns true if a request of this size is refused.
fn is_refused(bytes: usize) -> bool {
    let next = |left: usize| (left != usize::MAX).then(|| left.saturating_sub(1));
    bytes >= LARGE && LEFT.fetch_update(Relaxed, Relaxed, next) == Ok(0)
}

// SAFETY: every call goes to the system's allocator unchanged, or is refused by null; counting
// allocates no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        if is_refused(layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: the caller's guarantee holds for the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantee holds for the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        if is_refused(size) {
            return ptr::null_mut();
        }
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
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
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

#[test]
fn a_minibatch_without_memory_is_an_error_and_the_next_one_is_right() {
    const NODES: usize = 20_000;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let ends =
        |salt: u64| (0..8 * NODES as u64).map(move |e| (keyed::mix((e << 1) | salt) % NODES as u64) as u32);
    let (src, dst): (Vec<u32>, Vec<u32>) = (ends(0).collect(), ends(1).collect());
    let graph = build(NODES, &src, &dst, EdgeOptions::UNDIRECTED).unwrap();
    let features = Host::new(&Features::f32(DIM, (0..NODES * DIM).map(|x| x as f32).collect::<Vec<f32>>()));
    let sampler = HopStack::new(Neighbor::new([8, 8]).unwrap());
    let chosen: Vec<u32> = (0..1000).map(|i| 20 * i).collect();
    // nodes and features of a batch whose buffers are new
    let draw = |workspace: &mut Workspace| {
        let seeds = Seeds::new(0, chosen.clone());
        let request = BatchRequest::new(&graph, BatchKey { seed: 1, epoch: 0, batch: 0 });
        let batch = sampler.sample(&request, workspace, seeds).unwrap().extract(&features).unwrap();
        (batch.sampled.input_nodes, batch.features)
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.install(|| {
        let (nodes, rows) = draw(&mut Workspace::new(NODES));
        let mut workspace = Workspace::new(NODES);
        let mut allowed = 0;
        loop {
            LEFT.store(allowed, Relaxed);
            let drawn = memory::catch(|| draw(&mut workspace));
            LEFT.store(usize::MAX, Relaxed);
            let is_whole = drawn.is_ok();
            // the next batch with the same buffers
            let (found, found_rows) = drawn.unwrap_or_else(|error| {
                assert!(matches!(error, Error::Memory(_)), "{error}");
                draw(&mut workspace)
            });
            assert_eq!(found, nodes, "after {allowed} requests");
            assert_eq!(found_rows.view().host(), rows.view().host());
            if is_whole {
                break;
            }
            workspace = Workspace::new(NODES);
            allowed += 1;
        }
        assert!(allowed > 4, "{allowed} requests");
    });
}
