//! Runs on nodes with edge features: classes that only the features of edges show are learned,
//! results depend neither on threads nor on interruptions, and saved runs answer as the run did.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_core::{
    NodeId, SparseRows,
    keyed::{Stream, key as root},
};
use graphmill_data::{
    TypedDataset,
    typed::{FeatureTable, TypedBuilder, Verify},
};
use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig,
    observer::Quiet,
    options::key,
    record::Summary,
    saved::{Kind, SavedRun, Selection},
    typed::{self, SavedTypedRun},
};

const MODELS: [&str; 4] = ["gine", "gatv2-edge", "sage-edge", "edge-gated"];
const CLASSES: usize = 3;

/// Edges with features that show the class of their destination, among noise.
struct Edges {
    src: Vec<NodeId>,
    dst: Vec<NodeId>,
    features: Vec<f32>,
}

/// Four edges into each destination, some of them parallel.
fn edges(sources: u64, label: &[i32], stream: &mut Stream) -> Edges {
    let mut edges = Edges { src: Vec::new(), dst: Vec::new(), features: Vec::new() };
    for (v, &label) in (0..).zip(label) {
        let mut source = stream.below(sources) as NodeId;
        for e in 0..4 {
            if e % 3 > 0 {
                source = stream.below(sources) as NodeId;
            }
            edges.src.push(source);
            edges.dst.push(v);
            let noise = |k: usize| 0.5 * stream.normal() as f32 + f32::from(u8::from(k == label as usize));
            edges.features.extend((0..CLASSES).map(noise));
        }
    }
    edges
}

fn noise(count: usize, stream: &mut Stream) -> Vec<f32> {
    (0..count).map(|_| stream.normal() as f32).collect()
}

/// One node type and one edge type.
fn one_type() -> TypedDataset {
    let (mut stream, nodes) = (Stream::new(root(&[3])), 600);
    let label: Vec<i32> = (0..nodes).map(|_| stream.below(CLASSES as u64) as i32).collect();
    let mut builder = TypedBuilder::new("roads");
    builder.node_type("place", nodes).features(4, noise(nodes * 4, &mut stream));
    let Edges { src, dst, features } = edges(nodes as u64, &label, &mut stream);
    builder.edge_type("place", "road", "place").edges(src, dst).features(CLASSES, features);
    let parts = [0..300, 300..450, 450..600u32].map(|part| part.collect::<Vec<_>>());
    let [train, valid, test] = parts;
    builder.task("kind").on_nodes("place").classes(CLASSES, label).split(train, valid, test);
    builder.build().unwrap()
}

/// Orders of items, which no edge enters, and of places without edge features.
fn two_types() -> TypedDataset {
    let (mut stream, orders, items) = (Stream::new(root(&[4])), 600, 90);
    let label: Vec<i32> = (0..orders).map(|_| stream.below(CLASSES as u64) as i32).collect();
    let mut builder = TypedBuilder::new("shop");
    builder.node_type("order", orders).features(2, noise(orders * 2, &mut stream));
    builder.node_type("item", items);
    let Edges { src, dst, features } = edges(items as u64, &label, &mut stream);
    builder.edge_type("item", "in", "order").edges(src, dst).features(CLASSES, features);
    let next: Vec<NodeId> = (0..orders as u32).map(|v| (v * 7 + 1) % orders as u32).collect();
    builder.edge_type("order", "before", "order").edges((0..orders as u32).collect::<Vec<_>>(), next);
    let parts = [0..300, 300..450, 450..600u32].map(|part| part.collect::<Vec<_>>());
    let [train, valid, test] = parts;
    builder.task("kind").on_nodes("order").classes(CLASSES, label).split(train, valid, test);
    builder.build().unwrap()
}

/// Places with a neighbour of each group, of which one edge is marked: that from the group of the
/// class.
fn marked() -> TypedDataset {
    let (mut stream, nodes) = (Stream::new(root(&[5])), 600);
    let label: Vec<i32> = (0..nodes).map(|_| stream.below(CLASSES as u64) as i32).collect();
    let mut rows = noise(nodes * CLASSES, &mut stream);
    rows.chunks_mut(CLASSES).enumerate().for_each(|(v, row)| row[v % CLASSES] += 4.0);
    let (mut src, mut dst, mut marks) = (Vec::new(), Vec::new(), Vec::new());
    for (v, &label) in (0..).zip(&label) {
        for group in 0..CLASSES {
            src.push((stream.below((nodes / CLASSES) as u64) as usize * CLASSES + group) as NodeId);
            dst.push(v);
            marks.push(if group == label as usize { 2.0 } else { -2.0 } + stream.normal() as f32 / 4.0);
        }
    }
    let mut builder = TypedBuilder::new("marked");
    builder.node_type("place", nodes).features(CLASSES, rows);
    builder.edge_type("place", "road", "place").edges(src, dst).features(1, marks);
    let parts = [0..300, 300..450, 450..600u32].map(|part| part.collect::<Vec<_>>());
    let [train, valid, test] = parts;
    builder.task("kind").on_nodes("place").classes(CLASSES, label).split(train, valid, test);
    builder.build().unwrap()
}

