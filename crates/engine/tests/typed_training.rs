//! Runs on datasets of several types: every typed model and sampler trains, results depend neither
//! on threads nor on interruptions, and unusable options are refused by name.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_core::SparseRows;
use graphmill_data::{
    TypedDataset,
    generate::{GenerateOptions, generate_typed},
    typed::FeatureTable,
};
use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig,
    observer::{Observer, Quiet},
    options::{key, keys},
    record::Summary,
    saved::{Kind, SavedRun, Selection},
    strategy::{FactoredOptions, RoundOptions},
    typed::{self, SavedTypedRun},
};
use graphmill_loader::typed::TABLE as SAMPLERS;
use graphmill_nn::typed::TABLE as MODELS;

/// A small dataset in memory.
pub(super) fn data() -> TypedDataset {
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

/// The dataset in a directory, opened from there.
fn stored(dir: &Path) -> TypedDataset {
    data().save(dir).unwrap();
    graphmill_data::typed::open(dir, graphmill_data::typed::Verify::Once).unwrap()
}

/// Options of a small run on the dataset in `dir`, if any, with some given.
fn config(dir: Option<&Path>, options: &[(&str, &str)]) -> Result<TrainConfig> {
    let mut config = TrainConfig { hidden: 8, batch_size: 64, epochs: 2, lr: 0.01, ..TrainConfig::default() };
    config.dataset = dir.and_then(Path::to_str).unwrap_or_default().into();
    config.fanout = graphmill_loader::Fanout(vec![4, 2]);
    let given: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
    for (name, value) in options {
        key(name).unwrap().parse(&mut config, value).map_err(Error::usage)?;
    }
    config.derive_options(&given)?;
    config.check()?;
    config.refuse_unused(&given)?;
    Ok(config)
}

pub(super) fn in_memory(options: &[(&str, &str)]) -> TrainConfig {
    let mut config = TrainConfig { model: "rsage".into(), ..config(None, &[]).unwrap() };
    options.iter().for_each(|(name, value)| key(name).unwrap().parse(&mut config, value).unwrap());
    config.derive_options(&options.iter().map(|(name, _)| *name).collect::<Vec<_>>()).unwrap();
    config
}

pub(super) fn train(config: &TrainConfig, data: &TypedDataset) -> Result<Summary> {
    typed::train(config, data, RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false })
}

#[test]
fn every_typed_model_trains_with_every_typed_sampler() {
    let mut data = data();
    for edges in &mut data.edges {
        let values: Vec<f32> = (0..edges.num_edges() * 2).map(|i| (i * 7 % 13) as f32 / 6.0 - 1.0).collect();
        edges.features = Some(FeatureTable::dense(2, values));
    }
    for model in &MODELS {
        for sampler in SAMPLERS.iter().filter(|row| row.make.names_edges || !model.make.reads_edges) {
            let mut options = vec![("sampler", sampler.name)];
            if sampler.name == "weighted" {
                options.push(("replace", "true"));
            }
            if sampler.name == "hgt" {
                options.push(("fanout", "60,60"));
            }
            if sampler.name == "metapath-walk" {
                options.push(("num_walks", "20"));
            }
            if sampler.make.draws_subgraphs {
                options.extend([("batch_size", "100"), ("sample_coverage", "20"), ("lr", "0.02")]);
            }
            // the dataset in memory does not distinguish tasks on nodes from streams of events
            let head_layers = usize::from(!model.make.can_score);
            let config = TrainConfig { model: model.name.into(), head_layers, ..in_memory(&options) };
            let summary = train(&config, &data).unwrap();
            let [first, second] = [0, 1].map(|epoch: usize| summary.epochs[epoch].loss);
            assert!(
                second < first && first.is_finite(),
                "{} {}: {first}, {second}",
                model.name,
                sampler.name
            );
            assert!(summary.test.score.is_some() && summary.best.valid_score.is_some());
        }
    }
}

