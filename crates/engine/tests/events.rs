//! Streams of events: every model learns, results depend neither on threads nor on interruptions,
//! saved runs have the scores of training, and unusable options and datasets are refused by name.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_core::Labels;
use graphmill_data::{
    TypedBuilder, TypedDataset, npy,
    typed::{self, EdgeType, Negatives, Targets, Verify},
};
use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig,
    config::events,
    events::{SavedEvents, train as run_events},
    observer::Quiet,
    record::{ScoredRows, Summary},
    saved::{Kind, SavedRun, Selection},
};

use super::set::checked;

/// Users return to their last item most of the time; `count` events of 20 users and 15 items, with
/// the step as a feature.
pub(super) fn visits(count: u32) -> (Vec<u32>, Vec<u32>, Vec<i64>) {
    let mut last: Vec<u32> = (0..20).map(|u| u % 15).collect();
    let mut out = (Vec::new(), Vec::new(), Vec::new());
    for e in 0..count {
        let user = e.wrapping_mul(2_654_435_761) >> 16;
        let user = user % 20;
        if e % 5 == 4 {
            last[user as usize] = (e * 7 + user) % 15;
        }
        out.0.push(user);
        out.1.push(last[user as usize]);
        out.2.push(1_600_000_000 + i64::from(e) * 60);
    }
    out
}

/// A dataset of visits with features of edges; given negatives if `given`.
fn shop(dir: &Path, given: bool) -> TypedDataset {
    shop_of(dir, given, visits(600))
}

/// [`shop`] of these visits: 420 train, 90 validate, and the others test.
pub(super) fn shop_of(
    dir: &Path,
    given: bool,
    (users, items, times): (Vec<u32>, Vec<u32>, Vec<i64>),
) -> TypedDataset {
    let count = users.len() as u32;
    let mut builder = TypedBuilder::new("visits");
    // nodes differ by their features
    let rows =
        |count: u32| (0..count * 4).map(|i| (i * i * 31 % 17) as f32 / 8.0 - 1.0).collect::<Vec<f32>>();
    builder.node_type("user", 20).features(4, rows(20));
    builder.node_type("item", 15).features(4, rows(15));
    let features: Vec<f32> = (0..count).flat_map(features_of).collect();
    builder
        .edge_type("user", "visits", "item")
        .edges(users.clone(), items.clone())
        .time(times.clone())
        .features(2, features);
    let pairs: Vec<u32> = users.iter().zip(&items).flat_map(|(u, v)| [*u, *v]).collect();
    let task = builder.task("visits").on_edges(EdgeType::new("user", "visits", "item"));
    let part = |rows: std::ops::Range<u32>| rows.collect::<Vec<u32>>();
    let task = task.pair_seeds(pairs).time(times).split(part(0..420), part(420..510), part(510..count));
    if given {
        let nodes = |count: usize| (0..count * 4).map(|i| (i % 15) as u32).collect::<Vec<u32>>();
        let each = || Some(Negatives::Destinations { each: 4, nodes: nodes(90).into() });
        task.negatives([None, each(), each()]).metric("mrr");
    }
    builder.build().unwrap().save(dir).unwrap();
    typed::open(dir, Verify::Once).unwrap()
}

/// Features of visit number `e`.
pub(super) fn features_of(e: u32) -> [f32; 2] {
    [(e % 7) as f32 / 7.0, 1.0]
}

pub(super) fn config(data: &TypedDataset, options: &[(&str, &str)]) -> Result<TrainConfig> {
    let mut config = TrainConfig { epochs: 2, lr: 0.003, ..TrainConfig::default() };
    config.dataset = data.directory.as_deref().and_then(Path::to_str).unwrap().into();
    let small = [("model", "tgn"), ("hidden", "8"), ("time_dim", "6"), ("batch_size", "50"), ("fanout", "4")];
    let of = |&(name, value): &(&str, &str)| events::TABLE.get(value).filter(|_| name == "model");
    let has_neighbors = options.iter().find_map(of).is_none_or(|entry| entry.make.neighbors.is_some());
    let small = small.iter().filter(|(name, _)| has_neighbors || *name != "fanout");
    let all: Vec<(&str, &str)> = small.chain(options).copied().collect();
    checked(config, &all)
}

