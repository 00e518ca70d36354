//! Reused rows are never older than their bound, whatever the timing. Without reuse the results
//! equal those of `sequential`, and with reuse every model learns.

use std::{sync::Arc, time::Duration};

use graphmill_core::keyed;
use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_engine::{
    Dataset, Error, RunContext, RunDir, TrainConfig,
    config::{Fanout, Ratio},
    observer::Quiet,
    record::{EpochRecord, Summary},
    train,
};
use graphmill_loader::Traffic;
use graphmill_nn::layer::{GatOptions, MixHopOptions};
use rayon::ThreadPoolBuilder;

use crate::common::{Fault, Kind};
use crate::run::{BATCH, BATCHES, data, watched};
use crate::set::{set, with};

fn base() -> TrainConfig {
    TrainConfig {
        epochs: 2,
        batch_size: 16,
        hidden: 8,
        fanout: Fanout(vec![3, 2]),
        dropout: 0.3,
        lr: 0.01,
        seed: 3,
        ..TrainConfig::default()
    }
    .with(|gat: &mut GatOptions| gat.heads = 2)
}

fn small() -> Dataset {
    let options =
        GenerateOptions { nodes: 600, degree: Some(6.0), classes: 3, dim: 6, ..GenerateOptions::default() };
    let mut data = generate("sbm", &options).unwrap();
    data.split.train = data.split.train[..140].to_vec().into();
    data
}

fn trained(config: &TrainConfig, data: &Dataset) -> Result<Summary, Error> {
    let mut config = config.clone();
    config.derive_options(&["fanout"])?;
    train(&config, data, RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false })
}

fn bits(summary: &Summary) -> Vec<(u64, Option<u64>)> {
    summary.epochs.iter().map(|e| (e.loss.to_bits(), e.valid_loss.map(f64::to_bits))).collect()
}

fn layered(change: impl Fn(&mut TrainConfig)) -> TrainConfig {
    let mut config = with(base(), "strategy=layered super_batch=4");
    change(&mut config);
    config
}

/// Without hot nodes, or without staleness, the bits equal those of exact training. An empty hot
/// queue does not bypass the code that reuses rows.
#[test]
fn layered_without_staleness_gives_the_bits_of_exact_training() {
    let data = small();
    for model in ["sage", "gcn", "gat", "gin"] {
        for fused in ["auto", "off"] {
            let of_model = |config: TrainConfig| TrainConfig {
                model: model.into(),
                fused: fused.parse().unwrap(),
                ..config
            };
            let exact = trained(&of_model(base()), &data).unwrap();
            for config in [
                layered(|c| set(c, "super_batch=1")),
                layered(|c| set(c, "hot_ratio=0")),
                // fewer than half a node is hot
                layered(|c| set(c, "hot_ratio=0.05 hot_split=0.01")),
                layered(|c| set(c, "hot_ratio=0.05 hot_split=0.01 hot_prefetch=on")),
                // a super-batch of one batch has no rows to share
                layered(|c| set(c, "super_batch=1 hot_prefetch=on")),
            ] {
                let config = of_model(config);
                assert_eq!(bits(&trained(&config, &data).unwrap()), bits(&exact), "{config:?}");
            }
        }
    }
    let sharing =
        TrainConfig { strategy: "time-sharing".into(), devices: "virtual:2".parse().unwrap(), ..base() };
    let exact = trained(&sharing, &data).unwrap();
    let none = layered(|c| set(c, "devices=virtual:2 hot_ratio=0"));
    assert_eq!(bits(&trained(&none, &data).unwrap()), bits(&exact));
}

/// Combinations of strategies with reuse whose updates have one batch each.
fn combined() -> Vec<TrainConfig> {
    [
        "strategy=layered hot_prefetch=on",
        "strategy=sequential devices=virtual:2",
        "strategy=pipelined",
        "strategy=pipelined allocation=1,1,1",
        "strategy=pipelined allocation=naive queue=2",
        "strategy=factored devices=virtual:2",
        "strategy=factored devices=virtual:3 num_samplers=1 batches_per_update=1",
        "strategy=factored devices=virtual:3 num_samplers=2 batches_per_update=1 switching=off",
        "strategy=time-sharing devices=virtual:1",
        "strategy=time-sharing devices=virtual:2 batches_per_update=1 overlap=on",
        "strategy=layered devices=virtual:1",
    ]
    .map(|options| {
        let reuse = if options.contains("layered") { "" } else { "reuse=layered" };
        with(base(), &format!("{reuse} super_batch=4 hot_prefetch=on fused=off {options}"))
    })
    .to_vec()
}

