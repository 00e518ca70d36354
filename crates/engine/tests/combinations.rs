//! The mechanisms of the five papers combine: samplers, strategies, reuse of rows, seed orders,
//! caches, formats of rows and devices, in one process and over ranks. A combination that a run
//! refuses is in [`refusal`], with its reason.

use std::{path::Path, sync::OnceLock};

use graphmill_core::{Features, SparseRows};
use graphmill_data::{
    Dataset,
    generate::{GenerateOptions, generate},
};
use graphmill_engine::{
    Error, RunContext, TrainConfig,
    config::{Bottom, Fanout},
    observer::Quiet,
    record::Summary,
    strategy, train,
};
use graphmill_loader::{feature::cached::PLACEMENTS, hotness, order, policy, sampler};
use graphmill_nn::layer;

use crate::ranks::{over_ranks, partitioned};
use crate::set::with;

/// Small datasets with weighted edges in directories: with dense features, and with sparse ones.
fn data() -> &'static (tempfile::TempDir, [Dataset; 2]) {
    static DATA: OnceLock<(tempfile::TempDir, [Dataset; 2])> = OnceLock::new();
    DATA.get_or_init(|| {
        let options = GenerateOptions {
            nodes: 200,
            degree: Some(6.0),
            classes: 3,
            dim: 16,
            ..GenerateOptions::default()
        };
        let mut dense = generate("sbm", &options).unwrap();
        let weights: Vec<f32> = (0..dense.graph.num_edges()).map(|edge| 0.5 + (edge % 7) as f32).collect();
        dense.graph = dense.graph.with_edge_weight(weights.into()).unwrap();
        let mut table = vec![0.0; 200 * 60];
        table.chunks_exact_mut(60).enumerate().for_each(|(v, row)| row[v % 60] = 1.0);
        let rows = SparseRows::from_dense(60, &table).unwrap();
        let sparse = Dataset { features: Features::csr(rows), ..dense.clone() };
        let dir = tempfile::tempdir().unwrap();
        let stored = [("dense", dense), ("sparse", sparse)].map(|(name, data)| {
            data.save(dir.path().join(name)).unwrap();
            Dataset::open(dir.path().join(name)).unwrap()
        });
        (dir, stored)
    })
}

/// A run of two epochs of three batches of one of the datasets.
fn base(data: &Dataset, options: &str) -> TrainConfig {
    let config = TrainConfig {
        dataset: data.directory.as_deref().and_then(Path::to_str).unwrap_or_default().into(),
        fanout: Fanout(vec![3, 2]),
        hidden: 8,
        batch_size: 25,
        max_batches: 3,
        epochs: 2,
        ..TrainConfig::default()
    };
    let sizes = "frontier_size=5 walk_length=2 parts=8 parts_per_batch=2 sample_coverage=2 super_batch=2";
    let mut config = with(config, &format!("{sizes} {options}"));
    config.derive_options(&["fanout"]).unwrap();
    config
}

/// Part of the message with which a run refuses a combination, if it does.
fn refusal(config: &TrainConfig) -> Option<&'static str> {
    let kind = &sampler::TABLE.get(&config.sampler).unwrap().make;
    let is_auto = config.reuse == "auto";
    if config.bottom == Bottom::Exact && !kind.has_exact_bottom {
        // all neighbours with equal weights are not the mean of what it draws
        return Some("use --sampler neighbor or full");
    }
    if config.bottom == Bottom::Exact && !["sage", "gcn", "gin"].contains(&config.model.as_str()) {
        // its bottom layer depends on parameters, or its aggregate is no row of its own
        return Some("use --model gcn, gin, or sage");
    }
    if config.strategy == "historical" && config.reuse != "none" {
        // both decide which rows a batch pulls
        return Some("reuses rows itself");
    }
    if is_auto && config.num_devices() > 0 {
        // counts say what the processor saves, and not what a link does
        return Some("use --reuse layered or none");
    }
    if is_auto && kind.draws_subgraphs() {
        // the choice would change what is learned
        return Some("use --reuse layered or none");
    }
    None
}

