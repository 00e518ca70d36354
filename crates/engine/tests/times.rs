//! Classification of nodes at times: predictions see what existed then.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_data::{
    TypedBuilder,
    typed::{self, TypedDataset, Verify},
};
use graphmill_engine::{
    Error, Result, RunContext, RunDir, TrainConfig,
    observer::Quiet,
    propagation::PropagationOptions,
    record::Summary,
    saved::{Kind, Propagation, SavedRun, Selection},
    typed as typed_runs,
};

use super::set::checked;

/// People whose class is the feature of those who wrote to them before time 100, if `early`; else
/// after it. Rows are at time 100.
fn people(dir: &Path, early: bool) -> TypedDataset {
    const COUNT: u32 = 240;
    let mut builder = TypedBuilder::new("people");
    // the class of the first half, whom nothing else marks, is the mark of their writers
    let class = |v: u32| (v.wrapping_mul(2_654_435_761) >> 20) & 1;
    let features: Vec<f32> =
        (0..COUNT).map(|v| if v < COUNT / 2 { 0.0 } else { (v % 2) as f32 * 2.0 - 1.0 }).collect();
    builder.node_type("person", COUNT as usize).features(1, features);
    let (mut from, mut to, mut time) = (Vec::new(), Vec::new(), Vec::new());
    for v in 0..COUNT / 2 {
        for k in 0..6u32 {
            let noise = (v * 13 + k * 7) % 60;
            // three writers have the mark of the class, three are random
            let writer =
                if k < 3 { COUNT / 2 + 2 * noise + class(v) } else { COUNT / 2 + 2 * noise + (k + v) % 2 };
            from.push(writer);
            to.push(v);
            let is_before = (k < 3) == early;
            time.push(if is_before { i64::from(10 + k * 10) } else { i64::from(100 + k * 10) });
        }
    }
    builder.edge_type("person", "writes", "person").edges(from, to).time(time);
    let seeds: Vec<u32> = (0..COUNT / 2).collect();
    let classes: Vec<i32> = seeds.iter().map(|&v| class(v) as i32).collect();
    let task = builder.task("kind").on_nodes("person").node_seeds(seeds).classes(2, classes);
    let part = |of: fn(u32) -> bool| (0..COUNT / 2).filter(|v| of(v % 4)).collect::<Vec<u32>>();
    task.time(vec![100; COUNT as usize / 2]).split(part(|i| i > 1), part(|i| i == 0), part(|i| i == 1));
    builder.build().unwrap().save(dir).unwrap();
    typed::open(dir, Verify::Once).unwrap()
}

fn config(data: &TypedDataset, options: &[(&str, &str)]) -> Result<TrainConfig> {
    let mut config = TrainConfig {
        epochs: 12,
        lr: 0.03,
        dropout: 0.0,
        hidden: 8,
        batch_size: 16,
        ..TrainConfig::default()
    };
    config.dataset = data.directory.as_deref().and_then(Path::to_str).unwrap().into();
    let all: Vec<(&str, &str)> = [("fanout", "6")].iter().chain(options).copied().collect();
    checked(config, &all)
}

fn train(data: &TypedDataset, options: &[(&str, &str)]) -> Result<Summary> {
    let config = config(data, options)?;
    assert!(typed_runs::open_dataset(&config)?.is_some(), "a task with times");
    let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
    typed_runs::train(&config, data, context)
}

#[test]
fn later_edges_reach_no_prediction() {
    let dir = tempfile::tempdir().unwrap();
    let (early, late) = (people(&dir.path().join("early"), true), people(&dir.path().join("late"), false));
    for draw in ["uniform", "last", "recency"] {
        let draws: Vec<(&str, &str)> = if draw == "recency" {
            vec![("time_draw", draw), ("time_half_life", "1000")]
        } else {
            vec![("time_draw", draw)]
        };
        let known = train(&early, &draws).unwrap().test.score.unwrap();
        assert!(known > 0.9, "{draw}: {known}");
        let unknown = train(&late, &draws).unwrap().test.score.unwrap();
        assert!(unknown < 0.8, "{draw}: {unknown}");
    }
    // at time 100 exactly, the first informative edge of the late graph exists
    let last = [("fanout", "1"), ("time_draw", "last"), ("time_bound", "inclusive")];
    let inclusive = train(&late, &last).unwrap().test.score.unwrap();
    assert!(inclusive > 0.9, "{inclusive}");
    let window = train(&early, &[("time_window", "20")]).unwrap().test.score.unwrap();
    assert!(window < 0.8, "{window}");
}

