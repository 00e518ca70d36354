//! A saved run is used with the dataset that it was trained on, or with a given one.

use graphmill_core::progress;
use std::path::Path;

use graphmill_data::{
    DatasetBuilder,
    dataset::import::{self, ImportOptions, Normalize},
    generate::{GenerateOptions, demo, generate},
    npy,
};
use graphmill_engine::{
    Dataset, Error, RunContext, RunDir, TrainConfig,
    config::Bytes,
    observer::Quiet,
    record::{Origin, Source},
    saved::{Kind, SavedRun},
    train,
};

/// Dataset of the demo graph's widths, so that it could be confused with the demo graph.
fn like_the_demo(seed: u64) -> Dataset {
    let options = GenerateOptions { nodes: 300, classes: 10, dim: 48, seed, ..GenerateOptions::default() };
    generate("sbm", &options).unwrap()
}

fn config(epochs: usize) -> TrainConfig {
    TrainConfig {
        hidden: 8,
        epochs,
        batch_size: 64,
        max_batches: 2,
        eval_nodes: 50,
        ..TrainConfig::default()
    }
}

fn run(dir: &Path, config: &TrainConfig, data: &Dataset, resume: bool) -> Result<(), Error> {
    let run = if resume { RunDir::reopen(dir)? } else { RunDir::create(dir)? };
    let context = RunContext { run: Some(&run), resume, observer: &mut Quiet, stop: &|| false };
    train(config, data, context).map(drop)
}

#[test]
fn runs_on_datasets_in_memory_ask_for_the_dataset() {
    let temporary = tempfile::tempdir().unwrap();
    let (dir, out) = (temporary.path().join("run"), temporary.path().join("classes.csv"));
    let data = like_the_demo(1);
    run(&dir, &config(1), &data, false).unwrap();
    let saved = SavedRun::open(&dir, false).unwrap();
    let message = saved.dataset(None).unwrap_err().to_string();
    for word in ["in memory", "sbm (300 nodes", "pass the dataset again", "dataset= in Python"] {
        assert!(message.contains(word), "'{word}' not in: {message}");
    }
    // the same dataset is recognized, and another one is not
    let scores = saved.scores(&like_the_demo(1), &progress::Quiet).unwrap();
    assert_eq!(scores.same_dataset, Some(true));
    let written = saved.predict(&data, None, false, Kind::Classes, &out, &progress::Quiet).unwrap();
    assert_eq!((written.rows, written.same_dataset), (300, Some(true)));
    assert_eq!(saved.scores(&like_the_demo(2), &progress::Quiet).unwrap().same_dataset, Some(false));
    assert_eq!(saved.scores(&demo().unwrap(), &progress::Quiet).unwrap().same_dataset, Some(false));
    // also after it is saved
    data.save(temporary.path().join("data")).unwrap();
    let stored = saved.dataset(Some(&temporary.path().join("data"))).unwrap();
    assert_eq!(saved.scores(&stored, &progress::Quiet).unwrap().same_dataset, Some(true));
}

#[test]
fn runs_on_datasets_in_memory_resume_only_with_the_same_dataset() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("run");
    run(&dir, &config(1), &like_the_demo(1), false).unwrap();
    let message = run(&dir, &config(2), &like_the_demo(2), true).unwrap_err().to_string();
    assert!(message.contains("cannot continue with sbm (300 nodes"), "{message}");
    run(&dir, &config(2), &like_the_demo(1), true).unwrap();
}

#[test]
fn runs_on_the_demo_graph_find_it() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("run");
    let data = demo().unwrap();
    run(&dir, &config(1), &data, false).unwrap();
    let origin = Origin::of_run(&dir, &config(1)).unwrap().unwrap();
    assert_eq!((origin.source, &origin.path), (Source::Demo, &None));
    let saved = SavedRun::open(&dir, false).unwrap();
    assert_eq!(saved.dataset(None).unwrap().identity().unwrap(), data.identity().unwrap());
    // another graph of this name is not the demo graph
    let mut other = like_the_demo(1);
    other.name = "demo".into();
    let dir = temporary.path().join("other");
    run(&dir, &config(1), &other, false).unwrap();
    assert!(
        SavedRun::open(&dir, false).unwrap().dataset(None).unwrap_err().to_string().contains("in memory")
    );
}

