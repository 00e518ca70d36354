//! Files and simulated devices as tiers of every rank.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use graphmill_core::{Features, SparseRows};
use graphmill_data::{Dataset, partition::PartitionDir};
use graphmill_engine::{
    Error, RunContext, RunDir, TrainConfig,
    observer::Quiet,
    record::{EpochRecord, Summary},
    trainer::over_ranks,
};

use crate::ranks::{PATIENCE, alone, assert_alike, config, data, on_ranks, over_ranks as train, partitioned};
use crate::set::with;

/// Losses of all epochs.
fn bits(summary: &Summary) -> Vec<u64> {
    summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect()
}

/// Losses of all epochs, and the record of the second one.
fn run(config: &TrainConfig, dir: &PartitionDir, size: usize) -> (Vec<u64>, EpochRecord) {
    let summary = train(config, dir, size).remove(0);
    (bits(&summary), summary.epochs[1].clone())
}

#[test]
fn a_small_budget_puts_own_rows_on_disk() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let (losses, memory) = run(&config(), &dir, 2);
    assert_eq!((memory.traffic.disk.rows, memory.traffic.peer.rows), (0, 0));
    // a rank's 450 rows of 48 bytes do not fit, with maps of 7,200 bytes and 68 for each cached row
    for (budget, is_cached) in [(1, false), (14_000, true)] {
        for cache in ["auto", "lru"] {
            let config = with(config(), &format!("host_budget={budget} cache={cache}"));
            let (bits, epoch) = run(&config, &dir, 2);
            assert_eq!(bits, losses, "{budget} {cache}");
            let traffic = epoch.traffic;
            assert!(traffic.disk.rows > 0 && traffic.remote.rows > 0, "{budget} {cache}: {traffic:?}");
            assert_eq!(traffic.host.rows > 0, is_cached, "{budget} {cache}: {traffic:?}");
            assert_eq!(traffic.rows(), memory.traffic.rows());
            let disk: u64 = epoch.ranks.iter().map(|rank| rank.disk_rows).sum();
            assert_eq!(disk, traffic.disk.rows, "ranks report what came from their files");
        }
    }
    // a larger budget holds the own rows, and rows of other ranks in the rest
    let (bits, epoch) = run(&with(config(), "host_budget=40000"), &dir, 2);
    assert_eq!((bits, epoch.traffic.disk.rows), (losses, 0));
    assert!(epoch.traffic.remote.rows < memory.traffic.remote.rows);
}

#[test]
fn own_rows_are_verified_by_their_first_reads() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (options, by_first_read) in
        [("host_budget=1", 0), ("host_budget=1 verify=first-read", 1), ("verify=first-read", 1)]
    {
        let summary = train(&with(config(), options), &dir, 2).remove(0);
        let record = summary.verification.expect("parts are directories");
        // all of them, because inference reads every row
        assert_eq!(record.at_first_read, by_first_read * record.bytes, "{options}: {record:?}");
        assert_eq!((record.at_opening + record.at_first_read, record.unverified), (record.bytes, 0));
    }
}

#[test]
fn rows_of_16_bits_have_the_same_bits_on_disk_and_on_devices() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for precision in ["f16", "bf16"] {
        let config = with(config(), &format!("feature_precision={precision}"));
        let (losses, memory) = run(&config, &dir, 2);
        for options in ["host_budget=1", "devices=virtual:1 cache_ratio=0.3", "host_budget=14000 cache=lru"] {
            let (bits, epoch) = run(&with(config.clone(), options), &dir, 2);
            assert_eq!(bits, losses, "{precision} {options}");
            assert_eq!(epoch.traffic.rows(), memory.traffic.rows(), "{precision} {options}");
            let device = epoch.traffic.device;
            assert_eq!(device.bytes, 24 * device.rows, "12 values of two bytes");
            let remote = epoch.traffic.remote;
            assert!(remote.bytes == 24 * remote.rows && remote.rows > 0, "{precision} {options}: {remote:?}");
        }
        // a cache of the host holds them in 16 bits
        let (bits, epoch) = run(&with(config.clone(), "host_budget=30000 cache=degree"), &dir, 2);
        assert!(bits == losses && epoch.traffic.remote.rows < memory.traffic.remote.rows, "{precision}");
        let large = with(config, "host_budget=20000 cache_ratio=0.5");
        let ends = on_ranks(2, PATIENCE, |_, post| {
            let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
            over_ranks::train(&large, &dir, post, context).unwrap_err().to_string()
        });
        assert!(ends.iter().any(|end| end.contains("rows of 24 bytes and their maps")), "{ends:?}");
    }
}

