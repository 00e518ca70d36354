//! Devices that train together on several types, on nodes and on links: results are those of one
//! device with the same updates, for any number of devices and threads and after any stop.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use graphmill_data::TypedDataset;
use graphmill_engine::{AnyDataset, Error, Result, RunContext, RunDir, observer::Quiet, record::Summary};

use crate::typed_tiers::{LINKS, config, data, on_devices, stored};

/// Name and value of an option.
type Given = (&'static str, &'static str);

/// Asynchronous updates whose gradients are at most two updates stale.
const STALE: [Given; 2] = [("updates", "asynchronous"), ("staleness", "2")];

/// Options of runs on nodes and on links, with learned rows, dropout and running statistics; in
/// bf16, and with a limit of the gradient's norm.
fn tasks() -> [Vec<Given>; 2] {
    let norm = [("norm", "batch"), ("dropout", "0.2")];
    let nodes = [&norm[..], &[("model", "simple-hgn"), ("precision", "bf16")]].concat();
    [nodes, [&LINKS[..4], &norm, &[("model", "rsage"), ("decoder", "mlp"), ("clip", "0.1")]].concat()]
}

/// Trains on some threads, in a run directory if one is given. Asks the run to stop after `most`
/// updates.
fn train(
    data: &TypedDataset,
    options: &[Given],
    threads: usize,
    run: Option<&RunDir>,
    (resume, most): (bool, usize),
) -> Result<Summary> {
    let config = config(data, options)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let left = AtomicUsize::new(most);
        let stop = || left.fetch_sub(1, Relaxed) == 1;
        let context = RunContext { run, resume, observer: &mut Quiet, stop: &stop };
        AnyDataset::open(&config)?.train(&config, context)
    })
}

/// Trains to the end.
fn whole(data: &TypedDataset, options: &[Given], threads: usize) -> Summary {
    train(data, options, threads, None, (false, usize::MAX)).unwrap()
}

/// Losses and scores to the bit.
fn results(summary: &Summary) -> Vec<Option<u64>> {
    let of_epochs = summary.epochs.iter().flat_map(|of| [Some(of.loss), of.valid_score, of.valid_loss]);
    of_epochs.chain([summary.test.score]).map(|of| of.map(f64::to_bits)).collect()
}

/// Options of devices that train, with others.
fn on(strategy: &'static str, devices: &'static str, others: &[&[Given]]) -> Vec<Given> {
    [on_devices(strategy, devices), others.concat()].concat()
}

#[test]
fn devices_that_learn_links_together_give_the_bits_of_one_with_as_many_batches_per_update() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let [_, links] = tasks();
    let (sharing, factored) = ("time-sharing", "factored");
    let with = |strategy, devices, more: &[Given]| whole(&data, &on(strategy, devices, &[&links, more]), 2);
    let [two, three] = ["2", "3"].map(|round| with(sharing, "virtual:1", &[("batches_per_update", round)]));
    assert_ne!(results(&two), results(&whole(&data, &links, 2)), "two batches make an update");
    let (ratio, private) = (("cache_ratio", "0.2"), ("placement", "private"));
    for (strategy, devices, one, more) in [
        (sharing, "virtual:2", &two, &[ratio][..]),
        (sharing, "virtual:2", &two, &[ratio, private, ("cache", "lru")]),
        (sharing, "virtual:3", &two, &[ratio, ("batches_per_update", "2")]),
        (sharing, "virtual:3", &three, &[("device_budget", "1G"), ("overlap", "on")]),
        (factored, "virtual:3", &two, &[ratio, ("num_samplers", "1"), ("peer_link", "50G,2us")]),
        (factored, "virtual:5", &three, &[ratio, ("num_samplers", "2"), ("queue_depth", "1")]),
    ] {
        let (summary, what) = (with(strategy, devices, more), format!("{strategy} {devices} {more:?}"));
        assert_eq!(results(&summary), results(one), "{what}");
        let epoch = &summary.epochs[1];
        let trainers: Vec<_> = epoch.devices.iter().filter(|device| device.role != "sampler").collect();
        assert_eq!(trainers.iter().map(|device| device.batches).sum::<u64>(), 6, "{what}");
        assert!(trainers.iter().all(|device| device.cache_rows > 0), "{what}: {trainers:?}");
        // missed rows, parameters, gradients and learned rows cross the links to the host
        let links: u64 = trainers.iter().map(|device| device.link_bytes).sum();
        assert!(links > epoch.traffic.host.bytes, "{what}: {trainers:?}");
        assert_eq!(epoch.traffic.rows(), one.epochs[1].traffic.rows(), "{what}");
        assert_eq!(epoch.traffic.peer.rows > 0, !more.contains(&private), "{what}");
        assert_eq!((summary.staleness.bound, summary.staleness.max), (0, 0), "{what}");
    }
    // hard negatives are those of the ranking after each epoch
    let hard = [("negatives", "hard"), ("hard_candidates", "10")];
    let one = with(sharing, "virtual:1", &[hard[0], hard[1], ("batches_per_update", "2")]);
    assert_eq!(results(&with(sharing, "virtual:2", &hard)), results(&one));
}

