//! Labels as inputs on several types: neighbours' labels are learned, predictions read training
//! labels alone, results depend on no thread, and runs without labels to show are refused.

use std::{fs, path::Path};

use graphmill_core::{Labels, NodeId, progress};
use graphmill_data::{
    TypedBuilder, TypedDataset,
    generate::{GenerateOptions, generate},
    npy,
    typed::{self, Targets, Verify},
};
use graphmill_engine::{
    Result, RunContext, RunDir, TrainConfig,
    observer::Quiet,
    predictor::{Neighborhood, Predictor},
    record::Summary,
    saved::{Kind, SavedRun, Selection},
    typed::{SavedTypedRun, train},
};

use super::set::checked;

const PAPERS: usize = 400;
const CLASSES: usize = 3;

/// Papers that cite papers of their class, with features that say nothing, and topics; papers have
/// no features if `bare`.
fn papers(dir: &Path, bare: bool) -> TypedDataset {
    let options = GenerateOptions {
        nodes: PAPERS,
        degree: Some(8.0),
        classes: CLASSES,
        dim: 4,
        seed: 5,
        p_in: 0.9,
        ..GenerateOptions::default()
    };
    let data = generate("sbm", &options).unwrap();
    let Labels::Single { class, .. } = &data.labels else { panic!("one class per node") };
    let noise = |i: usize| ((i * 7919 % 1009) as f32 - 504.0) / 504.0;
    let mut builder = TypedBuilder::new("papers");
    let of_papers = builder.node_type("paper", PAPERS);
    if !bare {
        of_papers.features(4, (0..4 * PAPERS).map(noise).collect::<Vec<f32>>());
    }
    builder.node_type("topic", 10).features(1, (0..10).map(noise).collect::<Vec<f32>>());
    let (indptr, indices) = (data.graph.indptr().to_vec(), data.graph.indices().to_vec());
    builder.edge_type("paper", "cites", "paper").csc(indptr, indices);
    let (all, topics): (Vec<NodeId>, Vec<NodeId>) = (0..PAPERS as NodeId).map(|v| (v, v % 10)).unzip();
    builder.edge_type("paper", "has", "topic").edges(all, topics).with_reverse("of");
    let [train, valid, test] = data.split.parts().map(|(_, nodes)| nodes.to_vec());
    builder.task("kind").on_nodes("paper").classes(CLASSES, class.to_vec()).split(train, valid, test);
    builder.build().unwrap().save(dir).unwrap();
    typed::open(dir, Verify::Once).unwrap()
}

fn config(data: &TypedDataset, options: &[(&str, &str)]) -> Result<TrainConfig> {
    let dataset = data.directory.as_deref().and_then(Path::to_str).unwrap().to_string();
    let config =
        TrainConfig { dataset, seed: 3, dropout: 0.0, lr: 0.01, epochs: 2, ..TrainConfig::default() };
    let base = [
        ("model", "rsage"),
        ("batch_size", "32"),
        ("fanout", "4,3"),
        ("hidden", "8"),
        ("label_inputs", "0.8"),
    ];
    checked(config, &[&base, options].concat())
}

/// Summary of a run in `dir` on `threads` threads, and the run.
fn run_in(dir: &Path, threads: usize, data: &TypedDataset, options: &[(&str, &str)]) -> (Summary, SavedRun) {
    let (config, run) = (config(data, options).unwrap(), RunDir::create(dir).unwrap());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    let summary = pool.install(|| train(&config, data, context)).unwrap();
    (summary, SavedRun::open(dir, false).unwrap())
}

/// Probabilities of all papers.
fn probabilities(run: &SavedRun, data: &TypedDataset, dir: &Path) -> Vec<f32> {
    let (run, out) = (SavedTypedRun::of(run).unwrap(), dir.join("probabilities.npy"));
    run.predict(data, Selection::All, false, Kind::Probabilities, &out, &progress::Quiet).unwrap();
    npy::open(&out).unwrap().read_as_f32().unwrap()
}

fn classes(data: &TypedDataset) -> Vec<i32> {
    let Targets::Classes(Labels::Single { class, .. }) = &data.tasks[0].targets else {
        panic!("one class per node")
    };
    class.to_vec()
}

/// The dataset with the class 0 for these papers.
fn changed(data: &TypedDataset, papers: &[NodeId]) -> TypedDataset {
    let (mut other, mut class) = (data.clone(), classes(data));
    papers.iter().for_each(|&v| class[v as usize] = 0);
    other.tasks[0].targets = Targets::Classes(Labels::Single { class: class.into(), classes: CLASSES });
    other
}

