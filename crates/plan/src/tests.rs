use graphmill_data::{
    Dataset,
    generate::{GenerateOptions, generate},
};
use graphmill_engine::{TrainConfig, config::Fanout, tiers::CacheBytes};

use super::*;

mod compared;
mod events;
mod options;
mod types;

/// Like papers100M: topology and features do not fit a device together.
fn profile() -> Profile {
    Profile {
        name: "papers".into(),
        batches: 150,
        last_batch: 0.5,
        cores: 48.0 / 2.6,
        bandwidth: Some(900e9),
        seconds: Seconds {
            sample: 0.0064,
            sample_host: Some(0.019),
            gather: 0.036,
            near: 0.004,
            train: 0.025,
        },
        bytes: Sizes {
            topology: 6.4e9,
            features: 53e9,
            maps: 0.0,
            row_maps: 0.0,
            device_maps: None,
            batch_rows: 1.7e8,
            next_rows: None,
            batch: 1e7,
            sample: 1.3e9,
            sample_thread: None,
            train: 3.6e9,
            train_gradients: None,
            parameters: 6e5,
        },
        hit_rates: vec![HitRate { ratio: 0.05, rate: 0.96 }, HitRate { ratio: 0.2, rate: 0.99 }],
        reuse: None,
        layered: None,
        without_reuse: None,
        types: Vec::new(),
    }
}

fn v100() -> Hardware {
    Hardware::find("v100x8").unwrap()
}

fn of<'r>(report: &'r Report, name: &str) -> &'r Prediction {
    report.strategies.iter().find(|strategy| strategy.name == name).unwrap()
}

#[test]
fn the_papers_machine_prefers_factoring_for_the_papers_graph() {
    let report = plan(v100(), profile()).unwrap();
    assert_eq!(report.speed, 1.0);
    let factored = of(&report, "factored");
    assert_eq!((factored.samplers, factored.trainers, factored.standby), (2, 6, 2));
    // FGNN section 3 and Table 5: 7 % of the rows fit beside the topology, 21 % without it.
    let shared = of(&report, "time-sharing");
    assert!((0.07..0.13).contains(&shared.cache_ratio), "{shared:?}");
    assert!((0.21..0.27).contains(&factored.cache_ratio), "{factored:?}");
    assert!(factored.hit_rate > shared.hit_rate);
    let seconds = |name: &str| of(&report, name).epoch_seconds.unwrap();
    assert!(seconds("pipelined") < seconds("sequential"));
    assert!(seconds("time-sharing") < seconds("pipelined"));
    assert!(["factored", "time-sharing"].contains(&report.recommended.unwrap()));
    assert_eq!(plan(v100(), profile()).unwrap(), report, "reports are reproducible");
    let text = report.to_string();
    assert!(text.contains("v100x8: 8 devices of 17.2 GB") && text.contains("recommended: "), "{text}");
}

#[test]
fn worse_hit_rates_favour_factoring() {
    // As with hotness by degree: the cache beside the topology serves few rows. FGNN's devices have
    // caches of their own.
    let hit_rates = [(0.09, 0.4), (0.23, 0.95)].map(|(ratio, rate)| HitRate { ratio, rate });
    let report = planned(&[("placement", "replicate")], Profile { hit_rates: hit_rates.into(), ..profile() });
    assert_eq!(report.recommended, Some("factored"));
    assert_eq!(of(&report, "time-sharing").bottleneck, "extract (host)");
}

#[test]
fn oversized_data_is_reported() {
    // FGNN section 7.2: UK's topology leaves no memory for time sharing, while a Sampler holds it
    // alone.
    let bytes = Sizes { topology: 13e9, features: 74e9, ..profile().bytes };
    let report = plan(v100(), Profile { bytes, ..profile() }).unwrap();
    let shared = of(&report, "time-sharing");
    assert!(!shared.fits && shared.epoch_seconds.is_none() && shared.bottleneck == "memory");
    let reason = shared.reason.as_deref().unwrap();
    assert_eq!(
        reason,
        "a device has 17.2 GB, but it takes 17.9 GB: the topology 13.0 GB, a training step 3.6 GB, sampling \
         1.3 GB"
    );
    let factored = of(&report, "factored");
    assert_eq!((factored.fits, factored.standby, factored.switched), (true, 0, 0));
    assert!(report.to_string().contains("time-sharing  does not fit: a device has"), "{report}");
    // The host cannot hold oversized features either.
    let bytes = Sizes { features: 1e12, ..profile().bytes };
    let report = plan(v100(), Profile { bytes, ..profile() }).unwrap();
    assert_eq!(report.recommended, None);
    assert!(report.strategies.iter().all(|strategy| strategy.reason.as_ref().unwrap().contains("the host")));
}

