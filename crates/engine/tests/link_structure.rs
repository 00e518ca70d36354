//! Links by the structure of the graph around their ends, `--decoder structure`: no result depends
//! on threads or interruptions, saved runs answer as the run did, edges that validate and test are
//! not read, and runs without such a graph are refused.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_core::{Features, Graph, progress::Quiet as QuietWork};
use graphmill_data::{
    Dataset, TypedBuilder, TypedDataset,
    generate::{GenerateOptions, generate},
    typed::EdgeType,
};
use graphmill_engine::{
    AnyDataset, CandidateOptions, Error, Result, RunContext, RunDir, TrainConfig, build,
    observer::Quiet,
    options::key,
    predictor::{LinkPredictor, TopOptions},
    record::Summary,
    saved::{SavedRun, Selection, links::Reading},
};
use graphmill_nn::{Matrix, Pass, Saved, backend::Cpu, link::decoder::Pairs, model::Model};

use crate::typed_links::shop;

const NODES: usize = 300;

/// Small groups of nodes with almost all edges among themselves: ends of edges share neighbours.
fn groups() -> Dataset {
    let options = GenerateOptions {
        nodes: NODES,
        classes: 30,
        dim: 4,
        degree: Some(8.0),
        p_in: 0.95,
        ..GenerateOptions::default()
    };
    Dataset { name: "groups".into(), ..generate("sbm", &options).unwrap() }
}

/// The graph with features for models of one type (`one`), and without for models that learn a row
/// of each node (`bare`).
fn stored(root: &Path) {
    groups().save(root.join("one")).unwrap();
    let bare = Dataset { features: Features::default(), ..groups() };
    TypedDataset::from_dataset(&bare).save(root.join("bare")).unwrap();
}

/// Names of both datasets, with the models that learn them.
const MODELS: [(&str, &str); 2] = [("one", "sage"), ("bare", "rsage")];

fn config(dir: &Path, options: &[(&str, &str)]) -> Result<TrainConfig> {
    let base = [("task", "link"), ("decoder", "structure")];
    let mut config = TrainConfig {
        hidden: 4,
        batch_size: 64,
        dropout: 0.0,
        epochs: 2,
        lr: 0.02,
        ..TrainConfig::default()
    };
    config.dataset = dir.to_str().unwrap().into();
    config.fanout = graphmill_loader::Fanout(vec![5, 5]);
    let options = [&base[..], options].concat();
    let given: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
    for (name, value) in &options {
        key(name).unwrap().parse(&mut config, value).map_err(Error::usage)?;
    }
    config.derive_options(&given)?;
    config.check()?;
    config.refuse_unused(&given)?;
    Ok(config)
}

fn train_in(dir: &Path, options: &[(&str, &str)], run: Option<&RunDir>) -> Result<Summary> {
    let config = config(dir, options)?;
    let context = RunContext { run, resume: false, observer: &mut Quiet, stop: &|| false };
    AnyDataset::open(&config)?.train(&config, context)
}

#[test]
fn structure_predicts_links_of_small_groups() {
    let root = tempfile::tempdir().unwrap();
    stored(root.path());
    for (data, model) in MODELS {
        let of = |decoder| {
            let options = [("model", model), ("decoder", decoder), ("metric", "auc"), ("epochs", "10")];
            train_in(&root.path().join(data), &options, None).unwrap().test.score.unwrap()
        };
        let (structure, dot) = (of("structure"), of("dot"));
        assert!(structure > 0.85 && structure > dot, "{data}: AUC {structure}, {dot} without structure");
    }
}

