//! Propagation after a saved run's model: the data that the run can score, and graphs of several
//! types.

use std::{fs, path::Path};

use graphmill_core::{Features, Labels, NodeId, features::FeatureData, progress};
use graphmill_data::{
    TypedBuilder, TypedDataset,
    generate::{GenerateOptions, generate},
    typed::{self, Verify},
};
use graphmill_engine::{
    Dataset, RunContext, RunDir, TrainConfig,
    observer::Quiet,
    propagation::PropagationOptions,
    record::Summary,
    saved::{Kind, Propagation, SavedRun, Selection},
    train,
    typed::{SavedTypedRun, train as train_typed},
};

use super::set::checked;

fn data(classes: usize) -> Dataset {
    let options = GenerateOptions { nodes: 300, classes, dim: 8, ..GenerateOptions::default() };
    generate("sbm", &options).unwrap()
}

fn trained(dir: &Path, data: &Dataset) -> SavedRun {
    let fanout = "3,2".parse().unwrap();
    let config = TrainConfig { hidden: 8, epochs: 1, fanout, ..TrainConfig::default() };
    let run = RunDir::create(dir).unwrap();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    train(&config, data, context).unwrap();
    SavedRun::open(dir, false).unwrap()
}

#[test]
fn data_with_more_classes_than_the_run_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("run");
    let own = data(3);
    trained(&dir, &own);
    for name in ["label-propagation", "correct-and-smooth"] {
        let propagation = Propagation::new(name, PropagationOptions::default()).unwrap();
        let run = SavedRun::open(&dir, false).unwrap().with_propagation(propagation).unwrap();
        let out = temporary.path().join(format!("{name}.npy"));
        let predict = |data| run.predict(data, None, false, Kind::Classes, &out, &progress::Quiet);
        assert_eq!(predict(&own).unwrap().rows, 300);
        let error = predict(&data(5)).unwrap_err().to_string();
        assert!(error.contains("5 classes, but the run has 3"), "{name}: {error}");
    }
}

fn stored(builder: TypedBuilder, dir: &Path) -> TypedDataset {
    builder.build().unwrap().save(dir).unwrap();
    typed::open(dir, Verify::Once).unwrap()
}

/// The graph of `data` as papers that cite each other, and topics of the papers.
fn papers(dir: &Path, data: &Dataset) -> TypedDataset {
    let Features { dim, data: FeatureData::F32(rows) } = &data.features else { panic!("dense features") };
    let Labels::Single { class, classes } = &data.labels else { panic!("one class per node") };
    let mut builder = TypedBuilder::new("papers");
    builder.node_type("paper", data.num_nodes()).features(*dim, rows.to_vec());
    builder.node_type("topic", 10).features(1, vec![1.0f32; 10]);
    let (indptr, indices) = (data.graph.indptr().to_vec(), data.graph.indices().to_vec());
    builder.edge_type("paper", "cites", "paper").csc(indptr, indices);
    let (all, topics): (Vec<NodeId>, Vec<NodeId>) =
        (0..data.num_nodes() as NodeId).map(|v| (v, v % 10)).unzip();
    builder.edge_type("paper", "has", "topic").edges(all, topics).with_reverse("of");
    let [train, valid, test] = data.split.parts().map(|(_, nodes)| nodes.to_vec());
    builder.task("kind").on_nodes("paper").classes(*classes, class.to_vec()).split(train, valid, test);
    stored(builder, dir)
}

/// Papers of three kinds, whose authors write papers of one kind; `known` says if papers have the
/// edges back to their authors.
fn written(dir: &Path, known: bool) -> TypedDataset {
    let mut builder = TypedBuilder::new("written");
    builder.node_type("paper", 60).features(1, vec![1.0f32; 60]);
    builder.node_type("author", 12).features(1, vec![1.0f32; 12]);
    let authors = |v: u32| [(v / 3 % 4) * 3 + v % 3, ((v / 3 + 1) % 4) * 3 + v % 3];
    let (author, paper): (Vec<u32>, Vec<u32>) =
        (0..60).flat_map(|v| authors(v).map(|author| (author, v))).unzip();
    let edges = builder.edge_type("author", "writes", "paper").edges(author, paper);
    if known {
        edges.with_reverse("by");
    }
    let part = |of: fn(u32) -> bool| (0..60).filter(|v| of(v / 3 % 5)).collect::<Vec<u32>>();
    let class: Vec<i32> = (0..60).map(|v| v % 3).collect();
    let task = builder.task("kind").on_nodes("paper").classes(3, class);
    task.split(part(|i| i == 0), part(|i| i == 1), part(|i| i > 1));
    stored(builder, dir)
}