#[test]
fn draws_by_weight_are_noted_if_edges_have_weights() {
    struct Notes(Vec<String>);
    impl Observer for Notes {
        fn note(&mut self, message: &str) {
            self.0.push(message.into());
        }
    }
    let noted = |data: &TypedDataset, sampler: &str| {
        let mut notes = Notes(Vec::new());
        let context = RunContext { run: None, resume: false, observer: &mut notes, stop: &|| false };
        typed::train(&in_memory(&[("sampler", sampler), ("epochs", "1")]), data, context).unwrap();
        notes.0.iter().any(|note| note == "scores use all neighbours with equal weights")
    };
    let mut data = data();
    assert!(!noted(&data, "labor"));
    let count = data.edges[0].num_edges();
    data.edges[0].weights = Some((0..count).map(|e| 1.0 + (e % 3) as f32).collect::<Vec<_>>().into());
    assert!(noted(&data, "weighted") && noted(&data, "labor") && !noted(&data, "neighbor"));
}

#[test]
fn models_learn_classes_that_follow_from_relations() {
    let data = data();
    let summary = train(&in_memory(&[("epochs", "12"), ("dropout", "0.2")]), &data).unwrap();
    assert!(summary.test.score.unwrap() > 0.8, "{:?}", summary.test);
    let nodes: u64 = summary.dataset.node_types.iter().map(|node| node.count).sum();
    assert_eq!((nodes, summary.dataset.edge_types.len()), (1200, 8));
    let epoch = &summary.epochs[0];
    assert_eq!((epoch.node_types.len(), epoch.seeds), (4, 300));
    assert_eq!(epoch.edge_types.iter().map(|edges| edges.count).sum::<u64>(), epoch.sampled_edges);
    assert!(epoch.node_types.iter().all(|node| node.count > 0), "{:?}", epoch.node_types);
}

#[test]
fn sparse_and_integer_features_train_as_dense_floats_do() {
    let with = |table: fn(&[f32]) -> FeatureTable| {
        let mut data = data();
        // a third of the values, rounded
        let values: Vec<f32> =
            (0..600 * 8).map(|i| if i % 3 == 0 { (i * 7 % 11) as f32 } else { 0.0 }).collect();
        data.nodes[0].features = Some(table(&values));
        train(&in_memory(&[]), &data).unwrap()
    };
    let dense = with(|values| FeatureTable::dense(8, values.to_vec()));
    let integers =
        with(|values| FeatureTable::dense(8, values.iter().map(|&x| x as i64).collect::<Vec<_>>()));
    let sparse = with(|values| FeatureTable::sparse(SparseRows::from_dense(8, values).unwrap()));
    assert_eq!(results(&dense, None), results(&integers, None));
    for (dense, sparse) in dense.epochs.iter().zip(&sparse.epochs) {
        assert!((dense.loss - sparse.loss).abs() < 1e-4, "{} {}", dense.loss, sparse.loss);
        assert!(sparse.traffic.host.bytes < dense.traffic.host.bytes);
    }
}

/// The results of a run without those that depend on time.
fn results(summary: &Summary, run: Option<&Path>) -> String {
    let epochs: Vec<_> = summary
        .epochs
        .iter()
        .map(|of| {
            let counts = (of.seeds, of.sampled_edges, of.bottom_edges, &of.node_types, &of.edge_types);
            format!("{} {:?} {:?} {} {counts:?}", of.loss, of.valid_score, of.valid_loss, of.lr)
        })
        .collect();
    let best = run.map(|run| fs::read(run.join("best.safetensors")).unwrap());
    let last = run.map(|run| fs::read(run.join("checkpoint/optimizer.safetensors")).unwrap());
    format!("{epochs:?} {:?} {:?} {best:?} {last:?}", summary.best, summary.test)
}

/// Stops a run after a number of batches.
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
    for own in [
        &[("sampler", "labor"), ("precision", "bf16"), ("clip", "0.2")][..],
        &[("sampler", "metapath-walk"), ("metapath", "cites,writes,written-by")],
        // 5 subgraphs of the 1200 nodes
        &[("sampler", "saint-rw"), ("batch_size", "250"), ("sample_coverage", "4")],
    ] {
        results_have_the_same_bits_with(own);
    }
}

