//! Synchronous strategies give the same model, to the bit, interrupted or not. Asynchronous
//! gradients are exactly as stale as their bound.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use graphmill_core::keyed;
use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_engine::{
    Dataset, Error, RunContext, RunDir, TrainConfig,
    checkpoint::{Checkpoint, tensors::Tensor},
    config::{Fanout, Ratio},
    observer::Quiet,
    record::{EpochRecord, Summary},
    train,
    trainer::RunState,
};
use graphmill_loader::sampler::SubgraphTraining;
use graphmill_nn::layer::GatOptions;
use rayon::ThreadPoolBuilder;

use crate::common::{Fault, Kind};
use crate::run::{BATCH, BATCHES, data, stale_updates, watched};
use crate::set::{set, with};

/// Small graph with nine batches of 16 training nodes.
fn small() -> Dataset {
    let options =
        GenerateOptions { nodes: 600, degree: Some(6.0), classes: 3, dim: 6, ..GenerateOptions::default() };
    let mut data = generate("sbm", &options).unwrap();
    data.split.train = data.split.train[..140].to_vec().into();
    data
}

fn base() -> TrainConfig {
    TrainConfig {
        epochs: 2,
        batch_size: 16,
        hidden: 8,
        fanout: Fanout(vec![3, 2]),
        dropout: 0.3,
        lr: 0.01,
        fused: "off".parse().unwrap(),
        cache: "degree".into(),
        seed: 3,
        ..TrainConfig::default()
    }
    .with(|gat: &mut GatOptions| gat.heads = 2)
    .with(|training: &mut SubgraphTraining| training.sample_coverage = 3.0)
}

/// Bits of an epoch's losses, sampled edges, and rows that were requested, reused and made.
type EpochBits = (u64, Option<u64>, u64, Option<[u64; 4]>);

/// Numbers that a run has computed.
#[derive(PartialEq)]
struct Numbers {
    epochs: Vec<EpochBits>,
    model: Vec<Tensor>,
    best: Vec<Tensor>,
    optimizer: Vec<Tensor>,
}

/// Trains in a directory on `threads` threads; the run stops at the `stop`-th query.
fn run_in(
    dir: &Path,
    threads: usize,
    config: &TrainConfig,
    data: &Dataset,
    resume: bool,
    stop: u64,
) -> Result<Summary, Error> {
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let calls = AtomicU64::new(0);
    pool.install(|| {
        let dir = if resume { RunDir::reopen(dir)? } else { RunDir::create(dir)? };
        let stop = || calls.fetch_add(1, Relaxed) + 1 >= stop;
        train(config, data, RunContext { run: Some(&dir), resume, observer: &mut Quiet, stop: &stop })
    })
}

fn numbers(dir: &Path, summary: &Summary) -> Numbers {
    let saved = Checkpoint::<RunState>::load(&dir.join("checkpoint")).unwrap().unwrap();
    let reused = |e: &EpochRecord| e.reuse.map(|r| [r.asked_rows, r.reused_rows, r.made_rows, r.made_edges]);
    let of = |e: &EpochRecord| (e.loss.to_bits(), e.valid_loss.map(f64::to_bits), e.sampled_edges, reused(e));
    Numbers {
        epochs: summary.epochs.iter().map(of).collect(),
        model: saved.model,
        best: saved.best,
        optimizer: saved.optimizer,
    }
}

/// Summary and numbers of a complete run.
fn trained(config: &TrainConfig, data: &Dataset) -> (Summary, Numbers) {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("run");
    let summary = run_in(&dir, 2, config, data, false, u64::MAX).unwrap();
    let numbers = numbers(&dir, &summary);
    (summary, numbers)
}

