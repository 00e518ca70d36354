//! Caches return the rows of a plain read, whatever they store and whatever other readers do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use graphmill_core::{
    Error, Features, Matrix, NodeId, Result, SparseRows,
    features::FeatureData,
    keyed,
    matrix::{Slots, TableType},
};
use half::f16;
use proptest::prelude::*;

use super::{
    dynamic::{Lock, Shard, ShardRequest, admit, serve},
    *,
};
use crate::{
    feature::{
        Capabilities, Feature, Host, Link, LinkOptions, MarkedFeature, Marks, OutputRows, OverlappedFeature,
        OverlappedWork, no_work, read_overlapped, scatter::Scatter,
    },
    policy,
};

/// Divisor of counts: Miri interprets the tests.
const REDUCTION: u64 = if cfg!(miri) { 10 } else { 1 };

const ROWS: usize = 600;

/// Rows of `dim` values from which a row and its column can be computed.
fn features(dim: usize, kind: TableType) -> Features {
    let value = |i: usize| (i / dim.max(1)) as f32 + 0.125 * (i % dim.max(1) % 8) as f32;
    let values = (0..ROWS * dim).map(value);
    let data = match kind {
        TableType::F32 => FeatureData::F32(values.collect::<Vec<f32>>().into()),
        _ => FeatureData::F16(values.map(f16::from_f32).collect::<Vec<f16>>().into()),
    };
    Features { dim, data }
}

/// Counts the rows read from the next tier, and fails on request.
struct CountingTier {
    host: Host,
    reads: Arc<AtomicU64>,
    fails_in: Arc<AtomicU64>,
}

impl Feature for CountingTier {
    fn dim(&self) -> usize {
        self.host.dim()
    }
    fn num_rows(&self) -> usize {
        self.host.num_rows()
    }
    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        self.reads.fetch_add(ids.len() as u64, Relaxed);
        if self.fails_in.fetch_sub(1, Relaxed) == 0 {
            self.fails_in.store(u64::MAX, Relaxed);
            return Err(Error::invalid("the disk is gone"));
        }
        let read = self.host.read_to(ids, places, out)?;
        Ok(Traffic { disk: read.host, ..Traffic::default() })
    }
    fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<Traffic> {
        if self.host.table().is_some() {
            out.resize(ids.len(), self.dim());
            return self.read(ids, out.view_mut().host());
        }
        self.reads.fetch_add(ids.len() as u64, Relaxed);
        let read = self.host.gather(ids, out)?;
        Ok(Traffic { disk: read.host, ..Traffic::default() })
    }
    fn row_bytes(&self) -> u64 {
        self.host.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities::default()
    }
}

/// Rows of which some have no values, and others up to ten.
fn sparse_features(dim: usize) -> Features {
    let value = |i: usize| {
        let (v, j) = (i / dim, i % dim);
        if (v * 7 + j * 3) % 11 < v % 5 { (i % 97) as f32 + 0.5 } else { 0.0 }
    };
    let dense: Vec<f32> = (0..ROWS * dim).map(value).collect();
    Features::csr(SparseRows::from_dense(dim, &dense).unwrap())
}

fn next_tier(features: &Features) -> (Arc<dyn Feature>, Arc<AtomicU64>, Arc<AtomicU64>) {
    let (reads, fails_in) = (Arc::default(), Arc::new(AtomicU64::new(u64::MAX)));
    let tier = CountingTier {
        host: Host::new(features),
        reads: Arc::clone(&reads),
        fails_in: Arc::clone(&fails_in),
    };
    (Arc::new(tier), reads, fails_in)
}