fn run(data: &Dataset, config: &TrainConfig) -> Result<Summary, Error> {
    train(config, data, RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false })
}

/// Trains with each of `options` on a dataset, unless [`refusal`] says that a run refuses them.
fn all_train(data: &Dataset, options: impl IntoIterator<Item = String>) -> usize {
    let mut trained = 0;
    for options in options {
        let config = base(data, &options);
        match (run(data, &config), refusal(&config)) {
            (Ok(summary), None) => {
                assert!(summary.epochs.iter().all(|epoch| epoch.loss.is_finite()), "{options}");
                trained += 1;
            }
            (Err(error), Some(why)) => {
                let message = error.to_string();
                assert!(error.is_usage() && message.contains(why), "{options}: {message}");
            }
            (Ok(_), Some(why)) => panic!("{options}: trains, but is listed as refused: {why}"),
            (Err(error), None) => panic!("{options}: {error}"),
        }
    }
    trained
}

/// Names of all strategies that are no other spelling.
fn strategies() -> impl Iterator<Item = &'static str> {
    strategy::TABLE.iter().filter(|entry| entry.make.alias.is_none()).map(|entry| entry.name)
}

/// Every strategy with every reuse on every kind of device.
fn ways() -> Vec<String> {
    let mut ways = Vec::new();
    for strategy in strategies() {
        for reuse in &strategy::reuse::TABLE {
            for devices in ["cpu", "virtual:1", "virtual:2"] {
                ways.push(format!("strategy={strategy} reuse={} devices={devices}", reuse.name));
            }
        }
    }
    ways
}

#[test]
fn every_sampler_trains_with_every_strategy_and_reuse_on_every_device() {
    let [data, _] = &data().1;
    let ways = ways();
    let of = |sampler: &'static str| ways.iter().map(move |way| format!("sampler={sampler} {way}"));
    let trained = all_train(data, sampler::TABLE.iter().flat_map(|entry| of(entry.name)));
    // of five strategies, with three reuses on three kinds of device
    let refused_from_seeds = 6 + 4 * 2;
    let refused_of_subgraphs = 6 + 4 * 3;
    let subgraphs = sampler::TABLE.iter().filter(|entry| entry.make.draws_subgraphs()).count();
    let all = sampler::TABLE.iter().count();
    assert_eq!(trained, all * 45 - (all - subgraphs) * refused_from_seeds - subgraphs * refused_of_subgraphs);
}

#[test]
fn stored_aggregates_train_with_every_strategy_and_reuse_on_every_device() {
    let [data, _] = &data().1;
    let models = ["sage", "gcn", "gin"];
    let all = ways().into_iter().zip(models.into_iter().cycle());
    let all = all.map(|(way, model)| format!("bottom=exact model={model} {way}"));
    // as other samplers from seeds
    assert_eq!(all_train(data, all), 45 - (6 + 4 * 2));
    let samplers = sampler::TABLE.iter().map(|entry| format!("sampler={}", entry.name));
    let layers = layer::TABLE.iter().map(|entry| match entry.name {
        // two hops a layer
        name @ "mixhop" => format!("model={name} fanout=3,2,2,2"),
        name => format!("model={name}"),
    });
    let each = samplers.chain(layers).map(|axis| format!("bottom=exact reuse=layered {axis}"));
    assert_eq!(all_train(data, each), 2 + models.len());
}