#[test]
fn models_read_the_graph_that_they_are_built_for() {
    let root = tempfile::tempdir().unwrap();
    stored(root.path());
    let (config, data) = (config(&root.path().join("one"), &[]).unwrap(), groups());
    let ends = data.graph.in_neighbors(7);
    let scores = |model: Model| {
        let (rows, backend) = (Matrix::zeros(ends.len(), data.labels.classes()), Cpu::default());
        let nodes = [ends, &vec![7; ends.len()][..]];
        let pairs = Pairs { source: rows.view(), destination: rows.view(), relation: &[], nodes };
        let (pass, mut scores) = (Pass { backend: &backend, training: false, key: 0 }, Matrix::default());
        model.decoder().unwrap().forward(&pass, &pairs, &mut Saved::default(), &mut scores);
        scores.view().host().to_vec()
    };
    let of_graph = scores(build::model(&config, &data).unwrap());
    let of_shapes = scores(build::model_of_shapes(&config, &data).unwrap());
    assert!(of_graph.iter().zip(&of_shapes).all(|(graph, shapes)| graph != shapes));
    let graph = Graph::new(vec![0u64; NODES + 1].into(), Vec::<u32>::new().into()).unwrap();
    assert_eq!(scores(build::model(&config, &Dataset { graph, ..groups() }).unwrap()), of_shapes);
}

/// Results of a run without those that depend on time.
fn results(summary: &Summary, run: &Path) -> String {
    let epochs: Vec<_> = summary
        .epochs
        .iter()
        .map(|of| format!("{} {:?} {}", of.loss, of.valid_score, of.sampled_edges))
        .collect();
    let files = ["best.safetensors", "checkpoint/model.safetensors", "checkpoint/optimizer.safetensors"];
    let files = files.map(|file| fs::read(run.join(file)).unwrap());
    format!("{epochs:?} {:?} {:?} {files:?}", summary.best, summary.test)
}

#[test]
fn results_depend_neither_on_threads_nor_interruptions() {
    let root = tempfile::tempdir().unwrap();
    stored(root.path());
    for (name, model) in MODELS {
        let data = root.path().join(name);
        let options = [("model", model), ("epochs", "3"), ("checkpoint_batches", "1")];
        let with = |threads: usize| {
            let run = RunDir::create(&root.path().join(format!("{name}-{threads}"))).unwrap();
            let options = [&options[..], &[("threads", if threads == 1 { "1" } else { "3" })]].concat();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let summary = pool.install(|| train_in(&data, &options, Some(&run))).unwrap();
            results(&summary, run.path())
        };
        let expected = with(1);
        assert!(with(3) == expected, "{name}: threads");

        let config = config(&data, &options).unwrap();
        let path = root.path().join(format!("{name}-broken"));
        let (mut summary, mut resume) = (None, false);
        for batches in [3, 1, 4, usize::MAX] {
            let run = if resume { RunDir::open(&path).unwrap() } else { RunDir::create(&path).unwrap() };
            let done = AtomicUsize::new(0);
            let stop = || done.fetch_add(1, SeqCst) + 1 >= batches;
            let context = RunContext { run: Some(&run), resume, observer: &mut Quiet, stop: &stop };
            summary = AnyDataset::open(&config).unwrap().train(&config, context).ok();
            resume = true;
        }
        assert!(results(&summary.unwrap(), &path) == expected, "{name}: interruptions");
    }
}

#[test]
fn simulated_devices_read_the_structure_that_one_reads() {
    let root = tempfile::tempdir().unwrap();
    stored(root.path());
    for model in ["sage", "rsage"] {
        let of = |devices| {
            let on = [("strategy", "time-sharing"), ("devices", devices), ("batches_per_update", "2")];
            let options = [&[("model", model)][..], &on].concat();
            let summary = train_in(&root.path().join("one"), &options, None).unwrap();
            summary.epochs.iter().map(|epoch| (epoch.loss, epoch.valid_score)).collect::<Vec<_>>()
        };
        assert_eq!(of("virtual:2"), of("virtual:1"), "{model}");
    }
}

