//! After a few reads a cache allocates no memory, because readers reuse pooled scratch buffers.
//! Counted on one thread, where the count is exact (on several, rayon's queues may grow now and
//! then).

mod allocator;

use std::{ops::Range, sync::Arc};

use allocator::{alone, count};
use graphmill_core::{Features, keyed, matrix::TableType};
use graphmill_loader::{
    Feature,
    feature::{
        Host,
        cached::{CacheLayout, Dynamic, Level, Pinned, Placement},
    },
    policy,
};

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
    let _turn = alone();
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
        let mut allocations = |cache: &dyn Feature, batches: Range<u64>| {
            let before = count();
            for number in batches {
                batch(number, &mut ids);
                let read = cache.read(&ids, &mut out[..ids.len() * DIM]).unwrap();
                assert!(read.device.rows > 0 || number == 0);
                assert!(read.host.rows > 0, "some rows always miss");
            }
            count() - before
        };
        let mut both = |cache: &dyn Feature| {
            allocations(cache, 0..40);
            // the same batches again: no part of them is larger than before, except for a few
            // misses
            allocations(cache, 0..40)
        };
        caches.iter().map(|(name, cache)| (*name, both(&**cache))).collect()
    });
    assert!(counts.iter().all(|(_, count)| *count == 0), "{counts:?}");
}
