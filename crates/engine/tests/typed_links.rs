//! Links of datasets of several types: every model, sampler and decoder learns, results depend
//! neither on threads nor on interruptions, rankings are those of a plain loop, and unusable
//! options are refused by name.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_core::progress::Quiet as QuietWork;
use graphmill_data::{
    TypedBuilder, TypedDataset,
    typed::{self, EdgeType, Verify},
};
use graphmill_engine::{
    AnyDataset, CandidateOptions, EmbedOptions, Error, Result, RunContext, RunDir, TrainConfig,
    observer::{Observer, Quiet},
    options::key,
    record::Summary,
    saved::{SavedRun, Selection},
};
use graphmill_loader::typed::TABLE as SAMPLERS;
use graphmill_nn::{link::decoder::TABLE as DECODERS, typed::TABLE as MODELS};

use crate::scoring_interval::interval;

const USERS: u32 = 60;
const ITEMS: u32 = 45;

/// Pairs by their number: of ten, one validates and one tests.
fn split(builder: &mut TypedBuilder, name: &str, on: EdgeType, pairs: &[(u32, u32)], metric: &str) {
    let part = |keep: fn(usize) -> bool| {
        let kept = pairs.iter().enumerate().filter(|(i, _)| keep(i % 10));
        kept.flat_map(|(_, &(u, v))| [u, v]).collect::<Vec<u32>>()
    };
    let parts = [part(|i| i > 1), part(|i| i == 0), part(|i| i == 1)];
    builder.task(name).on_edges(on).positives(parts).metric(metric);
}

/// Users of three groups, the items of their group that they like or return, and tags of items.
/// Users have no features.
pub(crate) fn shop(dir: &Path) -> TypedDataset {
    let mut builder = TypedBuilder::new("shop");
    let features: Vec<f32> = (0..ITEMS * 4).map(|i| (i * 7 % 11) as f32 / 11.0).collect();
    builder.node_type("item", ITEMS as usize).features(4, features);
    builder.node_type("tag", 3);
    builder.node_type("user", USERS as usize).text_keys((0..USERS).map(|i| format!("user{i}")));
    let all = || (0..USERS).flat_map(|u| (0..15).map(move |i| (u, u % 3 * 15 + i)));
    let likes: Vec<(u32, u32)> = all().filter(|(u, v)| (u * 31 + v * 17) % 7 < 4).collect();
    let returns: Vec<(u32, u32)> = all().filter(|(u, v)| (u * 31 + v * 17) % 7 == 5).collect();
    for (name, back, pairs) in [("likes", "liked-by", &likes), ("returns", "returned-by", &returns)] {
        let (src, dst): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
        builder.edge_type("user", name, "item").edges(src, dst).with_reverse(back);
        split(&mut builder, name, EdgeType::new("user", name, "item"), pairs, "mrr");
    }
    let tags: Vec<u32> = (0..ITEMS).map(|v| v / 15).collect();
    builder.edge_type("tag", "of", "item").edges(tags, (0..ITEMS).collect::<Vec<_>>()).with_reverse("has");
    builder.build().unwrap().save(dir).unwrap();
    typed::open(dir, Verify::Once).unwrap()
}

fn config(dir: &Path, options: &[(&str, &str)]) -> Result<TrainConfig> {
    let mut config = TrainConfig { hidden: 8, batch_size: 64, epochs: 2, lr: 0.02, ..TrainConfig::default() };
    config.dataset = dir.to_str().unwrap().into();
    config.task = "likes".into();
    config.fanout = graphmill_loader::Fanout(vec![5, 5]);
    let given: Vec<&str> = options.iter().map(|(name, _)| *name).chain(["task"]).collect();
    for (name, value) in options {
        key(name).unwrap().parse(&mut config, value).map_err(Error::usage)?;
    }
    config.derive_options(&given)?;
    config.check()?;
    config.refuse_unused(&given)?;
    Ok(config)
}

pub(super) fn train_in(dir: &Path, options: &[(&str, &str)], run: Option<&RunDir>) -> Result<Summary> {
    let config = config(dir, options)?;
    let context = RunContext { run, resume: false, observer: &mut Quiet, stop: &|| false };
    AnyDataset::open(&config)?.train(&config, context)
}

fn train(dir: &Path, options: &[(&str, &str)]) -> Result<Summary> {
    train_in(dir, options, None)
}