#[test]
fn one_device_alternates() {
    let mut hardware = v100();
    hardware.devices.count = 1;
    let report = plan(hardware.clone(), profile()).unwrap();
    let factored = of(&report, "factored");
    assert_eq!((factored.samplers, factored.trainers, factored.standby), (1, 0, 1));
    assert_eq!(factored.switched, 150);
    let expected = 149.5 * (0.0064 + 0.025);
    let seconds = factored.epoch_seconds.unwrap();
    assert!((expected..1.02 * expected).contains(&seconds), "{seconds} {expected}");
    // A host without memory for an epoch's samples.
    hardware.host.memory = 60_000_000_000;
    let reason = of(&plan(hardware, profile()).unwrap(), "factored").reason.clone().unwrap();
    assert!(reason.contains("a queue of 150 batches of 10.0 MB"), "{reason}");
}

#[test]
fn devices_of_unknown_speed_are_rejected() {
    let mut hardware = v100();
    hardware.devices.bandwidth = None;
    let error = plan(hardware.clone(), profile()).unwrap_err();
    assert!(error.is_usage() && error.to_string().contains("set devices.speed"), "{error}");
    hardware.devices.speed = Some(2.0);
    let (slow, fast) = (plan(v100(), profile()).unwrap(), plan(hardware, profile()).unwrap());
    assert!(of(&fast, "factored").epoch_seconds < of(&slow, "factored").epoch_seconds);
    let nonsense = Profile { batches: 0, ..profile() };
    assert!(plan(v100(), nonsense).unwrap_err().to_string().contains("batches 0"));
}

/// Dataset of these numbers of nodes and classes, and options of a small run.
fn small(nodes: usize, fanout: Vec<i64>) -> (Dataset, TrainConfig) {
    let options = GenerateOptions { nodes, classes: 4, dim: 16, ..GenerateOptions::default() };
    let config = TrainConfig {
        hidden: 16,
        batch_size: 150,
        layers: fanout.len(),
        fanout: Fanout(fanout),
        ..TrainConfig::default()
    };
    (generate("sbm", &options).unwrap(), config)
}

#[test]
fn a_dataset_is_profiled() {
    let (data, config) = small(2000, vec![4, 3]);
    let profile = measure(&config, &data).unwrap();
    assert_eq!(profile.check(), Ok(()));
    let train = data.split.train.len();
    assert_eq!(profile.batches, train.div_ceil(150) as u64);
    let Seconds { sample, gather, train, .. } = profile.seconds;
    assert!(sample > 0.0 && gather > 0.0 && train > 0.0, "{profile:?}");
    assert_eq!(profile.bytes.features, 2000.0 * 64.0);
    assert!(profile.bytes.next_rows() > 0.0 && profile.layered.is_none());
    // a number for each node, and a batch
    assert!(profile.bytes.sample_thread.unwrap() >= 4.0 * 2000.0 + profile.bytes.batch, "{profile:?}");
    assert!(profile.bytes.batch_rows >= 150.0 * 64.0 && profile.bytes.train > profile.bytes.batch_rows);
    assert!(profile.hit_rates.is_sorted_by(|a, b| a.rate <= b.rate), "{profile:?}");
    assert_eq!(profile.hit_rate(1.0), 1.0);
    let report = plan(Hardware::find("laptop").unwrap(), profile).unwrap();
    assert!(report.strategies.iter().all(|strategy| strategy.fits), "{report}");
}

