use std::sync::Arc;

use graphmill_core::{Features, NodeId, SparseRows, features::FeatureData, progress::Quiet as NoProgress};
use graphmill_data::{
    Dataset,
    generate::{GenerateOptions, generate},
};

use graphmill_loader::{Feature, feature::Host};

use super::*;
use crate::{
    Error, Result, TrainConfig, build,
    config::{Bytes, Fanout, Ratio},
    device::Device,
    observer::Quiet,
    record::{EpochRecord, Summary},
    run::tiers::open,
    strategy::FactoredOptions,
    trainer::{RunContext, train},
};

/// A stochastic block model, stored in a directory.
fn data(temp: &tempfile::TempDir) -> Dataset {
    let options = GenerateOptions { nodes: 2000, classes: 4, dim: 20, ..GenerateOptions::default() };
    let dir = temp.path().join("data");
    generate("sbm", &options).unwrap().save(&dir).unwrap();
    Dataset::open(&dir).unwrap()
}

fn config(temp: &tempfile::TempDir) -> TrainConfig {
    TrainConfig {
        dataset: temp.path().join("data").to_str().unwrap().into(),
        hidden: 8,
        epochs: 2,
        batch_size: 200,
        fanout: Fanout(vec![5, 5]),
        fused: "off".parse().unwrap(),
        ..TrainConfig::default()
    }
}

fn run(config: &TrainConfig, data: &Dataset) -> Summary {
    train(config, data, RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false })
        .unwrap()
}

#[test]
fn losses_and_scores_do_not_depend_on_tiers() {
    let temp = tempfile::tempdir().unwrap();
    let (data, base) = (data(&temp), config(&temp));
    let plain = run(&base, &data);
    let virtual_devices = |n: usize| format!("virtual:{n}");
    let half = Bytes(data.features.bytes() as u64 / 2);
    let base = TrainConfig { fused: "auto".parse().unwrap(), ..base };
    let s = String::from;
    let chains = [
        TrainConfig { cache_ratio: Ratio(Some(0.2)), ..base.clone() },
        TrainConfig { cache_ratio: Ratio(Some(0.0)), ..base.clone() },
        TrainConfig { cache_ratio: Ratio(Some(1.0)), cache: s("degree"), ..base.clone() },
        TrainConfig { cache_ratio: Ratio(Some(0.3)), cache: s("fifo"), ..base.clone() },
        TrainConfig { host_budget: half, cache: s("sieve"), ..base.clone() },
        TrainConfig { host_budget: Bytes(1), ..base.clone() },
        TrainConfig {
            devices: virtual_devices(1).parse().unwrap(),
            cache_ratio: Ratio(Some(0.1)),
            ..base.clone()
        },
        TrainConfig {
            devices: virtual_devices(3).parse().unwrap(),
            cache_ratio: Ratio(Some(0.1)),
            host_budget: half,
            host_cache: s("lru"),
            cache: s("analytic"),
            ..base.clone()
        },
        TrainConfig {
            devices: virtual_devices(2).parse().unwrap(),
            cache_ratio: Ratio(Some(0.2)),
            cache: s("s3-fifo"),
            placement: "shard".parse().unwrap(),
            host_budget: half,
            ..base.clone()
        },
        TrainConfig {
            devices: virtual_devices(2).parse().unwrap(),
            placement: "replicate:0.5".parse().unwrap(),
            ..base
        },
    ];
    for config in chains {
        let tiered = run(&config, &data);
        for (a, b) in tiered.epochs.iter().zip(&plain.epochs) {
            assert_eq!((a.loss.to_bits(), a.valid_score), (b.loss.to_bits(), b.valid_score), "{config:?}");
            assert_eq!(a.traffic.rows(), b.traffic.rows(), "{config:?}");
            let held = config.cache_ratio.0.unwrap_or(0.5);
            let rate = a.hit_rate.unwrap();
            let near = if config.devices == "cpu" { a.traffic.host } else { a.traffic.device };
            assert_eq!(near.bytes, 80 * near.rows, "{config:?}");
            if config.host_budget == Bytes(1) || held == 0.0 {
                assert_eq!(rate, 0.0);
            } else {
                assert!(rate > 0.5 * held, "{rate} of {config:?}");
            }
        }
        assert_eq!(tiered.test.score, plain.test.score, "{config:?}");
    }
}

/// Losses and scores of a run, and its traffic in the second epoch.
fn outcome(config: &TrainConfig, data: &Dataset) -> (Vec<u64>, Option<f64>, graphmill_loader::Traffic) {
    let summary = run(config, data);
    let losses = summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect();
    (losses, summary.test.score, summary.epochs[1].traffic)
}

/// Rows and bytes of each tier. Devices take batches as they are free, so that only the sum of the
/// rows of devices and their peers is repeated.
fn counts(traffic: graphmill_loader::Traffic) -> [(u64, u64); 4] {
    let graphmill_loader::Traffic { device: mut devices, peer, host, disk, remote } = traffic;
    devices += peer;
    [devices, host, disk, remote].map(|tier| (tier.rows, tier.bytes))
}

/// Asserts that a run that reads rows in place has the bits and the traffic of `gathered`.
fn assert_same_in_place(gathered: &TrainConfig, data: &Dataset) {
    let in_place = TrainConfig { fused: "on".parse().unwrap(), ..gathered.clone() };
    let (gathered, in_place) = (outcome(gathered, data), outcome(&in_place, data));
    assert_eq!((&gathered.0, gathered.1), (&in_place.0, in_place.1));
    assert_eq!(counts(gathered.2), counts(in_place.2));
}