pub(super) fn train(data: &TypedDataset, options: &[(&str, &str)]) -> Result<Summary> {
    let config = config(data, options)?;
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    run_events(&config, data, context)
}

#[test]
fn every_model_of_events_learns_returning_users() {
    let dir = tempfile::tempdir().unwrap();
    let data = shop(dir.path(), false);
    for entry in &events::TABLE {
        let mut options = vec![("model", entry.name), ("epochs", "12"), ("lr", "0.01"), ("hidden", "16")];
        match entry.name {
            "dygformer" => options.extend([("channel_dim", "8"), ("lr", "0.003")]),
            // without neighbours it learns the few events of an epoch slowly
            "jodie" => options.push(("epochs", "40")),
            _ => {}
        }
        let summary = train(&data, &options).unwrap();
        assert!(summary.epochs[11].loss < summary.epochs[0].loss, "{}", entry.name);
        assert_eq!((&summary.test.metric[..], summary.epochs[0].seeds), ("average-precision", 420));
        assert!(summary.test.score.unwrap() > 0.55, "{}: {:?}", entry.name, summary.test);
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
    let data = shop(&dir.path().join("shop"), false);
    for (case, options) in [
        ("tgn", &[("new_nodes", "0.1"), ("clip", "1")][..]),
        ("tgat", &[("fanout", "4,3"), ("time_window", "9000"), ("precision", "bf16")]),
        ("gatv2-edge", &[("fanout", "4,3"), ("heads", "2")]),
        ("jodie", &[("new_nodes", "0.1"), ("precision", "tf32")]),
        ("graphmixer", &[("dropout", "0.2")]),
        ("dygformer", &[("patch_size", "2"), ("channel_dim", "4"), ("dropout", "0.2")]),
        ("tgn", &[("fanout", "4,3"), ("time_draw", "recency"), ("time_half_life", "600")]),
    ] {
        let more = [("model", case), ("epochs", "2"), ("checkpoint_batches", "2"), ("schedule", "cosine")];
        let config = config(&data, &[&more, options].concat()).unwrap();
        let case = format!("{case}-{}", options[0].0);
        let whole = |name: &str, threads| {
            let run = RunDir::create(&dir.path().join(format!("{case}-{name}"))).unwrap();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let context =
                RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
            let summary = pool.install(|| run_events(&config, &data, context)).unwrap();
            results(&summary, run.path())
        };
        let one = whole("one", 1);
        assert!(one == whole("three", 3), "{case}: threads");
        // stopped inside the first epoch, and again inside the second
        let path = dir.path().join(format!("{case}-often"));
        for (i, batches) in [3usize, 9].into_iter().enumerate() {
            let run = if i > 0 { RunDir::reopen(&path) } else { RunDir::create(&path) }.unwrap();
            let done = AtomicUsize::new(0);
            let stop = || done.fetch_add(1, SeqCst) + 1 >= batches;
            let context = RunContext { run: Some(&run), resume: i > 0, observer: &mut Quiet, stop: &stop };
            let outcome = run_events(&config, &data, context);
            assert!(matches!(outcome, Err(Error::Interrupted { saved: true, .. })), "{case} {i}");
        }
        let run = RunDir::reopen(&path).unwrap();
        let context = RunContext { run: Some(&run), resume: true, observer: &mut Quiet, stop: &|| false };
        let summary = run_events(&config, &data, context).unwrap();
        assert!(one == results(&summary, &path), "{case}: resumed");
    }
}

#[test]
fn saved_runs_have_the_scores_of_training_and_of_new_nodes() {
    let dir = tempfile::tempdir().unwrap();
    for (given, metric) in [(false, "average-precision"), (true, "mrr")] {
        let data = shop(&dir.path().join(format!("shop-{given}")), given);
        let precision = ("precision", if given { "bf16" } else { "f32" });
        let config = config(&data, &[("epochs", "3"), ("new_nodes", "0.1"), precision]).unwrap();
        let run = RunDir::create(&dir.path().join(format!("run-{given}"))).unwrap();
        let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
        let summary = run_events(&config, &data, context).unwrap();
        let saved = SavedRun::open(run.path(), false).unwrap();
        let of_events = SavedEvents::of(&saved).unwrap();
        let scores = of_events.scores(&of_events.dataset(None).unwrap(), &Quiet).unwrap();
        assert_eq!((scores.test, &scores.metric[..]), (summary.test.score, metric));
        let valid = &scores.parts[0];
        assert_eq!((valid.part, valid.nodes), ("valid", 90));
        assert_eq!(valid.scores[metric], summary.best.valid_score);
        for name in ["auc", "average-precision"] {
            let [all, new] = [name.to_string(), format!("inductive-{name}")].map(|name| valid.scores[&name]);
            assert!(all.is_some() && new.is_some() && all != new, "{name}: {all:?} {new:?}");
        }
        assert_eq!(valid.scores.contains_key("hits@1"), given);
        let by_batch: Vec<&String> = valid.scores.keys().filter(|name| name.ends_with("-by-batch")).collect();
        assert_eq!(by_batch.len(), 4, "{by_batch:?}");
    }
}

#[test]
fn rows_and_rankings_as_of_a_time_read_no_later_event() {
    let dir = tempfile::tempdir().unwrap();
    let (users, mut items, times) = visits(600);
    let data = shop(&dir.path().join("shop"), false);
    // other validation and test events from this time on
    let at = times[460];
    items[460..].iter_mut().for_each(|item| *item = (*item + 1) % 15);
    let other = shop_of(&dir.path().join("other"), false, (users, items, times.clone()));
    for model in ["tgn", "tgat", "jodie", "graphmixer", "dygformer"] {
        let run = RunDir::create(&dir.path().join(model)).unwrap();
        let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
        run_events(&config(&data, &[("model", model)]).unwrap(), &data, context).unwrap();
        let saved = SavedRun::open(run.path(), false).unwrap();
        let events = SavedEvents::of(&saved).unwrap();
        let rows = |data: &TypedDataset, of: &str, selection: Selection, at: Option<i64>| {
            let out = dir.path().join("rows.npy");
            let written = events.embed(data, (of, selection), at, &out, &Quiet).unwrap();
            assert_eq!((written.kind, written.cols), ("embeddings", 8));
            npy::open(&out).unwrap().read_as_f32().unwrap()
        };
        if model == "dygformer" {
            let out = dir.path().join("rows.npy");
            let error = events.embed(&data, ("", Selection::All), Some(at), &out, &Quiet).unwrap_err();
            assert!(error.to_string().contains("a node has no embedding"), "{error}");
        } else {
            let all = |data: &TypedDataset, at| rows(data, "", Selection::All, at);
            let of_users = all(&data, Some(at));
            assert_eq!(of_users.len(), 20 * 8);
            assert_eq!(of_users, all(&other, Some(at)), "{model}");
            assert_ne!(all(&data, None), all(&other, None), "{model}: the events are different");
            assert_ne!(of_users, all(&data, Some(times[100])), "{model}: earlier rows are different");
            assert_eq!(rows(&data, "", Selection::List("3,1"), Some(at))[8..], of_users[8..16], "{model}");
            assert_eq!(rows(&data, "item", Selection::All, Some(at)).len(), 15 * 8);
            let error =
                events.embed(&data, ("shop", Selection::All), None, &dir.path().join("x.npy"), &Quiet);
            assert!(error.unwrap_err().to_string().contains("use user or item"), "{model}");
        }

        let best = |data: &TypedDataset, k, at, threads| {
            let out = dir.path().join("best.csv");
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| events.predict(data, Selection::All, (k, at), &out, &Quiet)).unwrap();
            fs::read_to_string(&out).unwrap()
        };
        let (three, whole) = (best(&data, 3, Some(at), 1), best(&data, 99, Some(at), 3));
        assert_eq!(three, best(&other, 3, Some(at), 3), "{model}");
        assert_eq!((three.lines().count(), whole.lines().count()), (1 + 20 * 3, 1 + 20 * 15));
        let of_first = |text: &str| text.lines().skip(1).take(3).map(String::from).collect::<Vec<_>>();
        assert_eq!(of_first(&three), of_first(&whole), "{model}");
        let score = |line: &str| line.rsplit(',').next().unwrap().parse::<f32>().unwrap();
        let scores: Vec<f32> = whole.lines().skip(1).take(15).map(score).collect();
        assert!(scores.is_sorted_by(|a, b| a >= b), "{model}: {scores:?}");
    }
}

