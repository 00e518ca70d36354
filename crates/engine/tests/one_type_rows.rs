//! Graphs of one node type without features: models of types learn a row of each node, for classes
//! and for links, from both formats of datasets. Results depend neither on threads nor on
//! interruptions, and saved runs answer as the run did.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_core::{Features, progress::Quiet as QuietWork};
use graphmill_data::{
    Dataset, TypedDataset,
    generate::{GenerateOptions, generate},
};
use graphmill_engine::{
    AnyDataset, CandidateOptions, EmbedOptions, Error, Result, RunContext, RunDir, TrainConfig, fit,
    observer::Quiet,
    options::key,
    predictor::{LinkPredictor, Neighborhood, Predictor, TopOptions},
    record::Summary,
    saved::{Kind, SavedRun, Selection, links::Reading},
};
use graphmill_nn::typed::TABLE as MODELS;

const NODES: usize = 400;

/// Groups of nodes that have most edges among themselves. The group of a node is its class.
fn groups() -> Dataset {
    let options = GenerateOptions {
        nodes: NODES,
        classes: 4,
        dim: 1,
        degree: Some(12.0),
        p_in: 0.9,
        ..GenerateOptions::default()
    };
    Dataset { name: "groups".into(), features: Features::default(), ..generate("sbm", &options).unwrap() }
}

/// The dataset in the directories `old`, of format 1, and `new`, of format 2.
fn stored(root: &Path) {
    groups().save(root.join("old")).unwrap();
    TypedDataset::from_dataset(&groups()).save(root.join("new")).unwrap();
}

