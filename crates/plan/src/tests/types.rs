//! Runs on several types.

use graphmill_data::generate::{GenerateOptions, generate_typed};
use graphmill_engine::{TrainConfig, strategy, typed::cost::TypeCost};

use super::*;

/// [`profile`] of a run on papers with wide rows, authors with narrow ones, and topics with learned
/// ones.
fn typed() -> Profile {
    let of = |name: &str, nodes: f64, row_bytes: f64, learned_bytes: f64, hit_rates: &[[f64; 2]]| TypeCost {
        name: name.into(),
        nodes,
        row_bytes,
        learned_bytes,
        gather: 0.01,
        hit_rates: hit_rates.into(),
    };
    let types = vec![
        of("paper", 1e5, 1000.0, 0.0, &[[0.1, 0.8], [0.2, 0.9]]),
        of("author", 4e5, 100.0, 0.0, &[[0.1, 0.2], [0.2, 0.4]]),
        of("topic", 1e4, 0.0, 128.0, &[]),
    ];
    let hit_rates = [(0.1, 0.32), (0.2, 0.5)].map(|(ratio, rate)| HitRate { ratio, rate });
    let bytes = Sizes { train_gradients: Some(3e9), ..profile().bytes };
    Profile { hit_rates: hit_rates.into(), bytes, types, ..profile() }
}

/// Machine whose `count` devices divide the cores of [`v100`]'s host, of the speed of the profile.
fn cores(count: usize) -> Hardware {
    let mut hardware = v100();
    let devices =
        Devices { count, speed: Some(1.0 / count as f64), sync: 0.0, shared: true, ..v100().devices };
    hardware.devices = Devices { memory: 64_000_000_000, ..devices };
    hardware.host.cores = 8;
    hardware
}