/// Every strategy reuses the rows that `sequential` reuses, on any number of threads.
#[test]
fn reuse_around_any_synchronous_strategy_gives_the_same_bits() {
    let data = small();
    let reference = with(base(), "strategy=sequential reuse=layered super_batch=4 hot_prefetch=on fused=off");
    let expected = trained(&reference, &data).unwrap();
    assert_eq!((expected.staleness.bound, expected.staleness.max), (7, 7));
    let limited = |config: TrainConfig| with(config, "max_variation=0.02");
    let cut = trained(&limited(reference), &data).unwrap();
    for config in combined() {
        let summary = trained(&limited(config.clone()), &data).unwrap();
        assert_eq!(bits(&summary), bits(&cut), "max_variation, {config:?}");
        for threads in [1, 3] {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let summary = pool.install(|| trained(&config, &data)).unwrap();
            assert_eq!(bits(&summary), bits(&expected), "{threads} threads, {config:?}");
            assert_eq!(summary.staleness, expected.staleness, "{config:?}");
            let rows = |summary: &Summary| {
                let of = summary.epochs[1].reuse.unwrap();
                (of.asked_rows, of.reused_rows, of.made_rows, of.made_edges)
            };
            assert_eq!(rows(&summary), rows(&expected), "{config:?}");
        }
    }
}

/// The earlier spelling trains as its parts do, with several batches per update, too.
#[test]
fn the_strategy_layered_is_an_alias() {
    let data = small();
    for (options, strategy) in [
        ("devices=cpu", "sequential"),
        ("devices=cpu hot_gradient=kept hot_metric=presc:1 hot_ratio=0.2", "sequential"),
        ("devices=virtual:2 cache_ratio=0.2", "time-sharing"),
        ("devices=virtual:3 hot_split=0.5", "time-sharing"),
    ] {
        let alias = trained(&layered(|c| set(c, options)), &data).unwrap();
        let parts = layered(|c| set(c, &format!("{options} strategy={strategy} reuse=layered")));
        let parts = trained(&parts, &data).unwrap();
        assert_eq!(bits(&alias), bits(&parts), "{options}");
        assert_eq!(alias.staleness, parts.staleness, "{options}");
    }
}

/// With asynchronous updates, the bound is the larger one of those of rows and of gradients.
#[test]
fn rows_and_asynchronous_gradients_keep_both_their_bounds() {
    let data = Arc::new(data());
    let pool = Arc::new(ThreadPoolBuilder::new().num_threads(2).build().unwrap());
    for (strategy, devices) in [("factored", 3), ("time-sharing", 2)] {
        for (prefetch, of_rows) in [("off", 3), ("on", 7)] {
            for late in [0, 2, 9] {
                let options = format!(
                    "strategy={strategy} reuse=layered devices=virtual:{devices} num_samplers=1 \
                     super_batch=4 hot_prefetch={prefetch} updates=asynchronous staleness={late}"
                );
                let config =
                    TrainConfig { batch_size: BATCH, ..with(base(), &format!("{options} fused=off")) };
                let mut seen = None;
                for pattern in 0..3 {
                    let mut slow = Fault::new(Kind::None, 0, 0, BATCHES, 1);
                    slow.delay = Box::new(move |batch| match keyed::key(&[pattern, batch]) % 3 {
                        0 if pattern > 0 => Duration::from_millis(3),
                        _ => Duration::ZERO,
                    });
                    let outcome = watched(&data, &pool, &config, Arc::new(slow), &options);
                    assert!(outcome.end.is_ok() && outcome.finite, "{options}: {:?}", outcome.end);
                    // a late gradient is no reason to read older rows
                    assert_eq!(outcome.staleness, of_rows.max(late), "{options}");
                    let updates = seen.get_or_insert_with(|| outcome.updates.clone());
                    assert!(*updates == outcome.updates, "{options}: the results depend on timing");
                }
                let bound = trained(&config, &data).unwrap().staleness.bound;
                assert_eq!(bound, of_rows.max(late), "{options}");
            }
        }
    }
}

