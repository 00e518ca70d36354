//! Tables of embeddings: every decoder learns, results depend neither on threads nor on
//! interruptions, and unusable options are refused by name.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_data::{
    TypedBuilder, TypedDataset,
    typed::{
        self, EdgeType, Verify,
        import::{TypedOptions, import},
    },
};
use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig,
    embedding::{self, SavedEmbedding},
    observer::Quiet,
    options::key,
    record::Summary,
    saved::SavedRun,
};
use graphmill_nn::{link::decoder, optim::rows};

use crate::scoring_interval::interval;

/// Pairs by their number: of ten, one validates and one tests.
fn split(builder: &mut TypedBuilder, name: &str, on: EdgeType, pairs: &[(u32, u32)], metric: &str) {
    let part = |keep: fn(usize) -> bool| {
        let kept = pairs.iter().enumerate().filter(|(i, _)| keep(i % 10));
        kept.flat_map(|(_, &(u, v))| [u, v]).collect::<Vec<u32>>()
    };
    let parts = [part(|i| i > 1), part(|i| i == 0), part(|i| i == 1)];
    builder.task(name).on_edges(on).positives(parts).metric(metric);
}

/// A knowledge graph: rotations of a circle of 60 entities by 1, 2, 3 and their inverses.
fn graph(dir: &Path) -> TypedDataset {
    let mut builder = TypedBuilder::new("circle");
    builder.node_type("entity", 60);
    for (name, by) in [("next", 1), ("second", 2), ("third", 3), ("previous", 59), ("before", 58)] {
        let on = EdgeType::new("entity", name, "entity");
        let pairs: Vec<(u32, u32)> = (0..60).map(|i| (i * 7 % 60, (i * 7 + by) % 60)).collect();
        let (src, dst): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
        builder.edge_type("entity", name, "entity").edges(src, dst);
        split(&mut builder, name, on, &pairs, "mrr");
    }
    store(builder, dir)
}

/// Users of three groups and the items that they like.
fn shop(dir: &Path) -> TypedDataset {
    let mut builder = TypedBuilder::new("shop");
    builder.node_type("item", 45);
    builder.node_type("user", 60).text_keys((0..60).map(|i| format!("user{i}")));
    // items come in three groups, and users like half of a group
    let liked = (0..60u32).flat_map(|u| (0..15).map(move |i| (u, u % 3 * 15 + i)));
    let pairs: Vec<(u32, u32)> = liked.filter(|(u, v)| (u * 31 + v * 17) % 7 < 4).collect();
    let (src, dst): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
    builder.edge_type("user", "likes", "item").edges(src, dst);
    split(&mut builder, "likes", EdgeType::new("user", "likes", "item"), &pairs, "ndcg@20");
    store(builder, dir)
}

fn store(builder: TypedBuilder, dir: &Path) -> TypedDataset {
    builder.build().unwrap().save(dir).unwrap();
    typed::open(dir, Verify::Once).unwrap()
}

fn config(data: &TypedDataset, options: &[(&str, &str)]) -> Result<TrainConfig> {
    let mut config =
        TrainConfig { hidden: 16, batch_size: 64, epochs: 4, lr: 0.02, ..TrainConfig::default() };
    config.model = "embedding".into();
    config.dataset = data.directory.as_deref().and_then(Path::to_str).unwrap().into();
    let given: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
    for (name, value) in options {
        key(name).unwrap().parse(&mut config, value).map_err(Error::usage)?;
    }
    config.derive_options(&given)?;
    config.check()?;
    config.refuse_unused(&given)?;
    Ok(config)
}

fn train(data: &TypedDataset, options: &[(&str, &str)]) -> Result<Summary> {
    let config = config(data, options)?;
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    embedding::train(&config, data, context)
}

#[test]
fn every_decoder_learns_with_every_optimizer_of_rows() {
    let dir = tempfile::tempdir().unwrap();
    let data = graph(dir.path());
    for decoder in decoder::TABLE.iter().filter(|entry| entry.make.on_tables && entry.make.knows_relations) {
        for optimizer in &rows::TABLE {
            let options = [
                ("decoder", decoder.name),
                ("row_optimizer", optimizer.name),
                ("num_negatives", "4"),
                ("init_scale", "0.3"),
            ];
            let summary = train(&data, &options).unwrap();
            let [first, last] = [0, 3].map(|epoch: usize| summary.epochs[epoch].loss);
            assert!(last < first && first.is_finite(), "{} {}: {first} {last}", decoder.name, optimizer.name);
            assert!(summary.test.score.is_some() && summary.best.valid_score.is_some());
        }
    }
}