/// Configurations whose results must equal those of `sequential`.
fn alike() -> Vec<TrainConfig> {
    let mut all = Vec::new();
    let mut add = |strategy: &str, change: &dyn Fn(&mut TrainConfig)| {
        let mut config = TrainConfig { strategy: strategy.into(), ..base() };
        change(&mut config);
        all.push(config);
    };
    for allocation in ["profiled", "naive", "1,1,1", "2,1,1", "1,2,2"] {
        add("pipelined", &|c| set(c, &format!("allocation={allocation}")));
    }
    for queue in 1..=8 {
        let allocation = if queue % 2 == 0 { "1,1,1" } else { "naive" };
        add("pipelined", &|c| set(c, &format!("allocation={allocation} queue={queue}")));
    }
    for devices in 1..=3 {
        for (switching, ratio, cache) in [
            ("on", None, "degree"),
            ("on", Some(0.0), "degree"),
            ("on", Some(0.3), "lru"),
            ("off", Some(0.3), "degree"),
        ] {
            if devices == 1 && switching == "off" {
                continue; // no device would train
            }
            add("factored", &|c| {
                // one Trainer or two
                let samplers = if switching == "on" { 1 } else { devices - 1 };
                set(c, &format!("devices=virtual:{devices} batches_per_update=1 num_samplers={samplers}"));
                set(c, &format!("switching={switching} cache={cache}"));
                c.cache_ratio = Ratio(ratio);
            });
        }
    }
    for queue in 1..=3 {
        add("factored", &|c| set(c, &format!("devices=virtual:3 batches_per_update=1 queue={queue}")));
    }
    add("factored", &|c| set(c, "batches_per_update=1"));
    add("time-sharing", &|c| set(c, "devices=virtual:2 batches_per_update=1"));
    for (devices, queue) in [(1, 0), (1, 1), (2, 0), (2, 1), (3, 2)] {
        let options = format!("devices=virtual:{devices} batches_per_update=1 queue={queue} overlap=on");
        add("time-sharing", &|c| set(c, &options));
    }
    all
}

/// Checks every strategy with each model and the sampler `name`. Runs are taken in turns of four:
/// those of `turn` for models other than the first, which has all.
fn synchronous_strategies_give_the_bits_of_sequential(name: &str, first_turn: usize) {
    let data = small();
    for (model, (kind, norm)) in
        [("sage", "none"), ("gcn", "none"), ("gat", "none"), ("gin", "batch")].into_iter().enumerate()
    {
        let with = |config: &TrainConfig| TrainConfig {
            sampler: name.into(),
            model: kind.into(),
            norm: norm.parse().unwrap(),
            ..config.clone()
        };
        let turn = first_turn + model;
        let (_, reference) = trained(&with(&base()), &data);
        for (i, config) in alike().iter().enumerate() {
            // all configurations with the first model, and a fourth of them with each other model
            if turn > 0 && !(i + turn).is_multiple_of(4) {
                continue;
            }
            let config = with(config);
            assert!(trained(&config, &data).1 == reference, "{config:?}");
        }
    }
}

#[test]
fn synchronous_strategies_give_the_bits_of_sequential_with_neighbours() {
    synchronous_strategies_give_the_bits_of_sequential("neighbor", 0);
}

#[test]
fn synchronous_strategies_give_the_bits_of_sequential_with_subgraphs() {
    synchronous_strategies_give_the_bits_of_sequential("saint-node", 4);
}

#[test]
fn synchronous_strategies_give_the_bits_of_sequential_with_labor() {
    synchronous_strategies_give_the_bits_of_sequential("labor", 8);
}

/// Relative distance of two models.
fn distance(a: &[Tensor], b: &[Tensor]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let pairs = || a.iter().zip(b).flat_map(|(a, b)| a.data.iter().zip(&b.data));
    norm(&mut pairs().map(|(&a, &b)| f64::from(a) - f64::from(b)))
        / norm(&mut pairs().map(|(&a, _)| f64::from(a)))
}