#[test]
fn results_of_stale_gradients_depend_on_the_bound_alone() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let (sharing, factored) = ("time-sharing", "factored");
    for task in tasks() {
        let fresh = [("updates", "asynchronous"), ("staleness", "0")];
        let sequential = whole(&data, &task, 2);
        let summary = whole(&data, &on(sharing, "virtual:2", &[&task, &fresh]), 2);
        assert_eq!(results(&summary), results(&sequential), "no gradient is stale");
        assert_eq!((summary.staleness.bound, summary.staleness.max), (0, 0));
        let one = whole(&data, &on(sharing, "virtual:1", &[&task, &STALE]), 1);
        assert_ne!(results(&one), results(&sequential), "gradients are stale");
        for (strategy, devices, more, threads) in [
            (sharing, "virtual:1", &[("overlap", "on")][..], 3),
            (sharing, "virtual:2", &[("cache_ratio", "0.2")], 1),
            (sharing, "virtual:4", &[("device_budget", "1G"), ("overlap", "on")], 3),
            (factored, "virtual:2", &[("queue_depth", "1")], 2),
            (factored, "virtual:5", &[("num_samplers", "1"), ("cache_ratio", "0.2")], 2),
        ] {
            let summary = whole(&data, &on(strategy, devices, &[&task, &STALE, more]), threads);
            let what = format!("{task:?} {strategy} {devices} {more:?}");
            assert_eq!(results(&summary), results(&one), "{what}");
            assert_eq!((summary.staleness.bound, summary.staleness.max), (2, 2), "{what}");
        }
    }
}

#[test]
fn runs_on_devices_stopped_after_any_update_resume_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let data = stored(&data(), &dir.path().join("shop"));
    let [nodes, links] = tasks();
    let factored = [("num_samplers", "1"), ("cache_ratio", "0.2")];
    for (name, options) in [
        ("rounds of links", on("time-sharing", "virtual:2", &[&links])),
        ("stale nodes", on("time-sharing", "virtual:3", &[&nodes, &STALE])),
        ("stale links", on("factored", "virtual:3", &[&links, &STALE, &factored])),
    ] {
        let run_in = |name: &str| dir.path().join(name);
        let files = |path: &Path| {
            let files = ["best.safetensors", "checkpoint/optimizer.safetensors"];
            files.map(|file| fs::read(path.join(file)).unwrap())
        };
        let path = run_in(&format!("{name} whole"));
        let run = RunDir::create(&path).unwrap();
        let whole = train(&data, &options, 2, Some(&run), (false, usize::MAX)).unwrap();
        drop(run);
        let whole = (results(&whole), files(&path));
        for stops in [&[1, 1, 1, 1][..], &[2, 3], &[4, 1]] {
            let path = run_in(&format!("{name} {stops:?}"));
            for (i, &most) in stops.iter().enumerate() {
                let resume = i > 0;
                let run = if resume { RunDir::reopen(&path) } else { RunDir::create(&path) }.unwrap();
                let stopped = train(&data, &options, 1 + most % 3, Some(&run), (resume, most));
                assert!(matches!(stopped, Err(Error::Interrupted { .. })), "{name} {stops:?}");
            }
            let run = RunDir::reopen(&path).unwrap();
            let summary = train(&data, &options, 3, Some(&run), (true, usize::MAX)).unwrap();
            drop(run);
            assert!((results(&summary), files(&path)) == whole, "{name} {stops:?}");
            if options.contains(&STALE[0]) {
                assert_eq!((summary.staleness.bound, summary.staleness.max), (2, 2), "{name} {stops:?}");
            }
        }
    }
}