#[test]
fn rankings_are_spread_by_the_pairs_that_they_score() {
    let dir = tempfile::tempdir().unwrap();
    let circle = graph(&dir.path().join("circle"));
    let options = [("eval_every", "auto"), ("epochs", "60"), ("num_negatives", "1"), ("decoder", "distmult")];
    // an epoch scores 240 edges and a negative for each of both ends, and a score 30 edges among 60
    // entities at both ends: 3600 / (1.4 x 960) x 9, rounded up
    assert_eq!(interval(&train(&circle, &options).unwrap()), 25);
    let all = [&options[..2], &[("one_vs_all", "true"), ("decoder", "complex")]].concat();
    assert_eq!(interval(&train(&circle, &all).unwrap()), 1, "an epoch scores all candidates, too");
    let shop = shop(&dir.path().join("shop"));
    let gcn = [("model", "lightgcn"), ("eval_every", "auto"), ("epochs", "12"), ("max_batches", "1")];
    assert!(interval(&train(&shop, &gcn).unwrap()) > 1);
}

#[test]
fn rotations_and_groups_are_learned() {
    let dir = tempfile::tempdir().unwrap();
    let circle = graph(&dir.path().join("circle"));
    let rotate = [
        ("decoder", "rotate"),
        ("loss", "self-adversarial"),
        ("num_negatives", "16"),
        ("gamma", "6"),
        ("epochs", "120"),
        ("lr", "0.05"),
        ("subsampling", "true"),
        ("eval_every", "20"),
    ];
    let summary = train(&circle, &rotate).unwrap();
    assert!(summary.test.score.unwrap() > 0.6, "{:?}", summary.test);
    assert_eq!((&summary.test.metric[..], summary.epochs[0].seeds), ("mrr", 240));
    let complex = [
        ("decoder", "complex"),
        ("one_vs_all", "true"),
        ("row_optimizer", "adagrad"),
        ("lr", "0.1"),
        ("regularizer", "n3"),
        ("regularization", "0.01"),
        ("epochs", "60"),
        ("eval_every", "20"),
    ];
    let summary = train(&circle, &complex).unwrap();
    assert!(summary.test.score.unwrap() > 0.3, "{:?}", summary.test);
    let shop = shop(&dir.path().join("shop"));
    for model in ["embedding", "lightgcn"] {
        let options = [
            ("model", model),
            ("epochs", "30"),
            ("regularization", "1e-4"),
            ("eval_every", "10"),
            ("seed", "2"),
        ];
        let summary = train(&shop, &options).unwrap();
        assert_eq!((&summary.test.metric[..], &summary.config["loss"]), ("ndcg@20", &"bpr".into()));
        // items of the own group are ranked first: three in a list of fifteen are relevant
        assert!(summary.test.score.unwrap() > 0.4, "{model}: {:?}", summary.test);
        let directions = [("decoder", "cosine"), ("loss", "info-nce"), ("num_negatives", "8")];
        let summary = train(&shop, &[&options[..], &directions].concat()).unwrap();
        assert!(summary.test.score.unwrap() > 0.4, "{model} by cosines: {:?}", summary.test);
    }
}

/// Losses, scores and files of a run.
fn results(summary: &Summary, run: &Path) -> (Vec<u64>, Option<f64>, Vec<Vec<u8>>) {
    let losses = summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect();
    let files = ["best.safetensors", "checkpoint/model.safetensors", "checkpoint/optimizer.safetensors"];
    (losses, summary.test.score, files.iter().map(|file| fs::read(run.join(file)).unwrap()).collect())
}