fn results_have_the_same_bits_with(own: &[(&str, &str)]) {
    let (dir, data) = (tempfile::tempdir().unwrap(), data());
    // attention, dropout, norms and learned rows; 5 batches per epoch
    let options = [
        ("model", "simple-hgn"),
        ("norm", "batch"),
        ("epochs", "3"),
        ("attention_dropout", "0.2"),
        ("schedule", "cosine"),
        ("weight_decay", "0.001"),
        ("checkpoint_batches", "2"),
    ];
    let options = [&options[..], own].concat();
    let config = in_memory(&options);
    let whole = |name: &str, threads, config: &TrainConfig| {
        let run = RunDir::create(&dir.path().join(name)).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
        let summary = pool.install(|| typed::train(config, &data, context)).unwrap();
        results(&summary, Some(run.path()))
    };
    let one = whole("one", 1, &config);
    assert!(one == whole("three", 3, &config), "threads");
    for (name, depth, allocation) in
        [("ahead", "0", "profiled"), ("narrow", "1", "2,1,1"), ("wide", "9", "3,2,1")]
    {
        let pipelined = in_memory(
            &[&options[..], &[("strategy", "pipelined"), ("queue_depth", depth), ("allocation", allocation)]]
                .concat(),
        );
        assert!(one == whole(name, 2, &pipelined), "pipelined: {name}");
    }

    // stopped in the middle of the first epoch, at its end, and in the middle of the second
    let pipelined = in_memory(&[&options[..], &[("strategy", "pipelined")]].concat());
    let factored = in_memory(&[&options[..], &[("strategy", "factored"), ("devices", "virtual:3")]].concat());
    assert!(one == whole("factored", 2, &factored), "factored");
    // the same updates by two devices that train, which take turns or train at the same time
    let two = |more: &[(&str, &str)]| {
        let sharing = [("strategy", "time-sharing"), ("devices", "virtual:2")];
        in_memory(&[&options[..], &sharing, more].concat())
    };
    assert!(one == whole("two devices", 2, &two(&[("batches_per_update", "1")])), "two devices");
    let together = two(&[]);
    let rounds = whole("rounds", 1, &together);
    assert!(one != rounds, "an update has the gradients of two batches");
    for threads in [2, 3] {
        assert!(rounds == whole(&format!("rounds {threads}"), threads, &together), "{threads} threads");
    }
    for (name, stops, config, whole) in [
        ("middle", &[2][..], &config, &one),
        ("end", &[5], &config, &one),
        ("often", &[3, 4, 1, 2], &config, &one),
        ("often ahead", &[3, 4, 1, 2], &pipelined, &one),
        ("often factored", &[3, 4, 1, 2], &factored, &one),
        // an epoch has rounds of 2, 2 and 1 batches
        ("often together", &[2, 1, 2, 1], &together, &rounds),
    ] {
        let run = dir.path().join(name);
        for (i, &batches) in stops.iter().enumerate() {
            assert!(interrupted(config, &data, &run, i > 0, batches), "{name} {i}");
        }
        let reopened = RunDir::reopen(&run).unwrap();
        let context =
            RunContext { run: Some(&reopened), resume: true, observer: &mut Quiet, stop: &|| false };
        let summary = typed::train(config, &data, context).unwrap();
        assert!(*whole == results(&summary, Some(&run)), "{name}");
    }
}

/// An observer that fails after some batches, as a full disk would.
struct Failing(usize);

impl Observer for Failing {
    fn batch(&mut self, _: &graphmill_engine::observer::Progress) -> Result<()> {
        self.0 -= 1;
        if self.0 == 0 { Err(Error::usage("the disk is full")) } else { Ok(()) }
    }
}

#[test]
fn a_killed_run_continues_from_its_last_checkpoint_to_the_same_bits() {
    let (dir, data) = (tempfile::tempdir().unwrap(), data());
    let config = in_memory(&[("model", "rgcn"), ("bases", "2"), ("checkpoint_batches", "2")]);
    let summary = |config: &TrainConfig, name: &str, resume| {
        let path = dir.path().join(name);
        let run = if resume { RunDir::reopen(&path) } else { RunDir::create(&path) }.unwrap();
        let context = RunContext { run: Some(&run), resume, observer: &mut Quiet, stop: &|| false };
        results(&typed::train(config, &data, context).unwrap(), Some(&path))
    };
    let whole = summary(&config, "whole", false);
    let pipelined = TrainConfig { strategy: "pipelined".into(), ..config.clone() };
    let together = in_memory(&[
        ("model", "rgcn"),
        ("bases", "2"),
        ("checkpoint_batches", "2"),
        ("strategy", "time-sharing"),
        ("devices", "virtual:2"),
    ]);
    let in_rounds = summary(&together, "in rounds", false);
    // after batch 4 of 5, whose checkpoint is that of batch 2
    for (name, config, whole, updates) in [
        ("killed", &config, &whole, 4),
        ("killed ahead", &pipelined, &whole, 4),
        ("killed together", &together, &in_rounds, 2),
    ] {
        let path = dir.path().join(name);
        let run = RunDir::create(&path).unwrap();
        let mut failing = Failing(updates);
        let context = RunContext { run: Some(&run), resume: false, observer: &mut failing, stop: &|| false };
        typed::train(config, &data, context).unwrap_err();
        drop(run);
        assert!(*whole == summary(config, name, true), "{name}");
    }
}