#[test]
fn rows_read_in_place_have_the_bits_and_the_traffic_of_gathered_rows() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(&temp);
    let base = TrainConfig { hidden: 32, ..config(&temp) };
    let (s, half) = (String::from, Bytes(data.features.bytes() as u64 / 2));
    let devices = |n: usize| format!("virtual:{n}").parse().unwrap();
    let chains = [
        TrainConfig { cache_ratio: Ratio(Some(0.3)), ..base.clone() },
        TrainConfig { cache_ratio: Ratio(Some(1.0)), cache: s("degree"), ..base.clone() },
        TrainConfig { host_budget: half, cache: s("presc-online:1"), ..base.clone() },
        TrainConfig { host_budget: Bytes(1), ..base.clone() },
        TrainConfig { devices: devices(1), cache_ratio: Ratio(Some(0.2)), ..base.clone() },
        TrainConfig {
            devices: devices(3),
            cache_ratio: Ratio(Some(0.1)),
            host_budget: half,
            host_cache: s("lru"),
            ..base.clone()
        },
        TrainConfig {
            devices: devices(2),
            cache_ratio: Ratio(Some(0.2)),
            placement: "replicate:0.5".parse().unwrap(),
            strategy: s("time-sharing"),
            ..base.clone()
        },
        TrainConfig {
            devices: devices(2),
            cache_ratio: Ratio(Some(0.2)),
            strategy: s("factored"),
            ..base.clone()
        },
        TrainConfig { host_budget: half, strategy: s("pipelined"), ..base.clone() },
        TrainConfig { host_budget: half, model: s("gcn"), ..base.clone() },
        TrainConfig { host_budget: half, model: s("gin"), ..base.clone() },
        // weights of visits
        TrainConfig { host_budget: half, model: s("gcn"), sampler: s("random-walk"), ..base.clone() },
        TrainConfig { host_budget: half, sampler: s("random-walk"), ..base.clone() },
        // the batch of an epoch is that of the one before it, with its rows
        TrainConfig { host_budget: half, sampler: s("full"), batch_size: 0, ..base.clone() },
        TrainConfig {
            host_budget: half,
            precision: "bf16".parse().unwrap(),
            feature_precision: "f32".parse().unwrap(),
            ..base
        },
    ];
    chains.iter().for_each(|gathered| assert_same_in_place(gathered, &data));
}

#[test]
fn attention_reads_rows_in_place_over_tiers() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(&temp);
    let gathered = TrainConfig {
        model: "gat".into(),
        hidden: 128,
        host_budget: Bytes(data.features.bytes() as u64 / 2),
        ..config(&temp)
    };
    assert_same_in_place(&gathered, &data);
}

/// PinSAGE and MixHop transform the rows first, which would transform a whole cache for each batch.
#[test]
fn layers_that_transform_first_gather_their_rows() {
    let temp = tempfile::tempdir().unwrap();
    let data = data(&temp);
    let half = Bytes(data.features.bytes() as u64 / 2);
    for (model, sampler, fanout) in [
        ("pinsage", "random-walk", vec![5, 5]),
        ("pinsage", "neighbor", vec![5, 5]),
        ("mixhop", "neighbor", vec![3; 4]),
        ("mixhop", "labor", vec![3; 4]),
    ] {
        let plain = TrainConfig {
            model: model.into(),
            sampler: sampler.into(),
            fanout: Fanout(fanout),
            fused: "auto".parse().unwrap(),
            ..config(&temp)
        };
        let (losses, score, _) = outcome(&plain, &data);
        let tiers = [
            TrainConfig { host_budget: half, ..plain.clone() },
            TrainConfig { cache_ratio: Ratio(Some(0.3)), ..plain.clone() },
            TrainConfig {
                devices: "virtual:2".parse().unwrap(),
                cache_ratio: Ratio(Some(0.2)),
                ..plain.clone()
            },
        ];
        for config in tiers {
            let tiered = outcome(&config, &data);
            assert_eq!((&tiered.0, tiered.1), (&losses, score), "{config:?}");
            let in_place = TrainConfig { fused: "on".parse().unwrap(), ..config };
            let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
            let error = train(&in_place, &data, context).unwrap_err().to_string();
            let why =
                "--fused on: this model's bottom layer transforms the feature rows before it aggregates";
            assert!(error.starts_with(why) && error.ends_with("use --fused auto"), "{error}");
        }
    }
}

#[test]
fn rows_of_16_bits_have_the_same_bits_in_all_tiers() {
    let temp = tempfile::tempdir().unwrap();
    let (data, base) = (data(&temp), config(&temp));
    let half = Bytes(data.features.bytes() as u64 / 4);
    let s = String::from;
    for (feature_precision, precision) in [("f16", "f32"), ("bf16", "f32"), ("auto", "bf16")] {
        let base = TrainConfig {
            feature_precision: feature_precision.parse().unwrap(),
            precision: precision.parse().unwrap(),
            ..base.clone()
        };
        let (losses, score, _) = outcome(&base, &data);
        let devices = |n: usize| format!("virtual:{n}").parse().unwrap();
        let chains = [
            TrainConfig { cache_ratio: Ratio(Some(0.3)), cache: s("lru"), ..base.clone() },
            TrainConfig { cache_ratio: Ratio(Some(0.3)), ..base.clone() },
            TrainConfig { host_budget: half, ..base.clone() },
            TrainConfig { devices: devices(1), cache_ratio: Ratio(Some(0.2)), ..base.clone() },
            TrainConfig {
                devices: devices(2),
                cache_ratio: Ratio(Some(0.1)),
                cache: s("fifo"),
                host_budget: half,
                ..base.clone()
            },
            TrainConfig { devices: devices(1), strategy: s("time-sharing"), ..base.clone() },
        ];
        for config in chains {
            let (tiered, of_tiered, traffic) = outcome(&config, &data);
            assert_eq!((tiered, of_tiered), (losses.clone(), score), "{config:?}");
            let near = if config.devices == "cpu" { traffic.host } else { traffic.device };
            assert!(near.rows > 0, "{config:?}");
            assert_eq!(near.bytes, 40 * near.rows, "20 values of two bytes: {config:?}");
            // the file has rows of f32
            assert!(traffic.disk.bytes >= 80 * traffic.disk.rows, "{config:?}");
        }
        let full = TrainConfig { host_budget: Bytes(80_000), ..base.clone() };
        assert_eq!(Plan::new(&full, &data).unwrap(), None, "the table of 16 bits fits");
    }
}