/// Scores against pairs and among all nodes, best candidates and scores of single pairs.
#[test]
fn saved_runs_rank_as_the_run_did() {
    let root = tempfile::tempdir().unwrap();
    stored(root.path());
    let data = groups();
    for (name, model) in MODELS {
        for metric in ["auc", "mrr"] {
            let path = root.path().join(format!("run-{name}-{metric}"));
            let run = RunDir::create(&path).unwrap();
            let options = [("model", model), ("metric", metric)];
            let summary = train_in(&root.path().join(name), &options, Some(&run)).unwrap();
            drop(run);
            let saved = SavedRun::open(&path, false).unwrap();
            let scores = saved.scores_on(None, &QuietWork).unwrap();
            assert_eq!(scores.test, summary.test.score, "{name} {metric}");
            if metric == "auc" {
                continue;
            }
            let best = |all_edges| {
                let options = CandidateOptions { k: 3, all_edges, ..CandidateOptions::default() };
                saved.candidates_on(None, Selection::All, options, &QuietWork).unwrap()
            };
            let trained = best(false);
            for (&u, &v) in trained.nodes.iter().zip(&trained.candidates) {
                assert!(u != v && !data.graph.in_neighbors(v).contains(&u), "a known edge is no candidate");
            }
            assert!(best(true).scores != trained.scores, "{name}: edges that validate and test are read");
            let links = LinkPredictor::open(&path, None, false, Reading::Training, &QuietWork).unwrap();
            let top = links.top(0, &[7], TopOptions { k: 3, ..TopOptions::default() }).unwrap();
            let at = trained.nodes.iter().position(|&node| node == 7).unwrap();
            let expected = trained.candidates[at..].iter().copied().zip(trained.scores[at..].iter().copied());
            assert_eq!(top[0], expected.take(top[0].len()).collect::<Vec<_>>());
            let pairs: Vec<(u32, u32)> = top[0].iter().map(|&(v, _)| (7, v)).collect();
            let alone = links.score(0, &pairs).unwrap();
            assert!(alone.iter().zip(&top[0]).all(|(score, (_, of_top))| score == of_top), "{name}");
            let message =
                saved.export_model("pyg", &root.path().join("exported")).map(drop).unwrap_err().to_string();
            assert!(message.contains("reads the graph of the dataset around each pair"), "{message}");
        }
    }
}

#[test]
fn runs_without_one_graph_around_pairs_are_refused_with_a_remedy() {
    let root = tempfile::tempdir().unwrap();
    stored(root.path());
    let message = |dir: &Path, options: &[(&str, &str)]| {
        train_in(dir, options, None).map(drop).unwrap_err().to_string()
    };
    let of_types = root.path().join("shop");
    shop(&of_types);
    for task in ["likes", "link"] {
        let found = message(&of_types, &[("task", task), ("model", "rsage")]);
        let expected = "--decoder structure: it reads one graph around each pair, of one node type and one \
                        edge type, and the dataset has 3 and ";
        assert!(found.starts_with(expected) && found.contains("or use --decoder dot, "), "{found}");
    }
    for (data, model) in MODELS {
        let found = message(&root.path().join(data), &[("model", model), ("devices", "cuda:0")]);
        assert!(found.contains("the processor searches the graph") || found.contains("cuda"), "{found}");
    }
    let found = message(&root.path().join("bare"), &[("model", "embedding")]);
    assert!(found.contains("--decoder structure: it does not train tables of embeddings"), "{found}");
    let pairs: Vec<(u32, u32)> = (0..60).map(|i| (i % 30, (i * 7 + 1 + i / 30) % 30)).collect();
    let mut timed = TypedBuilder::new("timed");
    timed.node_type("node", 30);
    let (src, dst): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
    timed.edge_type("node", "to", "node").edges(src, dst).time((0..60).collect::<Vec<i64>>());
    timed.build().unwrap().save(root.path().join("timed")).unwrap();
    let options = [("model", "rsage"), ("link_times", "edges"), ("split_edges", "time:80,10,10")];
    let found = message(&root.path().join("timed"), &options);
    assert!(found.contains("the graph around a pair has no times"), "{found}");
    // a task on edges of one type trains
    let mut of_task = TypedBuilder::new("task");
    of_task.node_type("node", 30);
    let (src, dst): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
    of_task.edge_type("node", "to", "node").edges(src, dst);
    let on = EdgeType::new("node", "to", "node");
    let part = |pairs: &[(u32, u32)]| pairs.iter().flat_map(|&(u, v)| [u, v]).collect::<Vec<u32>>();
    let parts = [part(&pairs[..40]), part(&pairs[40..50]), part(&pairs[50..])];
    of_task.task("to").on_edges(on).positives(parts);
    of_task.build().unwrap().save(root.path().join("task")).unwrap();
    let summary = train_in(&root.path().join("task"), &[("model", "rsage"), ("task", "to")], None).unwrap();
    assert!(summary.epochs[1].loss.is_finite());
}