/// A dataset of visits with the tasks "rating" (values) and "good" (classes), of a user's taste and
/// an item's quality.
fn ratings(dir: &Path) -> TypedDataset {
    let (users, items, times) = visits(600);
    let mut builder = TypedBuilder::new("ratings");
    // a rating is the user's taste plus the item's quality
    let [taste, quality] =
        [20u32, 15].map(|count| (0..count).map(|v| (v * 7 % 5) as f32 - 2.0).collect::<Vec<f32>>());
    let rate = |(&u, &v): (&u32, &u32)| 10.0 + taste[u as usize] + quality[v as usize];
    let ratings: Vec<f32> = users.iter().zip(&items).map(rate).collect();
    let classes: Vec<i32> = ratings.iter().map(|&rating| i32::from(rating > 10.0)).collect();
    builder.node_type("user", 20).features(1, taste.clone());
    builder.node_type("item", 15).features(1, quality.clone());
    builder.edge_type("user", "visits", "item").edges(users.clone(), items.clone()).time(times.clone());
    let pairs: Vec<u32> = users.iter().zip(&items).flat_map(|(u, v)| [*u, *v]).collect();
    let part = |rows: std::ops::Range<u32>| rows.collect::<Vec<u32>>();
    for name in ["rating", "good"] {
        let on = EdgeType::new("user", "visits", "item");
        let task = builder.task(name).on_edges(on).pair_seeds(pairs.clone()).time(times.clone());
        let task = task.split(part(0..420), part(420..510), part(510..600));
        if name == "good" {
            task.classes(2, classes.clone())
        } else {
            task.values(1, ratings.clone())
        };
    }
    builder.build().unwrap().save(dir).unwrap();
    typed::open(dir, Verify::Once).unwrap()
}

