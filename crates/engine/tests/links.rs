//! Simulated links are charged for rows, parameters and gradients, and change no number.

use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_engine::{
    Dataset, RunContext, TrainConfig, config::Fanout, observer::Quiet, record::Summary, train,
};
use rayon::ThreadPoolBuilder;

use crate::set::{set, with};

/// Batches of an epoch.
const BATCHES: u64 = 9;
const EPOCHS: u64 = 2;
/// Numbers in a model of two GraphSAGE layers, 6 to 8 to 3, with two matrices and a bias each.
const PARAMETERS: u64 = (2 * 6 + 1) * 8 + (2 * 8 + 1) * 3;

fn data() -> Dataset {
    let options =
        GenerateOptions { nodes: 600, degree: Some(6.0), classes: 3, dim: 6, ..GenerateOptions::default() };
    let mut data = generate("sbm", &options).unwrap();
    data.split.train = data.split.train[..140].to_vec().into();
    data
}

/// Devices whose caches hold all rows, so that only parameters and gradients cross their links.
fn base() -> TrainConfig {
    let config = TrainConfig {
        epochs: EPOCHS as usize,
        batch_size: 16,
        hidden: 8,
        fanout: Fanout(vec![3, 2]),
        cache: "degree".into(),
        seed: 3,
        ..TrainConfig::default()
    };
    with(config, "strategy=time-sharing cache_ratio=1")
}

fn run(config: &TrainConfig, data: &Dataset) -> Summary {
    let pool = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    pool.install(|| train(config, data, context)).unwrap()
}

fn losses(summary: &Summary) -> Vec<u64> {
    summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect()
}

/// Bytes over the links of all devices in the run, and the seconds that they took.
fn carried(summary: &Summary) -> (u64, f64) {
    let all = || summary.epochs.iter().flat_map(|epoch| &epoch.devices);
    (all().map(|of| of.link_bytes).sum(), all().map(|of| of.link_seconds).sum())
}

#[test]
fn links_carry_parameters_once_per_round_and_gradients_once_per_batch() {
    let data = data();
    for (round, rounds) in [(1, 9), (2, 5), (4, 3), (9, 1)] {
        let free = with(base(), &format!("devices=virtual:1 batches_per_update={round}"));
        let expected = EPOCHS * 4 * PARAMETERS * (rounds + BATCHES);
        let without = run(&free, &data);
        assert_eq!(carried(&without), (expected, 0.0), "{round} batches per update");
        let slow = run(&with(free, "link=1M,10us"), &data);
        let (bytes, seconds) = carried(&slow);
        assert_eq!(bytes, expected, "{round} batches per update");
        assert!((seconds - bytes as f64 / 1e6).abs() < 1e-6, "{seconds} s for {bytes} bytes");
        assert_eq!(losses(&slow), losses(&without), "{round} batches per update");
    }
}

#[test]
fn every_trainer_pays_for_its_parameters_and_gradients() {
    let data = data();
    for options in [
        "strategy=time-sharing devices=virtual:2",
        "strategy=time-sharing devices=virtual:2 updates=asynchronous staleness=2",
        "strategy=factored devices=virtual:3 num_samplers=1 switching=off",
        "strategy=factored devices=virtual:3 num_samplers=1 switching=off updates=asynchronous",
    ] {
        let summary = run(&with(base(), options), &data);
        for device in summary.epochs.iter().flat_map(|epoch| &epoch.devices) {
            if device.role == "both" {
                // its batches take one to all of the versions that they use
                let least = 4 * PARAMETERS * (device.batches + u64::from(device.batches > 0));
                let most = 4 * PARAMETERS * 2 * device.batches;
                assert!((least..=most).contains(&device.link_bytes), "{options}: {device:?}");
            } else if device.role == "trainer" {
                // sampled batches cross its link, too
                assert!(device.link_bytes >= 4 * PARAMETERS * device.batches, "{options}: {device:?}");
            }
        }
    }
}

#[test]
fn cores_have_no_link() {
    let mut config = base();
    config.cache_ratio = TrainConfig::default().cache_ratio;
    set(&mut config, "devices=cpu");
    assert_eq!(carried(&run(&config, &data())), (0, 0.0));
}

/// Losses of a run whose rows cross the link, with and without `--overlap on`.
#[test]
fn overlap_changes_no_loss_and_keeps_the_bound_of_staleness() {
    let data = data();
    for devices in 1..=3 {
        for round in [1, 2, 3] {
            let options = format!("devices=virtual:{devices} batches_per_update={round} cache_ratio=0.3");
            let off = run(&with(base(), &options), &data);
            let on = run(&with(base(), &format!("{options} overlap=on")), &data);
            assert_eq!(losses(&on), losses(&off), "{options}");
            assert_eq!(on.staleness.max, 0, "{options}");
        }
    }
    let options = "devices=virtual:3 updates=asynchronous staleness=1";
    let [off, on] = ["off", "on"].map(|on| run(&with(base(), &format!("{options} overlap={on}")), &data));
    assert_eq!((losses(&on), on.staleness.max), (losses(&off), 1));
}

#[test]
fn overlap_takes_memory_for_the_rows_of_the_next_batch() {
    let data = data();
    let config = with(base(), "devices=virtual:1 device_budget=2M");
    let mut config = TrainConfig { cache_ratio: TrainConfig::default().cache_ratio, ..config };
    let error = |config: &TrainConfig| {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        train(config, &data, context).err().map(|error| error.to_string()).unwrap_or_default()
    };
    // the topology and the workspace fit, a training step does not
    set(&mut config, "device_budget=30K");
    assert!(!error(&config).is_empty());
    let message = error(&with(config, "overlap=on"));
    assert!(message.contains("the rows of the next"), "{message}");
}