/// Delays change neither the bits nor the age of rows. (The code that reads rows asserts the
/// bound.)
#[test]
fn delays_change_neither_results_nor_the_age_of_rows() {
    let data = Arc::new(data());
    let pool = Arc::new(ThreadPoolBuilder::new().num_threads(2).build().unwrap());
    for (devices, ahead, n, bound) in [
        ("cpu", "off", 4, 3),
        ("cpu", "on", 4, 7),
        ("cpu", "on", 1, 1),
        ("virtual:1", "on", 3, 5),
        ("virtual:1", "off", 5, 4),
        // two batches per update
        ("virtual:2", "on", 6, 5),
    ] {
        let mut seen = None;
        for pattern in 0..6 {
            let config = TrainConfig {
                devices: devices.parse().unwrap(),
                batch_size: BATCH,
                fused: "off".parse().unwrap(),
                cache: "degree".into(),
                cache_ratio: if devices == "cpu" { Ratio(None) } else { Ratio(Some(0.2)) },
                ..layered(|c| set(c, &format!("hot_prefetch={ahead} super_batch={n}")))
            };
            let mut slow = Fault::new(Kind::None, 0, 0, BATCHES, 1);
            // pattern 0 has no delays; in the others some batches, or the rows of some
            // super-batches, are slow to sample and to read
            slow.delay = Box::new(move |batch| match keyed::key(&[pattern, batch]) % 3 {
                0 if pattern > 0 => Duration::from_millis(4),
                _ => Duration::ZERO,
            });
            let what = format!("{devices}, ahead {ahead}, n = {n}, pattern {pattern}");
            let outcome = watched(&data, &pool, &config, Arc::new(slow), &what);
            assert!(outcome.end.is_ok(), "{what}: {:?}", outcome.end);
            let reached = if n == 1 && devices == "cpu" { outcome.staleness } else { bound };
            assert_eq!(
                outcome.staleness, reached,
                "{what}: the last batch of a super-batch reads its oldest rows"
            );
            assert!(outcome.staleness <= bound, "{what}: {}", outcome.staleness);
            assert_eq!(
                *seen.get_or_insert(outcome.bits),
                outcome.bits,
                "{what}: the results depend on timing"
            );
        }
    }
}

/// Counters of an epoch that do not depend on where the bottom layer reads rows. Devices take
/// batches as they are free, so only the sum of their own and their peers' rows is repeated.
fn counters(epoch: &EpochRecord) -> [u64; 8] {
    let Traffic { mut device, peer, host, disk, .. } = epoch.traffic;
    device += peer;
    let reuse = epoch.reuse.expect("rows were reused");
    let rows = [reuse.reused_rows, reuse.made_rows];
    [device.rows, device.bytes, host.rows, host.bytes, disk.rows, disk.bytes, rows[0], rows[1]]
}