/// Caches of `slots` slots: pinned, of every policy, and one before another.
fn caches(features: &Features, slots: usize) -> Vec<(String, Arc<dyn Feature>)> {
    let kind = features.data.kind().map_or(RowFormat::Sparse, RowFormat::Dense);
    let ranking: Vec<NodeId> = (0..ROWS as NodeId).map(|v| (v * 7 + 3) % ROWS as NodeId).collect();
    let pinned = |behind, level, devices| {
        let layout = CacheLayout::new(&ranking, slots, devices, Placement::Replicate(0.25));
        Arc::new(Pinned::new(layout, kind, behind, level).unwrap()) as Arc<dyn Feature>
    };
    let device = Level::Device { devices: 3, reader: 1 };
    let mut all = vec![
        ("pinned".to_string(), pinned(next_tier(features).0, Level::Host, 1)),
        ("pinned on devices".to_string(), pinned(next_tier(features).0, device, 3)),
    ];
    for entry in &policy::TABLE {
        let dynamic = |level, behind| {
            Arc::new(Dynamic::new(entry.make, slots, kind, behind, level).unwrap()) as Arc<dyn Feature>
        };
        all.push((entry.name.to_string(), dynamic(Level::Host, next_tier(features).0)));
        let host = dynamic(Level::Host, next_tier(features).0);
        all.push((format!("pinned before {}", entry.name), pinned(host, device, 3)));
        let host = pinned(next_tier(features).0, Level::Host, 1);
        all.push((format!("{} before pinned", entry.name), dynamic(device, host)));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24 / REDUCTION as u32, ..ProptestConfig::default() })]
    #[test]
    fn caches_return_the_rows_of_a_plain_read(
        dim in 1..9usize,
        form in 0..3,
        slots in prop_oneof![Just(0), 1..40usize, Just(ROWS), Just(2 * ROWS)],
        reads in prop::collection::vec(prop::collection::vec((0..ROWS as NodeId, 1..4u32), 0..200), 1..6),
    ) {
        let features = match form {
            0 => sparse_features(dim),
            1 => features(dim, TableType::F16),
            _ => features(dim, TableType::F32),
        };
        let plain = Host::new(&features);
        for (name, cache) in caches(&features, slots) {
            let shape = (cache.dim(), cache.num_rows(), cache.row_bytes());
            prop_assert_eq!(shape, (dim, ROWS, plain.row_bytes()));
            for read in &reads {
                // batches hold distinct rows
                let mut seen = [false; ROWS];
                let fresh = read.iter().filter(|r| !std::mem::replace(&mut seen[r.0 as usize], true));
                let mut next = 0;
                let (ids, places): (Vec<NodeId>, Vec<u32>) = fresh.map(|&(v, gap)| {
                    next += gap;
                    (v, next - 1)
                }).unzip();
                let mut expected = vec![-1.0; next as usize * dim];
                let mut found = expected.clone();
                plain.read_to(&ids, OutputRows::At(&places), &mut expected).unwrap();
                let traffic = cache.read_to(&ids, OutputRows::At(&places), &mut found).unwrap();
                prop_assert_eq!(&found, &expected, "{}", name);
                prop_assert_eq!(traffic.total().rows, ids.len() as u64, "{}", name);
                let mut in_order = vec![0.0; ids.len() * dim];
                cache.read(&ids, &mut in_order).unwrap();
                let rows = places.iter().flat_map(|&p| &found[p as usize * dim..][..dim]);
                let expected: Vec<f32> = rows.copied().collect();
                prop_assert_eq!(&in_order, &expected, "{}", name);
                if let Some(tier) = cache.capabilities().slotted {
                    let (mut slots, mut rows) = (Vec::new(), Matrix::default());
                    let in_place = tier.read_slots(&ids, &mut slots, &mut rows).unwrap().total();
                    let Slots { cached, staged } = rows.view().slots().unwrap();
                    let all = [cached, staged].concat();
                    let found: Vec<f32> =
                        slots.iter().flat_map(|&slot| &all[slot as usize * dim..][..dim]).copied().collect();
                    prop_assert_eq!(&found, &expected, "{}", name);
                    let gathered = (traffic.total().rows, traffic.total().bytes);
                    prop_assert_eq!((in_place.rows, in_place.bytes), gathered, "{}", name);
                }
                let (mut gathered, mut plainly) = (Matrix::default(), Matrix::default());
                let traffic = cache.gather(&ids, &mut gathered).unwrap();
                plain.gather(&ids, &mut plainly).unwrap();
                match (gathered.view().sparse(), plainly.view().sparse()) {
                    (Some(found), Some(expected)) => {
                        prop_assert_eq!(found.indptr, expected.indptr, "{}", name);
                        prop_assert_eq!(found.indices, expected.indices, "{}", name);
                        prop_assert_eq!(found.values, expected.values, "{}", name);
                        let stored = 8 * (ids.len() + expected.values.len()) as u64;
                        prop_assert_eq!(traffic.total().bytes, stored, "{}", name);
                    }
                    (None, None) => {
                        prop_assert_eq!(gathered.view().host(), plainly.view().host(), "{}", name);
                    }
                    _ => prop_assert!(false, "{}: another form", name),
                }
            }
        }
    }
}

