//! Runs with edge features: classes that only the features of edges show are learned, and links;
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
    options::{key, link::seeds_are},
    predictor::{LinkPredictor, TopOptions},
    record::Summary,
    saved::{Kind, SavedRun, Selection, links::Reading},
    typed::{self, SavedTypedRun, links},
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

/// Places in groups. Roads with the feature 1 stay in a group, the others join any two; half of the
/// first kind are a link task, if `with_task`, in a dataset without labels.
fn roads(with_task: bool) -> TypedDataset {
    let (mut stream, nodes, groups) = (Stream::new(root(&[6])), 200u32, 10);
    let (mut src, mut dst, mut kind, mut pairs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for v in 0..nodes {
        for e in 0..8 {
            let other = stream.below(u64::from(nodes)) as u32;
            let own = other / groups * groups + v % groups;
            let u = if e < 4 { own } else { other };
            if u == v {
                continue;
            }
            if e == 0 {
                pairs.extend([u, v]);
            }
            src.push(u);
            dst.push(v);
            kind.extend([f32::from(u8::from(e < 4)), 0.5]);
        }
    }
    let mut rows = noise(nodes as usize * 10, &mut stream);
    rows.chunks_mut(10).enumerate().for_each(|(v, row)| row[v % 10] += 2.0);
    let mut builder = TypedBuilder::new("roads");
    builder.node_type("place", nodes as usize).features(10, rows);
    builder.edge_type("place", "road", "place").edges(src, dst).features(2, kind);
    if with_task {
        let count = pairs.len() as u32 / 2;
        let part = |rows: std::ops::Range<u32>| rows.collect::<Vec<u32>>();
        let on = graphmill_data::typed::EdgeType::new("place", "road", "place");
        let task = builder.task("next").on_edges(on).pair_seeds(pairs);
        task.split(part(0..count * 3 / 4), part(count * 3 / 4..count * 7 / 8), part(count * 7 / 8..count));
    }
    builder.build().unwrap()
}

#[test]
fn links_are_learned_from_the_features_of_the_edges_that_batches_read() {
    let dir = tempfile::tempdir().unwrap();
    for (name, with_task) in [("task", true), ("shares", false)] {
        let path = dir.path().join(name);
        let data = stored(&roads(with_task), &path);
        for model in MODELS {
            let options = [("model", model), ("task", "link"), ("metric", "auc"), ("fanout", "6,6")];
            let options =
                [&options[..], &[("epochs", "20"), ("batch_size", "100"), ("dropout", "0")]].concat();
            let config = config(&path, &options).unwrap();
            assert_eq!(seeds_are(&config), "edges");
            let run = RunDir::create(&dir.path().join(format!("{name}-{model}"))).unwrap();
            let whole = |run: Option<&RunDir>, threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let context = RunContext { run, resume: false, observer: &mut Quiet, stop: &|| false };
                pool.install(|| links::train(&config, &data, context)).unwrap()
            };
            let (one, three) = (whole(Some(&run), 1), whole(None, 3));
            let losses = |of: &Summary| of.epochs.iter().map(|one| one.loss.to_bits()).collect::<Vec<_>>();
            assert_eq!((losses(&one), one.test.score), (losses(&three), three.test.score), "{name} {model}");
            assert!(one.epochs[19].loss < 0.95 * one.epochs[0].loss, "{name} {model}");
            // half of the edges that are split by shares are random
            let least = if with_task { 0.55 } else { 0.5 };
            assert!(one.test.score.unwrap() > least, "{name} {model}: {:?}", one.test);

            // the saved run scores, ranks and embeds, with the messages of training or of all edges
            let saved = SavedRun::open(run.path(), false).unwrap();
            assert!(saved.ranks_links() && !saved.learns_events() && !saved.learns_links());
            let scores = saved.scores_on(None, &Quiet).unwrap();
            assert_eq!((scores.test, scores.same_dataset), (one.test.score, Some(true)), "{name} {model}");
            let rows = |reading| {
                let links = LinkPredictor::open(run.path(), None, false, reading, &Quiet).unwrap();
                assert_eq!(
                    links.top(0, &[3], TopOptions { k: 4, ..TopOptions::default() }).unwrap()[0].len(),
                    4
                );
                links.embed(0, &[0, 7, 199]).unwrap()
            };
            assert_ne!(rows(Reading::Training), rows(Reading::All), "{name} {model}");
        }
    }
}

#[test]
fn runs_on_links_with_edge_features_answer_after_a_move_of_their_dataset() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("data"), dir.path().join("moved"));
    let data = stored(&roads(true), &path);
    let config = config(&path, &[("model", "gine"), ("task", "next"), ("epochs", "1")]).unwrap();
    let run = RunDir::create(&dir.path().join("run")).unwrap();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    let summary = links::train(&config, &data, context).unwrap();
    fs::rename(&path, &moved).unwrap();
    let saved = SavedRun::open(run.path(), false).unwrap();
    assert!(saved.ranks_links() && !saved.learns_events() && !saved.learns_links());
    assert_eq!(saved.scores_on(Some(&moved), &Quiet).unwrap().test, summary.test.score);
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