#[test]
fn devices_of_every_rank_cache_rows_of_all_ranks() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let (losses, plain) = run(&config(), &dir, 3);
    for (options, has_peers, has_disk) in [
        ("devices=virtual:1 cache_ratio=0.3", false, false),
        ("devices=virtual:2 cache_ratio=0.2 placement=interleave cache=degree", true, false),
        ("devices=virtual:2 cache_ratio=0.2 cache=fifo strategy=pipelined allocation=1,1,1", true, false),
        ("devices=virtual:1 cache_ratio=0.3 host_budget=9000 host_cache=lru", false, true),
        ("devices=virtual:2 cache_ratio=0.2 cache=fifo order=proximity order_sequences=4", true, false),
    ] {
        let config = with(config(), options);
        let (bits, epoch) = run(&config, &dir, 3);
        let traffic = epoch.traffic;
        if config.order == "random" {
            assert_eq!(bits, losses, "{options}");
            assert_eq!(traffic.rows(), plain.traffic.rows(), "{options}");
        }
        assert!(traffic.device.rows > 0 && traffic.remote.rows > 0, "{options}: {traffic:?}");
        assert_eq!((traffic.peer.rows > 0, traffic.disk.rows > 0), (has_peers, has_disk), "{options}");
        assert!(epoch.ranks.iter().all(|rank| rank.device_rows > 0), "{options}");
        let rows: u64 = epoch.ranks.iter().map(|rank| rank.near_rows + rank.remote_rows).sum();
        assert_eq!(rows, traffic.rows(), "{options}");
    }
    // all rows fit on a device
    let (bits, epoch) = run(&with(config(), "devices=virtual:1"), &dir, 3);
    assert_eq!((bits, epoch.hit_rate), (losses, Some(1.0)));
}

/// The dataset of the tests with two of 120 features for each node.
fn sparse_data() -> Dataset {
    let (mut data, dim) = (data(), 120);
    let mut table = vec![0.0; data.num_nodes() * dim];
    for (v, row) in table.chunks_exact_mut(dim).enumerate() {
        (row[v % 7], row[7 + v % 113]) = (1.0, 0.5);
    }
    data.features = Features::csr(SparseRows::from_dense(dim, &table).unwrap());
    data
}

/// Loss, and rows that came from other ranks, in every epoch.
fn remote(summary: &Summary) -> Vec<(u64, u64)> {
    summary.epochs.iter().map(|epoch| (epoch.loss.to_bits(), epoch.traffic.remote.rows)).collect()
}

#[test]
fn online_counts_of_a_rank_fill_its_caches() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let sparse = partitioned(&sparse_data(), &temporary.path().join("sparse"));
    let saint = "sampler=saint-rw batch_size=60 walk_length=3 shuffle_parts=1";
    for (options, dir, size) in [
        ("cache_ratio=0.2", &dir, 3),
        ("host_budget=14000", &dir, 2),
        ("cache_ratio=0.2 graph_stores=2", &dir, 3),
        ("cache_ratio=0.2", &sparse, 2),
        ("cache_ratio=0.2 devices=virtual:1 strategy=pipelined", &dir, 2),
        ("cache_ratio=0.2 devices=virtual:2 strategy=time-sharing", &dir, 2),
        ("cache_ratio=0.2 devices=virtual:2 strategy=factored num_samplers=1 updates=asynchronous", &dir, 2),
        (&format!("cache_ratio=0.2 devices=virtual:1 {saint}"), &dir, 2),
        ("cache_ratio=0.2 reuse=layered super_batch=3", &dir, 3),
        ("cache_ratio=0.2 devices=virtual:1 reuse=layered super_batch=3", &dir, 2),
        ("cache_ratio=0.2 reuse=layered super_batch=3 graph_stores=1", &dir, 3),
    ] {
        let config = with(config(), &format!("epochs=4 model=sage cache=presc-online:2 {options}"));
        let online = train(&config, dir, size).remove(0);
        let plain = train(&with(config.clone(), "cache=degree"), dir, size).remove(0);
        assert_eq!(bits(&online), bits(&plain), "{options}");
        let cost = online.presampling.unwrap();
        assert_eq!(cost.drawn_batches, 0, "{options}");
        assert!(cost.counted_batches > 0, "{options}");
        let of = |epoch: usize| {
            let traffic = online.epochs[epoch].traffic;
            if options.contains("virtual") {
                traffic.device.rows + traffic.peer.rows
            } else {
                traffic.host.rows
            }
        };
        let rows = online.epochs[2].traffic.rows();
        assert!(of(2) * 20 > of(1) * 20 + rows, "{options}: {} and {} of {rows}", of(1), of(2));
        if options.contains("virtual") {
            assert_eq!((of(0), of(1)), (0, 0), "{options}");
        }
    }
}