#[test]
fn rows_are_counted_at_the_tier_that_served_them() {
    let features = features(4, TableType::F32);
    let ranking: Vec<NodeId> = (0..ROWS as NodeId).collect();
    let layout = CacheLayout::new(&ranking, 100, 2, Placement::Interleave);
    let (far, reads, _) = next_tier(&features);
    let cache = Pinned::new(layout, TableType::F32, far, Level::Device { devices: 2, reader: 1 }).unwrap();
    assert_eq!(reads.swap(0, Relaxed), 200, "cached rows are loaded once");
    let ids: Vec<NodeId> = (100..301).collect();
    let traffic = cache.read(&ids, &mut vec![0.0; 201 * 4]).unwrap();
    let counts = |rows: TierTraffic| (rows.rows, rows.bytes);
    assert_eq!((counts(traffic.device), counts(traffic.peer)), ((50, 800), (50, 800)));
    assert_eq!((counts(traffic.disk), reads.load(Relaxed)), ((101, 1616), 101));
    let (mut slots, mut rows) = (Vec::new(), Matrix::default());
    let tier = cache.capabilities().slotted.unwrap();
    let in_place = tier.read_slots(&ids, &mut slots, &mut rows).unwrap();
    assert_eq!((counts(in_place.device), counts(in_place.peer)), ((50, 800), (50, 800)));
    assert_eq!((counts(in_place.disk), reads.load(Relaxed)), ((101, 1616), 202));
    assert_eq!(rows.view().slots().unwrap().staged.len(), 151 * 4, "rows of peers are copied, too");

    let (far, reads, _) = next_tier(&features);
    let fifo = policy::TABLE.find("fifo").unwrap().make;
    let cache = Dynamic::new(fifo, 300, TableType::F32, far, Level::Host).unwrap();
    let read = |ids: std::ops::Range<NodeId>| {
        let ids: Vec<NodeId> = ids.collect();
        cache.read(&ids, &mut vec![0.0; ids.len() * 4]).unwrap().host.rows
    };
    assert_eq!((read(0..200), read(100..250), read(0..250)), (0, 100, 250));
    assert_eq!(reads.load(Relaxed), 250);
}

/// A cache of 300 rows on three devices, as each of them reads it: pinned in every placement, and
/// of every policy.
fn pools(features: &Features, links: &[Arc<Link>]) -> Vec<(String, Vec<Arc<dyn Feature>>)> {
    let ranking: Vec<NodeId> = (0..ROWS as NodeId).map(|v| (v * 7 + 3) % ROWS as NodeId).collect();
    let level = Level::Device { devices: 3, reader: 0 };
    let behind = || next_tier(features).0;
    let mut pools = Vec::new();
    for entry in PLACEMENTS.iter() {
        let layout = CacheLayout::new(&ranking, 100, 3, entry.make);
        let pool = Pinned::new(layout, TableType::F32, behind(), level).unwrap();
        let reader = |(i, link): (usize, &Arc<Link>)| -> Arc<dyn Feature> {
            Arc::new(pool.reader(i, behind()).with_peer_link(link.clone()))
        };
        pools.push((entry.name.to_string(), links.iter().enumerate().map(reader).collect()));
    }
    for entry in &policy::TABLE {
        let pool = Dynamic::new(entry.make, 300, TableType::F32, behind(), level).unwrap();
        let reader = |(i, link): (usize, &Arc<Link>)| -> Arc<dyn Feature> {
            Arc::new(pool.reader(i, behind()).with_peer_link(link.clone()))
        };
        pools.push((entry.name.to_string(), links.iter().enumerate().map(reader).collect()));
    }
    pools
}