#[test]
fn values_beyond_a_type_are_reported_by_tiers_and_tables() {
    let temp = tempfile::tempdir().unwrap();
    let options = GenerateOptions { nodes: 2000, classes: 4, dim: 20, ..GenerateOptions::default() };
    let mut data = generate("sbm", &options).unwrap();
    data.features = Features::f32(20, vec![1e6; 20 * 2000]);
    data.save(temp.path().join("data")).unwrap();
    let data = Dataset::open(temp.path().join("data")).unwrap();
    let base = TrainConfig { feature_precision: "f16".parse().unwrap(), ..config(&temp) };
    for ratio in [None, Some(0.2)] {
        let config = TrainConfig { cache_ratio: Ratio(ratio), ..base.clone() };
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        let error = train(&config, &data, context).unwrap_err().to_string();
        assert!(error.contains("beyond the range of f16 (up to 65504)"), "{error}");
    }
}

#[test]
fn sparse_rows_stay_sparse_in_all_tiers() {
    let temp = tempfile::tempdir().unwrap();
    let mut data = data(&temp);
    let value = |i: usize| if i * i % 61 < 2 + i / 120 % 5 { 1.0 + (i % 7) as f32 } else { 0.0 };
    let table: Vec<f32> = (0..120 * 2000).map(value).collect();
    let rows = SparseRows::from_dense(120, &table).unwrap();
    let mean = rows.stored() as f64 / 2000.0;
    data.features = Features::csr(rows);
    let base = TrainConfig { sparse: "on".parse().unwrap(), ..config(&temp) };
    let (losses, score, plain) = outcome(&base, &data);
    let s = String::from;
    let devices = |n: usize| format!("virtual:{n}").parse().unwrap();
    let ratio = |ratio| TrainConfig { cache_ratio: Ratio(Some(ratio)), ..base.clone() };
    let chains = [
        TrainConfig { devices: devices(1), ..ratio(0.2) },
        TrainConfig { devices: devices(3), cache: s("fifo"), ..ratio(0.1) },
        TrainConfig { devices: devices(3), placement: "shard".parse().unwrap(), ..ratio(0.1) },
        TrainConfig { devices: devices(1), strategy: s("pipelined"), cache: s("s3-fifo"), ..ratio(0.2) },
        TrainConfig { devices: devices(1), strategy: s("time-sharing"), ..ratio(0.2) },
        TrainConfig { devices: devices(2), strategy: s("factored"), cache: s("lru"), ..ratio(0.2) },
        TrainConfig { devices: devices(1), ..base.clone() },
        TrainConfig { devices: devices(1), device_budget: Bytes(1 << 30), ..base.clone() },
        TrainConfig { devices: devices(1), host_budget: Bytes(data.features.bytes() as u64), ..ratio(0.0) },
    ];
    for config in chains {
        let (tiered, of_tiered, traffic) = outcome(&config, &data);
        assert_eq!((tiered, of_tiered), (losses.clone(), score), "{config:?}");
        assert_eq!(traffic.rows(), plain.rows(), "{config:?}");
        assert_eq!(traffic.total().bytes, plain.total().bytes, "columns and values: {config:?}");
        let near = traffic.device.rows + traffic.peer.rows;
        assert_eq!(near > 0, config.cache_ratio != Ratio(Some(0.0)), "{config:?}");
    }
    // the layered rows of a device with a budget are planned with sparse features
    let reused = TrainConfig {
        devices: devices(1),
        reuse: s("layered"),
        device_budget: Bytes(1 << 30),
        ..base.clone()
    };
    assert!(outcome(&reused, &data).2.device.rows > 0);
    let plan = Plan::new(&TrainConfig { devices: devices(1), ..ratio(0.5) }, &data).unwrap().unwrap();
    assert_eq!(plan.row_bytes, 8 * (1 + mean.ceil() as u64));
    // dense rows of sparse storage are cached as dense rows
    let dense = TrainConfig { sparse: "off".parse().unwrap(), ..base };
    let (losses, _, _) = outcome(&dense, &data);
    let config = TrainConfig { devices: devices(1), cache_ratio: Ratio(Some(0.2)), ..dense };
    let (tiered, _, traffic) = outcome(&config, &data);
    assert_eq!(tiered, losses);
    assert_eq!(traffic.device.bytes, 480 * traffic.device.rows);
}

/// A run whose caches are filled after two epochs.
fn counted_online(temp: &tempfile::TempDir) -> TrainConfig {
    TrainConfig { cache: "presc-online:2".into(), cache_ratio: Ratio(Some(0.2)), epochs: 5, ..config(temp) }
}

/// Loss and hits of every epoch.
fn hits(config: &TrainConfig, summary: &Summary) -> Vec<(u64, u64)> {
    let of_epoch = |epoch: &EpochRecord| {
        let graphmill_loader::Traffic { device, peer, host, .. } = epoch.traffic;
        let near = if config.devices == "cpu" { host } else { device };
        (epoch.loss.to_bits(), near.rows + peer.rows)
    };
    summary.epochs.iter().map(of_epoch).collect()
}

