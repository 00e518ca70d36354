//! Options of a run that change its memory, its caches or the overlap of its stages.

use graphmill_engine::strategy::{HotSplit, LayeredOptions};
use graphmill_loader::feature::cached::Placement;

use super::*;
use crate::{devices::Costs, sim::Updates};

#[test]
fn trainers_hold_the_rows_of_the_next_batch_as_measured() {
    let next = |next_rows| {
        let bytes = Sizes { next_rows, ..profile().bytes };
        plan(v100(), Profile { bytes, ..profile() }).unwrap()
    };
    let (by_default, measured) = (next(None), next(Some(2e9)));
    assert_eq!(next(Some(profile().bytes.batch_rows)).strategies, by_default.strategies);
    assert!(of(&measured, "factored").cache_ratio < of(&by_default, "factored").cache_ratio - 0.03);
    assert_eq!(of(&measured, "time-sharing"), of(&by_default, "time-sharing"));
}

#[test]
fn overlapping_devices_extract_beside_their_training() {
    let (turns, overlapping) = (planned(&[], profile()), planned(&[("overlap", "on")], profile()));
    let (turns, beside) = (of(&turns, "time-sharing"), of(&overlapping, "time-sharing"));
    assert!(beside.epoch_seconds < turns.epoch_seconds, "{beside:?} {turns:?}");
    assert!(beside.cache_ratio < turns.cache_ratio, "the rows of the next batch take memory");
    let busy = beside.busy;
    assert!(busy.sample > 0.0 && busy.sample + busy.train <= 1.0 + 1e-9, "{busy:?}");
    // no device is faster than its own work
    let least = 149.5 * (0.0064 + 0.025) / 8.0;
    assert!(beside.epoch_seconds.unwrap() >= least, "{beside:?}");
}

#[test]
fn shared_cores_hold_what_each_sampling_thread_of_a_run_reserves() {
    let bytes = Sizes { sample_thread: Some(2e8), ..profile().bytes };
    let overlapping = |memory: u64| {
        let mut hardware = v100();
        hardware.devices =
            Devices { count: 2, memory, speed: Some(1.0), sync: 0.0, shared: true, ..hardware.devices };
        hardware.host.cores = 8;
        let report = plan_run(hardware, Profile { bytes, ..profile() }, &request(&[("overlap", "on")]));
        of(&report.unwrap(), "time-sharing").clone()
    };
    // four threads, and the rows of the next batch beside those of the step
    let reason = overlapping(10_960_000_000).reason.unwrap();
    let parts = "a training step 3.6 GB, sampling 0.8 GB, the rows of the next 0.2 GB";
    assert!(reason.contains(parts), "{reason}");
    assert!(overlapping(10_980_000_000).fits);
}