/// The dataset in a directory, opened from there.
fn stored(data: &TypedDataset, dir: &Path) -> TypedDataset {
    data.save(dir).unwrap();
    graphmill_data::typed::open(dir, Verify::Once).unwrap()
}

/// Options of a small run on the dataset in `dir`, with some given.
fn config(dir: &Path, options: &[(&str, &str)]) -> Result<TrainConfig> {
    let base = [
        ("hidden", "16"),
        ("batch_size", "60"),
        ("epochs", "12"),
        ("lr", "0.01"),
        ("dropout", "0.1"),
        ("fanout", "-1,3"),
    ];
    let mut config = TrainConfig { dataset: dir.to_str().unwrap().into(), ..TrainConfig::default() };
    let given: Vec<&str> = base.iter().chain(options).map(|(name, _)| *name).collect();
    for (name, value) in base.iter().chain(options) {
        key(name).unwrap().parse(&mut config, value).map_err(Error::usage)?;
    }
    config.derive_options(&given)?;
    config.check()?;
    config.refuse_unused(&given)?;
    Ok(config)
}

fn train(config: &TrainConfig, data: &TypedDataset) -> Result<Summary> {
    typed::train(config, data, RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false })
}

#[test]
fn classes_that_only_edge_features_show_are_learned() {
    let dir = tempfile::tempdir().unwrap();
    // attention reads the rows of edges in its scores only
    let sums = ["gine", "sage-edge", "edge-gated"];
    for (name, data, models) in [
        ("one", one_type(), &sums[..]),
        ("two", two_types(), &sums),
        ("marked", marked(), &["gatv2-edge", "edge-gated"]),
    ] {
        let path = dir.path().join(name);
        let data = stored(&data, &path);
        for model in models {
            let summary = train(&config(&path, &[("model", model)]).unwrap(), &data).unwrap();
            assert!(summary.test.score.unwrap() > 0.8, "{name} {model}: {:?}", summary.test);
        }
        let without = TrainConfig { model: "rsage".into(), ..config(&path, &[("model", "gine")]).unwrap() };
        let summary = train(&without, &data).unwrap();
        assert!(summary.test.score.unwrap() < 0.5, "{name} rsage: {:?}", summary.test);
    }
}

#[test]
fn sparse_and_integer_features_of_edges_train_as_dense_floats_do() {
    let (dir, data) = (tempfile::tempdir().unwrap(), one_type());
    let path = dir.path().join("data");
    data.save(&path).unwrap();
    let config = config(&path, &[("model", "sage-edge"), ("epochs", "2")]).unwrap();
    let values: Vec<f32> = (0..data.num_edges() * 2).map(|i| (i * 7 % 5) as f32 * (i % 2) as f32).collect();
    let losses = |table: FeatureTable| {
        let mut data = data.clone();
        data.edges[0].features = Some(table);
        let summary = train(&config, &data).unwrap();
        summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect::<Vec<_>>()
    };
    let dense = losses(FeatureTable::dense(2, values.clone()));
    let integers = values.iter().map(|&x| x as i64).collect::<Vec<_>>();
    assert_eq!(dense, losses(FeatureTable::dense(2, integers)));
    assert_eq!(dense, losses(FeatureTable::sparse(SparseRows::from_dense(2, &values).unwrap())));
}

/// The results of a run without those that depend on time.
fn results(summary: &Summary, run: &Path) -> String {
    let epochs: Vec<_> = summary
        .epochs
        .iter()
        .map(|of| format!("{} {:?} {:?} {}", of.loss, of.valid_score, of.valid_loss, of.sampled_edges))
        .collect();
    let file = |name: &str| fs::read(run.join(name)).unwrap();
    let files = [file("best.safetensors"), file("checkpoint/optimizer.safetensors")];
    format!("{epochs:?} {:?} {:?} {files:?}", summary.best, summary.test)
}