#[test]
fn results_have_the_same_bits_for_any_threads_and_after_interruptions() {
    let dir = tempfile::tempdir().unwrap();
    let (circle, shop) = (graph(&dir.path().join("circle")), shop(&dir.path().join("shop")));
    let sampled =
        [("decoder", "transe"), ("num_negatives", "3"), ("regularization", "0.01"), ("negatives", "degree")];
    let corrected = [("decoder", "distmult"), ("loss", "sampled-softmax"), ("negatives", "degree")];
    let dense = [("decoder", "distmult"), ("one_vs_all", "true")];
    let light = [("model", "lightgcn"), ("regularization", "0.001"), ("layers", "2")];
    let directions = [&light[..], &[("decoder", "cosine"), ("loss", "info-nce")]].concat();
    let rows = |places| [&sampled[..], places].concat();
    let buckets = rows(&[("buckets", "4")]);
    // 60 rows of 16 values with two moments are 11,520 bytes
    let in_files = rows(&[("buckets", "4"), ("host_budget", "9000")]);
    let adagrad = [&in_files[..], &[("row_optimizer", "adagrad"), ("host_budget", "6000")]].concat();
    let cases = [
        ("sampled", &circle, &sampled[..]),
        ("corrected", &circle, &corrected),
        ("dense", &circle, &dense),
        ("light", &shop, &light),
        ("directions", &shop, &directions),
        ("buckets", &circle, &buckets),
        ("in files", &circle, &in_files),
        ("adagrad in files", &circle, &adagrad),
    ];
    let mut of_buckets = None;
    for (case, data, options) in cases {
        let options =
            [options, &[("epochs", "3"), ("checkpoint_batches", "2"), ("schedule", "cosine")]].concat();
        let config = config(data, &options).unwrap();
        let whole = |name: &str, threads| {
            let run = RunDir::create(&dir.path().join(format!("{case}-{name}"))).unwrap();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let context =
                RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
            let summary = pool.install(|| embedding::train(&config, data, context)).unwrap();
            results(&summary, run.path())
        };
        let one = whole("one", 1);
        assert!(one == whole("three", 3), "{case}: threads");
        match case {
            "buckets" => of_buckets = Some(one.clone()),
            "in files" => assert!(of_buckets.as_ref() == Some(&one), "the place of rows changes nothing"),
            _ => {}
        }
        let names = fs::read_dir(dir.path().join(format!("{case}-one"))).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(names.iter().all(|name| !name.contains("rows")), "{names:?}");
        // stopped inside the first epoch, and again inside the second
        let path = dir.path().join(format!("{case}-often"));
        for (i, batches) in [2usize, 4].into_iter().enumerate() {
            let run = if i > 0 { RunDir::reopen(&path) } else { RunDir::create(&path) }.unwrap();
            let done = AtomicUsize::new(0);
            let stop = || done.fetch_add(1, SeqCst) + 1 >= batches;
            let context = RunContext { run: Some(&run), resume: i > 0, observer: &mut Quiet, stop: &stop };
            let outcome = embedding::train(&config, data, context);
            assert!(matches!(outcome, Err(Error::Interrupted { saved: true, .. })), "{case} {i}");
        }
        let run = RunDir::reopen(&path).unwrap();
        let context = RunContext { run: Some(&run), resume: true, observer: &mut Quiet, stop: &|| false };
        let summary = embedding::train(&config, data, context).unwrap();
        assert!(one == results(&summary, &path), "{case}: resumed");
    }
}

#[test]
fn edge_types_of_reverses_change_no_bit_of_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let circle: Vec<String> = (0..60)
        .map(|i| format!("{}\t{}\t{}\n", i % 20, ["next", "second"][i % 2], (i * 7 + 3) % 20))
        .collect();
    for (part, lines) in [("train", &circle[..48]), ("valid", &circle[48..54]), ("test", &circle[54..])] {
        fs::write(dir.path().join(format!("{part}.txt")), lines.concat()).unwrap();
    }
    let run = |add_reverses: bool| {
        let options = TypedOptions { add_reverses, ..TypedOptions::default() };
        let imported = import("triples", dir.path(), &options).unwrap().dataset;
        let stored = dir.path().join(format!("stored-{add_reverses}"));
        imported.save(&stored).unwrap();
        let data = typed::open(&stored, Verify::Once).unwrap();
        let options = [("decoder", "complex"), ("negatives", "degree"), ("num_negatives", "3")];
        let run = RunDir::create(&dir.path().join(format!("run-{add_reverses}"))).unwrap();
        let config = config(&data, &options).unwrap();
        let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
        let summary = embedding::train(&config, &data, context).unwrap();
        (data.edges.len(), summary.best.valid_score, results(&summary, run.path()))
    };
    let [(before, valid, results), (after, valid_after, results_after)] = [false, true].map(run);
    assert_eq!((before, after), (2, 4));
    assert!((valid, &results) == (valid_after, &results_after));
}