/// Options of one axis each, which the strategies and reuses do not know.
fn axes() -> Vec<String> {
    let models = layer::TABLE.iter().map(|entry| match entry.name {
        // two hops a layer
        name @ "mixhop" => format!("model={name} fanout=3,2,2,2"),
        name => format!("model={name}"),
    });
    let orders = order::TABLE.iter().map(|entry| format!("order={}", entry.name));
    let metrics = hotness::TABLE.iter().map(|entry| match entry.name {
        name @ ("presc" | "presc-online" | "posterior") => format!("{name}:1"),
        name => name.to_string(),
    });
    let caches = metrics.chain(policy::TABLE.iter().map(|entry| entry.name.to_string()));
    let caches = caches.map(|name| format!("cache_ratio=0.2 cache={name}"));
    let placements = PLACEMENTS.iter().map(|entry| format!("cache_ratio=0.2 placement={}", entry.name));
    let others = [
        "host_budget=4000",
        "cache_ratio=0.2 feature_precision=bf16",
        "cache_ratio=0.2 feature_precision=f16 cache=lru",
        "sampler=weighted edge_weights=out-degree",
        "sampler=labor labor_iterations=1",
        "fused=on model=gcn hidden=40 cache_ratio=0.2 cache=degree",
    ];
    models.chain(orders).chain(caches).chain(placements).chain(others.map(String::from)).collect()
}

#[test]
fn models_orders_and_caches_do_not_depend_on_the_strategy() {
    let [data, _] = &data().1;
    let mut all = Vec::new();
    for strategy in strategies() {
        let reuse = if strategy == "historical" { "none" } else { "layered" };
        for way in [format!("strategy={strategy}"), format!("strategy={strategy} reuse={reuse}")] {
            all.extend(axes().into_iter().map(|axis| format!("{way} devices=virtual:2 {axis}")));
        }
    }
    for way in ["strategy=factored devices=virtual:3", "strategy=time-sharing devices=virtual:2 overlap=on"] {
        all.push(format!("{way} updates=asynchronous staleness=2 reuse=layered cache_ratio=0.2"));
        all.push(format!("{way} host_budget=4000 host_cache=lru cache_ratio=0.1 cache=fifo order=proximity"));
        all.push(format!("{way} bottom=exact cache_ratio=0.1 host_budget=4000"));
    }
    let count = all.len();
    assert_eq!(all_train(data, all), count);
}

#[test]
fn sparse_rows_train_with_every_strategy_behind_every_tier() {
    let [_, data] = &data().1;
    let mut all = Vec::new();
    for strategy in strategies() {
        for tiers in
            ["", "host_budget=2000", "devices=virtual:2 cache_ratio=0.2", "cache_ratio=0.2 cache=sieve"]
        {
            all.push(format!("strategy={strategy} sparse=on model=gcn {tiers}"));
        }
    }
    let count = all.len();
    assert_eq!(all_train(data, all), count);
}

#[test]
fn every_sampler_trains_with_every_strategy_over_ranks() {
    let [data, _] = &data().1;
    let temporary = tempfile::tempdir().unwrap();
    let dir = partitioned(data, temporary.path());
    let mut all = Vec::new();
    for entry in &sampler::TABLE {
        for strategy in strategies() {
            all.push(format!("sampler={} strategy={strategy} devices=virtual:1 cache_ratio=0.2", entry.name));
        }
        all.push(format!("sampler={} reuse=layered", entry.name));
    }
    for strategy in strategies() {
        all.push(format!("bottom=exact strategy={strategy} devices=virtual:1 cache_ratio=0.2"));
    }
    all.push("bottom=exact reuse=layered model=gcn cache_ratio=0.2 cache=presc-online:1".into());
    all.push("bottom=exact reuse=auto model=gin graph_stores=1".into());
    for axis in axes().into_iter().filter(|axis| !axis.contains("fused=on")) {
        all.push(format!("strategy=time-sharing devices=virtual:2 {axis}"));
    }
    for options in all {
        let config = TrainConfig { dataset: String::new(), epochs: 2, ..base(data, &options) };
        for summary in over_ranks(&config, &dir, 2) {
            assert!(summary.epochs.iter().all(|epoch| epoch.loss.is_finite()), "{options}");
        }
    }
}