#[test]
fn online_caches_are_filled_by_the_first_epochs_of_training() {
    let temp = tempfile::tempdir().unwrap();
    let (data, base) = (data(&temp), counted_online(&temp));
    let s = String::from;
    let devices = |n: usize| format!("virtual:{n}").parse().unwrap();
    let batches = data.split.train.len().div_ceil(200) as u64;
    let mut of_devices = Vec::new();
    for (config, group) in [
        (base.clone(), "cpu"),
        (TrainConfig { devices: devices(1), ..base.clone() }, "one"),
        (TrainConfig { devices: devices(1), strategy: s("pipelined"), ..base.clone() }, "one"),
        (TrainConfig { devices: devices(1), strategy: s("time-sharing"), ..base.clone() }, "one"),
        (TrainConfig { devices: devices(2), strategy: s("factored"), ..base.clone() }, "one"),
        (TrainConfig { devices: devices(2), ..base.clone() }, "two"),
        (TrainConfig { devices: devices(1), reuse: s("layered"), ..base.clone() }, "reused"),
        (
            TrainConfig {
                devices: devices(2),
                strategy: s("time-sharing"),
                reuse: s("layered"),
                ..base.clone()
            },
            "reused",
        ),
        (TrainConfig { devices: devices(1), strategy: s("historical"), ..base.clone() }, "pushed"),
        (
            TrainConfig {
                devices: devices(1),
                cache: s("degree"),
                host_cache: s("presc-online:2"),
                host_budget: Bytes(60_000),
                ..base.clone()
            },
            "host",
        ),
    ] {
        let before = TrainConfig { cache: s("degree"), host_cache: s("degree"), ..config.clone() };
        let (online, expected) = (run(&config, &data), run(&before, &data));
        let losses =
            |summary: &Summary| hits(&config, summary).iter().map(|epoch| epoch.0).collect::<Vec<_>>();
        assert_eq!(losses(&online), losses(&expected), "{config:?}");
        let cost = online.presampling.unwrap();
        assert_eq!((cost.drawn_batches, cost.counted_batches), (0, 2 * batches), "{config:?}");
        assert!(cost.seconds > 0.0);
        if group == "host" {
            let disk: Vec<u64> = online.epochs.iter().map(|epoch| epoch.traffic.disk.rows).collect();
            assert!(disk[2] < disk[1] && disk[1] * 10 > disk[0] * 9, "{disk:?}");
            continue;
        }
        let near = hits(&config, &online);
        let rows = online.epochs[2].traffic.rows();
        assert_eq!([near[0].1, near[1].1], [0, 0], "{config:?}: {near:?}");
        assert!(near[2..].iter().all(|epoch| epoch.1 * 10 > rows), "{config:?}: {near:?} of {rows}");
        if group == "one" {
            of_devices.push(near);
        }
    }
    assert!(of_devices.iter().all(|near| *near == of_devices[0]), "{of_devices:?}");
    let before = |cache: &str| run(&TrainConfig { cache: cache.into(), ..base.clone() }, &data).presampling;
    let cost = before("presc:3").unwrap();
    assert_eq!((cost.drawn_batches, cost.counted_batches), (3 * batches, 0));
    assert_eq!(before("degree"), None);
}

#[test]
fn a_resumed_run_fills_the_rows_that_it_would_have_counted() {
    let temp = tempfile::tempdir().unwrap();
    let (data, base) = (data(&temp), counted_online(&temp));
    let devices = |n: usize| format!("virtual:{n}").parse().unwrap();
    for config in [
        TrainConfig { devices: devices(1), ..base.clone() },
        TrainConfig { devices: devices(1), strategy: "time-sharing".into(), ..base.clone() },
        TrainConfig { devices: devices(1), reuse: "layered".into(), ..base.clone() },
        TrainConfig {
            devices: devices(1),
            strategy: "time-sharing".into(),
            reuse: "layered".into(),
            ..base.clone()
        },
        TrainConfig { devices: devices(1), strategy: "historical".into(), ..base.clone() },
    ] {
        let reuses = config.reuse != "none" || config.strategy == "historical";
        let whole = hits(&config, &run(&config, &data));
        let batches = data.split.train.len().div_ceil(200);
        // while batches are counted, and after the cache is filled
        for (i, updates) in [batches + 2, 2 * batches, 3 * batches + 1].into_iter().enumerate() {
            let path = temp.path().join(format!("{}-{}-{i}", config.strategy, config.reuse));
            let left = std::sync::atomic::AtomicUsize::new(updates);
            let stop = || left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1;
            let dir = crate::RunDir::create(&path).unwrap();
            let context = RunContext { run: Some(&dir), resume: false, observer: &mut Quiet, stop: &stop };
            assert!(matches!(train(&config, &data, context), Err(Error::Interrupted { .. })));
            drop(dir);
            let dir = crate::RunDir::reopen(&path).unwrap();
            let context = RunContext { run: Some(&dir), resume: true, observer: &mut Quiet, stop: &|| false };
            let resumed = train(&config, &data, context).unwrap();
            assert_eq!(hits(&config, &resumed), whole, "{} after {updates} updates", config.strategy);
            // counts of reused rows are in the checkpoint
            let drawn = if reuses { 0 } else { updates.min(2 * batches) as u64 };
            let counted = resumed.presampling.unwrap_or_default();
            assert_eq!(counted.drawn_batches, drawn, "the counts are repeated");
        }
    }
}

#[test]
fn online_counts_are_refused_if_no_cache_could_be_filled() {
    let temp = tempfile::tempdir().unwrap();
    let (data, base) = (data(&temp), counted_online(&temp));
    let refused = |config: TrainConfig| {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        train(&config, &data, context).unwrap_err().to_string()
    };
    let error = refused(TrainConfig { epochs: 2, ..base.clone() });
    assert!(error.starts_with("--cache presc-online:2: --epochs 2 ends before a cache is filled"), "{error}");
    let error = refused(TrainConfig { host_cache: "presc-online:3".into(), ..base.clone() });
    assert!(error.contains("count different numbers of epochs"), "{error}");
    let error = refused(TrainConfig { cache: "presc-online:x".into(), ..base });
    assert!(error.contains("presc-online:x: 'x' is not a number of epochs"), "{error}");
}