#[test]
fn every_sampler_that_draws_neighbours_trains_at_times() {
    let dir = tempfile::tempdir().unwrap();
    let data = people(&dir.path().join("data"), true);
    let own: &[&[(&str, &str)]] = &[
        &[("sampler", "weighted"), ("replace", "true")],
        &[("sampler", "labor")],
        &[("sampler", "hgt"), ("fanout", "30")],
        &[("sampler", "metapath-walk"), ("time_window", "80")],
    ];
    for options in own {
        let options: Vec<(&str, &str)> = options.iter().copied().chain([("epochs", "2")]).collect();
        let losses = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let summary = pool.install(|| train(&data, &options)).unwrap();
            assert!(summary.test.score.is_some(), "{options:?}");
            summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect::<Vec<u64>>()
        };
        assert_eq!(losses(1), losses(3), "{options:?}");
    }
    // LABOR reads the informative edges alone, which all are before the rows
    let labor = train(&data, &[("sampler", "labor")]).unwrap().test.score.unwrap();
    assert!(labor > 0.9, "{labor}");
    let message = train(&data, &[("sampler", "labor"), ("time_draw", "last")]).unwrap_err().to_string();
    assert!(message.contains("use --sampler neighbor or full"), "{message}");
}

#[test]
fn runs_with_times_resume_to_the_same_bits_and_eval_has_their_scores() {
    let dir = tempfile::tempdir().unwrap();
    let data = people(&dir.path().join("data"), true);
    let config =
        config(&data, &[("epochs", "3"), ("fanout", "3,2"), ("model", "rgcn"), ("checkpoint_batches", "1")])
            .unwrap();
    let results = |summary: &Summary, run: &Path| {
        let losses: Vec<u64> = summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect();
        (losses, summary.test.score, fs::read(run.join("best.safetensors")).unwrap())
    };
    let whole = |name: &str, threads| {
        let run = RunDir::create(&dir.path().join(name)).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
        let summary = pool.install(|| typed_runs::train(&config, &data, context)).unwrap();
        results(&summary, run.path())
    };
    let one = whole("one", 1);
    assert!(one == whole("three", 3), "threads");
    let path = dir.path().join("stopped");
    let run = RunDir::create(&path).unwrap();
    let done = AtomicUsize::new(0);
    let stop = || done.fetch_add(1, SeqCst) >= 5;
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &stop };
    assert!(matches!(
        typed_runs::train(&config, &data, context),
        Err(Error::Interrupted { saved: true, .. })
    ));
    drop(run);
    let run = RunDir::reopen(&path).unwrap();
    let context = RunContext { run: Some(&run), resume: true, observer: &mut Quiet, stop: &|| false };
    assert!(one == results(&typed_runs::train(&config, &data, context).unwrap(), &path), "resumed");
    let saved = SavedRun::open(&path, false).unwrap();
    let of_types = typed_runs::SavedTypedRun::of(&saved).unwrap();
    let scores = of_types.scores(&of_types.dataset(None).unwrap(), &Quiet).unwrap();
    assert_eq!(scores.test, one.1);
    let spread = Propagation::new("label-propagation", PropagationOptions::default()).unwrap();
    let saved = saved.with_propagation(spread).unwrap();
    let of_types = typed_runs::SavedTypedRun::of(&saved).unwrap();
    let message = of_types.scores(&data, &Quiet).unwrap_err().to_string();
    assert!(message.contains("have times, and labels would spread to earlier rows"), "{message}");
    let message = train(&data, &[("label_inputs", "0.5")]).unwrap_err().to_string();
    assert!(message.contains("have times, and labels would reach earlier rows"), "{message}");
}