/// Rows that the bottom layer reads in a cache give the bits of gathered ones, with the same reuse,
/// age and traffic, on any number of threads.
#[test]
fn rows_in_place_over_tiers_change_no_bit_of_runs_with_reuse() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("data");
    small().save(&dir).unwrap();
    let data = Dataset::open(&dir).unwrap();
    for options in [
        "strategy=sequential hot_prefetch=off host_budget=9000",
        "strategy=sequential cache_ratio=0.3 cache=degree hot_gradient=kept model=gcn",
        "strategy=sequential host_budget=1 max_variation=0.02 model=gin",
        "strategy=pipelined allocation=1,1,1 cache_ratio=0.3 model=gat",
        "strategy=pipelined devices=virtual:1 cache_ratio=1 sampler=labor",
        "strategy=time-sharing devices=virtual:2 cache_ratio=0.2 placement=interleave",
        "strategy=factored devices=virtual:3 cache_ratio=0.2 num_samplers=1 host_budget=9000",
        "strategy=layered devices=virtual:1 super_batch=1 cache_ratio=0.2 model=gat",
        "strategy=historical reuse=none cache_ratio=0.3",
    ] {
        let of = |rows: &str| {
            let dataset = dir.to_str().unwrap().into();
            let reuse = "reuse=layered super_batch=4 hot_prefetch=on batches_per_update=1 cache=posterior:2";
            TrainConfig { dataset, ..with(base(), &format!("{reuse} {options} fused={rows}")) }
        };
        let gathered = trained(&of("off"), &data).unwrap();
        for threads in [1, 3] {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let in_place = pool.install(|| trained(&of("on"), &data)).unwrap();
            assert_eq!(bits(&in_place), bits(&gathered), "{threads} threads, {options}");
            assert_eq!(in_place.test.score, gathered.test.score, "{options}");
            assert_eq!(in_place.staleness, gathered.staleness, "{options}");
            for (a, b) in in_place.epochs.iter().zip(&gathered.epochs) {
                assert_eq!(counters(a), counters(b), "{threads} threads, {options}");
            }
        }
    }
}

#[test]
fn summaries_report_reused_rows_and_their_age() {
    let data = small();
    for (n, ahead, bound) in [(4, "off", 3), (3, "on", 5)] {
        let config = layered(|c| set(c, &format!("super_batch={n} hot_prefetch={ahead}")));
        let summary = trained(&config, &data).unwrap();
        assert_eq!((summary.staleness.bound, summary.staleness.max), (bound, bound));
        for epoch in &summary.epochs {
            let reuse = epoch.reuse.expect("rows were reused");
            assert!(reuse.made_rows > 0 && reuse.made_rows <= reuse.reused_rows / 2, "{reuse:?}");
            assert!(reuse.reused_rows < reuse.asked_rows && reuse.made_edges > 0, "{reuse:?}");
            assert!(reuse.variation > 0.0 && reuse.split == 1.0, "{reuse:?}");
        }
        assert!(trained(&base(), &data).unwrap().epochs[0].reuse.is_none());
    }
}

/// Rows are not read once the parameters have changed more than the limit since they were made,
/// from the first super-batch on.
#[test]
fn rows_of_parameters_beyond_the_variation_are_not_reused() {
    let data = small();
    for (n, ahead) in [(4, "off"), (3, "on")] {
        let with_limit = |limit: &str| {
            let options = format!("super_batch={n} hot_prefetch={ahead} max_variation={limit} fused=off");
            trained(&layered(|c| set(c, &options)), &data).unwrap()
        };
        // below the change by one update, every batch gets rows of its own
        let shortest = with_limit("1e-9");
        assert_eq!(shortest.staleness.max, 0);
        for epoch in &shortest.epochs {
            let reuse = epoch.reuse.unwrap();
            assert!(reuse.super_batch < 1.5, "{reuse:?}");
        }
        let (some, any) = (with_limit("0.015"), with_limit("0"));
        let ages = [some.staleness.max, any.staleness.max];
        assert!(ages[0] > 0 && ages[0] < ages[1], "{ages:?}");
        assert_ne!(bits(&some), bits(&any));
        assert_eq!(bits(&with_limit("100")), bits(&any), "a limit that is not reached changes nothing");
    }
}

#[test]
fn the_default_length_of_super_batches_is_deterministic() {
    let data = small();
    let summary = trained(&layered(|c| set(c, "super_batch=0")), &data).unwrap();
    let length = summary.epochs[0].reuse.unwrap().super_batch;
    assert!((2.0..=9.0).contains(&length), "{length}");
    assert_eq!(bits(&summary), bits(&trained(&layered(|c| set(c, "super_batch=0")), &data).unwrap()));
}