#[test]
fn opened_tiers_read_the_rows_of_the_table() {
    let temp = tempfile::tempdir().unwrap();
    let (data, base) = (data(&temp), config(&temp));
    let FeatureData::F32(table) = &data.features.data else { unreachable!() };
    let ids: Vec<NodeId> = (0..2000).rev().step_by(7).collect();
    let expected: Vec<f32> = ids.iter().flat_map(|&v| table[20 * v as usize..][..20].to_vec()).collect();
    let half = Bytes(data.features.bytes() as u64 / 2);
    let chains = [
        (base.clone(), "the host holds all"),
        (
            TrainConfig { host_budget: half, ..base.clone() },
            "the host holds 32.0 % (posterior:2), the disk all",
        ),
        (
            TrainConfig { cache_ratio: Ratio(Some(0.2)), cache: "lru".into(), ..base.clone() },
            "the host holds 20.0 % (lru), the disk all",
        ),
        (
            TrainConfig {
                devices: "virtual:2".parse().unwrap(),
                cache_ratio: Ratio(Some(0.25)),
                ..base.clone()
            },
            "2 devices hold 25.0 % each (posterior:2), the host all",
        ),
    ];
    for (config, description) in chains {
        let tiers = open(&config, &data, &NoProgress).unwrap();
        assert_eq!(tiers.description, format!("feature rows: {description}"));
        assert_eq!(tiers.has_devices, config.devices != "cpu");
        for _ in 0..2 {
            let mut out = vec![0.0; expected.len()];
            let traffic = tiers.feature.read(&ids, &mut out).unwrap();
            assert_eq!((out, traffic.total().rows), (expected.clone(), ids.len() as u64), "{description}");
        }
    }
    let fault = |config: &TrainConfig| {
        open(config, &data, &NoProgress).err().expect("open refuses the options").to_string()
    };
    let device =
        TrainConfig { devices: "virtual:1".parse().unwrap(), device_budget: Bytes(1 << 20), ..base.clone() };
    assert!(fault(&device).starts_with("--device-budget: only a run knows"));
    assert!(
        fault(&TrainConfig { devices: "cuda:0".parse().unwrap(), ..base.clone() })
            .starts_with("--devices cuda:0")
    );
    // presampling stops when the progress watcher asks for it
    struct Stopped;
    impl graphmill_core::progress::Progress for Stopped {
        fn is_stopped(&self) -> bool {
            true
        }
    }
    let stopped = open(&TrainConfig { cache_ratio: Ratio(Some(0.2)), ..base }, &data, &Stopped);
    assert!(matches!(stopped, Err(Error::Graph(graphmill_core::Error::Stopped))));
}

#[test]
fn host_budget_determines_cached_rows() {
    let temp = tempfile::tempdir().unwrap();
    let (data, base) = (data(&temp), config(&temp));
    let plan = |config: &TrainConfig| Plan::new(config, &data).unwrap();
    assert_eq!(plan(&base), None);
    assert_eq!(plan(&TrainConfig { host_budget: Bytes(1 << 20), ..base.clone() }), None, "all rows fit");
    let of = |bytes| {
        let plan = plan(&TrainConfig { host_budget: Bytes(bytes), ..base.clone() }).unwrap();
        let slots = plan.host.as_ref().map(|cache| cache.slots);
        (slots.unwrap(), plan.to_string())
    };
    // 2000 rows of 80 bytes; maps of 8 bytes per row of the table and 20 per cached row
    assert_eq!(of(116_000), (1000, "feature rows: the host holds 50.0 % (posterior:2), the disk all".into()));
    let none = "feature rows: the host holds none (--host-budget 16099 is less than the maps of a cache, \
                16000 bytes, and a row; raise it to cache rows), the disk all";
    assert_eq!(of(16_099), (0, none.into()), "less than a row");
    let device =
        TrainConfig { devices: "virtual:2".parse().unwrap(), cache_ratio: Ratio(Some(0.25)), ..base.clone() };
    let text = plan(&device).unwrap().to_string();
    assert_eq!(text, "feature rows: 2 devices hold 25.0 % each (posterior:2), the host all");
    let fault = |bytes, ratio| {
        let config =
            TrainConfig { host_budget: Bytes(bytes), cache_ratio: Ratio(Some(ratio)), ..base.clone() };
        open(&config, &data, &NoProgress).err().map(|error| error.to_string())
    };
    assert_eq!(fault(116_000, 0.5), None);
    assert_eq!(fault(300, 0.0), None, "no rows fit in any budget");
    let too_many = "--cache-ratio 0.5: 1000 rows of 80 bytes and their maps do not fit in --host-budget \
        115999; use --cache-ratio auto";
    assert_eq!(fault(115_999, 0.5).as_deref(), Some(too_many));
    assert!(fault(300, 1.0).is_some_and(|error| error.contains("2000 rows of 80 bytes")));
    let proximity = TrainConfig { order: "proximity".into(), cache_ratio: Ratio(Some(0.25)), ..base };
    assert_eq!(plan(&proximity).unwrap().host.unwrap().policy, "lru");
}

/// Collects the notes of a run.
#[derive(Default)]
struct Notes(Vec<String>);

impl crate::observer::Observer for Notes {
    fn note(&mut self, message: &str) {
        self.0.push(message.to_string());
    }
}