#[test]
fn devices_read_the_rows_of_others_over_their_links() {
    let features = features(4, TableType::F32);
    let options = LinkOptions { bandwidth: 2e5, ..LinkOptions::default() };
    // the last reader has no share of the cache
    let links: Vec<Arc<Link>> = (0..4).map(|_| Arc::new(Link::new(options))).collect();
    let (ids, plain) = ((0..ROWS as NodeId).collect::<Vec<_>>(), Host::new(&features));
    let mut expected = vec![0.0; 4 * ROWS];
    plain.read(&ids, &mut expected).unwrap();
    for (name, readers) in pools(&features, &links) {
        // the first device's misses fill a dynamic cache for all of them
        readers[0].read(&ids[..250], &mut [0.0; 1000]).unwrap();
        let before: Vec<_> = links.iter().map(|link| link.traffic()).collect();
        let mut device_rows = 0;
        for (i, reader) in readers.iter().enumerate() {
            let mut found = vec![0.0; 4 * ROWS];
            // a dynamic cache changes with reads of other rows
            let read = if PLACEMENTS.get(&name).is_some() { ROWS } else { 50 };
            let began = Instant::now();
            let traffic = reader.read(&ids[..read], &mut found[..4 * read]).unwrap();
            let seconds = began.elapsed().as_secs_f64();
            assert_eq!(found[..4 * read], expected[..4 * read], "{name}");
            let (device, peer) = (traffic.device, traffic.peer);
            device_rows += device.rows;
            let crossed = links[i].traffic() - before[i];
            assert_eq!((crossed.bytes, peer.bytes), (16 * peer.rows, 16 * peer.rows), "{name}");
            assert!((crossed.seconds - 80e-6 * peer.rows as f64).abs() < 1e-7, "{name}");
            assert!(seconds >= 0.99 * crossed.seconds, "{name}: the read takes {seconds} s");
            let counted = device.seconds() + peer.seconds();
            assert!(counted >= 0.5 * crossed.seconds, "{name}: {counted} s with the wait for the link");
            let pooled = if read == 50 { 50 } else { 300 };
            match name.as_str() {
                "replicate" | "private" if i == 3 => {
                    assert_eq!((device.rows, peer.rows), (0, 100), "{name}")
                }
                "replicate" | "private" => assert_eq!((device.rows, peer.rows), (100, 0), "{name}"),
                _ if i == 3 => assert_eq!((device.rows, peer.rows), (0, pooled), "{name}"),
                _ => assert_eq!(device.rows + peer.rows, pooled, "{name} on device {i}"),
            }
        }
        let all = if PLACEMENTS.get(&name).is_none() { 50 } else { 300 };
        assert_eq!(device_rows, all, "{name}: each row is on one device, or each device has 100");
    }
}