fn config(dir: &Path, options: &[(&str, &str)]) -> Result<TrainConfig> {
    let mut config = TrainConfig { hidden: 8, batch_size: 64, epochs: 2, lr: 0.02, ..TrainConfig::default() };
    config.dataset = dir.to_str().unwrap().into();
    config.fanout = graphmill_loader::Fanout(vec![5, 5]);
    let given: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
    for (name, value) in options {
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

fn train(dir: &Path, options: &[(&str, &str)]) -> Result<Summary> {
    train_in(dir, options, None)
}

#[test]
fn every_model_of_types_learns_a_row_of_each_node() {
    let root = tempfile::tempdir().unwrap();
    stored(root.path());
    for model in MODELS.iter().filter(|row| !row.make.reads_edges) {
        for task in [&[][..], &[("task", "link")]] {
            let options = [&[("model", model.name), ("dropout", "0")][..], task].concat();
            let [old, new] = ["old", "new"].map(|name| train(&root.path().join(name), &options).unwrap());
            let [first, second] = [0, 1].map(|epoch: usize| old.epochs[epoch].loss);
            assert!(second < first && first.is_finite(), "{}: {first}, {second}", model.name);
            assert_eq!(second, new.epochs[1].loss, "{}: formats", model.name);
            assert_eq!((old.test.score, &old.best), (new.test.score, &new.best), "{}: formats", model.name);
        }
    }
}

#[test]
fn groups_are_learned_from_edges_alone() {
    let root = tempfile::tempdir().unwrap();
    stored(root.path());
    let old = root.path().join("old");
    let options = [("model", "rsage"), ("epochs", "30"), ("dropout", "0.2")];
    let classes = train(&old, &options).unwrap().test.score.unwrap();
    assert!(classes > 0.6, "accuracy {classes}, by chance 0.25");
    let links = [&options[..], &[("task", "link"), ("metric", "auc"), ("num_negatives", "2")]].concat();
    let links = train(&old, &links).unwrap().test.score.unwrap();
    assert!(links > 0.65, "AUC {links}, by chance 0.5");
}

/// Results of a run without those that depend on time.
fn results(summary: &Summary, run: &Path) -> String {
    let epochs: Vec<_> = summary
        .epochs
        .iter()
        .map(|of| format!("{} {:?} {} {:?}", of.loss, of.valid_score, of.sampled_edges, of.edge_types))
        .collect();
    let files = ["best.safetensors", "checkpoint/model.safetensors", "checkpoint/optimizer.safetensors"];
    let files = files.map(|file| fs::read(run.join(file)).unwrap());
    format!("{epochs:?} {:?} {:?} {files:?}", summary.best, summary.test)
}

#[test]
fn results_depend_neither_on_threads_nor_interruptions() {
    let root = tempfile::tempdir().unwrap();
    stored(root.path());
    for (name, own) in [
        ("classes", &[("model", "rgat"), ("heads", "2")][..]),
        ("links", &[("model", "rsage"), ("task", "link"), ("decoder", "mlp")]),
    ] {
        let options = [&[("epochs", "3"), ("checkpoint_batches", "1"), ("norm", "batch")], own].concat();
        let data = root.path().join("old");
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
fn saved_runs_on_classes_answer_as_the_run_did() {
    let root = tempfile::tempdir().unwrap();
    stored(root.path());
    for name in ["old", "new"] {
        let path = root.path().join(format!("run-{name}"));
        let run = RunDir::create(&path).unwrap();
        let options = [("model", "hgt"), ("heads", "2")];
        let summary = train_in(&root.path().join(name), &options, Some(&run)).unwrap();
        drop(run);
        let saved = SavedRun::open(&path, false).unwrap();
        assert!(!saved.ranks_links());
        let scores = saved.scores_on(None, &QuietWork).unwrap();
        assert_eq!((scores.test, scores.same_dataset), (summary.test.score, Some(true)));
        let out = root.path().join("classes.csv");
        let (_, written) =
            saved.predict_on(None, (Selection::All, false), (Kind::Classes, &out), &QuietWork).unwrap();
        assert_eq!(written.rows, NODES);
        let one = Predictor::open(&path, None, false).unwrap();
        let rows = fs::read_to_string(&out).unwrap();
        let answers = one.predict(&[7], Neighborhood::All).unwrap();
        assert_eq!(rows.lines().nth(8).unwrap(), format!("7,{}", answers.classes[0]));
        // rows belong to the nodes of the run's dataset
        let mut other = groups();
        other.name = "other".into();
        let to = root.path().join(format!("other-{name}"));
        other.save(&to).unwrap();
        let message = saved.scores_on(Some(&to), &QuietWork).unwrap_err().to_string();
        assert!(message.contains("type 'node' has no features, so the model has a learned row"), "{message}");
    }
}

#[test]
fn saved_runs_on_links_rank_and_embed_as_the_run_did() {
    let root = tempfile::tempdir().unwrap();
    stored(root.path());
    let data = groups();
    for name in ["old", "new"] {
        let path = root.path().join(format!("run-{name}"));
        let run = RunDir::create(&path).unwrap();
        let options = [("model", "simple-hgn"), ("heads", "2"), ("task", "link"), ("metric", "mrr")];
        let summary = train_in(&root.path().join(name), &options, Some(&run)).unwrap();
        drop(run);
        let saved = SavedRun::open(&path, false).unwrap();
        assert!(saved.ranks_links());
        let scores = saved.scores_on(None, &QuietWork).unwrap();
        assert_eq!((scores.test, &scores.metric[..]), (summary.test.score, "mrr"));
        let options = CandidateOptions { k: 3, ..CandidateOptions::default() };
        let best = saved.candidates_on(None, Selection::All, options, &QuietWork).unwrap();
        assert_eq!(best.nodes.len(), 3 * NODES);
        for (&u, &v) in best.nodes.iter().zip(&best.candidates) {
            assert!(u != v && !data.graph.in_neighbors(v).contains(&u), "a known edge is no candidate");
        }
        let links = LinkPredictor::open(&path, None, false, Reading::Training, &QuietWork).unwrap();
        let top = links.top(0, &[7], TopOptions { k: 3, ..TopOptions::default() }).unwrap();
        let expected = best.candidates[21..24].iter().copied().zip(best.scores[21..24].iter().copied());
        assert_eq!(top[0], expected.collect::<Vec<_>>());
        let embed = |all_edges| {
            let out = root.path().join("rows.npy");
            let options = EmbedOptions { all_edges, ..EmbedOptions::default() };
            let (_, written) = saved.embed_on(None, Selection::All, options, &out, &QuietWork).unwrap();
            assert_eq!((written.rows, written.cols), (NODES, 8));
            fs::read(out).unwrap()
        };
        assert!(embed(false) != embed(true), "edges that validate and test are read");
    }
}

#[test]
fn models_of_one_type_name_the_model_that_learns_rows() {
    let root = tempfile::tempdir().unwrap();
    stored(root.path());
    for (model, remedy) in [("sage", "rsage"), ("gcn", "rgcn"), ("gat", "rgat"), ("gin", "rsage")] {
        for task in [&[][..], &[("task", "link")]] {
            for name in ["old", "new"] {
                let options = [&[("model", model)][..], task].concat();
                let message = train(&root.path().join(name), &options).unwrap_err().to_string();
                let expected = format!("dataset groups: it has no features, which --model {model} reads");
                assert!(message.starts_with(&expected), "{message}");
                assert!(message.contains(&format!("use --model {remedy}, which learns a row")), "{message}");
            }
        }
    }
    for task in [&[][..], &[("task", "link")]] {
        let options = [&[("model", "gine")][..], task].concat();
        let message = train(&root.path().join("new"), &options).unwrap_err().to_string();
        let expected = "no edge type has features, which --model gine reads; use --model rsage, rgcn";
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn models_of_types_are_fitted_in_memory() {
    let root = tempfile::tempdir().unwrap();
    stored(root.path());
    let (old, memory) = (Dataset::open(root.path().join("old")).unwrap(), groups());
    let message = fit(&config(root.path(), &[]).unwrap(), &old).map(drop).unwrap_err().to_string();
    assert!(message.contains("it has no features"), "{message}");
    for model in ["rsage", "rgcn", "rgat", "hgt"] {
        let options = [("model", model), ("epochs", "3")];
        // the run of the command, and its answers
        let (out, dir) = (root.path().join(format!("run-{model}")), root.path().join("old"));
        let config = config(&dir, &options).unwrap();
        let run = RunDir::create(&out).unwrap();
        let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
        let whole = AnyDataset::open(&config).unwrap().train(&config, context).unwrap();
        let nodes = [7, 399, 7, 0];
        let expected =
            Predictor::open(&out, None, false).unwrap().predict(&nodes, Neighborhood::All).unwrap();
        for (data, threads) in [(&memory, 0), (&memory, 2), (&old, 1)] {
            let trained = fit(&TrainConfig { threads, ..config.clone() }, data).unwrap();
            let losses = |of: &Summary| of.epochs.iter().map(|epoch| epoch.loss).collect::<Vec<_>>();
            assert_eq!(losses(trained.summary()), losses(&whole), "{model}");
            assert_eq!(trained.summary().test.score, whole.test.score, "{model}");
            let classes = trained.classes(data, &nodes).unwrap();
            let as_saved = expected.classes.iter().map(|&class| class as usize).collect::<Vec<_>>();
            assert_eq!(classes, as_saved, "{model}");
            let rows = trained.probabilities(data, &nodes).unwrap();
            assert_eq!(rows.view().host(), &expected.scores[..], "{model}");
            assert_eq!(trained.embeddings(data, &nodes).unwrap().num_rows(), 4);
            assert_eq!(trained.logits(data, &[]).unwrap().num_rows(), 0);
            assert!(trained.model().is_none() && trained.typed_model().is_some());
        }
    }
}

#[test]
fn learned_rows_answer_for_their_own_nodes_only() {
    let config = TrainConfig { model: "rsage".into(), ..config(Path::new("none"), &[]).unwrap() };
    let trained = fit(&config, &groups()).unwrap();
    let other = |nodes| {
        let options = GenerateOptions { nodes, classes: 4, dim: 1, seed: 9, ..GenerateOptions::default() };
        Dataset { features: Features::default(), ..generate("sbm", &options).unwrap() }
    };
    for nodes in [NODES, 300] {
        let message = trained.classes(&other(nodes), &[0]).unwrap_err().to_string();
        assert!(message.contains("learned row of each node of"), "{message}");
        assert!(message.contains("other nodes; pass that dataset"), "{message}");
    }
    let message = trained.classes(&groups(), &[400]).unwrap_err().to_string();
    assert!(message.contains("node 400 is outside"), "{message}");
    let root = tempfile::tempdir().unwrap();
    stored(root.path());
    let data = Dataset::open(root.path().join("new")).unwrap();
    let links = TrainConfig { task: "link".into(), ..config };
    let message = fit(&links, &data).map(drop).unwrap_err().to_string();
    assert!(message.contains("learns edges") && message.contains("AnyDataset"), "{message}");
}

#[test]
fn models_of_types_read_features_of_other_datasets() {
    let options = GenerateOptions { nodes: NODES, classes: 4, dim: 8, ..GenerateOptions::default() };
    let data = generate("sbm", &options).unwrap();
    let config = TrainConfig { model: "rgcn".into(), ..config(Path::new("none"), &[]).unwrap() };
    let trained = fit(&config, &data).unwrap();
    let options = GenerateOptions { nodes: 50, seed: 9, ..options };
    let other = generate("sbm", &options).unwrap();
    assert_eq!(trained.probabilities(&other, &[49, 3]).unwrap().num_rows(), 2);
    // labels are not needed
    let unlabelled = generate("sbm", &options).unwrap();
    let unlabelled = Dataset { labels: Default::default(), split: Default::default(), ..unlabelled };
    let all: Vec<u32> = (0..50).collect();
    assert_eq!(trained.classes(&unlabelled, &all).unwrap(), trained.classes(&other, &all).unwrap());
}