/// A run over two ranks that stops after `updates` updates and is resumed: loss and rows of every
/// epoch, and the batches that were drawn again.
fn resumed(config: &TrainConfig, dir: &PartitionDir, path: &Path, updates: usize) -> (Vec<(u64, u64)>, u64) {
    let run = |resume: bool| {
        let mut summaries = on_ranks(2, PATIENCE, |rank, post| {
            let left = AtomicUsize::new(updates);
            let stop = || rank == 0 && !resume && left.fetch_sub(1, Relaxed) == 1;
            let run = (rank == 0).then(|| match resume {
                false => RunDir::create(path).unwrap(),
                true => RunDir::reopen(path).unwrap(),
            });
            let context = RunContext { run: run.as_ref(), resume, observer: &mut Quiet, stop: &stop };
            over_ranks::train(config, dir, post, context)
        });
        summaries.swap_remove(0)
    };
    assert!(matches!(run(false), Err(Error::Interrupted { .. })));
    let summary = run(true).unwrap();
    // nothing is counted again if the checkpoint has the counts of all counted epochs
    (remote(&summary), summary.presampling.map_or(0, |of| of.drawn_batches))
}

#[test]
fn a_resumed_rank_fills_the_rows_that_it_would_have_counted() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let saint = "sampler=saint-rw batch_size=60 walk_length=3 shuffle_parts=1";
    let subgraphs = format!("devices=virtual:1 {saint}");
    let of_stores = format!("graph_stores=1 {subgraphs}");
    for (i, options) in
        ["", "devices=virtual:2 strategy=time-sharing", &subgraphs, &of_stores].into_iter().enumerate()
    {
        let base = "epochs=4 cache=presc-online:2 cache_ratio=0.2 batches_per_update=1";
        let config = with(config(), &format!("{base} {options}"));
        let whole = train(&config, &dir, 2).remove(0);
        let batches = whole.presampling.unwrap().counted_batches / 2;
        // while batches are counted, and after the caches are filled
        for updates in [batches + 2, 3 * batches + 1] {
            let path = temporary.path().join(format!("{i}-{updates}"));
            let (epochs, drawn) = resumed(&config, &dir, &path, updates as usize);
            assert_eq!(epochs, remote(&whole), "{options} after {updates} updates");
            assert!((1..=2 * batches).contains(&drawn), "{options}: {drawn} of {batches} batches an epoch");
        }
    }
}

/// Parameters and counts may decide which rows batches reuse, so they cannot be counted again.
#[test]
fn checkpoints_of_ranks_that_reuse_rows_hold_the_counts_of_each() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (i, options) in [
        "reuse=layered super_batch=3",
        "reuse=layered super_batch=3 devices=virtual:1 strategy=pipelined allocation=1,1,1",
        "reuse=layered super_batch=3 graph_stores=1",
        "strategy=historical",
    ]
    .into_iter()
    .enumerate()
    {
        let base = "epochs=4 cache=presc-online:2 cache_ratio=0.2 checkpoint_batches=2";
        let config = with(config(), &format!("{base} {options}"));
        let whole = train(&config, &dir, 2).remove(0);
        let batches = whole.presampling.unwrap().counted_batches / 2;
        // while batches are counted, at the end of an epoch, and after the caches are filled
        for updates in [batches + 2, 2 * batches - 1, 3 * batches + 1] {
            let path = temporary.path().join(format!("{i}-{updates}"));
            let (epochs, drawn) = resumed(&config, &dir, &path, updates as usize);
            assert_eq!(epochs, remote(&whole), "{options} after {updates} updates");
            assert_eq!(drawn, 0, "{options} after {updates} updates");
        }
    }
}

#[test]
fn another_number_of_ranks_continues_with_the_counts_of_all() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let path = temporary.path().join("run");
    let options = "epochs=4 cache=presc-online:2 cache_ratio=0.2 reuse=layered super_batch=3";
    let config = with(config(), options);
    let run = |size: usize, resume: bool| {
        on_ranks(size, PATIENCE, |rank, post| {
            let left = AtomicUsize::new(3);
            let stop = || rank == 0 && !resume && left.fetch_sub(1, Relaxed) == 1;
            let run = (rank == 0).then(|| match resume {
                false => RunDir::create(&path).unwrap(),
                true => RunDir::reopen(&path).unwrap(),
            });
            let context = RunContext { run: run.as_ref(), resume, observer: &mut Quiet, stop: &stop };
            over_ranks::train(&config, &dir, post, context)
        })
    };
    assert!(run(3, false).iter().all(|end| matches!(end, Err(Error::Interrupted { .. }))));
    for summary in run(2, true).into_iter().map(Result::unwrap) {
        let hits: Vec<u64> = summary.epochs.iter().map(|epoch| epoch.traffic.host.rows).collect();
        assert!(hits[2] > 0 && hits[3] > 0, "{hits:?}");
    }
}