#[test]
fn saved_runs_have_the_scores_of_training() {
    let dir = tempfile::tempdir().unwrap();
    let data = shop(&dir.path().join("shop"));
    let config = config(&data, &[("model", "lightgcn"), ("epochs", "3")]).unwrap();
    let run = RunDir::create(&dir.path().join("run")).unwrap();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    let summary = embedding::train(&config, &data, context).unwrap();
    let saved = SavedRun::open(run.path(), false).unwrap();
    let table = SavedEmbedding::of(&saved).unwrap();
    let scores = table.scores(&table.dataset(None).unwrap(), &Quiet).unwrap();
    assert_eq!((scores.test, &scores.metric[..]), (summary.test.score, "ndcg@20"));
    let of_test = scores.parts.iter().find(|part| part.part == "test").unwrap();
    assert!(["recall@20", "precision@10", "map@20"].iter().all(|name| of_test.scores.contains_key(*name)));
    let other = graph(&dir.path().join("circle"));
    let message = table.dataset(other.directory.as_deref()).unwrap_err().to_string();
    assert!(message.contains("pass a copy of the run's dataset"), "{message}");
}

#[test]
fn unusable_options_are_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let (circle, shop) = (graph(&dir.path().join("circle")), shop(&dir.path().join("shop")));
    for (data, options, why) in [
        (&circle, &[("decoder", "dot")][..], "--decoder dot: it scores edges of all 5 relations alike"),
        (&circle, &[("decoder", "mlp")], "--decoder mlp: it does not train tables of embeddings"),
        (&circle, &[("decoder", "rotate"), ("hidden", "15")], "--hidden 15: must be even"),
        (
            &circle,
            &[("decoder", "rotate"), ("one_vs_all", "true")],
            "the score of --decoder rotate is a distance",
        ),
        (&circle, &[("decoder", "complex"), ("gamma", "3")], "--decoder complex is no distance"),
        (&circle, &[("decoder", "complex"), ("metric", "auc")], "are ranked among all candidates"),
        (&circle, &[("decoder", "complex"), ("layers", "3")], "its rows are not propagated"),
        (&shop, &[("fanout", "5,5")], "its parameters are a row for each node"),
        (&shop, &[("disjoint", "0.5")], "tables read no messages over edges"),
        (&shop, &[("regularizer", "n3")], "--regularization is 0"),
        (&shop, &[("one_vs_all", "true"), ("num_negatives", "3")], "compares each edge with all candidates"),
        (&shop, &[("adversarial", "0.5")], "--loss bpr does not use it"),
        (
            &circle,
            &[("decoder", "complex"), ("host_budget", "6000"), ("buckets", "2")],
            "--host-budget 6000: rows with the state of their optimiser need 11520 bytes, and 11520 are in \
             memory at once with --buckets 2; set --buckets to 6 or more",
        ),
        (&shop, &[("model", "lightgcn"), ("buckets", "2")], "propagates all rows at every update"),
        (&shop, &[("model", "lightgcn"), ("host_budget", "1G")], "propagates all rows at every update"),
        (&shop, &[("one_vs_all", "true"), ("buckets", "2")], "use --one-vs-all=false"),
        (&shop, &[("negatives", "hard"), ("buckets", "2")], "--negatives hard lists rows of all buckets"),
        (
            &circle,
            &[("decoder", "complex"), ("loss", "sampled-softmax"), ("negatives", "in-batch")],
            "known for --negatives uniform or degree and not for in-batch; use that, or --loss info-nce",
        ),
        (
            &shop,
            &[("loss", "sampled-softmax"), ("negatives", "hard")],
            "known for --negatives uniform or degree and not for hard",
        ),
        (&shop, &[("negatives", "existing")], "the rows of the task have no times"),
        (&shop, &[("buckets", "0")], "1"),
        (&shop, &[("task", "views")], "--task views: unknown task 'views'; known: likes"),
    ] {
        let message = train(data, options).unwrap_err().to_string();
        assert!(message.contains(why), "{options:?}: {message}");
    }
}