#[test]
fn devices_that_read_for_themselves_report_the_sizes_of_their_caches() {
    let temp = tempfile::tempdir().unwrap();
    let (data, base) = (data(&temp), config(&temp));
    // number of rows on each device, after checking the run's notes
    let held = |strategy: &str, budget| -> Result<Vec<usize>> {
        let config = TrainConfig {
            devices: "virtual:2".parse().unwrap(),
            strategy: strategy.into(),
            device_budget: Bytes(budget),
            epochs: 1,
            ..base.clone()
        };
        let mut notes = Notes::default();
        let context = RunContext { run: None, resume: false, observer: &mut notes, stop: &|| false };
        let devices = train(&config, &data, context)?.epochs[0].devices.clone();
        let text = notes.0.join("\n");
        let tiers = "feature rows: each device holds what fits beside its work (posterior:2), the host all";
        assert!(notes.0.iter().any(|note| *note == format!("{tiers}; strategy {strategy}")), "{text}");
        // a device that only samples holds no rows and has no note
        for device in devices.iter().filter(|device| device.cache_rows > 0) {
            let part = format!("{:.1} % of the rows", 100.0 * device.cache_rows as f64 / 2000.0);
            assert!(text.contains(&part), "{part} in {text}");
        }
        for number in text.split_whitespace().filter_map(|word| word.parse::<f64>().ok()) {
            assert!(number <= 2000.0, "{text}");
        }
        Ok(devices.iter().map(|device| device.cache_rows).collect())
    };
    for (strategy, rows) in [("factored", 2000), ("time-sharing", 1000), ("layered", 1000)] {
        assert!(held(strategy, 0).unwrap().iter().all(|&held| held == rows), "{strategy}");
        // the table and its maps take 216,000 bytes beside a step, so steps of 60,000 include a
        // budget for a part of the table
        let mut budgets = (300_000..2_000_000).step_by(60_000);
        let is_part = |held: &Vec<usize>| held.iter().any(|rows| (1..2000).contains(rows));
        let partly = budgets.find(|&budget| held(strategy, budget).is_ok_and(|held| is_part(&held)));
        assert!(partly.is_some(), "{strategy}: some budget fits a step and a part of the rows");
    }
}

#[test]
fn counted_steps_depend_on_no_other_work_and_no_number_of_threads() {
    let temp = tempfile::tempdir().unwrap();
    let (data, base) = (data(&temp), config(&temp));
    let count = |threads: usize, model: &str| {
        let config = TrainConfig { model: model.into(), ..base.clone() };
        let (sampler, order) =
            (build::sampler(&config, &data).unwrap(), build::order(&config, &data).unwrap());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| step_of_run(&config, &data, (&*sampler, &*order), None, None)).unwrap()
    };
    for model in ["sage", "gcn", "gat"] {
        let first = count(2, model);
        // blocks of many sizes, some of which stay while others leave holes
        let kept: Vec<Vec<u8>> =
            (1..200).map(|i| vec![i as u8; 2_000 * i]).filter(|of| of[0] % 3 == 0).collect();
        run(&TrainConfig { epochs: 1, ..base.clone() }, &data);
        assert_eq!(count(2, model), first, "{model}");
        drop(kept);
        assert_eq!([count(1, model), count(3, model)], [first; 2], "{model}");
        // parameters, gradients and two moments, and the rows of 200 seeds
        assert!(first.bytes > first.rows && first.rows > 4 * 200 * 20, "{model}: {first:?}");
    }
}

#[test]
fn device_budget_bounds_step_and_cached_rows() {
    let temp = tempfile::tempdir().unwrap();
    let (data, base) = (data(&temp), config(&temp));
    let of = |bytes| TrainConfig {
        devices: "virtual:1".parse().unwrap(),
        device_budget: Bytes(bytes),
        ..base.clone()
    };
    // a step takes some hundred kilobytes, the table 160
    let rich = run(&of(1 << 30), &data).epochs[0].clone();
    assert_eq!(rich.hit_rate, Some(1.0));
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    let error = train(&of(20_000), &data, context).unwrap_err().to_string();
    assert!(error.starts_with("--device-budget 20000: a training step takes"), "{error}");
    // 1,000 rows of 80 bytes with their maps, and the maps of all 2,000 rows
    let half = |bytes| Plan::new(&TrainConfig { cache_ratio: Ratio(Some(0.5)), ..of(bytes) }, &data);
    assert!(half(116_000).is_ok());
    let error = half(115_999).unwrap_err().to_string();
    assert!(
        error.starts_with("--cache-ratio 0.5: 1000 rows of 80 bytes and their maps do not fit"),
        "{error}"
    );
    // with a ratio, the training step must fit, too
    let shared = |ratio, budget| {
        let config = TrainConfig {
            devices: "virtual:2".parse().unwrap(),
            cache_ratio: Ratio(Some(ratio)),
            ..of(budget)
        };
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        train(&config, &data, context).err().map(|error| error.to_string())
    };
    assert_eq!(shared(0.5, 1 << 30), None);
    let error = shared(0.01, 20_000).unwrap();
    assert!(error.starts_with("--device-budget 20000: a training step takes"), "{error}");
    let config = TrainConfig { cache_ratio: Ratio(Some(0.5)), ..of(1 << 30) };
    let plan = Plan::new(&config, &data).unwrap().unwrap();
    let cache = plan.device.clone().unwrap();
    assert!(plan.check_ratio(&config, &cache, 1000, "").is_ok());
    let error =
        plan.check_ratio(&config, &cache, 999, "--device-budget 1 beside a training step").unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("do not fit in --device-budget 1 beside a training step; use --cache-ratio auto")
    );
}