#[test]
fn several_trainers_equal_one_trainer_with_larger_batches() {
    let data = small();
    for (optimizer, lr) in [("sgd", 0.1), ("adam", 0.01)] {
        for model in ["sage", "gcn", "gat"] {
            let large = TrainConfig {
                model: model.into(),
                optimizer: optimizer.into(),
                lr,
                epochs: 3,
                dropout: 0.0,
                fanout: Fanout(vec![-1, -1]),
                batch_size: 48,
                ..base()
            };
            let one = trained(&large, &data);
            for (strategy, devices, batch_size) in [
                ("factored", "virtual:3", 24),
                ("factored", "virtual:4", 16),
                ("time-sharing", "virtual:2", 24),
            ] {
                let config = TrainConfig {
                    strategy: strategy.into(),
                    devices: devices.parse().unwrap(),
                    batch_size,
                    ..with(large.clone(), "num_samplers=1")
                };
                let several = trained(&config, &data);
                let far = distance(&one.1.model, &several.1.model);
                assert!(far < 1e-4, "{far} {config:?}");
                let (a, b) = (one.0.epochs[2].loss, several.0.epochs[2].loss);
                assert!((a - b).abs() < 1e-4 * a, "{a} and {b}, {config:?}");
            }
        }
    }
}

/// Strategies whose interrupted runs must resume to the same bits.
fn interruptible() -> Vec<TrainConfig> {
    let of = |strategy: &str, allocation: &str, devices: &str| TrainConfig {
        strategy: strategy.into(),
        devices: devices.parse().unwrap(),
        ..with(base(), &format!("allocation={allocation} num_samplers=1"))
    };
    vec![
        of("sequential", "profiled", "cpu"),
        of("pipelined", "profiled", "cpu"),
        of("pipelined", "naive", "cpu"),
        of("pipelined", "1,1,1", "cpu"),
        of("factored", "profiled", "virtual:1"),
        of("factored", "profiled", "virtual:2"),
        of("factored", "profiled", "virtual:3"),
        of("time-sharing", "profiled", "virtual:2"),
        with(of("layered", "profiled", "cpu"), "super_batch=4"),
        with(of("layered", "profiled", "cpu"), "super_batch=6 hot_prefetch=on max_variation=0.02"),
        // one super-batch per epoch
        with(of("layered", "profiled", "cpu"), "super_batch=20"),
        with(of("layered", "profiled", "cpu"), "super_batch=3 hot_prefetch=on"),
        with(
            of("layered", "profiled", "virtual:1"),
            "super_batch=3 hot_prefetch=on hot_gradient=kept max_variation=0.02",
        ),
        with(of("layered", "profiled", "virtual:2"), "super_batch=4 hot_prefetch=on"),
        with(of("pipelined", "1,1,1", "cpu"), "reuse=layered super_batch=4"),
        with(of("pipelined", "profiled", "cpu"), "reuse=layered super_batch=3 hot_prefetch=on"),
        with(of("factored", "profiled", "virtual:3"), "reuse=layered super_batch=4 hot_prefetch=on"),
        with(of("factored", "profiled", "virtual:3"), "updates=asynchronous staleness=2"),
        with(
            of("time-sharing", "profiled", "virtual:2"),
            "updates=asynchronous staleness=4 model=gin norm=batch",
        ),
        with(
            of("time-sharing", "profiled", "virtual:2"),
            "updates=asynchronous staleness=2 reuse=layered super_batch=3 hot_prefetch=on max_variation=0.02",
        ),
        with(
            of("factored", "profiled", "virtual:2"),
            "updates=asynchronous staleness=5 reuse=layered super_batch=2 hot_prefetch=off",
        ),
    ]
}

