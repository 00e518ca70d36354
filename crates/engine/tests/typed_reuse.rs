//! Reuse of first-layer rows on several types: exact where no parameter changes, never older than
//! the bound, and the same bits for any threads and after interruptions.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_data::{
    TypedDataset,
    generate::{GenerateOptions, generate_typed},
};
use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig,
    observer::Quiet,
    record::{ReuseRecord, Summary},
    typed,
};

use super::set::{checked, with};

/// A dataset of four types, one of them without features, with 5 batches of training nodes.
fn data() -> TypedDataset {
    let options = GenerateOptions {
        nodes: 1200,
        classes: 4,
        dim: 8,
        p_in: 0.9,
        signal: 1.0,
        ..GenerateOptions::default()
    };
    generate_typed("typed", &options).unwrap()
}

/// A run with these options, written as in [`with`].
fn config(options: &str) -> TrainConfig {
    let base = TrainConfig {
        model: "rsage".into(),
        hidden: 8,
        batch_size: 64,
        epochs: 2,
        lr: 0.01,
        ..TrainConfig::default()
    };
    let mut config = with(with(base, "fanout=4,2 dropout=0.2"), options);
    config.derive_options(&[]).unwrap();
    config
}

fn train(config: &TrainConfig, data: &TypedDataset) -> Summary {
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    typed::train(config, data, context).unwrap()
}

fn reuse(summary: &Summary, epoch: usize) -> ReuseRecord {
    summary.epochs[epoch].reuse.unwrap()
}

/// The results of a run without those that depend on time.
fn results(summary: &Summary, run: Option<&Path>) -> String {
    let epochs = summary.epochs.iter().map(|of| {
        let reuse = of.reuse.map(|of| ReuseRecord { waited_seconds: 0.0, ..of });
        format!("{} {:?} {} {} {reuse:?}", of.loss, of.valid_score, of.sampled_edges, of.bottom_edges)
    });
    let last = run.map(|run| fs::read(run.join("checkpoint/optimizer.safetensors")).unwrap());
    let staleness = (summary.staleness.bound, summary.staleness.max);
    format!("{:?} {:?} {staleness:?} {last:?}", epochs.collect::<Vec<_>>(), summary.test)
}

#[test]
fn rows_of_all_types_are_reused_within_the_bound() {
    let data = data();
    let exact = train(&config("epochs=12"), &data);
    let summary = train(&config("epochs=12 reuse=layered super_batch=3"), &data);
    // super-batches of 3 and 2 batches
    assert_eq!((summary.staleness.bound, summary.staleness.max), (2, 2));
    assert!(summary.test.score.unwrap() > 0.8, "{:?}", summary.test);
    for epoch in 0..2 {
        let of = reuse(&summary, epoch);
        assert_eq!((of.super_batch, of.split), (2.5, 1.0));
        assert!(of.reused_rows >= 2 * of.made_rows && of.made_rows > 0, "{of:?}");
        assert!(of.reused_rows < of.asked_rows && of.made_edges > 0 && of.variation > 0.0, "{of:?}");
        let (all, left) = (&exact.epochs[epoch], &summary.epochs[epoch]);
        assert!(left.bottom_edges < all.bottom_edges);
        // the seeds and their blocks are those of a run that reuses no rows
        assert_eq!(left.sampled_edges - left.bottom_edges, all.sampled_edges - all.bottom_edges);
    }
    let few = train(&config("reuse=layered super_batch=3 hot_ratio=0.05 hot_metric=degree"), &data);
    assert!(reuse(&few, 0).hot_nodes <= 60.0 && reuse(&few, 0).reused_rows > 0);
    let half = train(&config("reuse=layered super_batch=3 hot_ratio=0.05 hot_split=0.5"), &data);
    assert!(reuse(&half, 0).hot_nodes <= 30.0);
    // without a number, the fewest batches that save most work
    let auto = train(&config("reuse=layered"), &data);
    assert!((1..4).contains(&auto.staleness.bound), "{:?}", auto.staleness);
}

#[test]
fn without_hot_nodes_or_later_batches_a_run_is_that_without_reuse() {
    let data = data();
    let exact = results(&train(&config(""), &data), None);
    for options in ["hot_ratio=0 super_batch=3", "super_batch=1", "hot_split=0 super_batch=3"] {
        let summary = train(&config(&format!("reuse=layered {options}")), &data);
        assert_eq!(exact, results(&summary, None), "{options}");
    }
}

#[test]
fn rows_of_unchanged_parameters_are_those_that_a_batch_computes() {
    let data = data();
    for model in ["rsage", "rgcn", "rgat"] {
        // an update by Adam of this rate moves weights that are 0, and changes no other
        let options = format!("model={model} fanout=-1,-1 dropout=0 lr=1e-30 epochs=1");
        let exact = train(&config(&options), &data);
        let summary = train(&config(&format!("{options} reuse=layered super_batch=5")), &data);
        let of = reuse(&summary, 0);
        assert!(of.reused_rows > of.made_rows && of.variation < 1e-20, "{model}: {of:?}");
        let [exact, reused] = [&exact, &summary].map(|summary| summary.epochs[0].loss);
        assert!((exact - reused).abs() < 1e-5 * exact.abs(), "{model}: {exact}, {reused}");
    }
}