#[test]
fn every_model_learns_from_reused_rows() {
    let options =
        GenerateOptions { nodes: 3000, degree: Some(12.0), classes: 4, dim: 8, ..GenerateOptions::default() };
    let data = generate("sbm", &options).unwrap();
    let of_model = |model: &str, hops: usize| TrainConfig {
        model: model.into(),
        epochs: 6,
        batch_size: 128,
        hidden: 32,
        layers: 3 / hops,
        fanout: Fanout(vec![6, 5, 4][..hops * (3 / hops)].to_vec()),
        ..base().with(|mixhop: &mut MixHopOptions| mixhop.hops = hops)
    };
    for (model, hops) in [("gcn", 1), ("sage", 1), ("gat", 1), ("gin", 1), ("pinsage", 1), ("mixhop", 3)] {
        let exact = trained(&with(of_model(model, hops), "norm=none"), &data).unwrap();
        let exact = exact.test.score.unwrap();
        for (gradient, by, norm) in [
            ("none", "requests", "none"),
            ("auto", "requests", "none"),
            ("auto", "presc:1", "batch"),
            ("kept", "requests", "layer"),
        ] {
            if gradient == "kept" && !["gcn", "sage", "gat"].contains(&model) {
                continue;
            }
            let reuse = format!("super_batch=4 hot_ratio=0.3 hot_gradient={gradient} hot_metric={by}");
            let config = with(of_model(model, hops), &format!("strategy=layered norm={norm} {reuse}"));
            let reused = trained(&config, &data).unwrap();
            let score = reused.test.score.unwrap();
            assert!(score > exact - 0.03, "{model}, {gradient}, {by}, {norm}: {score}, and {exact} exact");
            assert!(reused.epochs[0].reuse.unwrap().hot_nodes > 100.0);
        }
    }
}

#[test]
fn historical_reuses_old_rows_and_learns() {
    let data = small();
    let config = TrainConfig { strategy: "historical".into(), epochs: 4, ..base() };
    let summary = trained(&config, &data).unwrap();
    let (first, last) = (summary.epochs[0].reuse.unwrap(), summary.epochs[3].reuse.unwrap());
    assert!(first.reused_rows < last.reused_rows && last.reused_rows > last.asked_rows / 6, "{last:?}");
    assert!(
        summary.staleness.max > 9 && summary.staleness.max <= summary.staleness.bound,
        "{:?}",
        summary.staleness
    );
    assert!(summary.epochs[3].loss < summary.epochs[0].loss);
}

/// Subgraphs whose nodes read rows of their neighbours outside.
fn of_subgraphs(options: &str) -> TrainConfig {
    let with_walks = "sampler=saint-rw batch_size=30 walk_length=2 sample_coverage=5 epochs=3 dropout=0";
    with(base(), &format!("{with_walks} reuse=layered super_batch=4 {options}"))
}

/// A checkpoint holds the pushed rows, in the middle of an epoch and at its end.
#[test]
fn a_resumed_historical_run_pulls_the_rows_that_were_pushed_before() {
    let (data, temporary) = (small(), tempfile::tempdir().unwrap());
    let subgraphs = of_subgraphs("reuse=none strategy=historical");
    let neighbors = TrainConfig { strategy: "historical".into(), epochs: 3, ..base() };
    for (i, mut config) in [neighbors, subgraphs].into_iter().enumerate() {
        config.derive_options(&["fanout"]).unwrap();
        let whole = trained(&config, &data).unwrap();
        for updates in [2, 9, 11] {
            let path = temporary.path().join(format!("{i}-{updates}"));
            let left = std::sync::atomic::AtomicUsize::new(updates);
            let stop = || left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1;
            let run = RunDir::create(&path).unwrap();
            let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &stop };
            assert!(matches!(train(&config, &data, context), Err(Error::Interrupted { .. })));
            drop(run);
            let run = RunDir::reopen(&path).unwrap();
            let context = RunContext { run: Some(&run), resume: true, observer: &mut Quiet, stop: &|| false };
            let resumed = train(&config, &data, context).unwrap();
            assert_eq!(bits(&resumed), bits(&whole), "{i} after {updates} updates");
            assert_eq!((resumed.test.score, resumed.staleness), (whole.test.score, whole.staleness), "{i}");
        }
    }
}