#[test]
fn several_devices_report_rows_per_device() {
    let temp = tempfile::tempdir().unwrap();
    let (data, base) = (data(&temp), config(&temp));
    let of = |devices: usize, ratio, placement: &str, cache: &str| {
        let config = TrainConfig {
            devices: format!("virtual:{devices}").parse().unwrap(),
            cache_ratio: Ratio(ratio),
            placement: placement.parse().unwrap(),
            cache: cache.into(),
            epochs: 1,
            ..base.clone()
        };
        let mut notes = Notes::default();
        let context = RunContext { run: None, resume: false, observer: &mut notes, stop: &|| false };
        let traffic = train(&config, &data, context).unwrap().epochs[0].traffic;
        let note = notes.0.into_iter().find(|note| note.starts_with("feature rows: ")).unwrap();
        (note, traffic.device.rows as f64 / traffic.rows() as f64)
    };
    let (note, own) = of(4, None, "interleave", "degree");
    let tiers = "feature rows: 4 devices hold 25.0 % each (degree), the host all";
    assert_eq!(note, format!("{tiers}; strategy {}", base.strategy));
    assert!((0.2..0.3).contains(&own), "{own} of the rows come from the reading device");
    assert!(of(2, Some(0.7), "shard", "degree").0.contains("2 devices hold 50.0 % each"));
    assert!(of(2, Some(0.7), "replicate", "degree").0.contains("2 devices hold 70.0 % each"));
    assert!(of(2, Some(0.7), "replicate:0.5", "degree").0.contains("2 devices hold 67.5 % each"));
    assert!(of(3, None, "interleave", "degree").0.contains("3 devices hold 33.3 to 33.4 % each"));
    assert!(of(2, Some(0.7), "interleave", "lru").0.contains("2 devices hold 50.0 % each (lru)"));
    assert!(of(1, Some(0.7), "interleave", "degree").0.contains("a device holds 70.0 % (degree)"));
}

#[test]
fn unsupported_rows_and_options_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let (mut data, base) = (data(&temp), config(&temp));
    let cached = TrainConfig { cache_ratio: Ratio(Some(0.5)), ..base };
    let fault = |config: &TrainConfig, data: &Dataset| {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        train(config, data, context).unwrap_err().to_string()
    };
    let of = |change: fn(&mut TrainConfig)| {
        let mut config = cached.clone();
        change(&mut config);
        fault(&config, &data)
    };
    let in_place = |change: fn(&mut TrainConfig)| {
        let mut config = TrainConfig { fused: "on".parse().unwrap(), ..cached.clone() };
        change(&mut config);
        fault(&config, &data)
    };
    assert!(in_place(|c| c.cache = "lru".into()).starts_with("--fused on: a dynamic cache may evict a row"));
    assert!(
        in_place(|c| c.feature_precision = "bf16".parse().unwrap())
            .starts_with("--fused on: rows of 16 bits and sparse rows are read in place from a table")
    );
    assert!(of(|c| c.dataset = String::new()).contains("this dataset is in memory only"));
    assert!(of(|c| c.cache = "warm".into()).contains("unknown policy 'warm'"));
    assert!(of(|c| c.cache = "presc:0".into()).contains("presc:0: '0' is not a number of epochs"));
    let FeatureData::F32(rows) = &data.features.data else { unreachable!() };
    data.features = Features::csr(SparseRows::from_dense(20, rows).unwrap());
    // the files of the dataset are those of dense rows
    assert!(fault(&cached, &data).contains("the dataset has no sparse features to read from files"));
    let budget = TrainConfig { host_budget: Bytes(1000), cache_ratio: Ratio(None), ..cached };
    assert!(fault(&budget, &data).contains("the dataset has no sparse features to read from files"));
}

/// A graph whose reads are skewed, and a run on three devices that hold a tenth of the rows each.
fn three_devices(temp: &tempfile::TempDir) -> (Dataset, TrainConfig) {
    let options = GenerateOptions { scale: 11, classes: 4, dim: 20, ..GenerateOptions::default() };
    generate("kronecker", &options).unwrap().save(temp.path().join("data")).unwrap();
    let config = TrainConfig {
        devices: "virtual:3".parse().unwrap(),
        cache_ratio: Ratio(Some(0.1)),
        batch_size: 40,
        ..config(temp)
    };
    (Dataset::open(temp.path().join("data")).unwrap(), config)
}

#[test]
fn devices_that_train_share_their_caches() {
    let temp = tempfile::tempdir().unwrap();
    let (data, base) = three_devices(&temp);
    let run_of = |strategy: &str, placement: &str, cache: &str| {
        let strategy = strategy.to_string();
        let (placement, cache) = (placement.parse().unwrap(), cache.to_string());
        let mut config = TrainConfig { strategy, placement, cache, ..base.clone() };
        config.derive_options(&[]).unwrap();
        run(&config, &data)
    };
    let losses =
        |summary: &Summary| summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect::<Vec<_>>();
    let one_reader = run_of("sequential", "interleave", "degree").epochs[1].hit_rate.unwrap();
    let private = run_of("time-sharing", "private", "degree");
    let alone = private.epochs[1].hit_rate.unwrap();
    assert_eq!(private.epochs[1].traffic.peer.rows, 0);
    let total = data.num_nodes() as f64;
    for placement in ["interleave", "shard", "blocked", "replicate:0.5"] {
        let pooled = run_of("time-sharing", placement, "degree");
        assert_eq!(losses(&pooled), losses(&private), "{placement}");
        let (rate, traffic) = (pooled.epochs[1].hit_rate.unwrap(), pooled.epochs[1].traffic);
        assert!(rate > alone + 0.05 && traffic.peer.rows > 0, "{placement}: {rate}, private {alone}");
        assert!(traffic.device.rows > 0, "{placement}");
        if placement == "interleave" || placement == "blocked" {
            assert!((rate - one_reader).abs() < 0.02, "{placement}: {rate}, one reader {one_reader}");
        }
        for device in &pooled.epochs[1].devices {
            let held = device.cache_rows as f64 / total;
            assert!((0.09..0.11).contains(&held), "{placement}: a device holds {held} of the rows");
        }
        let bytes: u64 = pooled.epochs[1].devices.iter().map(|device| device.peer_link_bytes).sum();
        assert_eq!(bytes, traffic.peer.bytes, "{placement}");
    }
    let replicated = run_of("time-sharing", "replicate", "degree");
    assert_eq!(losses(&replicated), losses(&private));
    assert_eq!((replicated.epochs[1].hit_rate, replicated.epochs[1].traffic.peer.rows), (Some(alone), 0));
    // a policy's rows, too, are those of one pool
    let fifo = run_of("time-sharing", "interleave", "fifo");
    assert_eq!(losses(&fifo), losses(&private));
    assert!(fifo.epochs[1].traffic.peer.rows > 0);
    let private = run_of("time-sharing", "private", "fifo");
    assert!(fifo.epochs[1].hit_rate > private.epochs[1].hit_rate);
}