/// Trains for a number of batches; returns true if the run was interrupted there.
fn interrupted(config: &TrainConfig, data: &TypedDataset, run: &Path, resume: bool, batches: usize) -> bool {
    let run = if resume { RunDir::reopen(run) } else { RunDir::create(run) }.unwrap();
    let done = AtomicUsize::new(0);
    let stop = || done.fetch_add(1, SeqCst) + 1 >= batches;
    let context = RunContext { run: Some(&run), resume, observer: &mut Quiet, stop: &stop };
    match typed::train(config, data, context) {
        Ok(_) => false,
        Err(Error::Interrupted { saved: true, .. }) => true,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn results_have_the_same_bits_for_any_threads_and_after_interruptions() {
    let (dir, data) = (tempfile::tempdir().unwrap(), data());
    for (i, own) in [
        // attention, dropout, norms and learned rows
        "model=simple-hgn norm=batch attention_dropout=0.2 super_batch=3",
        "model=rgcn input_dropout=0.1 sampler=labor super_batch=4 hot_ratio=0.2",
        // a super-batch ends when weights have changed too much
        "super_batch=4 max_variation=0.025",
    ]
    .into_iter()
    .enumerate()
    {
        let config = config(&format!("reuse=layered epochs=3 checkpoint_batches=2 {own}"));
        let whole = |name: &str, threads, config: &TrainConfig| {
            let run = RunDir::create(&dir.path().join(format!("{i} {name}"))).unwrap();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let context =
                RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
            let summary = pool.install(|| typed::train(config, &data, context)).unwrap();
            (results(&summary, Some(run.path())), summary)
        };
        let (one, summary) = whole("one", 1, &config);
        assert!(reuse(&summary, 0).reused_rows > 0, "{own}");
        if own.contains("max_variation") {
            // the first one ends after 3 batches, whose updates change weights by 0.01 each
            assert_eq!((summary.staleness.bound, summary.staleness.max), (3, 2), "{own}");
        }
        assert!(one == whole("three", 3, &config).0, "{own}: threads");
        let pipelined = TrainConfig { strategy: "pipelined".into(), ..config.clone() };
        assert!(one == whole("pipelined", 2, &pipelined).0, "{own}: pipelined");
        for (name, stops, config) in [
            ("often", &[1, 3, 2, 1, 4][..], &config),
            ("end", &[5], &config),
            ("ahead", &[2, 5, 3], &pipelined),
        ] {
            let path = dir.path().join(format!("{i} {name}"));
            for (j, &batches) in stops.iter().enumerate() {
                assert!(interrupted(config, &data, &path, j > 0, batches), "{own}: {name} {j}");
            }
            let run = RunDir::reopen(&path).unwrap();
            let context = RunContext { run: Some(&run), resume: true, observer: &mut Quiet, stop: &|| false };
            let summary = typed::train(config, &data, context).unwrap();
            assert!(one == results(&summary, Some(&path)), "{own}: {name}");
        }
    }
}

#[test]
fn reuse_that_several_types_do_not_have_is_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let data = data();
    data.save(dir.path()).unwrap();
    let base = TrainConfig {
        dataset: dir.path().to_str().unwrap().into(),
        batch_size: 64,
        ..TrainConfig::default()
    };
    let made = |options: &[(&str, &str)]| checked(base.clone(), options);
    let layered = ("reuse", "layered");
    made(&[layered]).unwrap();
    made(&[layered, ("super_batch", "3"), ("hot_ratio", "0.2"), ("hot_metric", "degree")]).unwrap();
    made(&[layered, ("hot_split", "0.5"), ("max_variation", "0.1"), ("hot_gradient", "none")]).unwrap();
    for (options, reason) in [
        (&[("reuse", "auto")][..], "it counts the work of layers of one type; use layered or none"),
        (&[layered, ("sampler", "saint-node")], "--sampler saint-node does not use it"),
        (&[layered, ("task", "paper:cites:paper")], "links of several types compute all rows"),
        (&[layered, ("devices", "virtual:2")], "--devices virtual:2: on several types the processor"),
        (&[layered, ("layers", "1")], "a model with one layer"),
        (&[layered, ("label_inputs", "0.5")], "each hides the labels of its own seeds"),
        (&[layered, ("hot_prefetch", "on")], "a learned row has no earlier versions"),
        (&[layered, ("hot_gradient", "kept")], "on several types reused rows are constants"),
        (&[layered, ("hot_rank", "4")], "on several types reused rows are constants without directions"),
        (&[layered, ("hot_split", "timed")], "--devices cpu has no devices"),
        (&[("hot_ratio", "0.2")], "--reuse none does not use it; use --reuse layered"),
    ] {
        let message = made(options).unwrap_err().to_string();
        assert!(message.contains(reason), "{options:?}: {message}");
    }
    // also if the options were not given one by one
    let run = |options: &str| -> Result<Summary> {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        typed::train(&config(&format!("reuse=layered {options}")), &data, context)
    };
    for (options, reason) in [
        ("sampler=hgt fanout=60,60", "--sampler hgt draws all blocks of a batch at once"),
        ("layers=1 fanout=4", "use --layers 2 or more"),
        ("hot_prefetch=on", "use --hot-prefetch off"),
    ] {
        let message = run(options).unwrap_err().to_string();
        assert!(message.starts_with("--reuse layered: ") && message.contains(reason), "{message}");
    }
}
