//! Labels as inputs (`--label-inputs`): no loss and no score depends on the label of its own node,
//! and predictions read the labels of the training nodes alone.

use std::{fs, path::Path, sync::OnceLock};

use graphmill_core::{Features, Labels, NodeId, progress};
use graphmill_data::{
    generate::{GenerateOptions, generate},
    npy,
};
use graphmill_engine::{
    Dataset, Error, RunContext, RunDir, TrainConfig, build, fit, hotness,
    observer::Quiet,
    options::names,
    predictor::{Neighborhood, Predictor},
    saved::{Kind, SavedRun},
    train,
};
use graphmill_loader::{Extracted, MiniBatch, Workspace, feature::Host};
use proptest::prelude::*;

use crate::set::with;

const NODES: usize = 400;
const CLASSES: usize = 3;

/// Graph whose neighbours share classes, with features that say nothing.
fn data() -> &'static Dataset {
    static DATA: OnceLock<Dataset> = OnceLock::new();
    DATA.get_or_init(|| {
        let options = GenerateOptions {
            nodes: NODES,
            degree: Some(8.0),
            classes: CLASSES,
            dim: 4,
            seed: 5,
            p_in: 0.9,
            ..GenerateOptions::default()
        };
        let mut data = generate("sbm", &options).unwrap();
        let noise = |i: usize| ((i * 7919 % 1009) as f32 - 504.0) / 504.0;
        data.features = Features::f32(4, (0..4 * NODES).map(noise).collect::<Vec<f32>>());
        data
    })
}

fn config(options: &str) -> TrainConfig {
    let base = TrainConfig { seed: 3, dropout: 0.0, ..TrainConfig::default() };
    let base = with(base, "batch_size=32 fanout=4,3 hidden=8 epochs=2 lr=0.01 label_inputs=0.7");
    with(base, options)
}

fn classes(data: &Dataset) -> Vec<i32> {
    let Labels::Single { class, .. } = &data.labels else { panic!("one class per node") };
    class.to_vec()
}

fn with_classes(data: &Dataset, class: Vec<i32>) -> Dataset {
    Dataset { labels: Labels::Single { class: class.into(), classes: CLASSES }, ..data.clone() }
}

/// A batch of a run on `data` with its input rows.
fn batch(config: &TrainConfig, data: &Dataset, epoch: u64, number: u64) -> Extracted {
    let (sampler, order) = (build::sampler(config, data).unwrap(), build::order(config, data).unwrap());
    let rows = Host::new(&data.features);
    let loader = hotness::loader(config, data, &*sampler, &*order, &rows).unwrap();
    let (mut nodes, mut workspace) = (Vec::new(), Workspace::new(data.num_nodes()));
    loader.order(epoch, &mut nodes);
    let drawn = loader.draw(&nodes, epoch, number, &mut workspace, MiniBatch::default()).unwrap();
    loader.extract(drawn).unwrap().into_batch()
}

/// Nodes of a batch whose labels its input rows have.
fn shown(data: &Dataset, batch: &Extracted) -> Vec<NodeId> {
    let (class, width) = (classes(data), 4 + CLASSES);
    assert_eq!(batch.features.num_cols(), width);
    let rows = batch.features.view().host().chunks_exact(width);
    let mut shown = Vec::new();
    for (&v, row) in batch.sampled.input_nodes.iter().zip(rows) {
        let Features { dim, data: graphmill_core::features::FeatureData::F32(all) } = &data.features else {
            panic!("dense features")
        };
        assert_eq!(row[..4], all[v as usize * dim..][..4], "the features come first");
        match row[4..].iter().position(|&x| x != 0.0) {
            None => {}
            Some(c) => {
                assert_eq!((c as i32, row[4..].iter().sum::<f32>()), (class[v as usize], 1.0));
                assert!(data.split.train.contains(&v), "only training labels are known");
                shown.push(v);
            }
        }
    }
    shown
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_input_row_of_a_batch_depends_on_the_labels_of_its_seeds(
        epoch in 0u64..4, number in 0u64..3, share in 0.1f64..1.0, sampler in 0usize..3, shift in 1i32..3,
    ) {
        let sampler = ["neighbor", "full", "labor"][sampler];
        let config = config(&format!("label_inputs={share} sampler={sampler}"));
        let one = batch(&config, data(), epoch, number);
        let seeds = &one.sampled.seeds.nodes;
        prop_assert_eq!(&one.sampled.input_nodes[..seeds.len()], &seeds[..]);
        prop_assert!(shown(data(), &one).iter().all(|v| !seeds.contains(v)));
        let mut class = classes(data());
        seeds.iter().for_each(|&v| class[v as usize] = (class[v as usize] + shift) % CLASSES as i32);
        let other = batch(&config, &with_classes(data(), class), epoch, number);
        // the blocks and rows determine the logits
        prop_assert_eq!(&one.sampled.input_nodes, &other.sampled.input_nodes);
        prop_assert_eq!(one.features.view().host(), other.features.view().host());
    }
}