/// Summary of a run on several types in the directory `run`.
fn trained_typed(run: &Path, data: &TypedDataset) -> Summary {
    let dataset = data.directory.as_deref().and_then(Path::to_str).unwrap().to_string();
    let config = TrainConfig { dataset, hidden: 8, epochs: 1, ..TrainConfig::default() };
    let config = checked(config, &[("model", "rsage"), ("fanout", "3,2")]).unwrap();
    let run = RunDir::create(run).unwrap();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    train_typed(&config, data, context).unwrap()
}

/// The run in `dir` with a propagation.
fn spread(dir: &Path, method: &str) -> SavedRun {
    let propagation = Propagation::new(method, PropagationOptions::default()).unwrap();
    SavedRun::open(dir, false).unwrap().with_propagation(propagation).unwrap()
}

/// Bytes of the probabilities of all nodes of a type.
fn of_types(run: &SavedRun, data: &TypedDataset, out: &Path) -> Vec<u8> {
    let run = SavedTypedRun::of(run).unwrap();
    run.predict(data, Selection::All, false, Kind::Probabilities, out, &progress::Quiet).unwrap();
    fs::read(out).unwrap()
}

#[test]
fn labels_spread_between_nodes_of_a_type_as_on_the_graph_of_these_nodes() {
    let temporary = tempfile::tempdir().unwrap();
    let path = |name: &str| temporary.path().join(name);
    let one_type = data(3);
    let types = papers(&path("papers"), &one_type);
    trained(&path("one"), &one_type);
    let summary = trained_typed(&path("types"), &types);

    let run = spread(&path("one"), "label-propagation");
    run.predict(&one_type, None, false, Kind::Probabilities, &path("one.npy"), &progress::Quiet).unwrap();
    let run = spread(&path("types"), "label-propagation");
    assert_eq!(of_types(&run, &types, &path("types.npy")), fs::read(path("one.npy")).unwrap());
    let scores = SavedTypedRun::of(&run).unwrap().scores(&types, &progress::Quiet).unwrap();
    let baseline = summary.baseline.unwrap();
    assert_eq!((baseline.method.as_str(), baseline.test), ("label-propagation", scores.test));
    assert!(baseline.valid.is_some() && scores.propagation.is_some());

    let run = spread(&path("types"), "correct-and-smooth");
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| of_types(&run, &types, &path(&format!("smooth-{threads}.npy"))))
    };
    let corrected = on(1);
    assert!(corrected == on(3), "the bits do not depend on threads");
    let plain = SavedRun::open(&path("types"), false).unwrap();
    assert!(corrected != of_types(&plain, &types, &path("plain.npy")));
}

#[test]
fn without_edges_within_the_type_labels_spread_by_paths_of_two_edges() {
    let temporary = tempfile::tempdir().unwrap();
    let path = |name: &str| temporary.path().join(name);
    let types = written(&path("written"), true);
    let summary = trained_typed(&path("run"), &types);
    assert_eq!(summary.baseline.unwrap().test, Some(1.0));
    for method in ["label-propagation", "correct-and-smooth"] {
        let run = spread(&path("run"), method);
        let scores = SavedTypedRun::of(&run).unwrap().scores(&types, &progress::Quiet).unwrap();
        assert!(scores.test.unwrap() > 0.9, "{method}: {:?}", scores.test);
    }
    let alone = written(&path("alone"), false);
    assert!(trained_typed(&path("alone-run"), &alone).baseline.is_none());
    let run = spread(&path("alone-run"), "label-propagation");
    let message = SavedTypedRun::of(&run).unwrap().scores(&alone, &progress::Quiet).unwrap_err().to_string();
    let why =
        "--propagate label-propagation: no edge joins nodes of type 'paper', and no two edges lead from";
    assert!(message.contains(why), "{message}");
}