#[test]
fn predictions_of_events_are_those_that_are_scored() {
    let dir = tempfile::tempdir().unwrap();
    let data = ratings(&dir.path().join("data"));
    for (task, model, draw) in
        [("rating", "tgn", "uniform"), ("good", "tgat", "uniform"), ("good", "dygformer", "last")]
    {
        let run = RunDir::create(&dir.path().join(format!("{task}-{model}"))).unwrap();
        let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
        let options = [("task", task), ("model", model), ("time_draw", draw), ("new_nodes", "0.1")];
        let options = if model == "dygformer" { &options[..2] } else { &options };
        let summary = run_events(&config(&data, options).unwrap(), &data, context).unwrap();
        let saved = SavedRun::open(run.path(), false).unwrap();
        let write = |selection: Selection, kind, name: &str| {
            let out = dir.path().join(name);
            let (_, written) = saved.predict_on(None, (selection, false), (kind, &out), &Quiet)?;
            Ok::<_, Error>((written, out))
        };
        let table = |selection: Selection| -> Vec<String> {
            let (written, out) = write(selection, Kind::Classes, "table.csv").unwrap();
            assert_eq!(written.kind, if task == "good" { "classes" } else { "values" });
            fs::read_to_string(out).unwrap().lines().map(String::from).collect()
        };
        let all = table(Selection::All);
        let column = if task == "good" { "class" } else { "value" };
        assert_eq!((all.len(), &all[0]), (601, &format!("source,destination,time,{column}")));
        let (users, items, times) = visits(600);
        let fields: Vec<Vec<f64>> =
            all[1..].iter().map(|line| line.split(',').map(|word| word.parse().unwrap()).collect()).collect();
        for (e, row) in fields.iter().enumerate() {
            assert_eq!(row[..3], [users[e].into(), items[e].into(), times[e] as f64]);
        }
        // the score of the test events, from the file
        let task = data.task(task).unwrap();
        let score = match &task.targets {
            Targets::Values { values, .. } | Targets::Classes(Labels::Values { values, .. }) => {
                let squares = (510..600).map(|e| (f64::from(values[e]) - fields[e][3]).powi(2));
                (squares.sum::<f64>() / 90.0).sqrt()
            }
            Targets::Classes(Labels::Single { class, .. }) => {
                (510..600).filter(|&e| f64::from(class[e]) == fields[e][3]).count() as f64 / 90.0
            }
            _ => unreachable!("the dataset has no other tasks"),
        };
        assert!((score - summary.test.score.unwrap()).abs() < 1e-6, "{model}: {score}, {:?}", summary.test);
        // events of selected users, by any threads, have the bits of all
        let of_two: Vec<String> =
            all.iter().filter(|line| line.starts_with("3,") || line.starts_with("1,")).cloned().collect();
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(|| table(Selection::List("3,1")))[1..], of_two, "{model}");
        }
        let kinds =
            [(Kind::Embeddings, "use graphmill embed"), (Kind::Probabilities, "have no probabilities")];
        for (kind, why) in kinds {
            match write(Selection::All, kind, "rows.npy") {
                Err(error) => assert!(error.to_string().contains(why), "{error}"),
                Ok((written, out)) => {
                    assert_eq!((kind, written.cols), (Kind::Probabilities, 2));
                    let rows = npy::open(out).unwrap().read_as_f32().unwrap();
                    let classes = rows.chunks_exact(2).map(|row| f64::from(u8::from(row[1] > row[0])));
                    assert!(classes.eq(fields.iter().map(|row| row[3])), "{model}");
                }
            }
        }
    }
}