#[test]
fn saved_runs_score_and_predict_as_the_run_did() {
    for (sampler, precision) in [("neighbor", "bf16"), ("metapath-walk", "tf32"), ("saint-node", "f32")] {
        saved_runs_with_score_and_predict_as_the_run_did(sampler, precision);
    }
}

fn saved_runs_with_score_and_predict_as_the_run_did(sampler: &str, precision: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (shop, path) = (dir.path().join("shop"), dir.path().join("run"));
    let data = stored(&shop);
    let options = [("model", "hgt"), ("heads", "2"), ("sampler", sampler), ("precision", precision)];
    let config = config(Some(&shop), &options).unwrap();
    assert_eq!((config.head_layers, config.layers), (1, 2), "derived for hgt");
    let summary = {
        let run = RunDir::create(&path).unwrap();
        let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
        typed::train(&config, &data, context).unwrap()
    };
    let run = SavedRun::open(&path, false).unwrap();
    let saved = SavedTypedRun::of(&run).unwrap();
    let own = saved.dataset(None).unwrap();
    let scores = saved.scores(&own, &Quiet).unwrap();
    assert_eq!((scores.test, scores.same_dataset), (summary.test.score, Some(true)));
    assert_eq!(scores.parts[1].scores["accuracy"], summary.best.valid_score);

    let predict = |selection, kind, name: &str| {
        let out = dir.path().join(name);
        let written = saved.predict(&own, selection, false, kind, &out, &Quiet).unwrap();
        (written.rows, written.cols, fs::read_to_string(out).unwrap())
    };
    let (rows, _, all) = predict(Selection::All, Kind::Classes, "all.csv");
    assert_eq!(rows, 600);
    assert!(all.starts_with("key,class\n1000000,area-"), "{all}");
    let list = dir.path().join("keys.txt");
    fs::write(&list, "1000070\n1000000\n1000070\n").unwrap();
    let (_, _, some) = predict(Selection::Keys(&list), Kind::Classes, "some.csv");
    let line = |text: &str, key: &str| text.lines().find(|line| line.starts_with(key)).unwrap().to_string();
    assert_eq!(
        some.lines().skip(1).collect::<Vec<_>>(),
        [line(&all, "1000070"), line(&all, "1000000"), line(&all, "1000070")]
    );
    let (_, cols, probabilities) = predict(Selection::Keys(&list), Kind::Probabilities, "p.csv");
    assert_eq!(cols, 4);
    assert!(probabilities.starts_with("key,probability_area-0,"), "{probabilities}");
    assert_eq!(predict(Selection::All, Kind::Embeddings, "e.csv").1, 8);

    // learned rows belong to the nodes of the run's dataset
    let mut options =
        GenerateOptions { nodes: 1200, classes: 4, dim: 8, seed: 5, ..GenerateOptions::default() };
    let other = generate_typed("typed", &options).unwrap();
    let message = saved.scores(&other, &Quiet).unwrap_err().to_string();
    assert!(message.contains("type 'topic' has no features, so the model has a learned row"), "{message}");
    options.dim = 9;
    let message = saved.scores(&generate_typed("typed", &options).unwrap(), &Quiet).unwrap_err().to_string();
    assert!(message.contains("type 'paper' has 9 features, but the model was trained on 8"), "{message}");
}