#[test]
fn admitted_rows_occupy_the_link_to_the_devices_that_hold_them() {
    let fifo = policy::TABLE.find("fifo").unwrap().make;
    let ids: Vec<NodeId> = (0..250).collect();
    for features in [features(4, TableType::F32), features(4, TableType::F16), sparse_features(40)] {
        let format = features.data.kind().map_or(RowFormat::Sparse, RowFormat::Dense);
        let mut rows = Matrix::default();
        Host::new(&features).gather(&ids, &mut rows).unwrap();
        let bytes_of = |v: NodeId| match format {
            RowFormat::Dense(kind) => 4 * kind.width() as u64,
            RowFormat::Sparse => sparse_bytes(1, rows.view().sparse_row(v as usize).unwrap().0.len()),
        };
        // the last reader has no share of the cache
        for reader in 0..4 {
            // a read that waited for its writes would take a second or more
            let slow = LinkOptions { bandwidth: 1e3, ..LinkOptions::default() };
            let (first, link) = (Level::Device { devices: 3, reader: 0 }, Arc::new(Link::new(slow)));
            let pool = Dynamic::new(fifo, 300, format, next_tier(&features).0, first).unwrap();
            let device = pool.reader(reader, next_tier(&features).0).with_peer_link(link.clone());
            let began = Instant::now();
            let mut found = Matrix::default();
            device.gather(&ids, &mut found).unwrap();
            let seconds = began.elapsed().as_secs_f64();
            let of_peers = ids.iter().filter(|&&v| v as usize % 3 != reader).map(|&v| bytes_of(v));
            let (expected, traffic) = (of_peers.sum::<u64>(), link.traffic());
            assert_eq!(traffic.bytes, expected, "{format:?}, device {reader}");
            assert!(seconds < traffic.seconds, "{format:?}: {seconds} of {} s", traffic.seconds);
            // rows that are cached are not written again
            let again = pool.reader(0, next_tier(&features).0);
            assert_eq!(again.gather(&ids, &mut found).unwrap().rows(), 250);
            assert_eq!(link.traffic(), traffic, "{format:?}");
        }
    }
}

/// After reordering by hotness the cached rows are the first of the table, and a comparison with
/// their number takes the place of the map.
#[test]
fn the_first_rows_of_a_table_are_found_without_a_map() {
    let features = features(4, TableType::F32);
    let read = |first: Vec<NodeId>| {
        let layout = CacheLayout { ids: first, ..CacheLayout::default() };
        let cache = Pinned::new(layout, TableType::F32, next_tier(&features).0, Level::Host).unwrap();
        let ids: Vec<NodeId> = (0..ROWS as NodeId).map(|v| (v * 7 + 3) % ROWS as NodeId).collect();
        let mut found = vec![0.0; 4 * ROWS];
        let traffic = cache.read(&ids, &mut found).unwrap();
        let mut marks = Marks::default();
        cache.mark(&ids, &mut marks);
        let cached = marks.slots.iter().filter(|&&slot| slot != policy::MISS).count();
        (found, traffic.host.rows, traffic.disk.rows, cached)
    };
    let by_boundary = read((0..150).collect());
    assert_eq!((by_boundary.1, by_boundary.2, by_boundary.3), (150, 450, 150));
    assert_eq!(read((0..150).rev().collect()), by_boundary, "the same rows, by a map");
    assert_eq!(read(Vec::new()).1, 0);
}