#[test]
fn every_model_trains_with_every_sampler() {
    let dir = tempfile::tempdir().unwrap();
    shop(dir.path());
    for model in MODELS.iter().filter(|row| !row.make.reads_edges) {
        for sampler in &SAMPLERS {
            let mut options = vec![("model", model.name), ("sampler", sampler.name), ("dropout", "0")];
            if sampler.make.draws_subgraphs {
                let message = train(dir.path(), &options).unwrap_err().to_string();
                assert!(message.contains("cannot start from the ends of edges; use --sampler neighbor"));
                continue;
            }
            if sampler.name == "weighted" {
                options.push(("replace", "true"));
            }
            if sampler.name == "hgt" {
                options.push(("fanout", "30,30"));
            }
            if sampler.name == "metapath-walk" {
                options.push(("num_walks", "20"));
            }
            let summary = train(dir.path(), &options).unwrap();
            let [first, second] = [0, 1].map(|epoch: usize| summary.epochs[epoch].loss);
            assert!(second < first && first.is_finite(), "{} {}", model.name, sampler.name);
            assert!(summary.test.score.is_some() && summary.best.valid_score.is_some());
        }
    }
}

#[test]
fn every_decoder_and_every_kind_of_negatives_trains() {
    let dir = tempfile::tempdir().unwrap();
    shop(dir.path());
    // decoders of structure are for one type
    for decoder in DECODERS.iter().filter(|entry| !entry.make.reads_structure) {
        let options = [("decoder", decoder.name), ("num_negatives", "3"), ("dropout", "0")];
        let one = train(dir.path(), &options).unwrap();
        assert!(one.epochs[1].loss < one.epochs[0].loss, "{}: {:?}", decoder.name, one.epochs[1].loss);
        let all = [&options[..], &[("task", "link"), ("corrupt", "both")]].concat();
        let all = train(dir.path(), &all);
        match decoder.make.knows_relations {
            true => assert!(all.unwrap().epochs.iter().all(|epoch| epoch.loss.is_finite())),
            false => assert!(all.unwrap_err().to_string().contains("scores edges of all 2 relations alike")),
        }
    }
    for negatives in ["uniform", "degree", "in-batch", "hard"] {
        let options = [("negatives", negatives), ("task", "link"), ("decoder", "distmult")];
        let summary = train(dir.path(), &options).unwrap();
        assert!(summary.epochs.iter().all(|epoch| epoch.loss.is_finite()), "{negatives}");
    }
    for loss in ["bpr", "margin", "info-nce", "self-adversarial", "sampled-softmax"] {
        let summary = train(dir.path(), &[("loss", loss), ("num_negatives", "4"), ("dropout", "0")]).unwrap();
        assert!(summary.epochs[1].loss < summary.epochs[0].loss, "{loss}");
    }
}

#[test]
fn rankings_are_spread_by_the_pairs_that_they_score() {
    let dir = tempfile::tempdir().unwrap();
    shop(dir.path());
    let few = [("eval_every", "auto"), ("epochs", "20"), ("max_batches", "1"), ("batch_size", "16")];
    let of = |options: &[(&str, &str)]| train(dir.path(), &[&few[..], options].concat()).unwrap();
    let [all, some] = [of(&[]), of(&[("eval_nodes", "2")])].map(|summary| interval(&summary));
    assert!(all >= some && some > 1, "{all} {some}");
}

#[test]
fn links_within_groups_are_learned() {
    let dir = tempfile::tempdir().unwrap();
    shop(dir.path());
    let long = [("epochs", "30"), ("eval_every", "10"), ("dropout", "0"), ("num_negatives", "4")];
    let summary = train(dir.path(), &long).unwrap();
    // of 45 items 15 are in the group of a user, and those that the user likes are left out
    assert!(summary.test.score.unwrap() > 0.25, "{:?}", summary.test);
    assert_eq!((&summary.test.metric[..], summary.dataset.test > 0), ("mrr", true));
    let pairs = train(dir.path(), &[&long[..], &[("metric", "auc")]].concat()).unwrap();
    assert!(pairs.test.score.unwrap() > 0.8, "{:?}", pairs.test);
    let epoch = &summary.epochs[0];
    assert_eq!(epoch.edge_types.iter().map(|edges| edges.count).sum::<u64>(), epoch.sampled_edges);
    assert_eq!((epoch.node_types.len(), epoch.seeds), (3, summary.dataset.train as u64));
}