#[test]
fn classes_and_values_of_events_are_learned() {
    let dir = tempfile::tempdir().unwrap();
    let data = ratings(dir.path());
    let options = [("epochs", "25"), ("lr", "0.01"), ("dropout", "0"), ("task", "rating")];
    let summary = train(&data, &options).unwrap();
    assert_eq!(summary.test.metric, "rmse");
    // the deviation of the ratings is 2, and errors are in their unit
    assert!(summary.test.score.unwrap() < 0.8, "{:?}", summary.test);
    let best = summary.epochs.iter().filter_map(|epoch| epoch.valid_score).fold(f64::INFINITY, f64::min);
    assert_eq!(summary.best.valid_score, Some(best), "the smallest error is the best");
    let summary = train(&data, &[&options[..3], &[("task", "good")]].concat()).unwrap();
    assert_eq!(summary.test.metric, "accuracy");
    assert!(summary.test.score.unwrap() > 0.9, "{:?}", summary.test);
    let message = train(&data, &[("task", "good"), ("metric", "rmse")]).unwrap_err().to_string();
    assert!(message.contains("--metric rmse: the task has the metrics accuracy"), "{message}");
    let message = train(&data, &[]).unwrap_err().to_string();
    assert!(message.contains("no link prediction task with times"), "{message}");
}

#[test]
fn edges_of_a_type_are_events_in_the_shares_of_the_option() {
    let dir = tempfile::tempdir().unwrap();
    let data = shop(dir.path(), false);
    let on_edges = ("task", "user:visits:item");
    for (options, learned) in [(&[on_edges][..], 420), (&[on_edges, ("split_edges", "time:8,1,1")], 480)] {
        let summary = train(&data, &[options, &[("epochs", "1")]].concat()).unwrap();
        assert_eq!(summary.epochs[0].seeds, learned, "{options:?}");
        assert_eq!(summary.scored_rows, ScoredRows::Events);
    }
}