#[test]
fn devices_that_sample_hold_what_their_own_threads_reserve() {
    let bytes = Sizes { sample_thread: Some(2e9), ..profile().bytes };
    let reason = |name: &str, given: &[(&'static str, &str)]| {
        let mut hardware = v100();
        let memory = 8_000_000_000;
        hardware.devices =
            Devices { count: 2, memory, speed: Some(1.0), sync: 0.0, shared: true, ..hardware.devices };
        hardware.host.cores = 3;
        let report = plan_run(hardware, Profile { bytes, ..profile() }, &request(given)).unwrap();
        of(&report, name).reason.clone().unwrap()
    };
    // the first of two devices has one of three threads, and the second one two
    let shared = reason("time-sharing", &[]);
    assert!(shared.contains("sampling 4.0 GB"), "{shared}");
    let factored = reason("factored", &[("num_samplers", "1")]);
    assert!(factored.contains("a Sampler") && factored.contains("sampling 2.0 GB"), "{factored}");
}

#[test]
fn a_given_cache_ratio_is_that_of_the_devices() {
    let report = planned(&[("cache_ratio", "0.05")], profile());
    for name in ["sequential", "time-sharing", "factored"] {
        assert_eq!(of(&report, name).cache_ratio, 0.05, "{name}");
    }
    let reason = of(&planned(&[("cache_ratio", "0.15")], profile()), "time-sharing").reason.clone().unwrap();
    assert!(reason.contains("--cache-ratio 0.15: a device has memory for"), "{reason}");
}

#[test]
fn rows_beyond_a_host_budget_are_read_from_the_disk() {
    let budget = [("host_budget", "10G")];
    let unknown = planned(&budget, profile());
    let reason = of(&unknown, "sequential").reason.clone().unwrap();
    assert!(unknown.recommended.is_none() && reason.contains("set host.disk"), "{reason}");
    let seconds = |bandwidth: f64, given: &[(&'static str, &str)]| {
        let mut hardware = v100();
        hardware.host.disk = Some(Link { bandwidth, latency: 0.0 });
        let report = plan_run(hardware, profile(), &request(given)).unwrap();
        of(&report, "sequential").epoch_seconds.unwrap()
    };
    let in_memory = seconds(1e8, &[]);
    assert!(seconds(1e8, &budget) > seconds(1e9, &budget) && seconds(1e9, &budget) > in_memory);
    assert_eq!(seconds(1e8, &[("host_budget", "100G")]), in_memory, "all rows fit the budget");
}

#[test]
fn shares_of_hot_rows_are_profiled_and_timed_ones_refused() {
    let (data, config) = small(600, vec![4, 3]);
    let profiled = |hot_split| {
        let mut config = TrainConfig { reuse: "layered".into(), ..config.clone() };
        config.own.get_mut::<LayeredOptions>().hot_split = hot_split;
        measure(&config, &data)
    };
    let table = |share| profiled(HotSplit::Share(share)).unwrap().reuse.unwrap().table;
    assert!(table(0.02) < table(1.0));
    let timed = profiled(HotSplit::Timed).unwrap_err();
    assert!(timed.is_usage() && timed.to_string().contains("--hot-split timed"), "{timed}");
}

#[test]
fn shared_cores_overlap_only_what_waits() {
    let mut hardware = v100();
    hardware.devices = Devices { count: 1, speed: Some(1.0), sync: 0.0, shared: true, ..hardware.devices };
    (hardware.host.cores, hardware.host.gathers) = (2, 1.0);
    let seconds = |batch_rows: f64| {
        let seconds = Seconds { sample_host: None, ..profile().seconds };
        let bytes = Sizes { batch_rows, ..profile().bytes };
        let report = plan(hardware.clone(), Profile { cores: 2.0, seconds, bytes, ..profile() }).unwrap();
        let command = &report.recommendation.as_ref().unwrap().command;
        assert!(command.contains("--devices virtual:1"), "the device of the model: {command}");
        ["sequential", "pipelined"].map(|name| of(&report, name).epoch_seconds.unwrap())
    };
    // transfers are too short for a group of their own, and sampling has no cores of its own
    let [turns, pipelined] = seconds(1.7e8);
    assert_eq!(pipelined, turns);
    // a link that a batch waits for works beside the cores
    let [turns, pipelined] = seconds(1.7e10);
    let work = 149.5 * (0.0064 + 0.025);
    assert!(pipelined < 0.85 * turns && pipelined > work, "{pipelined} {turns} {work}");
}

#[test]
fn rows_cross_the_link_of_shared_cores_while_they_are_gathered() {
    let mut hardware = v100();
    hardware.devices = Devices { count: 1, speed: Some(1.0), sync: 0.0, shared: true, ..hardware.devices };
    (hardware.host.cores, hardware.host.gathers) = (2, 1.0);
    let half = [0.0, 1.0].map(|ratio| HitRate { ratio, rate: 0.5 });
    let seconds = |bandwidth: f64| {
        let hardware = Hardware { link: Link { bandwidth, latency: 0.0 }, ..hardware.clone() };
        let profile = Profile { cores: 2.0, hit_rates: half.into(), ..profile() };
        of(&plan(hardware, profile).unwrap(), "sequential").epoch_seconds.unwrap()
    };
    // half of the rows are gathered in 18 ms and have 85 MB
    let work = 149.5 * (0.019 + 0.5 * (0.004 + 0.036) + 0.025);
    let (faster, slower) = (seconds(1e10), seconds(1e9));
    assert!((faster - work).abs() < 1e-9 * work, "the link is faster: {faster} {work}");
    let waiting = work + 149.5 * (0.085 - 0.018);
    assert!((slower - waiting).abs() < 1e-9 * waiting, "the link is slower: {slower} {waiting}");
}

#[test]
fn simulated_devices_exchange_parameters_gradients_and_blocks_over_their_link() {
    let mut hardware = v100();
    hardware.devices = Devices { count: 1, speed: Some(1.0), sync: 0.0, shared: true, ..hardware.devices };
    (hardware.host.cores, hardware.host.gathers) = (1, 1.0);
    hardware.link = Link { bandwidth: 1e9, latency: 1e-4 };
    let seconds = |parameters: f64, batch: f64, given: &[(&'static str, &str)]| {
        let seconds = Seconds { sample_host: None, ..profile().seconds };
        let bytes = Sizes { parameters, batch, ..profile().bytes };
        let profile = Profile { cores: 1.0, seconds, bytes, ..profile() };
        let report = plan_run(hardware.clone(), profile, &request(given)).unwrap();
        ["sequential", "time-sharing", "factored"].map(|name| of(&report, name).epoch_seconds.unwrap())
    };
    // the parameters of a version once, and the gradient of every batch; 149.5 batches
    let near = |a: f64, b: f64| assert!((a - 149.5 * b).abs() < 1e-6, "{a} {}", 149.5 * b);
    for (batches_per_update, crossings) in [("0", 2.0), ("4", 1.25)] {
        let given = [("batches_per_update", batches_per_update)];
        let [without, with] = [0.0, 5e6].map(|parameters| seconds(parameters, 1e7, &given));
        assert_eq!(with[0], without[0], "a single model has no copy");
        near(with[1] - without[1], crossings * 0.0051);
        assert!(with[2] > without[2]);
    }
    // only a Sampler's blocks leave their device
    let [without, with] = [0.0, 2e7].map(|batch| seconds(5e6, batch, &[]));
    assert_eq!(with[..2], without[..2]);
    assert!(with[2] - without[2] > 149.0 * 0.0201, "{with:?} {without:?}");
}

#[test]
fn parameters_cross_a_link_once_in_a_round_however_many_devices_train() {
    let (mut hardware, request) = (v100(), request(&[]));
    hardware.devices.shared = true;
    hardware.link = Link { bandwidth: 1e9, latency: 0.0 };
    let profile = Profile { bytes: Sizes { parameters: 6e6, ..profile().bytes }, ..profile() };
    let placement = Placement::Private;
    let costs = Costs { hardware: &hardware, profile: &profile, speed: 1.0, request: &request, placement };
    // with two Samplers of four devices a round has three batches, which two devices share
    for (trainers, round, crossings) in [(2, 2, 2.0), (2, 3, 1.0 + 2.0 / 3.0), (3, 1, 2.0)] {
        let seconds = costs.exchange(trainers, Updates { round, staleness: 0 });
        assert!((seconds - crossings * 6e-3).abs() < 1e-12, "{trainers} {round}: {seconds}");
    }
}
