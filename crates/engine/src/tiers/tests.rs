use graphmill_graph::{
    Features, NodeId, SparseRows,
    dataset::FeatureData,
    external::Quiet as Watchless,
    generate::{GenerateOptions, generate},
};

use super::*;
use crate::{
    config::{Bytes, Fanout, Ratio},
    observer::Quiet,
    record::Summary,
    trainer::{Job, train},
};

/// A block model in a directory.
fn data(room: &tempfile::TempDir) -> Dataset {
    let options = GenerateOptions { nodes: 2000, classes: 4, dim: 20, ..GenerateOptions::default() };
    let dir = room.path().join("data");
    generate("sbm", &options).unwrap().save(&dir).unwrap();
    Dataset::open(&dir).unwrap()
}

fn config(room: &tempfile::TempDir) -> TrainConfig {
    TrainConfig {
        dataset: room.path().join("data").to_str().unwrap().into(),
        hidden: 8,
        epochs: 2,
        batch_size: 200,
        fanout: Fanout(vec![5, 5]),
        fused: "off".into(),
        ..TrainConfig::default()
    }
}

fn run(config: &TrainConfig, data: &Dataset) -> Summary {
    train(config, data, Job { run: None, resume: false, observer: &mut Quiet, stop: &|| false }).unwrap()
}

#[test]
fn every_chain_of_tiers_trains_to_the_same_bits() {
    let room = tempfile::tempdir().unwrap();
    let (data, base) = (data(&room), config(&room));
    let plain = run(&base, &data);
    let virtual_devices = |n: usize| format!("virtual:{n}");
    let half = Bytes(data.features.bytes() as u64 / 2);
    let base = TrainConfig { fused: "auto".into(), ..base };
    let s = String::from;
    let chains = [
        TrainConfig { cache_ratio: Ratio(Some(0.2)), ..base.clone() },
        TrainConfig { cache_ratio: Ratio(Some(0.0)), ..base.clone() },
        TrainConfig { cache_ratio: Ratio(Some(1.0)), cache: s("degree"), ..base.clone() },
        TrainConfig { cache_ratio: Ratio(Some(0.3)), cache: s("fifo"), ..base.clone() },
        TrainConfig { host_budget: half, cache: s("sieve"), ..base.clone() },
        TrainConfig { host_budget: Bytes(1), ..base.clone() },
        TrainConfig { devices: virtual_devices(1), cache_ratio: Ratio(Some(0.1)), ..base.clone() },
        TrainConfig {
            devices: virtual_devices(3),
            cache_ratio: Ratio(Some(0.1)),
            host_budget: half,
            host_cache: s("lru"),
            cache: s("analytic"),
            ..base.clone()
        },
        TrainConfig {
            devices: virtual_devices(2),
            cache_ratio: Ratio(Some(0.2)),
            cache: s("s3-fifo"),
            placement: s("shard"),
            host_budget: half,
            ..base.clone()
        },
        TrainConfig { devices: virtual_devices(2), placement: s("replicate:0.5"), ..base },
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

#[test]
fn opened_tiers_give_the_rows_of_the_table() {
    let room = tempfile::tempdir().unwrap();
    let (data, base) = (data(&room), config(&room));
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
            TrainConfig { devices: "virtual:2".into(), cache_ratio: Ratio(Some(0.25)), ..base.clone() },
            "2 devices hold 25.0 % each (posterior:2), the host all",
        ),
    ];
    for (config, description) in chains {
        let tiers = open(&config, &data, &Watchless).unwrap();
        assert_eq!(tiers.description, format!("feature rows: {description}"));
        assert_eq!(tiers.has_devices, config.devices != "cpu");
        for _ in 0..2 {
            let mut out = vec![0.0; expected.len()];
            let traffic = tiers.feature.read(&ids, &mut out).unwrap();
            assert_eq!((out, traffic.total().rows), (expected.clone(), ids.len() as u64), "{description}");
        }
    }
    let fault =
        |config: &TrainConfig| open(config, &data, &Watchless).err().expect("it is refused").to_string();
    let device = TrainConfig { devices: "virtual:1".into(), device_budget: Bytes(1 << 20), ..base.clone() };
    assert!(fault(&device).starts_with("--device-budget: what a training step"));
    assert!(fault(&TrainConfig { devices: "cuda:0".into(), ..base.clone() }).starts_with("--devices cuda:0"));
    // counting what batches ask for ends where the watcher says so
    struct Stopped;
    impl graphmill_graph::external::Watch for Stopped {
        fn is_stopped(&self) -> bool {
            true
        }
    }
    let stopped = open(&TrainConfig { cache_ratio: Ratio(Some(0.2)), ..base }, &data, &Stopped);
    assert!(matches!(stopped, Err(Error::Graph(graphmill_graph::Error::Stopped))));
}