/// Checks the configurations `first`, `first + 2`, ...
fn runs_stopped_at_any_batch_resume_to_the_same_numbers(first: usize) {
    let data = small();
    for config in interruptible().into_iter().skip(first).step_by(2) {
        let (_, whole) = trained(&config, &data);
        for threads in [1, 3] {
            // stopped after every update
            let temporary = tempfile::tempdir().unwrap();
            let dir = temporary.path().join("run");
            let mut parts = 0;
            let summary = loop {
                match run_in(&dir, threads, &config, &data, parts > 0, 1) {
                    Ok(summary) => break summary,
                    Err(Error::Interrupted { saved: true, .. }) => parts += 1,
                    Err(error) => panic!("{error} {config:?}"),
                }
                assert!(parts < 30, "the run makes no progress: {config:?}");
            };
            assert!(parts >= 9, "{parts} {config:?}");
            assert!(numbers(&dir, &summary) == whole, "{threads} threads, {parts} parts, {config:?}");
        }
        // stopped once, with as many batches under way as possible
        for at in [2, 3, 5, 7, 8, 9] {
            let temporary = tempfile::tempdir().unwrap();
            let dir = temporary.path().join("run");
            let error = run_in(&dir, 2, &config, &data, false, at).expect_err("interrupted");
            assert!(matches!(error, Error::Interrupted { saved: true, .. }), "{error}");
            let summary = run_in(&dir, 2, &config, &data, true, u64::MAX).unwrap();
            assert!(numbers(&dir, &summary) == whole, "stopped after {at}, {config:?}");
        }
    }
}

#[test]
fn runs_stopped_at_any_batch_resume_to_the_same_numbers_in_even_rows() {
    runs_stopped_at_any_batch_resume_to_the_same_numbers(0);
}

#[test]
fn runs_stopped_at_any_batch_resume_to_the_same_numbers_in_odd_rows() {
    runs_stopped_at_any_batch_resume_to_the_same_numbers(1);
}

/// A Sampler marks the rows that Trainers cache and copies its batches to their queue; a device
/// that does all stages does neither.
#[test]
fn samplers_record_the_seconds_of_marks_and_copies() {
    let data = small();
    let workers = |strategy: &str| {
        let options = format!("strategy={strategy} cache=degree cache_ratio=0.2 epochs=1");
        let config = TrainConfig { devices: "virtual:2".parse().unwrap(), ..with(base(), &options) };
        trained(&config, &data).0.epochs[0].workers.clone()
    };
    for worker in workers("factored") {
        let parts = [worker.mark_seconds, worker.copy_seconds];
        let samples = worker.worker.starts_with("sampler");
        assert_eq!(parts.map(|part| part > 0.0), [samples; 2], "{worker:?}");
        assert!(!samples || parts[0] + parts[1] < worker.stages.sample, "{worker:?}");
    }
    assert!(workers("time-sharing").iter().all(|worker| worker.mark_seconds + worker.copy_seconds == 0.0));
}

/// A different number of batches per update would change the ages of rows.
#[test]
fn resume_refuses_another_number_of_batches_per_update() {
    let data = small();
    let with = |devices: &str| {
        with(base(), &format!("strategy=layered devices={devices} super_batch=4 hot_prefetch=on"))
    };
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("run");
    let error = run_in(&dir, 2, &with("virtual:2"), &data, false, 2).expect_err("interrupted");
    assert!(matches!(error, Error::Interrupted { saved: true, .. }), "{error}");
    let error = run_in(&dir, 2, &with("cpu"), &data, true, u64::MAX).unwrap_err().to_string();
    assert!(error.contains("--devices cpu") && error.contains("the run has updates of 2 batches"), "{error}");
    run_in(&dir, 2, &with("virtual:2"), &data, true, u64::MAX).unwrap();
}