#[test]
fn edges_of_a_type_without_a_task_are_split() {
    let dir = tempfile::tempdir().unwrap();
    shop(dir.path());
    let summary = train(dir.path(), &[("task", "tag:of:item"), ("metric", "auc")]).unwrap();
    let record = &summary.dataset;
    assert_eq!((record.train, record.valid, record.test), (38, 2, 5));
    let message = train(dir.path(), &[("task", "tag:on:item")]).unwrap_err().to_string();
    assert!(message.contains("unknown task 'tag:on:item'"), "{message}");
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
fn results_depend_neither_on_threads_nor_strategy_nor_interruptions() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    shop(&data);
    for own in [
        &[("negatives", "hard"), ("decoder", "distmult"), ("task", "link")][..],
        &[
            ("sampler", "labor"),
            ("decoder", "mlp"),
            ("loss", "bpr"),
            ("disjoint", "0.4"),
            ("precision", "bf16"),
            ("clip", "0.1"),
        ],
        &[("sampler", "metapath-walk"), ("metapath", "likes,liked-by;returned-by,returns")],
    ] {
        let options = [&[("epochs", "3"), ("checkpoint_batches", "1"), ("norm", "batch")], own].concat();
        let with = |name: &str, threads: &str, strategy: &str| {
            let run = RunDir::create(&dir.path().join(format!("{name}-{}", own[0].1))).unwrap();
            let options = [&options[..], &[("threads", threads), ("strategy", strategy)]].concat();
            let threads = threads.parse().unwrap();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let summary = pool.install(|| train_in(&data, &options, Some(&run))).unwrap();
            results(&summary, run.path())
        };
        let expected = with("one", "1", "sequential");
        assert_eq!(with("three", "3", "sequential"), expected);
        assert_eq!(with("pipelined", "2", "pipelined"), expected);

        let config = config(&data, &[&options[..], &[("threads", "2")]].concat()).unwrap();
        let path = dir.path().join(format!("broken-{}", own[0].1));
        let (mut summary, mut resume) = (None, false);
        for batches in [3, 1, 4, usize::MAX] {
            let run = if resume { RunDir::open(&path).unwrap() } else { RunDir::create(&path).unwrap() };
            let done = AtomicUsize::new(0);
            let stop = || done.fetch_add(1, SeqCst) + 1 >= batches;
            let context = RunContext { run: Some(&run), resume, observer: &mut Quiet, stop: &stop };
            summary = AnyDataset::open(&config).unwrap().train(&config, context).ok();
            resume = true;
        }
        assert_eq!(results(&summary.unwrap(), &path), expected);
    }
}

#[test]
fn saved_runs_score_rank_and_embed() {
    for (sampler, precision) in [("neighbor", "bf16"), ("metapath-walk", "f32")] {
        saved_runs_with_score_rank_and_embed(sampler, precision);
    }
}

fn saved_runs_with_score_rank_and_embed(sampler: &str, precision: &str) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    shop(&data);
    let run = RunDir::create(&dir.path().join("run")).unwrap();
    let options = [("epochs", "6"), ("dropout", "0"), ("sampler", sampler), ("precision", precision)];
    let summary = train_in(&data, &options, Some(&run)).unwrap();
    let saved = SavedRun::open(run.path(), false).unwrap();
    assert!(saved.ranks_links());
    let scores = saved.scores_on(None, &QuietWork).unwrap();
    assert_eq!((scores.test, &scores.metric[..]), (summary.test.score, "mrr"));

    let options = CandidateOptions { k: 5, ..CandidateOptions::default() };
    let best = saved.candidates_on(None, Selection::All, options, &QuietWork).unwrap();
    assert_eq!(best.nodes.len(), 5 * USERS as usize);
    let stored = typed::open(&data, Verify::Once).unwrap();
    let likes = stored.edge_type(&EdgeType::new("user", "likes", "item")).unwrap();
    for (&user, &item) in best.nodes.iter().zip(&best.candidates) {
        assert!(!likes.indices[likes.row(item)].contains(&user), "a known edge is no candidate");
    }
    let sources = CandidateOptions { sources: true, relation: Some("likes"), ..options };
    let best = saved.candidates_on(None, Selection::All, sources, &QuietWork).unwrap();
    assert_eq!(best.nodes.len(), 5 * ITEMS as usize);

    let rows = |node_type, all_edges| {
        let out = dir.path().join("rows.npy");
        let options = EmbedOptions { node_type, all_edges, ..EmbedOptions::default() };
        let (_, written) = saved.embed_on(None, Selection::All, options, &out, &QuietWork).unwrap();
        (written.rows, written.cols, fs::read(out).unwrap())
    };
    let (count, cols, training) = rows(Some("user"), false);
    assert_eq!((count, cols), (USERS as usize, 8));
    assert!(training != rows(Some("user"), true).2, "edges that validate and test are read");
    assert_eq!(rows(None, false).0, ITEMS as usize);
    let wrong = CandidateOptions { relation: Some("returns"), ..options };
    let message = saved.candidates_on(None, Selection::All, wrong, &QuietWork).unwrap_err().to_string();
    assert!(message.contains("relation 'returns' is unknown"), "{message}");
}

