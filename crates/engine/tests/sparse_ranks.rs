//! Sparse feature rows stay sparse over ranks.

use graphmill_core::{Features, SparseRows, keyed};
use graphmill_data::Dataset;
use graphmill_engine::{TrainConfig, record::Summary};

use crate::ranks;
use crate::ranks::{alone, assert_alike, config, data, over_ranks, partitioned};
use crate::set::with;

const DIM: usize = 120;

/// The dataset of the tests with two or three of 120 features for each node.
fn sparse() -> Dataset {
    let mut data = data();
    let mut table = vec![0.0; data.num_nodes() * DIM];
    for (v, row) in table.chunks_exact_mut(DIM).enumerate() {
        for k in 0..2 + v as u64 % 2 {
            let draw = keyed::key(&[v as u64, k]);
            row[draw as usize % DIM] = (draw >> 40) as f32 % 7.0 + 0.5;
        }
    }
    data.features = Features::csr(SparseRows::from_dense(DIM, &table).unwrap());
    data
}

fn bits(summary: &Summary) -> Vec<u64> {
    summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect()
}

#[test]
fn sparse_rows_give_the_losses_of_one_process() {
    let (data, temporary) = (sparse(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for (size, options) in [
        (2, "model=sage"),
        (4, "model=gcn strategy=pipelined allocation=1,1,1"),
        (3, "model=gat sparse=on"),
        (1, "model=sage"),
    ] {
        let config = with(config(), options);
        let one = alone(&with(config.clone(), "strategy=sequential"), &data);
        assert_alike(&one, &over_ranks(&config, &dir, size), options);
    }
}

#[test]
fn replies_are_as_long_as_the_stored_values() {
    let (data, temporary) = (sparse(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let bytes = |options: &str| {
        let epoch = over_ranks(&with(config(), options), &dir, 2)[0].epochs[1].clone();
        let sent = epoch.ranks.iter().map(|rank| rank.feature_bytes).sum::<u64>();
        (sent, epoch.traffic.remote.rows, epoch.traffic.remote.bytes)
    };
    let (sparse, rows, stored) = bytes("sparse=auto");
    let (dense, dense_rows, _) = bytes("sparse=off");
    assert_eq!(rows, dense_rows);
    // a node id, an end, and two to three pairs, instead of a node id and 120 values
    assert!(sparse < rows * (4 + 4 + 8 * 3) + 100_000 && dense > rows * 4 * 120, "{sparse}, {dense}");
    assert!((rows * 24..=rows * 32).contains(&stored), "{stored} bytes of {rows} rows");
}

#[test]
fn caches_of_sparse_rows_change_no_bit() {
    let (data, temporary) = (sparse(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let run = |options: &str| {
        let summary = over_ranks(&with(config(), options), &dir, 4).remove(0);
        let rows: Vec<u64> = summary.epochs.iter().map(|epoch| epoch.traffic.remote.rows).collect();
        (bits(&summary), rows.iter().sum::<u64>())
    };
    let (losses, all) = run("sparse=auto");
    for (options, least, most) in [
        ("cache=degree cache_ratio=0.3", 1, all * 8 / 10),
        ("cache=lru cache_ratio=0.3", 1, all - 1),
        ("cache=degree cache_ratio=1", 0, 0),
    ] {
        let (cached, rows) = run(options);
        assert_eq!(cached, losses, "{options}");
        assert!((least..=most).contains(&rows), "{options}: {rows} of {all}");
    }
}

#[test]
fn devices_and_budgets_of_every_rank_keep_rows_sparse() {
    let (data, temporary) = (sparse(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let run = |options: &str| {
        let epoch = over_ranks(&with(config(), options), &dir, 3).remove(0).epochs[1].clone();
        (epoch.loss.to_bits(), epoch.traffic)
    };
    let (loss, plain) = run("sparse=auto");
    for options in [
        "devices=virtual:1 cache_ratio=0.3",
        "devices=virtual:2 cache_ratio=0.2 cache=fifo strategy=pipelined allocation=1,1,1",
        "devices=virtual:1 cache_ratio=0.3 strategy=time-sharing",
        "devices=virtual:1 device_budget=1000000000",
        "host_budget=30000",
    ] {
        let (same, traffic) = run(options);
        assert_eq!(same, loss, "{options}");
        assert_eq!(traffic.total().bytes, plain.total().bytes, "{options}");
        assert!(traffic.remote.rows < plain.remote.rows, "{options}: {traffic:?}");
    }
}

/// Rows beyond host memory are read from the files of columns and values, by one process and by
/// every rank.
#[test]
fn sparse_rows_in_files_change_no_bit() {
    let (data, temporary) = (sparse(), tempfile::tempdir().unwrap());
    let path = temporary.path().join("data");
    data.save(&path).unwrap();
    let stored = TrainConfig { dataset: path.to_string_lossy().into_owned(), ..config() };
    let data = Dataset::open(&path).unwrap();
    let dir = partitioned(&data, &temporary.path().join("parts"));
    for sparse in ["auto", "on", "off"] {
        let stored = with(stored.clone(), &format!("sparse={sparse}"));
        let memory = alone(&stored, &data);
        for options in [
            "host_budget=1",
            "host_budget=16000 cache=degree",
            "host_budget=16000 cache=lru",
            "host_budget=16000 host_cache=degree devices=virtual:1 cache_ratio=0.1",
        ] {
            let files = alone(&with(stored.clone(), options), &data);
            assert_eq!(bits(&files), bits(&memory), "{sparse} {options}");
            let (epoch, whole) = (&files.epochs[1], &memory.epochs[1]);
            assert_eq!(epoch.valid_loss.map(f64::to_bits), whole.valid_loss.map(f64::to_bits), "{options}");
            let traffic = epoch.traffic;
            assert_eq!(traffic.rows(), whole.traffic.rows(), "{sparse} {options}");
            assert!(traffic.disk.rows > 0, "{sparse} {options}: {traffic:?}");
            let is_cached = options.contains("16000");
            assert_eq!(traffic.host.rows + traffic.device.rows > 0, is_cached, "{sparse} {options}");
            if sparse != "off" {
                assert_eq!(traffic.total().bytes, whole.traffic.total().bytes, "{sparse} {options}");
            }
        }
    }
    for sparse in ["on", "off"] {
        let base = with(config(), &format!("sparse={sparse}"));
        let memory = over_ranks(&base, &dir, 2).remove(0);
        for options in ["host_budget=1", "host_budget=10000 cache=lru"] {
            let summary = over_ranks(&with(base.clone(), options), &dir, 2).remove(0);
            assert_eq!(bits(&summary), bits(&memory), "{sparse} {options}");
            assert!(summary.epochs[1].traffic.disk.rows > 0, "{sparse} {options}");
        }
    }
}

#[test]
fn subgraphs_of_assigned_parts_read_sparse_rows() {
    let (data, temporary) = (sparse(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let base = with(config(), "sampler=saint-rw batch_size=60 walk_length=3 epochs=4 shuffle_parts=2");
    let losses = |sparse: &str| {
        let many = over_ranks(&TrainConfig { sparse: sparse.parse().unwrap(), ..base.clone() }, &dir, 2);
        many[0].epochs.iter().map(|epoch| epoch.loss).collect::<Vec<_>>()
    };
    for (a, b) in losses("auto").iter().zip(losses("off")) {
        assert!(ranks::close(*a, b), "{a} and {b}");
    }
}

#[test]
fn subgraphs_that_reuse_rows_read_sparse_rows_of_other_parts() {
    let (data, temporary) = (sparse(), tempfile::tempdir().unwrap());
    let dir = partitioned(&data, &temporary.path().join("parts"));
    let of_subgraphs = "sampler=saint-rw batch_size=60 walk_length=3 epochs=4 shuffle_parts=2";
    let run = |options: &str| {
        let options = format!("{of_subgraphs} reuse=layered super_batch=3 hot_prefetch=on {options}");
        let epochs = over_ranks(&with(config(), &options), &dir, 2).remove(0).epochs;
        let rows: u64 = epochs.iter().map(|epoch| epoch.traffic.remote.rows).sum();
        (epochs.iter().map(|epoch| epoch.loss).collect::<Vec<_>>(), rows)
    };
    let (losses, all) = run("sparse=auto");
    let (dense, same) = run("sparse=off");
    assert!(all > 0 && all == same, "{all} and {same} rows");
    for (a, b) in losses.iter().zip(dense) {
        assert!(ranks::close(*a, b), "{a} and {b}");
    }
    for options in ["cache=lru cache_ratio=0.3", "cache=degree cache_ratio=0.3", "devices=virtual:1"] {
        let (cached, rows) = run(options);
        assert_eq!(cached, losses, "{options}");
        assert!(rows < all || options.contains("devices"), "{options}: {rows} of {all}");
    }
}