#[test]
fn proximity_order_lets_a_small_cache_hit_more() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let of = |order: &str| {
        let options = "devices=virtual:1 cache_ratio=0.05 cache=fifo batch_size=10 order_sequences=1";
        let config = TrainConfig { order: order.into(), ..with(config(), options) };
        run(&config, &dir, 2).1.hit_rate.unwrap()
    };
    let (near, random) = (of("proximity"), of("random"));
    assert!(near > random, "{near} and {random}");
}

#[test]
fn subgraphs_of_assigned_parts_read_through_devices() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let base = with(config(), "sampler=saint-rw batch_size=60 walk_length=3 epochs=4 shuffle_parts=2");
    let (losses, _) = run(&base, &dir, 2);
    let (bits, epoch) = run(&with(base, "devices=virtual:2 cache_ratio=0.2 cache=degree"), &dir, 2);
    assert_eq!(bits, losses);
    assert!(epoch.traffic.device.rows > 0 && epoch.traffic.remote.rows == 0);
}

#[test]
fn one_process_with_the_same_tiers_gives_the_same_losses() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let config = with(config(), "devices=virtual:2 cache_ratio=0.2 device_budget=10000000");
    assert_alike(&alone(&config, &data), &train(&config, &dir, 4), "two devices on each of four ranks");
}

#[test]
fn impossible_tiers_are_refused() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (options, why) in [
        ("host_budget=9000 cache_ratio=0.9", "--cache-ratio 0.9: 810 rows of 48 bytes"),
        ("devices=virtual:1 device_budget=1000", "--device-budget 1000"),
    ] {
        let config = with(config(), options);
        for end in on_ranks(2, PATIENCE, |_, post| {
            let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
            over_ranks::train(&config, &dir, post, context).unwrap_err().to_string()
        }) {
            assert!(end.contains(why), "{options}: {end}");
        }
    }
}

#[test]
fn devices_of_every_rank_sample_and_train() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (size, options) in [
        (3, "strategy=time-sharing devices=virtual:1 cache_ratio=0.3"),
        (2, "strategy=time-sharing devices=virtual:2 cache_ratio=0.2 placement=interleave cache=degree"),
        (2, "strategy=time-sharing devices=virtual:2 cache_ratio=0.2 overlap=on"),
        (3, "strategy=factored devices=virtual:2 cache_ratio=0.3 num_samplers=1"),
        (2, "strategy=factored devices=virtual:3 cache_ratio=0.2 num_samplers=1 cache=fifo"),
        (4, "strategy=time-sharing devices=virtual:2 batch_size=3 max_batches=12"),
        (2, "strategy=time-sharing devices=virtual:2 sampler=saint-rw batch_size=30 walk_length=3"),
    ] {
        let config = with(config(), &format!("model=sage {options}"));
        let many = train(&config, &dir, size);
        let epoch = &many[0].epochs[1];
        assert_eq!(epoch.devices.len(), config.num_devices(), "{options}");
        if config.sampler == "neighbor" {
            assert_alike(&alone(&config, &data), &many, options);
            assert!(epoch.traffic.device.rows > 0, "{options}");
        } else {
            assert!(epoch.loss < many[0].epochs[0].loss, "{options}");
        }
        let again = train(&config, &dir, size);
        for (a, b) in many[0].epochs.iter().zip(&again[0].epochs) {
            assert_eq!(a.loss.to_bits(), b.loss.to_bits(), "{options}: times change the numbers");
        }
    }
}

#[test]
fn asynchronous_updates_give_all_ranks_the_same_parameters() {
    let (data, temporary) = (data(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (size, bound, options) in [
        (3, 2, "strategy=time-sharing devices=virtual:2 cache_ratio=0.3 staleness=2"),
        (2, 4, "strategy=factored devices=virtual:3 num_samplers=1 cache_ratio=0.2"),
        // some ranks own no seed of a batch
        (4, 1, "strategy=time-sharing devices=virtual:2 batch_size=3 max_batches=12 staleness=1"),
    ] {
        let config = with(config(), &format!("model=sage updates=asynchronous {options}"));
        let many = train(&config, &dir, size);
        for summary in &many {
            assert_eq!(bits(summary), bits(&many[0]), "{options}: ranks differ");
            assert_eq!(summary.staleness.bound, bound, "{options}");
            assert!(summary.staleness.max <= bound, "{options}: {:?}", summary.staleness);
        }
        let epochs = &many[0].epochs;
        assert!(epochs[2].loss < epochs[0].loss, "{options}");
        assert_eq!(bits(&train(&config, &dir, size)[0]), bits(&many[0]), "{options}: timing matters");
    }
    // without staleness, each batch is an update of its own
    let fresh = "model=sage strategy=time-sharing devices=virtual:2";
    let exact = with(config(), &format!("{fresh} batches_per_update=1"));
    let config = with(config(), &format!("{fresh} updates=asynchronous staleness=0"));
    assert_alike(&alone(&exact, &data), &train(&config, &dir, 3), "bound of 0");
}