#[test]
fn concurrent_devices_read_whole_rows_of_a_pool() {
    let features = features(5, TableType::F32);
    let links: Vec<Arc<Link>> = (0..4).map(|_| Arc::default()).collect();
    for (name, readers) in pools(&features, &links) {
        std::thread::scope(|scope| {
            for (device, reader) in readers.iter().enumerate() {
                let name = &name;
                scope.spawn(move || {
                    for batch in 0..40 / REDUCTION {
                        let start = keyed::mix(device as u64 * 100 + batch) % 500;
                        let ids: Vec<NodeId> = (start..start + 80).map(|v| v as NodeId).collect();
                        let mut out = [0.0; 400];
                        let traffic = reader.read(&ids, &mut out).unwrap();
                        assert_eq!(traffic.rows(), 80, "{name}");
                        for (&v, row) in ids.iter().zip(out.chunks(5)) {
                            assert_eq!(row, [0.0, 0.125, 0.25, 0.375, 0.5].map(|x| v as f32 + x), "{name}");
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn failed_reads_leave_the_cache_unchanged() {
    let features = features(3, TableType::F32);
    for entry in &policy::TABLE {
        let (far, reads, fails_in) = next_tier(&features);
        let cache = Dynamic::new(entry.make, 50, TableType::F32, far, Level::Host).unwrap();
        let ids: Vec<NodeId> = (0..40).collect();
        fails_in.store(0, Relaxed);
        let error = cache.read(&ids, &mut [0.0; 120]).unwrap_err();
        assert_eq!(error.to_string(), "the disk is gone", "{}", entry.name);
        let mut out = [0.0; 120];
        assert_eq!(cache.read(&ids, &mut out).unwrap().host.rows, 0, "failed rows are not cached");
        assert!(out.chunks(3).zip(&ids).all(|(row, &v)| row[0] == v as f32));
        assert_eq!(reads.load(Relaxed), 80);
    }
}

/// Slow rows: overlapped work runs while `waits` is set.
struct Slow {
    host: Host,
    waits: AtomicBool,
}

impl Feature for Slow {
    fn dim(&self) -> usize {
        self.host.dim()
    }
    fn num_rows(&self) -> usize {
        self.host.num_rows()
    }
    fn read_to(&self, ids: &[NodeId], places: OutputRows, out: &mut [f32]) -> Result<Traffic> {
        self.read_overlapped(ids, places, out, &mut no_work)
    }
    fn row_bytes(&self) -> u64 {
        self.host.row_bytes()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { overlapped: Some(self), ..Capabilities::default() }
    }
}

impl OverlappedFeature for Slow {
    fn read_overlapped(
        &self,
        ids: &[NodeId],
        places: OutputRows,
        out: &mut [f32],
        work: &mut OverlappedWork,
    ) -> Result<Traffic> {
        self.waits.store(true, Relaxed);
        let mut traffic = work(out)?;
        self.waits.store(false, Relaxed);
        traffic += self.host.read_to(ids, places, out)?;
        Ok(traffic)
    }
}

#[test]
fn overlapped_work_runs_while_the_next_tier_waits() {
    let features = features(3, TableType::F32);
    let ranking: Vec<NodeId> = (0..ROWS as NodeId).collect();
    let slow = Arc::new(Slow { host: Host::new(&features), waits: AtomicBool::new(false) });
    let pinned = |behind: Arc<dyn Feature>| -> Arc<dyn Feature> {
        let layout = CacheLayout::new(&ranking, 50, 1, Placement::Interleave);
        Arc::new(Pinned::new(layout, TableType::F32, behind, Level::Host).unwrap())
    };
    let dynamic = |behind: Arc<dyn Feature>| -> Arc<dyn Feature> {
        let make = policy::TABLE.find("fifo").unwrap().make;
        Arc::new(Dynamic::new(make, 100, TableType::F32, behind, Level::Host).unwrap())
    };
    let chains: [(&str, Arc<dyn Feature>); 5] = [
        ("an Arc", slow.clone()),
        ("pinned", pinned(slow.clone())),
        ("dynamic", dynamic(slow.clone())),
        ("pinned before dynamic", pinned(dynamic(slow.clone()))),
        ("dynamic before pinned", dynamic(pinned(slow.clone()))),
    ];
    let plain = Host::new(&features);
    for (name, tier) in &chains {
        // some cached, none cached, and all cached
        for ids in [(0..200).collect::<Vec<NodeId>>(), (300..400).collect(), (0..10).collect()] {
            let mut expected = vec![0.0; 3 * ids.len()];
            plain.read(&ids, &mut expected).unwrap();
            let mut out = vec![0.0; 3 * (ids.len() + 1)];
            let places: Vec<u32> = (1..=ids.len() as u32).collect();
            let (mut times, mut meanwhile) = (0, false);
            let mut work = |out: &mut [f32]| {
                (times, meanwhile) = (times + 1, slow.waits.load(Relaxed));
                out[..3].fill(7.0);
                let host = TierTraffic { rows: 1, ..TierTraffic::default() };
                Ok(Traffic { host, ..Traffic::default() })
            };
            let traffic =
                read_overlapped(&**tier, &ids, OutputRows::At(&places), &mut out, &mut work).unwrap();
            assert_eq!((&out[..3], &out[3..]), (&[7.0; 3][..], &expected[..]), "{name}");
            assert_eq!((times, traffic.total().rows), (1, ids.len() as u64 + 1), "{name}");
            assert!(meanwhile || ids.len() == 10, "{name}: the work ran after the read, not during it");
        }
    }
}

#[test]
fn hits_do_not_depend_on_the_number_of_threads() {
    let features = features(2, TableType::F32);
    let hits = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut hits = Vec::new();
            for entry in &policy::TABLE {
                let cache =
                    Dynamic::new(entry.make, 520, TableType::F32, next_tier(&features).0, Level::Host)
                        .unwrap();
                for batch in 0..20 / REDUCTION {
                    let hash = |i: u64| keyed::mix(batch * 1000 + i);
                    let mut ids: Vec<NodeId> =
                        (0..300).map(|i| (hash(i) % 600 * (hash(i) >> 32 & 1)) as NodeId).collect();
                    ids.sort_unstable();
                    ids.dedup();
                    hits.push(cache.read(&ids, &mut vec![0.0; 2 * ids.len()]).unwrap().host.rows);
                }
            }
            hits
        })
    };
    assert_eq!(hits(1), hits(4));
}

#[test]
fn concurrent_readers_see_whole_rows() {
    let features = features(5, TableType::F32);
    for (name, cache) in caches(&features, 70) {
        std::thread::scope(|scope| {
            for reader in 0..4u64 {
                let (cache, name) = (&cache, &name);
                scope.spawn(move || {
                    for batch in 0..30 / REDUCTION {
                        let start = keyed::mix(reader * 100 + batch) % 500;
                        let ids: Vec<NodeId> = (start..start + 80).map(|v| v as NodeId).collect();
                        let mut out = [0.0; 400];
                        cache.read(&ids, &mut out).unwrap();
                        for (&v, row) in ids.iter().zip(out.chunks(5)) {
                            assert_eq!(row, [0.0, 0.125, 0.25, 0.375, 0.5].map(|x| v as f32 + x), "{name}");
                        }
                    }
                });
            }
        });
    }
}

/// Number of schedules tried, of either kind.
const ROUNDS: usize = 200;

/// A lock under the model checker's schedule.
struct Checked<T>(shuttle::sync::Mutex<T>);

impl<T> Lock<T> for Checked<T> {
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut self.0.lock().unwrap())
    }
}

/// Three readers of one shard of two rows: in every schedule, each gets whole rows of its own.
#[test]
fn no_schedule_of_readers_mixes_rows() {
    for entry in &policy::TABLE {
        let model = move || {
            let shard = Shard::new(entry.make, 6, 2, 2, TableType::F32).unwrap();
            let shard = shuttle::sync::Arc::new(Checked(shuttle::sync::Mutex::new(shard)));
            let readers: Vec<_> = [[0, 1, 2], [2, 3, 0], [1, 4, 5]]
                .into_iter()
                .map(|ids| {
                    let shard = shard.clone();
                    shuttle::thread::spawn(move || {
                        for ids in [ids, [ids[2], ids[0], ids[1]]] {
                            let mut out = [-1.0f32; 6];
                            let mut part = ShardRequest::default();
                            part.ids.extend(ids);
                            part.rows.extend([0, 1, 2]);
                            serve(&*shard, &mut part, &Scatter::new(&mut out, 2, 3, OutputRows::InOrder));
                            // the next tier, in two steps so that other readers run in between
                            for (&v, &row) in part.ids.iter().zip(&part.rows) {
                                out[2 * row as usize] = v as f32;
                                shuttle::thread::yield_now();
                                out[2 * row as usize + 1] = v as f32;
                            }
                            admit(&*shard, &mut part, |row| &out[2 * row as usize..][..2]);
                            let expected = ids.map(|v| [v as f32; 2]).concat();
                            assert_eq!(out[..], expected);
                        }
                    })
                })
                .collect();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        };
        shuttle::check_random(model, ROUNDS);
        shuttle::check_pct(model, ROUNDS, 3);
    }
}