#[test]
fn trainers_of_other_designs_share_their_caches() {
    let temp = tempfile::tempdir().unwrap();
    let (data, base) = three_devices(&temp);
    let run_of = |strategy: &str, placement: &str| {
        let (strategy, placement) = (strategy.to_string(), placement.parse().unwrap());
        let config = TrainConfig { strategy, placement, cache: "degree".into(), ..base.clone() };
        let mut config = config.with(|own: &mut FactoredOptions| own.num_samplers = 1);
        config.derive_options(&[]).unwrap();
        run(&config, &data)
    };
    for strategy in ["factored", "layered"] {
        let (pooled, private) = (run_of(strategy, "interleave"), run_of(strategy, "private"));
        for (pooled, private) in pooled.epochs.iter().zip(&private.epochs) {
            assert_eq!(pooled.loss.to_bits(), private.loss.to_bits(), "{strategy}");
            assert!(pooled.traffic.peer.rows > 0, "{strategy}");
            assert_eq!(private.traffic.peer.rows, 0, "{strategy}");
            assert!(pooled.hit_rate > private.hit_rate, "{strategy}");
        }
    }
}

#[test]
fn rows_of_peers_cross_their_link() {
    let temp = tempfile::tempdir().unwrap();
    let (data, base) = three_devices(&temp);
    let base = TrainConfig { cache: "degree".into(), epochs: 1, ..base };
    let run_of = |strategy: &str, link: &str| {
        let (strategy, peer_link) = (strategy.to_string(), link.parse().unwrap());
        let mut config = TrainConfig { strategy, peer_link, ..base.clone() };
        config.derive_options(&[]).unwrap();
        run(&config, &data).epochs[0].clone()
    };
    for strategy in ["time-sharing", "sequential"] {
        let (free, slow) = (run_of(strategy, "none"), run_of(strategy, "20M,1ms"));
        assert_eq!(free.loss.to_bits(), slow.loss.to_bits(), "{strategy}");
        // devices share the same hits, but the times decide which device reads a batch
        let hits = |epoch: &EpochRecord| epoch.traffic.device.rows + epoch.traffic.peer.rows;
        assert_eq!(hits(&free), hits(&slow), "{strategy}");
        let slow_peers = slow.traffic.peer;
        assert!(slow_peers.seconds() > slow_peers.bytes as f64 / 20e6, "{strategy}: {slow_peers:?}");
        let seconds: f64 = slow.devices.iter().map(|device| device.peer_link_seconds).sum();
        let expected = if strategy == "sequential" { 0.0 } else { slow_peers.bytes as f64 / 20e6 };
        assert!((seconds - expected).abs() < 1e-4, "{strategy}: {seconds} s");
    }
}

#[test]
fn pools_stay_within_the_memory_of_every_device() {
    let temp = tempfile::tempdir().unwrap();
    let (data, base) = (data(&temp), config(&temp));
    let rows = |placement: &str, budget| {
        let config = TrainConfig {
            devices: "virtual:2".parse().unwrap(),
            placement: placement.parse().unwrap(),
            device_budget: Bytes(budget),
            ..base.clone()
        };
        let (sampler, order) =
            (build::sampler(&config, &data).unwrap(), build::order(&config, &data).unwrap());
        let caches = DeviceCaches::new(&config, &data, &*sampler, &*order, None).unwrap().unwrap();
        let devices = Device::several("virtual", 2, budget, Default::default()).unwrap();
        let taken = devices[1].hold("other work", 20_000).unwrap();
        let behind: Arc<dyn Feature> = Arc::new(Host::new(&data.features));
        let (pool, shared) = caches.pool(&devices, &behind).unwrap();
        let rows: Vec<usize> = pool.iter().map(|cache| cache.slots).collect();
        let free = |bytes: usize| budget - (16_000 + 100 * bytes) as u64;
        assert_eq!(devices[0].free(), Some(free(rows[0])), "{placement}");
        assert_eq!(devices[1].free(), Some(free(rows[1]) - 20_000), "{placement}");
        drop((pool, taken));
        assert_eq!(devices[0].free(), Some(budget), "the memory is released");
        let visitor = shared.map(|pool| caches.without_share(&pool, &devices[0]).unwrap());
        let maps = if visitor.is_some() { 16_000 } else { 0 };
        assert_eq!(devices[0].free(), Some(budget - maps), "a device without a share holds the maps");
        rows
    };
    // the device with the least free memory bounds the shares: 100 bytes a row, 16,000 of maps
    assert_eq!(rows("interleave", 100_000), [640, 640]);
    assert_eq!(rows("private", 100_000), [840, 640]);
    assert_eq!(rows("shard", 1_000_000), [1000, 1000], "all rows fit");
    assert_eq!(rows("replicate", 1_000_000), [2000, 2000]);
}