#[test]
fn labels_of_neighbours_are_learned_and_predictions_read_those_of_training_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let data = papers(&dir.path().join("data"), false);
    let epochs = ("epochs", "40");
    let (plain, _) = run_in(&dir.path().join("plain"), 2, &data, &[epochs, ("label_inputs", "0")]);
    let (labelled, run) = run_in(&dir.path().join("labelled"), 2, &data, &[epochs]);
    let score = |summary: &Summary| summary.test.score.unwrap();
    assert!(score(&labelled) > score(&plain) + 0.1, "{} {}", score(&labelled), score(&plain));

    let split = data.tasks[0].split.clone();
    let own = probabilities(&run, &data, dir.path());
    let others = [&split.valid[..], &split.test].concat();
    assert_eq!(probabilities(&run, &changed(&data, &others), dir.path()), own);
    assert_ne!(probabilities(&run, &changed(&data, &split.train), dir.path()), own);

    // scores of training nodes read no label
    let scores = SavedTypedRun::of(&run).unwrap().scores(&data, &progress::Quiet).unwrap();
    let mut unlabelled = data.clone();
    unlabelled.tasks[0].split.train = Vec::new().into();
    let blind = probabilities(&run, &unlabelled, dir.path());
    let accuracy = |rows: &[f32], nodes: &[NodeId]| {
        let class = classes(&data);
        let is_right = |&&v: &&NodeId| {
            let row = &rows[v as usize * CLASSES..][..CLASSES];
            row.iter().all(|x| *x <= row[class[v as usize] as usize])
        };
        nodes.iter().filter(is_right).count() as f64 / nodes.len() as f64
    };
    let of_part = |part: usize| scores.parts[part].scores["accuracy"].unwrap();
    assert!((of_part(0) - accuracy(&blind, &split.train)).abs() < 1e-9);
    assert!((of_part(2) - accuracy(&own, &split.test)).abs() < 1e-9);
    assert_eq!(scores.test, labelled.test.score);

    for to in ["pyg", "onnx"] {
        let message = run.export_model(to, &dir.path().join("exported.onnx")).unwrap_err().to_string();
        assert!(message.contains("the model reads labels of training nodes (--label-inputs)"), "{message}");
    }
    let mut predictor = Predictor::of_types(run, data).unwrap();
    let all: Vec<NodeId> = (0..PAPERS as NodeId).collect();
    for _ in 0..2 {
        assert_eq!(predictor.predict(&all, Neighborhood::All).unwrap().scores, own);
        predictor.cache_embeddings(&progress::Quiet).unwrap();
    }
}

#[test]
fn runs_have_the_same_bits_for_any_threads_strategy_and_tiers() {
    let dir = tempfile::tempdir().unwrap();
    let data = papers(&dir.path().join("data"), false);
    let best = |name: &str| fs::read(dir.path().join(name).join("best.safetensors")).unwrap();
    run_in(&dir.path().join("one"), 1, &data, &[]);
    for (name, options) in [
        ("three", &[][..]),
        ("pipelined", &[("strategy", "pipelined")]),
        ("disk", &[("host_budget", "3000")]),
    ] {
        run_in(&dir.path().join(name), 3, &data, options);
        assert_eq!(best(name), best("one"), "{name}");
    }
}

#[test]
fn runs_without_labels_to_show_are_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let data = papers(&dir.path().join("data"), false);
    let refused = |data: &TypedDataset, options: &[(&str, &str)]| {
        let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
        let outcome = config(data, options).and_then(|config| train(&config, data, context).map(drop));
        outcome.unwrap_err().to_string()
    };
    for (options, why) in [
        (&[("batch_size", "0")][..], "one batch has all"),
        (&[("batch_size", "100000")], "set --batch-size to"),
        (&[("sampler", "saint-node")], "--sampler saint-node does not use it"),
        (&[("devices", "virtual:2")], "use --devices cpu"),
        (&[("task", "link")], "links have no targets"),
    ] {
        let message = refused(&data, options);
        assert!(message.contains("--label-inputs 0.8: ") && message.contains(why), "{options:?}: {message}");
    }
    let message = refused(&papers(&dir.path().join("bare"), true), &[]);
    assert!(message.contains("nodes of type 'paper' have no features that labels could follow"), "{message}");
}