#[test]
fn an_undeclared_reverse_is_named() {
    struct Notes(Vec<String>);
    impl Observer for Notes {
        fn note(&mut self, note: &str) {
            self.0.push(note.into());
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let mut data = shop(dir.path());
    let likes = data.edges.iter_mut().filter(|edges| edges.edge_type.name.starts_with("like"));
    likes.for_each(|edges| edges.reverse = None);
    let other = dir.path().join("other");
    data.save(&other).unwrap();
    let config = config(&other, &[]).unwrap();
    let mut notes = Notes(Vec::new());
    let context = RunContext { run: None, resume: false, observer: &mut notes, stop: &|| false };
    AnyDataset::open(&config).unwrap().train(&config, context).unwrap();
    let found = notes.0.iter().find(|note| note.contains("item:liked-by:user")).unwrap();
    assert!(found.contains("are the reverses of") && found.contains("that validate or test"), "{found}");
    let one_way = "1 of 1 learned edge types have no reverse type, so that messages pass from sources to \
                   destinations alone: import with --add-reverses";
    assert!(notes.0.iter().any(|note| note.starts_with(one_way)), "{:?}", notes.0);
}

#[test]
fn unusable_options_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    shop(dir.path());
    for (option, value, expected) in [
        ("embedding_dim", "4", "--hidden is the width of the embeddings"),
        ("head_layers", "1", "the decoder scores the rows of the last layer"),
        ("positives", "walks", "the positives are edges"),
        ("cache", "lru", "host memory holds all rows"),
        ("host_cache", "lru", "use it instead"),
        ("strategy", "historical", "it trains on batches of one graph"),
        ("strategy", "factored", "it runs on simulated devices"),
        ("focal", "1", "links have no targets"),
        ("candidates", "all", "--metric says what edges are compared with"),
        ("margin", "2", "--loss bce does not use it"),
        ("devices", "cuda:0,1", "one NVIDIA device trains"),
        ("device_budget", "1G", "--devices cpu has no device memory"),
        ("order", "bfs", "it orders nodes"),
    ] {
        let message = train(dir.path(), &[(option, value)]).unwrap_err().to_string();
        assert!(message.contains(expected), "{option}: {message}");
    }
    // an NVIDIA device trains, and has memory to limit and a cache
    for options in [("device_budget", "1G"), ("cache_ratio", "0.5")] {
        config(dir.path(), &[("devices", "cuda:0"), options]).unwrap();
    }
    let expects = [("cache_ratio", "0.5"), ("cache", "posterior:2")];
    let message = train(dir.path(), &expects).unwrap_err().to_string();
    assert!(message.starts_with("--cache posterior:2: ") && message.contains("use presc:2"), "{message}");
    let counts = [("cache_ratio", "0.5"), ("cache", "presc-online:1")];
    let message = train(dir.path(), &counts).unwrap_err().to_string();
    assert!(message.starts_with("--cache presc-online:1 with links: "), "{message}");
    // options of links without links
    let mut on_nodes = config(dir.path(), &[]).unwrap();
    on_nodes.task = String::new();
    let message = on_nodes.refuse_unused(&["num_negatives"]).unwrap_err().to_string();
    assert!(message.contains("the task is on nodes; use --task link"), "{message}");
}