#[test]
fn caches_have_the_maps_that_runs_count() {
    let (data, config) = small(2000, vec![4, 3]);
    let bytes = measure(&config, &data).unwrap().bytes;
    // 8 bytes a node and 20 a cached row in host memory; 4 a node on an NVIDIA device
    assert_eq!((bytes.maps, bytes.row_maps), (16_000.0, 40_000.0));
    assert_eq!(bytes.device_maps, Some([8_000.0, 0.0]));
    let first = measure(&TrainConfig { cache: "stored-order".into(), ..config }, &data).unwrap().bytes;
    assert_eq!((first.maps, first.row_maps, first.device_maps), (0.0, 4_000.0, Some([0.0; 2])));
    // a device of this memory caches as many rows as that of a run
    let ratio = |shared: bool| {
        let mut hardware = v100();
        let taken = bytes.train;
        let devices = Devices { memory: taken as u64 + 84_000, shared, count: 1, ..hardware.devices };
        hardware.devices = Devices { speed: Some(1.0), sync: 0.0, ..devices };
        let bytes = Sizes { train: taken.floor(), ..bytes };
        let report = plan(hardware, Profile { bytes, ..profile() }).unwrap();
        of(&report, "sequential").cache_ratio
    };
    let rows = CacheBytes::new("posterior:2", 2000, 64).rows_within(84_000.0).unwrap();
    assert!((ratio(true) - rows / 2000.0).abs() < 1e-9 && rows == 68_000.0 / 84.0);
    let on_nvidia = CacheBytes::on_nvidia("posterior:2", 2000, 64).unwrap().rows_within(84_000.0).unwrap();
    assert!((ratio(false) - on_nvidia / 2000.0).abs() < 1e-9 && on_nvidia == 76_000.0 / 64.0);
}