/// Users who buy items of two kinds. The rows of a user are at the times 10, 20, ..., 60. The class
/// of a row is the kind of the items that the user bought in the ten days before it, if `early`;
/// else in the ten days after it.
fn shoppers(dir: &Path, early: bool, joined: i64) {
    const USERS: u32 = 60;
    let class = |u: u32, t: u32| {
        let x = (u * 31 + t * 17).wrapping_mul(2_654_435_761);
        ((x ^ x >> 15).wrapping_mul(2_246_822_519) >> 13) & 1
    };
    let mut builder = TypedBuilder::new("shop");
    let keys: Vec<String> = (0..USERS).map(|u| format!("user-{u}")).collect();
    let users = builder.node_type("user", USERS as usize).features(1, vec![1.0f32; USERS as usize]);
    users.text_keys(keys).time(vec![joined; USERS as usize]);
    builder.node_type("item", 8).features(1, (0..8).map(|v| (v % 2) as f32 * 2.0 - 1.0).collect::<Vec<_>>());
    let (mut items, mut buyers, mut time) = (Vec::new(), Vec::new(), Vec::new());
    let (mut seeds, mut rows, mut classes) = (Vec::new(), Vec::new(), Vec::new());
    for t in 1..=6u32 {
        for u in 0..USERS {
            for k in 0..3 {
                items.push(2 * ((u + k) % 4) + class(u, t));
                buyers.push(u);
                time.push(i64::from(10 * t + 3 * k) - if early { 9 } else { 0 });
            }
            seeds.push(u);
            rows.push(i64::from(10 * t));
            classes.push(class(u, t) as i32);
        }
    }
    builder.edge_type("item", "bought-by", "user").edges(items, buyers).time(time);
    let task = builder.task("kind").on_nodes("user").node_seeds(seeds).time(rows).classes(2, classes);
    let part = |weeks: std::ops::Range<u32>| (weeks.start * USERS..weeks.end * USERS).collect::<Vec<_>>();
    task.names(["plain", "odd"]).split(part(0..4), part(4..5), part(5..6));
    builder.build().unwrap().save(dir).unwrap();
}

#[test]
fn nodes_have_rows_at_several_times_that_see_what_existed_then() {
    let dir = tempfile::tempdir().unwrap();
    let options = [("fanout", "1,3"), ("time_draw", "last"), ("epochs", "20")];
    let run_on = |name: &str, early: bool, joined: i64, options: &[(&str, &str)]| {
        let path = dir.path().join(name);
        shoppers(&path, early, joined);
        let of = TrainConfig { dataset: path.to_str().unwrap().into(), ..TrainConfig::default() };
        let all = [("lr", "0.03"), ("hidden", "8"), ("batch_size", "32")];
        let config = checked(of, &all.iter().chain(options).copied().collect::<Vec<_>>()).unwrap();
        let data = typed_runs::open_dataset(&config)?.expect("a task with times");
        let run = RunDir::create(&dir.path().join(format!("{name}-run"))).unwrap();
        let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
        typed_runs::train(&config, &data, context)
    };
    let early = run_on("early", true, 0, &options).unwrap();
    assert!(early.test.score.unwrap() > 0.9, "{:?}", early.test);
    let rows = early.dataset.node_types.iter().find(|of| of.name == "kind").unwrap();
    assert_eq!((rows.count, early.dataset.train, early.dataset.test), (360, 240, 60));
    // a window of the last edges holds the node itself
    let window = [("fanout", "1,3"), ("time_window", "10"), ("epochs", "20")];
    let window = run_on("window", true, 0, &window).unwrap();
    assert!(window.test.score.unwrap() > 0.9, "{:?}", window.test);
    // the class is that of later edges, which no row sees
    let late = run_on("late", false, 0, &options).unwrap();
    assert!(late.test.score.unwrap() < 0.75, "{:?}", late.test);
    let saved = SavedRun::open(&dir.path().join("early-run"), false).unwrap();
    assert_eq!(saved.scores_on(None, &Quiet).unwrap().test, early.test.score);
    let out = dir.path().join("kind.csv");
    saved.predict_on(None, (Selection::All, false), (Kind::Classes, &out), &Quiet).unwrap();
    let text = fs::read_to_string(&out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (361, "user,time,class"));
    assert!(lines[1].starts_with("user-0,10,") && lines[360].starts_with("user-59,60,"), "{text}");
    let one = Selection::List("user-59|60");
    saved.predict_on(None, (one, false), (Kind::Classes, &out), &Quiet).unwrap();
    assert_eq!(fs::read_to_string(&out).unwrap().lines().nth(1), Some(lines[360]));
    // rows of a time at which the node is new read nothing of it
    let message = run_on("new", true, 10, &options).unwrap_err().to_string();
    assert!(
        message.contains("a row of task 'kind' has time 10, but its node 0 exists from time 10"),
        "{message}"
    );
    run_on("equal", true, 10, &[("fanout", "1,3"), ("time_bound", "inclusive"), ("epochs", "1")]).unwrap();
}