fn planned_on(hardware: Hardware, given: &[(&'static str, &str)], profile: Profile) -> Report {
    plan_run(hardware, profile, &request(given)).unwrap()
}

#[test]
fn every_strategy_that_trains_on_several_types_is_predicted() {
    let (report, on_nvidia) = (planned_on(cores(4), &[], typed()), planned_on(v100(), &[], typed()));
    let trained = || strategy::TABLE.iter().filter(|entry| entry.make.over_types.is_some());
    for entry in trained() {
        assert!(of(&report, entry.name).epoch_seconds.is_some_and(|seconds| seconds > 0.0), "{report}");
        // one NVIDIA device trains
        let is_predicted = on_nvidia.strategies.iter().any(|row| row.name == entry.name && row.fits);
        let has_reason = on_nvidia.not_planned.iter().any(|row| row.name == entry.name);
        assert!(is_predicted != has_reason, "{}: {on_nvidia}", entry.name);
    }
    assert_eq!((report.strategies.len(), report.not_planned.len()), (trained().count(), 0));
    assert!(on_nvidia.to_string().contains("factored: not predicted, because on several types one NVIDIA"));
    let command = on_nvidia.recommendation.unwrap().command;
    assert!(command.contains("--devices cuda:0") && !command.contains("cuda:0,"), "{command}");
}

#[test]
fn devices_that_sample_on_several_types_do_not_train() {
    let roles = |count: usize, given: &[(&'static str, &str)]| {
        let report = planned_on(cores(count), given, typed());
        let row = of(&report, "factored").clone();
        assert_eq!((row.standby, row.switched), (0, 0), "{row:?}");
        (row.samplers, row.trainers, row)
    };
    assert_eq!(roles(4, &[]).0, 3, "one device trains unless the option is given");
    let (samplers, trainers, pooled) = roles(4, &[("num_samplers", "1")]);
    assert_eq!((samplers, trainers), (1, 3));
    let none = roles(4, &[("num_samplers", "4")]).2.reason.unwrap();
    assert!(none.contains("--num-samplers 4 leaves none of 4 devices to train"), "{none}");
    // the pool of three caches
    let given = [("num_samplers", "1"), ("cache_ratio", "0.05")];
    let (.., pooled_rows) = roles(4, &given);
    assert!((pooled_rows.hit_rate - typed().hit_rate(0.15)).abs() < 1e-9, "{pooled_rows:?}");
    assert!(pooled.hit_rate >= pooled_rows.hit_rate);
    let (.., own) = roles(4, &[given[0], given[1], ("placement", "private")]);
    assert!((own.hit_rate - typed().hit_rate(0.05)).abs() < 1e-9, "{own:?}");
    // a single device does all stages in turn
    let one = planned_on(cores(1), &[], typed());
    assert_eq!(of(&one, "factored").epoch_seconds, of(&one, "time-sharing").epoch_seconds);
    let refused = plan_run(cores(4), typed(), &request(&[("switching", "off")])).unwrap_err().to_string();
    assert!(refused.contains("on several types a device that samples does not train"), "{refused}");
}

#[test]
fn the_link_carries_the_bytes_that_caches_of_all_types_miss() {
    let report = planned_on(cores(2), &[("cache_ratio", "0.05")], typed());
    // a pool of two caches holds a tenth of the rows
    let row = of(&report, "time-sharing");
    assert!((row.hit_rate - 0.32).abs() < 1e-9, "{row:?}");
    let types: Vec<(&str, f64, f64)> =
        row.types.iter().map(|of| (of.name.as_str(), of.hit_rate, of.link_bytes)).collect();
    assert_eq!(types.len(), 2, "learned rows are not cached");
    for ((name, rate, bytes), expected) in types.iter().zip([("paper", 0.8, 2e7), ("author", 0.2, 3.2e7)]) {
        assert_eq!(*name, expected.0);
        assert!((rate - expected.1).abs() < 1e-9 && (bytes - expected.2).abs() < 1.0, "{row:?}");
    }
    // the share of the bytes is (0.8 * 1e8 + 0.2 * 4e7) / 1.4e8
    assert!((typed().byte_rate(0.1) - 88.0 / 140.0).abs() < 1e-9);
    assert!(report.to_string().contains("% hits, "), "{report}");
    // a profile without curves by type has those of all types
    let mut recorded = typed();
    recorded.types.iter_mut().for_each(|of| of.hit_rates.clear());
    assert!((recorded.byte_rate(0.1) - 0.32).abs() < 1e-9);
    let mut wrong = typed();
    wrong.types[0].hit_rates = vec![[0.2, 0.5], [0.1, 0.6]];
    let message = plan(cores(2), wrong).unwrap_err().to_string();
    assert!(message.contains("types.paper.hit_rates[1].ratio"), "{message}");
}

#[test]
fn learned_rows_cross_the_link_of_devices_that_compute_gradients() {
    let seconds = |count: usize, given: &[(&'static str, &str)], learned_bytes: f64| {
        let mut profile = typed();
        profile.types[2].learned_bytes = learned_bytes;
        let mut hardware = cores(count);
        hardware.link = Link { bandwidth: 1e9, latency: 0.0 };
        let report = planned_on(hardware, given, profile);
        ["sequential", "time-sharing"].map(|name| of(&report, name).epoch_seconds.unwrap())
    };
    let more = |count: usize, given: &[(&'static str, &str)]| {
        let (with, without) = (seconds(count, given, 128.0), seconds(count, given, 0.0));
        [with[0] - without[0], with[1] - without[1]]
    };
    // a device that updates the model holds the rows
    assert_eq!(more(1, &[]), [0.0; 2]);
    // 1.28 MB there and back, of 150 batches in rounds of two on two devices
    let [sequential, shared] = more(2, &[]);
    assert!(sequential == 0.0 && (shared - 75.0 * 2.0 * 1.28e-3).abs() < 2.0 * 1.28e-3, "{shared}");
    let [_, in_rounds] = more(1, &[("batches_per_update", "2")]);
    assert!((in_rounds - 149.5 * 2.0 * 1.28e-3).abs() < 1e-9, "{in_rounds}");
}

#[test]
fn a_single_device_that_makes_every_update_exchanges_no_parameters() {
    let seconds = |count: usize, given: &[(&'static str, &str)], parameters: f64| {
        let mut hardware = cores(count);
        hardware.link = Link { bandwidth: 1e9, latency: 0.0 };
        let bytes = Sizes { parameters, ..typed().bytes };
        let report = planned_on(hardware, given, Profile { bytes, ..typed() });
        of(&report, "time-sharing").epoch_seconds.unwrap()
    };
    let more = |count: usize, given: &[(&'static str, &str)]| {
        seconds(count, given, 5e6) - seconds(count, given, 0.0)
    };
    assert_eq!(more(1, &[]), 0.0);
    // the gradient of each of 149.5 batches, and parameters half as often
    let in_rounds = more(1, &[("batches_per_update", "2")]);
    assert!((in_rounds - 149.5 * 1.5 * 5e-3).abs() < 1e-6, "{in_rounds}");
    // a stale gradient is computed on a copy of the model
    assert!(more(1, &[("updates", "asynchronous"), ("staleness", "2")]) > 0.0);
    assert_eq!(more(1, &[("updates", "asynchronous"), ("staleness", "0")]), 0.0);
    let together = more(2, &[]);
    assert!((together - 75.0 * 2.0 * 5e-3).abs() < 2.0 * 5e-3, "{together}");
}

#[test]
fn devices_that_compute_gradients_hold_fewer_learned_rows() {
    let reason = |count: usize, given: &[(&'static str, &str)]| {
        let mut hardware = cores(count);
        hardware.devices.memory = 3_500_000_000;
        let report = planned_on(hardware, given, typed());
        ["time-sharing", "factored"].map(|name| of(&report, name).reason.clone().unwrap_or_default())
    };
    let [together, factored] = reason(2, &[]);
    assert!(together.contains("a training step 3.0 GB"), "{together}");
    assert!(factored.contains("a training step 3.6 GB"), "one device trains: {factored}");
    assert!(reason(3, &[("num_samplers", "1")])[1].contains("a Sampler has"), "its topology is too large");
    assert!(reason(1, &[])[0].contains("a training step 3.6 GB"));
}

#[test]
fn reused_rows_of_several_types_are_not_counted() {
    let options = GenerateOptions { nodes: 200, classes: 2, dim: 4, ..GenerateOptions::default() };
    let data = generate_typed("typed", &options).unwrap();
    let config = TrainConfig { model: "rsage".into(), reuse: "layered".into(), ..TrainConfig::default() };
    let message = measure_types(&config, &data).err().unwrap().to_string();
    assert!(message.starts_with("--reuse layered: plans of several types do not count"), "{message}");
    assert!(message.contains("use --reuse none here"), "{message}");
}