#[test]
fn a_budget_says_how_much_is_held() {
    let room = tempfile::tempdir().unwrap();
    let (data, base) = (data(&room), config(&room));
    let plan = |config: &TrainConfig| Plan::new(config, &data).unwrap();
    assert_eq!(plan(&base), None);
    assert_eq!(plan(&TrainConfig { host_budget: Bytes(1 << 20), ..base.clone() }), None, "all rows fit");
    let of = |bytes| {
        let plan = plan(&TrainConfig { host_budget: Bytes(bytes), ..base.clone() }).unwrap();
        let slots = plan.host.as_ref().map(|cache| cache.slots);
        (slots.unwrap(), plan.to_string())
    };
    // 2000 rows of 80 bytes; maps of 8 bytes a row of the table and 20 a row that is held
    assert_eq!(of(116_000), (1000, "feature rows: the host holds 50.0 % (posterior:2), the disk all".into()));
    assert_eq!(of(16_099).0, 0, "less than a row");
    let device = TrainConfig { devices: "virtual:2".into(), cache_ratio: Ratio(Some(0.25)), ..base.clone() };
    let text = plan(&device).unwrap().to_string();
    assert_eq!(text, "feature rows: 2 devices hold 25.0 % each (posterior:2), the host all");
    let proximity = TrainConfig { order: "proximity".into(), cache_ratio: Ratio(Some(0.25)), ..base };
    assert_eq!(plan(&proximity).unwrap().host.unwrap().policy, "lru");
}

#[test]
fn a_device_holds_what_a_step_leaves_free() {
    let room = tempfile::tempdir().unwrap();
    let (data, base) = (data(&room), config(&room));
    let of = |bytes| TrainConfig { devices: "virtual:1".into(), device_budget: Bytes(bytes), ..base.clone() };
    // a step takes some hundred kilobytes, the table 160
    let rich = run(&of(1 << 30), &data).epochs[0].clone();
    assert_eq!(rich.hit_rate, Some(1.0));
    let job = Job { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    let error = train(&of(20_000), &data, job).unwrap_err().to_string();
    assert!(error.starts_with("--device-budget 20000: a training step takes"), "{error}");
    // 1,000 rows of 80 bytes, their maps, and those of all 2,000
    let half = |bytes| Plan::new(&TrainConfig { cache_ratio: Ratio(Some(0.5)), ..of(bytes) }, &data);
    assert!(half(116_000).is_ok());
    let error = half(115_999).unwrap_err().to_string();
    assert!(
        error.starts_with("--cache-ratio 0.5: 1000 rows of 80 bytes and their maps do not fit"),
        "{error}"
    );
}

#[test]
fn what_tiers_cannot_hold_is_refused() {
    let room = tempfile::tempdir().unwrap();
    let (mut data, base) = (data(&room), config(&room));
    let cached = TrainConfig { cache_ratio: Ratio(Some(0.5)), ..base };
    let fault = |config: &TrainConfig, data: &Dataset| {
        let job = Job { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        train(config, data, job).unwrap_err().to_string()
    };
    let of = |change: fn(&mut TrainConfig)| {
        let mut config = cached.clone();
        change(&mut config);
        fault(&config, &data)
    };
    assert!(of(|c| c.fused = "on".into()).starts_with("--fused on: rows of several tiers"));
    assert!(of(|c| c.feature_precision = "bf16".into()).contains("stay as they are stored, f32"));
    assert!(of(|c| c.dataset = String::new()).contains("this dataset is in memory only"));
    assert!(of(|c| c.cache = "warm".into()).contains("unknown policy 'warm'"));
    assert!(of(|c| c.cache = "presc:0".into()).contains("presc:0: a number of epochs"));
    assert!(of(|c| c.placement = "heap".into()).starts_with("--placement 'heap': shard"));
    assert!(
        of(|c| c.devices = "virtual:0".into()).contains("unknown device 'virtual:0'; known: cpu, virtual:N")
    );
    let FeatureData::F32(rows) = &data.features.data else { unreachable!() };
    data.features = Features::csr(SparseRows::from_dense(20, rows).unwrap());
    assert!(fault(&cached, &data).contains("this dataset's are sparse"));
}