#[test]
fn unusable_options_and_datasets_are_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let data = shop(&dir.path().join("shop"), false);
    for (options, why) in [
        (&[("time_bound", "inclusive")][..], "an event would be read by its own prediction"),
        (&[("order", "random")], "events are learned in the order of their times"),
        (&[("sampler", "labor")], "--time-draw chooses its neighbours"),
        (&[("max_batches", "3")], "an epoch has all training events"),
        (&[("time_carry", "seed")], "it bounds the hops after the first"),
        (&[("event_heads", "3")], "--event-heads 3: it does not divide --hidden 8"),
        (&[("metric", "mrr")], "no destinations to rank events against"),
        (&[("new_nodes", "1")], "--new-nodes"),
        (&[("eval_every", "auto")], "not counted in rows and edges; give a number of epochs"),
        (&[("decoder", "dot")], "--model tgn does not use it"),
        (&[("model", "gine"), ("event_heads", "2")], "it is for the attention of tgn, tgat and dygformer"),
        (
            &[("model", "gine"), ("learn_frequencies", "true")],
            "it is for the attention of tgn, tgat and dygfo",
        ),
        (&[("model", "dygformer"), ("fanout", "4,3")], "has one hop; use --layers 1"),
        (&[("model", "dygformer"), ("event_heads", "3")], "does not divide the 200 columns"),
        (&[("model", "tgn"), ("patch_size", "2")], "--model tgn does not use it"),
        (&[("model", "jodie"), ("fanout", "4")], "it reads no neighbours"),
        (&[("model", "jodie"), ("time_window", "9000")], "--model jodie does not use it"),
        (&[("model", "gatv2-edge"), ("heads", "3")], "does not divide 8 columns"),
        (&[("model", "graphmixer"), ("fanout", "-1")], "the mixer has a slot for each neighbour"),
        (&[("split_edges", "80,10,10")], "so edges are not split at random; use --split-edges time:80,10,10"),
        (&[("split_edges", "time:80,10,10")], "task 'visits' has a split; name an edge type by --task"),
        (&[("task", "views")], "--task views: unknown task 'views', did you mean 'visits'?; known: visits"),
    ] {
        let message = train(&data, options).unwrap_err().to_string();
        assert!(message.contains(why), "{options:?}: {message}");
    }
    let build = |times: Option<Vec<i64>>, rows: Vec<u32>| {
        let mut builder = TypedBuilder::new("late");
        builder.node_type("node", 3);
        let edges = builder.edge_type("node", "to", "node").edges(vec![0, 1, 2], vec![1, 2, 0]);
        edges.features(1, vec![1.0f32; 3]).time(vec![3, 1, 2]);
        let task = builder.task("to").on_edges(EdgeType::new("node", "to", "node")).pair_seeds(rows);
        let task = task.split([0], [1], [2]);
        if let Some(times) = times {
            task.time(times);
        }
        builder.build().unwrap().save(dir.path().join("late")).unwrap();
        let late = typed::open(dir.path().join("late"), Verify::Once).unwrap();
        let message = train(&late, &[]).unwrap_err().to_string();
        fs::remove_dir_all(dir.path().join("late")).unwrap();
        message
    };
    let pairs = vec![0, 1, 1, 2, 2, 0];
    assert!(build(None, pairs.clone()).contains("no link prediction task with times"));
    let message = build(Some(vec![3, 1, 2]), pairs.clone());
    assert!(message.contains("an event of 'train' has time 3, and one of 'valid' time 1"), "{message}");
    let message = build(Some(vec![1, 2, 3]), pairs);
    assert!(message.contains("(0 to 1 at time 1) is not an edge of node:to:node"), "{message}");
}