#[test]
fn options_are_derived_written_and_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let shop = dir.path().join("shop");
    stored(&shop);
    let made = |options: &[(&str, &str)]| config(Some(&shop), options);
    assert_eq!(made(&[]).unwrap().model, "rsage");
    let by_name = made(&[("fanout", "5,5;cites=2,0")]).unwrap();
    assert_eq!((by_name.fanout.0.clone(), by_name.fanout_by_name.as_str()), (vec![5, 5], "cites=2,0"));
    // a file of the run sets all options, and repeats it
    let file = dir.path().join("config.toml");
    fs::write(&file, by_name.to_toml()).unwrap();
    let mut again = TrainConfig::default();
    let given = again.read_file(&file).unwrap();
    assert_eq!(again, by_name);
    again.refuse_unused(&again.beyond_defaults(&given)).unwrap();

    let refused = |options: &[(&str, &str)]| made(options).unwrap_err().to_string();
    for (name, value) in [
        ("strategy", "factored"),
        ("reuse", "auto"),
        ("order", "proximity"),
        ("max_batches", "3"),
        ("fused", "off"),
        ("sparse", "off"),
        ("init", "fan-in"),
        ("residual", "linear"),
        ("input_layer", "true"),
        ("graph_stores", "1"),
        ("inductive", "true"),
        ("hops", "3"),
        ("hot_ratio", "0.5"),
    ] {
        let message = refused(&[(name, value)]);
        let flag = format!("--{} ", name.replace('_', "-"));
        assert!(message.starts_with(&flag) && message.contains("leave it out"), "{message}");
    }
    let message = refused(&[("strategy", "historical")]);
    let all = "use --strategy sequential, pipelined, factored or time-sharing, or leave it out";
    assert!(message.contains(all), "{message}");
    let on_devices =
        |strategy, devices, name, value| made(&[("strategy", strategy), ("devices", devices), (name, value)]);
    let made_on = on_devices("factored", "virtual:3", "queue_depth", "4").unwrap();
    assert_eq!(made_on.own.get::<FactoredOptions>().num_samplers, 2, "one device trains");
    assert_eq!(made_on.own.get::<RoundOptions>().batches_per_update, 1);
    let made_on = on_devices("factored", "virtual:3", "num_samplers", "1").unwrap();
    assert_eq!(made_on.own.get::<RoundOptions>().batches_per_update, 2, "two devices train");
    for (strategy, devices, name, value) in [
        ("time-sharing", "virtual:1", "overlap", "on"),
        ("time-sharing", "virtual:2", "overlap", "on"),
        ("time-sharing", "virtual:2", "placement", "replicate:0.5"),
        ("time-sharing", "virtual:2", "peer_link", "50G,2us"),
        ("factored", "virtual:2", "batches_per_update", "2"),
        ("factored", "virtual:2", "updates", "asynchronous"),
    ] {
        on_devices(strategy, devices, name, value).unwrap();
    }
    for (strategy, devices, name, value, reason) in [
        ("factored", "virtual:2", "switching", "off", "a device that samples does not train"),
        ("sequential", "cpu", "updates", "asynchronous", "use --strategy factored or time-sharing"),
        ("time-sharing", "virtual:2", "staleness", "2", "use --updates asynchronous"),
        ("time-sharing", "virtual:2", "all_reduce", "peer", "no gradients of several NVIDIA devices"),
        ("factored", "virtual:2", "placement", "replicate", "one device trains"),
        ("sequential", "virtual:2", "batches_per_update", "2", "use --strategy factored or time-sharing"),
    ] {
        let message = on_devices(strategy, devices, name, value).unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
    }
    let message = refused(&[("allocation", "naive")]);
    assert!(message.contains("--strategy sequential does not use it; use --strategy pipelined"), "{message}");
    made(&[("strategy", "pipelined"), ("allocation", "1,1,1"), ("queue_depth", "3")]).unwrap();
    assert!(refused(&[("model", "gat")]).contains("use --model rsage, rgcn, rgat, hgt, simple-hgn, gine"));
    let message = refused(&[("bases", "2")]);
    assert_eq!(message, "--bases 2: --model rsage does not use it; use --model rgcn, or leave it out");
    assert!(
        refused(&[("max_degree", "5")]).contains("--sampler neighbor does not use it; use --sampler hgt")
    );
    made(&[("sampler", "hgt"), ("max_degree", "5")]).unwrap();
    made(&[("sampler", "metapath-walk"), ("metapath", "cites"), ("num_walks", "9")]).unwrap();
    assert!(refused(&[("metapath", "cites")]).contains("use --sampler metapath-walk"));
    made(&[("sampler", "saint-rw"), ("walk_length", "3"), ("layers", "3"), ("estimator", "unbiased")])
        .unwrap();
    let saint = |option| refused(&[("sampler", "saint-node"), option]);
    assert!(saint(("fanout", "4,4")).contains("--layers sets the number of layers"));
    assert!(saint(("order", "sequential")).contains("use --sampler neighbor, full"));
    assert!(saint(("inductive", "true")).contains("nodes of other types than the task's do not train"));
    assert!(saint(("walk_length", "3")).contains("use --sampler metapath-walk or saint-rw"));
    made(&[("optimizer", "sgd"), ("momentum", "0.5")]).unwrap();

    // on one type
    let demo = |options: &[(&str, &str)]| config(None, options).unwrap_err().to_string();
    assert!(demo(&[("model", "rgcn")]).contains("it is for datasets of several node types"));
    assert!(demo(&[("sampler", "hgt")]).contains("use --sampler neighbor"));
    assert!(demo(&[("task", "x")]).contains("only datasets of several node types"));
    assert!(demo(&[("fanout", "4,4;cites=1,1")]).contains("use --fanout 4,4"));
    assert!(demo(&[("fanout", "4,4;cites")]).contains("NAME=NUMBERS"));
}