#[test]
fn results_have_the_same_bits_for_any_threads_and_after_interruptions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let data = stored(&two_types(), &path);
    for model in MODELS {
        let mut options = vec![("model", model), ("epochs", "2"), ("norm", "batch"), ("fanout", "3,2")];
        options.push(("checkpoint_batches", "2"));
        if model == "gatv2-edge" {
            options.extend([("heads", "2"), ("attention_dropout", "0.2")]);
        }
        let sequential = config(&path, &options).unwrap();
        let pipelined = config(&path, &[&options[..], &[("strategy", "pipelined")]].concat()).unwrap();
        let whole = |name: String, threads, config: &TrainConfig| {
            let run = RunDir::create(&dir.path().join(name)).unwrap();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let context =
                RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
            results(&pool.install(|| typed::train(config, &data, context)).unwrap(), run.path())
        };
        let one = whole(format!("{model} one"), 1, &sequential);
        assert!(one == whole(format!("{model} three"), 3, &sequential), "{model}: threads");
        assert!(one == whole(format!("{model} ahead"), 2, &pipelined), "{model}: pipelined");
        let run = dir.path().join(format!("{model} stopped"));
        for (i, batches) in [3, 4].into_iter().enumerate() {
            let at = if i > 0 { RunDir::reopen(&run) } else { RunDir::create(&run) }.unwrap();
            let done = AtomicUsize::new(0);
            let stop = || done.fetch_add(1, SeqCst) + 1 >= batches;
            let context = RunContext { run: Some(&at), resume: i > 0, observer: &mut Quiet, stop: &stop };
            let outcome = typed::train(&sequential, &data, context);
            assert!(matches!(outcome, Err(Error::Interrupted { saved: true, .. })), "{model}");
        }
        let at = RunDir::reopen(&run).unwrap();
        let context = RunContext { run: Some(&at), resume: true, observer: &mut Quiet, stop: &|| false };
        let summary = typed::train(&sequential, &data, context).unwrap();
        assert!(one == results(&summary, &run), "{model}: resumed");
    }
}

#[test]
fn saved_runs_score_and_predict_as_the_run_did_even_after_a_move() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved, run) = (dir.path().join("data"), dir.path().join("moved"), dir.path().join("run"));
    let data = stored(&one_type(), &path);
    let config = config(&path, &[("model", "gine"), ("epochs", "2")]).unwrap();
    assert_eq!((config.head_layers, config.fanout.0.clone()), (1, vec![-1, 3]), "not those of events");
    let summary = {
        let run = RunDir::create(&run).unwrap();
        let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
        typed::train(&config, &data, context).unwrap()
    };
    fs::rename(&path, &moved).unwrap();
    let run = SavedRun::open(&run, false).unwrap();
    assert!(!run.learns_events());
    let saved = SavedTypedRun::of(&run).unwrap();
    let own = saved.dataset(Some(&moved)).unwrap();
    let scores = saved.scores(&own, &Quiet).unwrap();
    assert_eq!((scores.test, scores.same_dataset), (summary.test.score, Some(true)));
    let predict = |selection, name: &str| {
        let out = dir.path().join(name);
        saved.predict(&own, selection, false, Kind::Probabilities, &out, &Quiet).unwrap();
        fs::read_to_string(out).unwrap()
    };
    let all = predict(Selection::All, "all.csv");
    let list = dir.path().join("nodes.txt");
    fs::write(&list, "599\n7\n").unwrap();
    let some = predict(Selection::Nodes(&list), "some.csv");
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(some.lines().skip(1).collect::<Vec<_>>(), [lines[600], lines[8]]);

    let mut narrow = own.clone();
    narrow.edges[0].features = Some(FeatureTable::dense(1, vec![0f32; own.num_edges()]));
    let message = saved.scores(&narrow, &Quiet).unwrap_err().to_string();
    assert!(
        message.contains("place:road:place' have 1 features, but the model was trained on 3"),
        "{message}"
    );
}

#[test]
fn datasets_and_options_that_do_not_fit_are_refused_with_a_remedy() {
    let (dir, data) = (tempfile::tempdir().unwrap(), two_types());
    let path = dir.path().join("data");
    data.save(&path).unwrap();
    let refused = |data: &TypedDataset, options: &[(&str, &str)]| {
        config(&path, options).and_then(|config| train(&config, data)).unwrap_err().to_string()
    };
    let message = refused(&data, &[("model", "gine"), ("sampler", "labor")]);
    assert!(message.starts_with("--sampler labor: it does not name the edges"), "{message}");
    assert!(
        message.ends_with("use --sampler neighbor, full, saint-node, saint-edge or saint-rw"),
        "{message}"
    );
    let mut plain = data.clone();
    plain.edges.iter_mut().for_each(|edges| edges.features = None);
    let message = refused(&plain, &[("model", "sage-edge")]);
    assert!(message.contains("no edge type has features, which --model sage-edge reads"), "{message}");
    let mut huge = data.clone();
    let edges = huge.edges[0].num_edges();
    huge.edges[0].features = Some(FeatureTable::dense(1, vec![1e300f64; edges]));
    assert!(refused(&huge, &[("model", "gine")]).contains("feature 0 of edge 0 of type 'item:in:order'"));
    assert!(refused(&data, &[("model", "gine"), ("time_dim", "8")]).contains("leave it out"));
}