#[test]
fn a_batch_shows_the_share_of_the_other_training_labels() {
    for (share, least, most) in [(1.0, 1.0, 1.0), (0.5, 0.4, 0.6)] {
        let config = config(&format!("label_inputs={share} sampler=full"));
        let one = batch(&config, data(), 0, 0);
        let others = one.sampled.input_nodes[one.sampled.seeds.nodes.len()..].iter();
        let known = others.filter(|v| data().split.train.contains(v)).count();
        let found = shown(data(), &one);
        let found_share = found.len() as f64 / known as f64;
        assert!((least..=most).contains(&found_share), "{share}: {} of {known}", found.len());
        let again = shown(data(), &batch(&config, data(), 0, 0));
        assert_eq!(found, again);
        let later = shown(data(), &batch(&config, data(), 1, 0));
        assert_ne!(found, later, "draws depend on the epoch");
    }
}

#[test]
fn labels_of_neighbours_are_learned_and_scores_read_no_label_of_their_nodes() {
    let plain = fit(&config("label_inputs=0 epochs=40"), data()).unwrap();
    let labelled = fit(&config("label_inputs=0.8 epochs=40"), data()).unwrap();
    let score = |run: &graphmill_engine::TrainedModel| run.summary().test.score.unwrap();
    assert!(score(&labelled) > score(&plain) + 0.1, "{} {}", score(&labelled), score(&plain));
    // other labels of nodes that do not train change no prediction, those of training nodes do
    let all: Vec<NodeId> = (0..NODES as NodeId).collect();
    let logits = |data: &Dataset| labelled.logits(data, &all).unwrap().view().host().to_vec();
    let (own, mut class) = (logits(data()), classes(data()));
    let split = &data().split;
    split.valid.iter().chain(split.test.iter()).for_each(|&v| class[v as usize] = 0);
    assert_eq!(logits(&with_classes(data(), class.clone())), own);
    split.train.iter().for_each(|&v| class[v as usize] = 0);
    assert_ne!(logits(&with_classes(data(), class)), own);
}

/// A run in a directory on `threads` threads.
fn run_in(dir: &Path, threads: usize, config: &TrainConfig, data: &Dataset) -> SavedRun {
    let run = RunDir::create(dir).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    pool.install(|| train(config, data, context)).unwrap();
    SavedRun::open(dir, false).unwrap()
}

/// Probabilities that `predict` writes for all nodes.
fn probabilities(run: &SavedRun, data: &Dataset, dir: &Path) -> Vec<f32> {
    let out = dir.join("probabilities.npy");
    run.predict(data, None, false, Kind::Probabilities, &out, &progress::Quiet).unwrap();
    npy::open(&out).unwrap().read_as_f32().unwrap()
}

#[test]
fn runs_have_the_same_bits_for_any_threads_strategy_tiers_and_after_a_resume() {
    let dir = tempfile::tempdir().unwrap();
    data().save(dir.path().join("data")).unwrap();
    let stored = Dataset::open(dir.path().join("data")).unwrap();
    let place = format!("dataset={}", dir.path().join("data").display());
    let best = |name: &str| fs::read(dir.path().join(name).join("best.safetensors")).unwrap();
    run_in(&dir.path().join("one"), 1, &config(&place), &stored);
    for (name, threads, options) in [
        ("three", 3, ""),
        ("pipelined", 2, "strategy=pipelined"),
        ("cached", 2, "cache_ratio=0.2 cache=degree"),
        ("disk", 1, "host_budget=3000"),
    ] {
        let config = with(config(&place), options);
        run_in(&dir.path().join(name), threads, &config, &stored);
        assert_eq!(best(name), best("one"), "{name}");
    }
    // stopped in the second epoch
    let (path, calls) = (dir.path().join("parts"), std::sync::atomic::AtomicUsize::new(0));
    let run = RunDir::create(&path).unwrap();
    let batches = data().split.train.len().div_ceil(32);
    let stop = || calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > batches;
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &stop };
    let outcome = train(&config(&place), &stored, context);
    assert!(matches!(outcome, Err(Error::Interrupted { saved: true, .. })), "{outcome:?}");
    drop(run);
    let run = RunDir::reopen(&path).unwrap();
    let context = RunContext { run: Some(&run), resume: true, observer: &mut Quiet, stop: &|| false };
    train(&config(&place), &stored, context).unwrap();
    assert_eq!(best("parts"), best("one"));
}