/// Changes the run in `dir` to one of a version that wrote no `dataset.json`, and an empty path for
/// a dataset in memory.
fn age(dir: &Path) {
    std::fs::remove_file(dir.join("dataset.json")).unwrap();
    let config = std::fs::read_to_string(dir.join("config.toml")).unwrap();
    std::fs::write(dir.join("config.toml"), config.replace("<in memory>", "")).unwrap();
}

/// The checksum in the summary or in the checkpoint identifies the dataset.
#[test]
fn older_runs_refuse_another_dataset_at_the_same_path() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("data");
    for left_out in [None, Some("summary.json"), Some("checkpoint")] {
        let dir = temporary.path().join("run");
        like_the_demo(1).save(&path).unwrap();
        let config = TrainConfig { dataset: path.to_str().unwrap().into(), ..config(1) };
        run(&dir, &config, &Dataset::open(&path).unwrap(), false).unwrap();
        age(&dir);
        match left_out {
            Some("checkpoint") => std::fs::remove_dir_all(dir.join("checkpoint")).unwrap(),
            Some(file) => std::fs::remove_file(dir.join(file)).unwrap(),
            None => {}
        }
        let saved = SavedRun::open(&dir, false).unwrap();
        let data = saved.dataset(None).unwrap();
        assert_eq!(saved.is_own(&data).unwrap(), Some(true), "{left_out:?}");
        like_the_demo(2).save_replacing(&path).unwrap();
        let message = saved.dataset(None).unwrap_err().to_string();
        assert!(message.contains("it was trained on sbm (300 nodes"), "{left_out:?}: {message}");
        std::fs::remove_dir_all(&path).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

/// Without a summary, the demo graph was once mistaken for the dataset.
#[test]
fn killed_older_runs_on_a_dataset_in_memory_ask_for_it() {
    let temporary = tempfile::tempdir().unwrap();
    for (name, word) in [("summary.json", "in memory"), ("checkpoint", "does not record whether")] {
        let dir = temporary.path().join(name);
        run(&dir, &config(1), &like_the_demo(1), false).unwrap();
        age(&dir);
        std::fs::remove_file(dir.join("summary.json")).unwrap();
        if name == "checkpoint" {
            std::fs::remove_dir_all(dir.join(name)).unwrap();
        }
        let message = SavedRun::open(&dir, false).unwrap().dataset(None).unwrap_err().to_string();
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn options_of_runs_record_datasets_in_memory() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("run");
    run(&dir, &config(1), &like_the_demo(1), false).unwrap();
    let mut options = TrainConfig::default();
    options.read_file(&dir.join("config.toml")).unwrap();
    assert!(options.is_in_memory());
    let message = graphmill_engine::open_dataset(&options).unwrap_err().to_string();
    assert!(message.contains("pass the DATASET"), "{message}");
    let text = std::fs::read_to_string(dir.join("config.toml")).unwrap();
    assert!(text.contains("graphmill train DATASET --config FILE"), "{text}");
    let dir = temporary.path().join("demo");
    run(&dir, &config(1), &demo().unwrap(), false).unwrap();
    options.read_file(&dir.join("config.toml")).unwrap();
    assert!(options.dataset.is_empty());
}

/// In runs of versions that wrote no `dataset.json`, the summary distinguishes the demo graph.
#[test]
fn summaries_of_older_runs_identify_the_demo_graph() {
    let temporary = tempfile::tempdir().unwrap();
    for (name, data, is_demo) in [("own", like_the_demo(1), false), ("demo", demo().unwrap(), true)] {
        let dir = temporary.path().join(name);
        run(&dir, &config(1), &data, false).unwrap();
        age(&dir);
        std::fs::remove_dir_all(dir.join("checkpoint")).unwrap();
        let summary = std::fs::read_to_string(dir.join("summary.json")).unwrap();
        let mut summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
        summary["dataset"]["checksum"] = serde_json::Value::Null;
        std::fs::write(dir.join("summary.json"), summary.to_string()).unwrap();
        assert_eq!(SavedRun::open(&dir, false).unwrap().dataset(None).is_ok(), is_demo, "{name}");
    }
}

/// Predictions need no labels, and have the classes of the run.
#[test]
fn unlabelled_data_is_predicted_but_not_scored() {
    let temporary = tempfile::tempdir().unwrap();
    let (dir, out) = (temporary.path().join("run"), temporary.path().join("probabilities.npy"));
    run(&dir, &config(1), &like_the_demo(1), false).unwrap();
    let saved = SavedRun::open(&dir, false).unwrap();
    let unlabelled = Dataset {
        labels: graphmill_core::Labels::Single { class: vec![-1; 300].into(), classes: 0 },
        ..like_the_demo(2)
    };
    let written =
        saved.predict(&unlabelled, None, false, Kind::Probabilities, &out, &progress::Quiet).unwrap();
    assert_eq!((written.rows, written.cols), (300, 10));
    let message = saved.scores(&unlabelled, &progress::Quiet).unwrap_err().to_string();
    assert!(
        message.contains("its nodes have 0 classes, but the model was trained on 10 classes"),
        "{message}"
    );
}

/// One graph with three normalizations of its features.
struct Scales {
    /// Standardized by all training nodes: the dataset of runs.
    own: Dataset,
    raw: Dataset,
    /// Standardized by half of the training nodes.
    other: Dataset,
}

/// Imports one graph with three normalizations into directories of `temporary`.
fn scales(temporary: &Path) -> Scales {
    let of = like_the_demo(3);
    let table = |dir: &Path, dataset: &Dataset| {
        let graphmill_core::features::FeatureData::F32(rows) = &dataset.features.data else {
            panic!("dense")
        };
        let (nodes, dim) = (dataset.num_nodes(), dataset.features.dim);
        // every column has another mean and deviation
        let scaled: Vec<f32> =
            rows.iter().enumerate().map(|(i, x)| x * (1 + i % dim) as f32 + (i % dim) as f32).collect();
        npy::write(dir.join("features.npy"), &scaled, &[nodes, dim]).unwrap();
        let graphmill_core::Labels::Single { class, .. } = &dataset.labels else { panic!("single") };
        npy::write(dir.join("labels.npy"), class, &[nodes]).unwrap();
        let edges: Vec<u32> = (0..nodes as u32)
            .flat_map(|v| dataset.graph.in_neighbors(v).iter().flat_map(move |&u| [u, v]).collect::<Vec<_>>())
            .collect();
        npy::write(dir.join("edges.npy"), &edges, &[edges.len() / 2, 2]).unwrap();
        for (part, ids) in dataset.split.parts() {
            npy::write(dir.join(format!("{part}.npy")), ids, &[ids.len()]).unwrap();
        }
        let half = &dataset.split.train[..dataset.split.train.len() / 2];
        npy::write(dir.join("half.npy"), half, &[half.len()]).unwrap();
    };
    table(temporary, &of);
    let file = |name: &str| Some(temporary.join(name));
    let import = |name: &str, normalize, train: &str| {
        let options = ImportOptions {
            features: file("features.npy"),
            labels: file("labels.npy"),
            train: file(train),
            valid: file("valid.npy"),
            test: file("test.npy"),
            normalize,
            ..ImportOptions::default()
        };
        let made = import::import("edges", temporary.join("edges.npy"), &options).unwrap().dataset;
        made.save(temporary.join(name)).unwrap();
        Dataset::open(temporary.join(name)).unwrap()
    };
    Scales {
        own: import("own", Normalize::Standard, "train.npy"),
        raw: import("raw", Normalize::None, "train.npy"),
        other: import("other", Normalize::Standard, "half.npy"),
    }
}

/// Other statistics, or none, would give the model features of another scale without an error.
#[test]
fn predictions_on_other_data_use_the_statistics_of_the_run() {
    let temporary = tempfile::tempdir().unwrap();
    let Scales { own, raw, other } = scales(temporary.path());
    for host_budget in [0, 1000] {
        let dir = temporary.path().join(format!("run-{host_budget}"));
        let dataset = temporary.path().join("own").to_str().unwrap().to_string();
        let config = TrainConfig { dataset, host_budget: Bytes(host_budget), ..config(2) };
        run(&dir, &config, &own, false).unwrap();
        // the run holds the statistics, so the dataset that it was trained on is not needed
        let saved = SavedRun::open(&dir, false).unwrap();
        let predicted = |data: &Dataset| {
            let out = temporary.path().join("out.npy");
            let written =
                saved.predict(data, None, false, Kind::Probabilities, &out, &progress::Quiet).unwrap();
            (npy::open(&out).unwrap().read_as::<f32>().unwrap(), written.rescaled)
        };
        let (expected, rescaled) = predicted(&own);
        assert_eq!(rescaled, None);
        let (of_raw, rescaled) = predicted(&raw);
        assert!(rescaled.unwrap().contains("means and deviations of the run's training data"));
        assert_eq!(of_raw, expected, "equal raw features give different bits");
        let (of_other, rescaled) = predicted(&other);
        assert!(rescaled.unwrap().contains("its own --normalize standard undone"));
        let largest = of_other.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(largest < 1e-4, "{largest}");
        let test = |data: &Dataset| saved.scores(data, &progress::Quiet).unwrap().test;
        assert_eq!(test(&raw), test(&own));
        // data in memory, although the run had tiers
        let in_memory = Dataset { graph: copy_of(&raw), checksum: None, ..raw.clone() };
        assert_eq!(predicted(&in_memory).0, expected);
    }
}

/// Copy of the graph without the path that it was opened from.
fn copy_of(data: &Dataset) -> graphmill_core::Graph {
    let (indptr, indices) = (data.graph.indptr().to_vec(), data.graph.indices().to_vec());
    graphmill_core::Graph::new(indptr.into(), indices.into()).unwrap()
}

/// A run whose features stay in a file must not read those of its own dataset.
#[test]
fn runs_with_a_host_budget_read_the_features_of_the_given_data() {
    let temporary = tempfile::tempdir().unwrap();
    for seed in [1, 2] {
        like_the_demo(seed).save(temporary.path().join(format!("data-{seed}"))).unwrap();
    }
    let [own, other] =
        [1, 2].map(|seed| Dataset::open(temporary.path().join(format!("data-{seed}"))).unwrap());
    let predicted = |host_budget| {
        let dir = temporary.path().join(format!("run-{host_budget}"));
        let dataset = temporary.path().join("data-1").to_str().unwrap().to_string();
        run(&dir, &TrainConfig { dataset, host_budget: Bytes(host_budget), ..config(1) }, &own, false)
            .unwrap();
        let out = temporary.path().join("out.npy");
        let saved = SavedRun::open(&dir, false).unwrap();
        saved.predict(&other, None, false, Kind::Probabilities, &out, &progress::Quiet).unwrap();
        npy::open(&out).unwrap().read_as::<f32>().unwrap()
    };
    assert_eq!(predicted(1000), predicted(0));
}

#[test]
fn several_values_with_missing_ones_are_learned_from_arrays() {
    const NODES: u32 = 200;
    let group = |v: u32| v / 50;
    let edges = (0..NODES).map(|v| (v, group(v) * 50 + (v + 1) % 50));
    let rows = (0..NODES).flat_map(|v| [1.0, group(v) as f32]).collect();
    // the first target is known of one node in four, and the second of two other ones
    let values = (0..NODES).flat_map(|v| {
        let (first, second) = (1000.0 + 100.0 * group(v) as f32, 5.0 - group(v) as f32);
        [if v % 4 == 0 { first } else { f32::NAN }, if v % 4 < 2 { f32::NAN } else { second }]
    });
    // No row has both: the rows 1, 5, ... have none, and the others train one target each.
    let data = DatasetBuilder::new(NODES as usize)
        .undirected_edges(edges)
        .features(2, rows)
        .values(2, values.collect())
        .random_split(0.6, 0.2, 1)
        .build()
        .unwrap();
    let config = TrainConfig { epochs: 150, hidden: 16, dropout: 0.0, lr: 0.01, ..TrainConfig::default() };
    let trained = graphmill_engine::fit(&config, &data).unwrap();
    assert_eq!(trained.summary().test.metric, "rmse");
    let test = trained.summary().diagnostics.iter().find(|of| of.part == "test").unwrap();
    assert_eq!(test.residuals.len(), 2);
    assert!(test.scores["r2"].unwrap() > 0.9, "{:?}", test.scores);
    // nodes without a value are predicted, too
    let rows = trained.logits(&data, &[1, 101]).unwrap();
    let rows = rows.view().host();
    assert!((rows[0] - 1000.0).abs() < 60.0 && (rows[2] - 1200.0).abs() < 60.0, "{rows:?}");
    assert!((rows[1] - 5.0).abs() < 0.6 && (rows[3] - 3.0).abs() < 0.6, "{rows:?}");
}