#[test]
fn wrong_fanouts_and_tasks_are_errors_of_the_run() {
    let data = data();
    let error = |options: &[(&str, &str)]| train(&in_memory(options), &data).unwrap_err().to_string();
    let message = error(&[("fanout", "4,4;likes=1,1")]);
    assert!(message.starts_with("--fanout 4,4;likes=1,1: "), "{message}");
    assert!(message.contains("known: author:writes:paper"), "{message}");
    assert!(error(&[("fanout", "4,4;cites=1")]).contains("has 1 hops, but the others have 2"));
    assert!(error(&[("sampler", "hgt"), ("fanout", "4,4;cites=1,1")]).contains("node type"));
    assert!(
        error(&[("sampler", "weighted")]).contains("--sampler weighted: no relation stores edge weights")
    );
    assert!(error(&[("sampler", "random-walk")]).contains("unknown typed sampler 'random-walk'"));
    assert_eq!(error(&[("task", "price")]), "--task price: unknown task 'price'; known: area");
    let message = error(&[("model", "hgt"), ("heads", "3")]);
    assert!(message.starts_with("--heads 3: "), "{message}");
}

/// Collects notes.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn note(&mut self, message: &str) {
        self.0.push(message.to_string());
    }
}

#[test]
fn unreached_types_and_learned_rows_are_reported_once() {
    let (data, mut notes) = (data(), Notes::default());
    let config = in_memory(&[("fanout", "4,2;employs=0,0;about=0,0;covers=0,0")]);
    let context = RunContext { run: None, resume: false, observer: &mut notes, stop: &|| false };
    let summary = typed::train(&config, &data, context).unwrap();
    let of = |part: &str| notes.0.iter().filter(|note| note.contains(part)).count();
    assert_eq!(of("leads from nodes of type topic, institution to a training node"), 1, "{:?}", notes.0);
    assert_eq!(of("nodes of type topic have no features: a learned row for each"), 1, "{:?}", notes.0);
    let counts = &summary.epochs[1].node_types;
    assert_eq!(counts.iter().filter(|node| node.count == 0).count(), 2, "{counts:?}");
}

#[test]
fn every_general_option_is_either_read_or_listed_as_unread() {
    // each option of the processor with a valid value is accepted or refused by name
    let dir = tempfile::tempdir().unwrap();
    let shop = dir.path().join("shop");
    stored(&shop);
    for key in keys().iter().filter(|key| key.name != "dataset") {
        let base = config(Some(&shop), &[]).unwrap();
        let outcome = base.refuse_unused(&[key.name]).map_err(|error| error.to_string());
        assert!(outcome.is_ok() || outcome.unwrap_err().starts_with(&format!("--{}", key.flag())));
    }
}