#[test]
fn saved_runs_predict_by_training_labels_and_score_training_nodes_without_any() {
    for options in ["", "model=gat", "model=gcn input_layer=true", "layers=1 fanout=4"] {
        let dir = tempfile::tempdir().unwrap();
        let run = run_in(&dir.path().join("run"), 2, &config(options), data());
        let expected = probabilities(&run, data(), dir.path());
        let scores = run.scores(data(), &progress::Quiet).unwrap();
        let accuracy = |rows: &[f32], nodes: &[NodeId]| {
            let class = classes(data());
            let is_right = |&&v: &&NodeId| {
                let row = &rows[v as usize * CLASSES..][..CLASSES];
                row.iter().all(|x| *x <= row[class[v as usize] as usize])
            };
            nodes.iter().filter(is_right).count() as f64 / nodes.len() as f64
        };
        let of_part = |part: usize| scores.parts[part].scores["accuracy"].unwrap();
        assert!((of_part(2) - accuracy(&expected, &data().split.test)).abs() < 1e-9, "{options}");
        let mut unlabelled = data().clone();
        unlabelled.split.train = Vec::new().into();
        let blind = probabilities(&run, &unlabelled, dir.path());
        assert!((of_part(0) - accuracy(&blind, &data().split.train)).abs() < 1e-9, "{options}");

        let mut predictor = Predictor::new(run, data().clone()).unwrap();
        let all: Vec<NodeId> = (0..NODES as NodeId).collect();
        for _ in 0..2 {
            assert_eq!(predictor.predict(&all, Neighborhood::All).unwrap().scores, expected, "{options}");
            predictor.cache_embeddings(&progress::Quiet).unwrap();
        }
    }
}

#[cfg(feature = "tables")]
#[test]
fn new_nodes_have_no_label_and_read_those_of_known_training_nodes() {
    use graphmill_data::DatasetBuilder;
    use graphmill_engine::{predictor::NewNodes, saved::on::NewFeatures};

    let dir = tempfile::tempdir().unwrap();
    let run = run_in(&dir.path().join("run"), 2, &config(""), data());
    let near: Vec<NodeId> = data().split.train[..6].to_vec();
    let (id, row) = (NODES as NodeId, [0.3f32, -0.2, 0.9, 0.1]);
    // the dataset with the new node in it
    let known = (0..id).flat_map(|v| data().graph.in_neighbors(v).iter().map(move |&u| (u, v)));
    let edges: Vec<(NodeId, NodeId)> = known.chain(near.iter().map(|&u| (u, id))).collect();
    let Features { data: graphmill_core::features::FeatureData::F32(rows), .. } = &data().features else {
        panic!("dense features")
    };
    let class = [classes(data()), vec![-1]].concat();
    let whole = DatasetBuilder::new(NODES + 1)
        .edges(edges)
        .features(4, [rows.to_vec(), row.to_vec()].concat())
        .classes(class)
        .split(data().split.train.to_vec(), [], [])
        .build()
        .unwrap();
    let expected = probabilities(&run, &whole, dir.path());
    let predictor = Predictor::new(run, data().clone()).unwrap();
    let edges = near.iter().map(|&u| (u, id, 1.0)).collect();
    let new = NewNodes::Features(NewFeatures { rows: row.to_vec(), edges, undirected: false });
    let found = predictor.predict_new(&new, Neighborhood::All).unwrap().answers.scores;
    assert_eq!(found, expected[NODES * CLASSES..]);
}

#[test]
fn runs_without_seeds_to_hide_are_refused_with_a_remedy() {
    for (options, message) in [
        ("batch_size=0", "one batch has all"),
        ("batch_size=100000", "set --batch-size to"),
        ("sampler=saint-node", "--sampler saint-node does not use it"),
        ("reuse=layered", "each hides the labels of its own seeds"),
        ("strategy=historical", "each hides the labels of its own seeds"),
        ("bottom=exact fanout=4,-1", "use --bottom sampled"),
        ("fused=on", "use --fused auto"),
        ("sparse=on", "use --sparse auto"),
        ("devices=virtual:2", "use --devices cpu"),
        ("task=link", "have no classes"),
    ] {
        let config = config(options);
        let mut given = names();
        given.retain(|name| *name == "label_inputs");
        let refused = config.refuse_unused(&given).and_then(|()| {
            let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
            train(&config, data(), context).map(drop)
        });
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("--label-inputs 0.7: ") && error.contains(message), "{options}: {error}");
    }
}