/// With frozen parameters, reused rows outside of a subgraph equal those that the batch computes
/// from all neighbours.
#[test]
fn rows_outside_of_subgraphs_equal_full_aggregation_if_the_model_is_frozen() {
    let data = small();
    for (model, sampler) in
        [("sage", "saint-rw"), ("gcn", "saint-node"), ("gin", "cluster"), ("gat", "saint-edge")]
    {
        let frozen = |options: &str| {
            let lr = "lr=1e-30 norm=none hot_prefetch=on hot_rank=0";
            trained(&of_subgraphs(&format!("model={model} sampler={sampler} {lr} {options}")), &data).unwrap()
        };
        let (reused, full) = (frozen("hot_ratio=1"), frozen("hot_ratio=0"));
        assert!(full.epochs[0].reuse.is_none(), "every batch computes all its rows");
        for (a, b) in reused.epochs.iter().zip(&full.epochs) {
            assert!((a.loss - b.loss).abs() < 1e-5 * b.loss, "{model}, {sampler}: {} and {}", a.loss, b.loss);
            let reuse = a.reuse.unwrap();
            assert!(reuse.reused_rows > 0 && reuse.made_rows <= reuse.reused_rows, "{sampler}: {reuse:?}");
        }
    }
}

#[test]
fn rows_outside_of_subgraphs_have_a_bounded_age() {
    let data = small();
    for (options, bound) in [
        ("hot_prefetch=off", 3),
        ("hot_prefetch=on", 7),
        ("hot_prefetch=on strategy=pipelined", 7),
        ("hot_prefetch=on strategy=time-sharing devices=virtual:1 cache_ratio=0.2", 7),
        ("hot_prefetch=off sampler=cluster parts=20 parts_per_batch=2", 3),
    ] {
        let config = of_subgraphs(options);
        let mut outcomes = Vec::new();
        for threads in [1, 3] {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            outcomes.push(pool.install(|| trained(&config, &data)).unwrap());
        }
        let [one, several] = &outcomes[..] else { unreachable!() };
        assert_eq!(bits(one), bits(several), "{options}");
        assert_eq!((one.staleness.bound, one.staleness.max), (bound, bound), "{options}");
        let reuse = one.epochs[1].reuse.unwrap();
        assert!(reuse.reused_rows > reuse.made_rows, "{options}: {reuse:?}");
        assert!(one.epochs[2].loss < one.epochs[0].loss, "{options}: it learns");
    }
    let expected = bits(&trained(&of_subgraphs("hot_prefetch=on"), &data).unwrap());
    let pipelined = bits(&trained(&of_subgraphs("hot_prefetch=on strategy=pipelined"), &data).unwrap());
    assert_eq!(pipelined, expected);
    let historical = of_subgraphs("reuse=none strategy=historical");
    let summary = trained(&historical, &data).unwrap();
    assert!(summary.epochs[2].reuse.unwrap().reused_rows > 0);
    assert!(summary.epochs[2].loss < summary.epochs[0].loss);
}

#[test]
fn unsupported_options_are_refused() {
    let data = small();
    let error = |change: &dyn Fn(&mut TrainConfig)| trained(&layered(change), &data).unwrap_err().to_string();
    let unread = layered(|c| set(c, "sampler=saint-rw estimator=unbiased")).refuse_unused(&["estimator"]);
    let of = unread.unwrap_err().to_string();
    assert!(of.contains("no sum is estimated"), "{of}");
    let of = error(&|c| c.fanout = Fanout(vec![3]));
    assert!(of.contains("--layers 2"), "{of}");
    let of = error(&|c| set(c, "strategy=historical reuse=layered"));
    assert!(of.contains("--strategy historical reuses rows itself"), "{of}");
    let of = error(&|c| set(c, "model=pinsage hot_gradient=kept"));
    assert!(of.contains("--hot-gradient none"), "{of}");
    let of = error(&|c| set(c, "hot_metric=fifo"));
    assert!(of.contains("--hot-metric fifo"), "{of}");
    // each device holds the rows of two super-batches
    let of = error(&|c| {
        set(c, "devices=virtual:1 hot_ratio=1");
        c.device_budget = graphmill_engine::config::Bytes(28_000);
    });
    assert!(of.contains("out of memory: reused rows"), "{of}");
}