/// Every update is that of a gradient of the parameters exactly as many updates before as the bound
/// says. Batches that are slow to sample or to read delay others, and change no bit.
#[test]
fn updates_are_those_of_gradients_as_stale_as_the_bound() {
    let data = Arc::new(data());
    let pool = Arc::new(ThreadPoolBuilder::new().num_threads(2).build().unwrap());
    let mut of_bounds = Vec::new();
    for bound in [0, 1, 2, 4] {
        let with = |options: &str| TrainConfig { batch_size: BATCH, ..with(base(), options) };
        let expected = stale_updates(&data, &with(""), bound);
        for (strategy, devices) in
            [("factored", 2), ("factored", 4), ("time-sharing", 1), ("time-sharing", 3)]
        {
            for pattern in 0..3 {
                let config = with(&format!(
                    "strategy={strategy} devices=virtual:{devices} num_samplers=1 cache_ratio=0.2 \
                     updates=asynchronous staleness={bound}"
                ));
                let mut slow = Fault::new(Kind::None, 0, 0, BATCHES, 1);
                slow.delay = Box::new(move |batch| match keyed::key(&[pattern, batch]) % 4 {
                    0 if pattern > 0 => Duration::from_millis(4),
                    _ => Duration::ZERO,
                });
                let what = format!("{strategy}, {devices} devices, bound {bound}, pattern {pattern}");
                let outcome = watched(&data, &pool, &config, Arc::new(slow), &what);
                assert!(outcome.end.is_ok() && outcome.finite, "{what}: {:?}", outcome.end);
                assert!(outcome.updates == expected, "{what}: a gradient is that of another version");
                assert_eq!(outcome.staleness, bound, "{what}");
            }
        }
        assert!(!of_bounds.contains(&expected), "gradients of bound {bound} are those of a smaller one");
        of_bounds.push(expected);
    }
}

/// Reuse whose rows do not depend on the number of devices.
const REUSE: &str = "model=sage reuse=layered super_batch=3 hot_prefetch=on hot_split=0.5 hot_ratio=0.5";

/// Neither the number of devices nor that of threads changes a bit, running statistics included.
#[test]
fn results_of_stale_gradients_depend_on_the_bound_alone() {
    let data = small();
    for model in ["model=sage", "model=gin norm=batch clip=0.5", REUSE] {
        let of = |options: &str, threads: usize| {
            let config = with(base(), &format!("{model} updates=asynchronous {options}"));
            let temporary = tempfile::tempdir().unwrap();
            let dir = temporary.path().join("run");
            let summary = run_in(&dir, threads, &config, &data, false, u64::MAX).unwrap();
            let numbers = numbers(&dir, &summary);
            (summary.staleness.max, numbers)
        };
        let (latest, one) = of("staleness=2 strategy=time-sharing devices=virtual:1", 1);
        // rows of two super-batches are up to five updates old
        let expected = if model == REUSE { 5 } else { 2 };
        assert_eq!(latest, expected, "{model}");
        for (options, threads) in [
            ("strategy=time-sharing devices=virtual:1", 1),
            ("strategy=time-sharing devices=virtual:2 cache_ratio=0.2 overlap=on", 3),
            ("strategy=factored devices=virtual:2 num_samplers=1 switching=off queue=2", 2),
            ("strategy=factored devices=virtual:4 num_samplers=2 cache_ratio=0.2", 1),
        ] {
            let (latest, numbers) = of(&format!("staleness=2 {options}"), threads);
            assert!(numbers == one, "{model} {options}, {threads} threads");
            assert_eq!(latest, expected, "{model} {options}");
        }
        let fresh = of("staleness=0 strategy=time-sharing devices=virtual:2", 2).1;
        assert!(fresh != one, "{model}: gradients are stale");
        // on the processor, reused rows have other ages by default
        let sequential = trained(&with(base(), model), &data).1;
        assert!(model == REUSE || sequential == fresh, "{model}: no gradient is stale");
    }
}

#[test]
fn summaries_report_the_staleness_of_gradients() {
    let data = small();
    for (updates, bound) in [("asynchronous", 0), ("asynchronous", 3), ("synchronous", 3)] {
        let options = format!("num_samplers=1 updates={updates} staleness={bound}");
        let config = with(base(), &format!("strategy=factored devices=virtual:3 {options}"));
        let reported = trained(&config, &data).0.staleness;
        let expected = if updates == "asynchronous" { bound as u64 } else { 0 };
        assert_eq!(reported.bound, expected, "{updates}");
        assert_eq!(reported.max, expected, "{updates}");
    }
}