fn request(given: &[(&'static str, &str)]) -> Request {
    let mut config = TrainConfig::default();
    let values = given.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    config.set(&values).unwrap();
    Request::new(config, given.iter().map(|(name, value)| (*name, (*value).to_string())).collect())
}

fn planned(given: &[(&'static str, &str)], profile: Profile) -> Report {
    plan_run(v100(), profile, &request(given)).unwrap()
}

#[test]
fn a_given_number_of_samplers_and_switching_change_the_prediction() {
    // With synchronous updates, a standby Trainer waits for the round like the others.
    let planned = |given: &[(&'static str, &str)]| {
        let updates = [("updates", "asynchronous"), ("staleness", "8")];
        planned(&[given, &updates].concat(), profile())
    };
    let of_three = planned(&[("num_samplers", "3")]);
    let factored = of(&of_three, "factored");
    assert_eq!((factored.samplers, factored.trainers, factored.standby), (3, 5, 3));
    let off = planned(&[("switching", "off"), ("num_samplers", "3")]);
    let fixed = of(&off, "factored");
    assert_eq!((fixed.samplers, fixed.standby, fixed.switched), (3, 0, 0));
    assert!(fixed.epoch_seconds > factored.epoch_seconds, "{fixed:?} {factored:?}");
    // The other strategies have no Samplers.
    assert_eq!(of(&of_three, "time-sharing"), of(&planned(&[]), "time-sharing"));
    let all = planned(&[("num_samplers", "8")]);
    assert!(of(&all, "factored").reason.as_ref().unwrap().contains("--num-samplers 8"));
}

#[test]
fn hit_rates_count_the_caches_of_standby_trainers_for_their_batches() {
    let hit_rates = [(0.05, 0.2), (0.25, 0.9)].map(|(ratio, rate)| HitRate { ratio, rate });
    let profile = Profile { hit_rates: hit_rates.into(), ..profile() };
    let on_two = |given: &[(&'static str, &str)]| {
        let mut hardware = v100();
        hardware.devices.count = 2;
        let report = plan_run(hardware, profile.clone(), &request(given)).unwrap();
        of(&report, "factored").clone()
    };
    let (row, alone) = (on_two(&[]), on_two(&[("switching", "off")]));
    assert_eq!((row.standby, row.cache_ratio), (1, alone.cache_ratio));
    assert!((alone.hit_rate - profile.hit_rate(alone.cache_ratio)).abs() < 1e-9, "{alone:?}");
    let part = row.switched as f64 / profile.batches as f64;
    assert!((0.05..0.95).contains(&part), "{row:?}");
    let least = (1.0 - part) * alone.hit_rate;
    assert!(row.hit_rate > least && row.hit_rate < alone.hit_rate - 0.05, "{row:?} {alone:?}");
}

#[test]
fn pooled_caches_serve_more_rows() {
    let hit_rates = [(0.09, 0.4), (0.23, 0.6), (0.9, 0.95)].map(|(ratio, rate)| HitRate { ratio, rate });
    let profile = Profile { hit_rates: hit_rates.into(), ..profile() };
    let rate = |given: &[(&'static str, &str)]| of(&planned(given, profile.clone()), "time-sharing").hit_rate;
    let own = rate(&[("placement", "replicate")]);
    // as in a run
    assert_eq!(rate(&[]), rate(&[("placement", "interleave")]));
    let (shard, half) = (rate(&[("placement", "shard")]), rate(&[("placement", "replicate:0.5")]));
    assert!(own < half && half < shard, "{own} {half} {shard}");
    let row = of(&planned(&[("placement", "replicate")], profile.clone()), "time-sharing").clone();
    let expected = profile.hit_rate((8.0 * row.cache_ratio).min(1.0));
    assert!((shard - expected).abs() < 1e-12, "{shard} {expected}");
    // Rows of other devices take the time of the link to the host, or of one between devices.
    let seconds = |hardware: Hardware| {
        let report = plan(hardware, profile.clone()).unwrap();
        of(&report, "time-sharing").epoch_seconds.unwrap()
    };
    let peers = |bandwidth: f64| Hardware { peer_link: Some(Link { bandwidth, latency: 0.0 }), ..v100() };
    assert!(seconds(peers(1e12)) < seconds(v100()), "{}", seconds(v100()));
    assert!(seconds(v100()) < seconds(peers(1e6)));
}

#[test]
fn numbers_of_devices_are_swept() {
    let mut request = request(&[]);
    request.set_device_counts("1,2,4,8").unwrap();
    let report = plan_run(v100(), profile(), &request).unwrap();
    let counts: Vec<usize> = report.sweep.iter().map(|row| row.devices).collect();
    assert_eq!(counts, [1, 2, 4, 8]);
    assert_eq!(report.sweep[3].strategies, report.strategies);
    let seconds = |sweep: &Sweep| {
        sweep.strategies.iter().find(|row| row.name == "time-sharing").unwrap().epoch_seconds.unwrap()
    };
    assert!(report.sweep.is_sorted_by(|a, b| seconds(a) > seconds(b)));
    assert!(report.to_string().contains("4 devices:"), "{report}");
    for word in ["", "0", "1,x", "1,,2", "257"] {
        assert!(request.set_device_counts(word).unwrap_err().is_usage(), "{word}");
    }
}

#[test]
fn the_recommended_command_has_the_options_that_its_run_reads() {
    let best = planned(&[("hidden", "64"), ("num_samplers", "2")], profile()).recommendation.unwrap();
    assert!(best.command.contains(&format!("--strategy {}", best.strategy)), "{best:?}");
    assert!(best.command.contains("--hidden=64") && best.command.contains("--devices cuda:0,1"), "{best:?}");
    assert_eq!(best.command.contains("--num-samplers=2"), best.strategy == "factored", "{best:?}");
    // As in a run, the devices pool their caches unless the option says otherwise.
    assert!(!best.command.contains("--placement"), "{best:?}");
    let apart = planned(&[("placement", "replicate")], profile()).recommendation.unwrap();
    assert!(apart.command.ends_with("--placement=replicate"), "{apart:?}");
    let unread = plan_run(v100(), profile(), &request(&[("super_batch", "4")])).unwrap_err();
    assert!(unread.is_usage() && unread.to_string().contains("--super-batch"), "{unread}");
}

#[test]
fn reused_rows_take_memory_link_and_time_of_the_host() {
    let rows = ReusedRows { make: 1e-4, moved: 1e6, table: 2e9, ahead: true };
    let with = |rows: ReusedRows| plan(v100(), Profile { reuse: Some(rows), ..profile() }).unwrap();
    let (exact, reused) = (plan(v100(), profile()).unwrap(), with(rows));
    for name in ["sequential", "time-sharing", "factored"] {
        let (exact, reused) = (of(&exact, name), of(&reused, name));
        assert!(reused.cache_ratio < exact.cache_ratio, "{name}: the tables take memory of the cache");
        assert!(reused.epoch_seconds >= exact.epoch_seconds, "{name}");
    }
    // the host is the bottleneck, beside the devices or before them
    let (beside, before) =
        (with(ReusedRows { make: 1.0, ..rows }), with(ReusedRows { make: 1.0, ahead: false, ..rows }));
    // the last of 150 batches is half full
    let make = 149.5 * profile().cores / v100().host.cores as f64;
    for name in ["sequential", "time-sharing", "factored"] {
        let seconds = |report: &Report| of(report, name).epoch_seconds.unwrap();
        assert!((seconds(&beside) - make).abs() < 1e-6 * make, "{name}");
        let all = make + seconds(&reused);
        assert!((seconds(&before) - all).abs() < 1e-2 * all, "{name}");
        assert_eq!(of(&beside, name).bottleneck, "reused rows (host)");
    }
    let error = Profile { reuse: Some(ReusedRows { table: -1.0, ..rows }), ..profile() };
    assert!(plan(v100(), error).unwrap_err().to_string().contains("reuse.table"));
}
