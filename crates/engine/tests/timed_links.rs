//! Links whose rows have times: trained as of their times, ranked as of theirs, and equal to links
//! without times if nothing is later.

use std::path::Path;

use graphmill_data::{
    TypedBuilder,
    typed::{self, EdgeType, TypedDataset, Verify},
};
use graphmill_engine::{
    AnyDataset, Result, RunContext, RunDir, TrainConfig, observer::Quiet, options::link::LinkOptions,
    record::Summary, saved::SavedRun, typed::links::SavedTypedLinks,
};

use super::set::checked;

const USERS: u32 = 45;
const ITEMS: u32 = 24;
const GROUPS: u32 = 3;
/// Purchases of a user between two times.
const EACH: u32 = 3;
/// Times of the rows: the first two train, the others validate and test.
const TIMES: [i64; 4] = [100, 200, 300, 400];

/// Item of a purchase, of the group of the user.
fn item(user: u32, window: u32, k: u32) -> u32 {
    user % GROUPS * (ITEMS / GROUPS) + (user * 5 + window * 3 + k * 7) % (ITEMS / GROUPS)
}

/// Tables of items, users and purchases before the time `end`: a node for each row, and edges from
/// the time of a purchase on.
fn tables(name: &str, end: i64) -> TypedBuilder {
    let mut builder = TypedBuilder::new(name);
    let group = |v: u32| v / (ITEMS / GROUPS);
    let of_items = (0..ITEMS).flat_map(|v| (0..GROUPS).map(move |g| f32::from(u8::from(group(v) == g))));
    builder.node_type("item", ITEMS as usize).features(GROUPS as usize, of_items.collect::<Vec<f32>>());
    let windows = 0..=TIMES.len() as u32;
    let mut rows: Vec<(i64, u32, u32)> = windows
        .flat_map(|w| (0..USERS).flat_map(move |u| (0..EACH).map(move |k| (w, u, k))))
        .map(|(w, u, k)| (i64::from(w * 100 + 10 + k * 20), u, item(u, w, k)))
        .filter(|row| row.0 < end)
        .collect();
    rows.sort_unstable();
    let times: Vec<i64> = rows.iter().map(|row| row.0).collect();
    builder.node_type("purchase", rows.len()).features(1, vec![1.0f32; rows.len()]).time(times.clone());
    builder.node_type("user", USERS as usize).features(1, vec![1.0f32; USERS as usize]);
    let numbers: Vec<u32> = (0..rows.len() as u32).collect();
    for (name, to, of) in [("of", "user", 1), ("what", "item", 2)] {
        let ends: Vec<u32> = rows.iter().map(|row| if of == 1 { row.1 } else { row.2 }).collect();
        let edges = builder.edge_type("purchase", name, to);
        edges.edges(numbers.clone(), ends).time(times.clone()).with_reverse(format!("rev_{name}"));
    }
    builder
}

/// The tables, and a task: the items that each user buys after each time.
fn shop(dir: &Path, end: i64) -> TypedDataset {
    let mut builder = tables("shop", end);
    let (mut pairs, mut times, mut parts) = (Vec::new(), Vec::new(), [const { Vec::new() }; 3]);
    for (w, &time) in TIMES.iter().enumerate() {
        for (user, k) in (0..USERS).flat_map(|u| (0..EACH).map(move |k| (u, k))) {
            parts[w.saturating_sub(1)].push(times.len() as u32);
            pairs.extend([user, item(user, w as u32 + 1, k)]);
            times.push(time);
        }
    }
    let task = builder.task("next").on_edges(EdgeType::new("user", "next", "item")).pair_seeds(pairs);
    let [train, valid, test] = parts;
    task.time(times).split(train, valid, test).metric("map@10");
    builder.build().unwrap().save(dir).unwrap();
    typed::open(dir, Verify::Once).unwrap()
}

fn config(dir: &Path, options: &[(&str, &str)]) -> Result<TrainConfig> {
    let base = TrainConfig {
        epochs: 10,
        lr: 0.02,
        dropout: 0.0,
        hidden: 16,
        batch_size: 32,
        dataset: dir.to_str().unwrap().into(),
        ..TrainConfig::default()
    };
    let own = [("task", "next"), ("model", "rsage"), ("fanout", "6,6"), ("num_negatives", "4")];
    checked(base, &[&own[..], options].concat())
}

fn train_to(dir: &Path, options: &[(&str, &str)], run: Option<&RunDir>) -> Result<Summary> {
    let config = config(dir, options)?;
    let context = RunContext { run, resume: false, observer: &mut Quiet, stop: &|| false };
    AnyDataset::open(&config)?.train(&config, context)
}

fn train(dir: &Path, options: &[(&str, &str)]) -> Result<Summary> {
    train_to(dir, options, None)
}

fn losses(summary: &Summary) -> Vec<u64> {
    summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect()
}

#[test]
fn caches_of_links_at_times_change_no_bit() {
    let dir = tempfile::tempdir().unwrap();
    shop(dir.path(), i64::MAX);
    let results = |options: &[(&str, &str)]| {
        let summary = train_to(dir.path(), &[&[("epochs", "2")][..], options].concat(), None).unwrap();
        let scores = summary.epochs.iter().flat_map(|of| [of.loss, of.valid_score.unwrap()]);
        let bits: Vec<u64> = scores.chain(summary.test.score).map(f64::to_bits).collect();
        (bits, summary.epochs[1].traffic)
    };
    let (plain, whole) = results(&[]);
    for (options, is_on_device) in [
        (&[("cache_ratio", "0.3")][..], false),
        (&[("devices", "virtual:1"), ("cache_ratio", "0.3"), ("cache", "lru")], true),
    ] {
        let (bits, traffic) = results(options);
        assert_eq!(bits, plain, "{options:?}");
        let near = if is_on_device { traffic.device.rows } else { traffic.host.rows };
        assert!(near > 0 && near < traffic.rows() && traffic.rows() == whole.rows(), "{traffic:?}");
    }
}

#[test]
fn recommendations_of_a_database_are_better_than_random_and_see_nothing_later() {
    let dir = tempfile::tempdir().unwrap();
    let [whole, past, path] = ["whole", "past", "run"].map(|name| dir.path().join(name));
    shop(&whole, i64::MAX);
    // without the purchases that the test rows predict
    shop(&past, TIMES[3]);
    let run = RunDir::create(&path).unwrap();
    let summary = train_to(&whole, &[], Some(&run)).unwrap();
    let score = summary.test.score.unwrap();
    // three of 24 items in random order have a mean of about 0.15
    assert!(score > 0.25, "{score}");
    assert_eq!(summary.test.metric, "map@10");
    let other = train(&past, &[]).unwrap();
    assert_eq!((losses(&summary), summary.test.score), (losses(&other), other.test.score));
    let saved = SavedRun::open(&path, false).unwrap();
    let links = SavedTypedLinks::of(&saved).unwrap();
    let scores = links.scores(&links.dataset(None).unwrap(), &graphmill_core::progress::Quiet).unwrap();
    assert_eq!((scores.test, &scores.metric[..]), (summary.test.score, "map@10"));
    let names: Vec<&String> = scores.parts[1].scores.keys().collect();
    let has = |metric: &str| names.iter().any(|name| *name == metric);
    assert!(has("recall@10") && has("precision@10"), "{names:?}");
    // single destinations
    let single = train(&whole, &[("metric", "mrr"), ("epochs", "1")]).unwrap();
    assert!(single.test.score.is_some_and(|score| score > 0.0));
}

#[test]
fn results_depend_on_no_number_of_threads_and_later_rows_see_more() {
    let dir = tempfile::tempdir().unwrap();
    shop(dir.path(), i64::MAX);
    let of_threads = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let summary = pool.install(|| train(dir.path(), &[("epochs", "2")])).unwrap();
        (losses(&summary), summary.best.valid_score, summary.test.score)
    };
    let one = of_threads(1);
    assert_eq!(one, of_threads(3));
    let window = train(dir.path(), &[("epochs", "2"), ("time_window", "30")]).unwrap();
    assert!(losses(&window) != one.0, "a window hides earlier purchases");
}

/// Rows of all users at one time, or none, with a stored type of edges that has none. Each user is
/// in one part.
fn at_once(dir: &Path, time: Option<i64>) {
    let mut builder = tables("once", TIMES[0]);
    builder.edge_type("user", "next", "item").edges(Vec::<u32>::new(), Vec::<u32>::new());
    let rows: Vec<(u32, u32)> = (0..USERS).flat_map(|u| (0..EACH).map(move |k| (u, item(u, 1, k)))).collect();
    let part = |p: u32| {
        let of_part = move |user: u32| [0, 0, 0, 1, 2][user as usize % 5] == p;
        let numbers = (0..).zip(&rows).filter(move |(_, row)| of_part(row.0));
        numbers.map(|(number, _)| number).collect::<Vec<u32>>()
    };
    let parts = [0, 1, 2].map(part);
    let pairs: Vec<u32> = rows.iter().flat_map(|&(u, v)| [u, v]).collect();
    let task = builder.task("next").on_edges(EdgeType::new("user", "next", "item")).pair_seeds(pairs);
    if let Some(time) = time {
        task.time(vec![time; rows.len()]);
    }
    let [train, valid, test] = parts;
    task.split(train, valid, test).metric("map@10");
    builder.build().unwrap().save(dir).unwrap();
}

#[test]
fn rows_of_one_last_time_are_links_without_times() {
    let dir = tempfile::tempdir().unwrap();
    let [timed, untimed] = ["timed", "untimed"].map(|name| dir.path().join(name));
    at_once(&timed, Some(1000));
    at_once(&untimed, None);
    let options = [("sampler", "full"), ("epochs", "3")];
    let [timed, untimed] = [timed, untimed].map(|dir| train(&dir, &options).unwrap());
    for (one, other) in timed.epochs.iter().zip(&untimed.epochs) {
        assert!((one.loss - other.loss).abs() < 1e-3, "{} {}", one.loss, other.loss);
    }
    let [one, other] = [&timed, &untimed].map(|summary| summary.test.score.unwrap());
    assert!((one - other).abs() < 0.02, "{one} {other}");
}

#[test]
fn options_of_links_without_times_are_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    shop(dir.path(), i64::MAX);
    for (option, value, expected) in [
        ("corrupt", "both", "a row has one source, and its destinations are ranked"),
        ("disjoint", "0.2", "no row reads the edges that it predicts; leave it out"),
        ("exclude", "none", "no row reads an edge from its time on; leave it out"),
        ("negatives", "hard", "its lists hold non-edges of any time"),
        ("metric", "auc", "rank all candidates of their time; use --metric map@10"),
        ("sampler", "saint-rw", "use --sampler neighbor"),
    ] {
        let message = train(dir.path(), &[(option, value)]).unwrap_err().to_string();
        assert!(message.contains(expected), "{option}: {message}");
    }
}

#[test]
fn rows_that_would_read_their_own_edges_are_refused() {
    // users and items that exist from a time on, edges with times or none, and a row of each
    let error = |times: Option<Vec<i64>>, rows: &[i64], options: &[(&str, &str)]| {
        let dir = tempfile::tempdir().unwrap();
        let mut builder = TypedBuilder::new("shop");
        builder.node_type("user", 3).features(1, vec![1.0f32; 3]);
        builder.node_type("item", 4).features(1, vec![1.0f32; 4]).time(vec![0i64, 0, 0, 5]);
        let count = rows.len() as u32;
        let pairs: Vec<u32> = (0..count).flat_map(|i| [i % 3, i % 4]).collect();
        let [users, items] = [3, 4].map(|of| (0..count).map(|i| i % of).collect::<Vec<u32>>());
        let edges = builder.edge_type("user", "buys", "item").edges(users, items);
        if let Some(times) = times {
            edges.time(times);
        }
        edges.with_reverse("bought-by");
        let task = builder.task("next").on_edges(EdgeType::new("user", "buys", "item")).pair_seeds(pairs);
        task.time(rows.to_vec()).split(vec![0, 1], vec![2], (3..count).collect::<Vec<_>>());
        builder.build().unwrap().save(dir.path()).unwrap();
        train(dir.path(), options).unwrap_err().to_string()
    };
    let message = error(None, &[7, 7, 8, 9], &[]);
    let part = "the edge 0 -> 0 of type user:buys:item has no time, so a row of task 'next' at time 7";
    assert!(message.contains(part) && message.contains("add times to the edges"), "{message}");
    let message = error(Some(vec![7, 7, 8, 9]), &[7, 7, 8, 9], &[("time_bound", "inclusive")]);
    let part = "has the time of the row";
    assert!(message.contains(part) && message.contains("use --time-bound strict"), "{message}");
    let message = error(Some(vec![7, 7, 8, 9]), &[7, 7, 8, 4], &[]);
    let part = "a row of task 'next' has time 4, but its destination 3 exists from time 5 on";
    assert!(message.contains(part), "{message}");
    let many: Vec<i64> = (10..110).collect();
    let message = error(Some(many.clone()), &many, &[]);
    let part = "the rows of task 'next' that test have 97 times, and all candidates are embedded for each";
    assert!(message.contains(part) && message.contains("--task user:buys:item"), "{message}");
}

/// Purchases as edges between users and items, each at its time. Those from `later` on have other
/// items than the others suggest.
fn stream(dir: &Path, later: i64) {
    let mut builder = TypedBuilder::new("stream");
    let group = |v: u32| v / (ITEMS / GROUPS);
    let of_items = (0..ITEMS).flat_map(|v| (0..GROUPS).map(move |g| f32::from(u8::from(group(v) == g))));
    builder.node_type("item", ITEMS as usize).features(GROUPS as usize, of_items.collect::<Vec<f32>>());
    builder.node_type("user", USERS as usize).features(1, vec![1.0f32; USERS as usize]);
    let events = (0..12u32).flat_map(|w| (0..USERS).map(move |u| (u, w, i64::from(w * USERS + u))));
    let item_of = |(u, w, time): (u32, u32, i64)| match time < later {
        true => item(u, w, w % EACH),
        false => (item(u, w, w % EACH) + ITEMS / GROUPS) % ITEMS,
    };
    let (users, items): (Vec<u32>, Vec<u32>) = events.clone().map(|event| (event.0, item_of(event))).unzip();
    let times: Vec<i64> = events.map(|event| event.2).collect();
    for (name, shift) in [("buys", 0), ("sees", 1)] {
        let items = items.iter().map(|v| (v + shift) % ITEMS).collect::<Vec<u32>>();
        let edges = builder.edge_type("user", name, "item").edges(users.clone(), items);
        edges.time(times.clone()).with_reverse(format!("{name}-by"));
    }
    builder.build().unwrap().save(dir).unwrap();
}

const AT_OWN_TIMES: &[(&str, &str)] = &[
    ("task", "user:buys:item"),
    ("split_edges", "time:70,15,15"),
    ("link_times", "edges"),
    ("eval_negatives", "10"),
    ("epochs", "8"),
];

#[test]
fn edges_at_their_own_times_are_learned_and_ranked_among_drawn_candidates() {
    let dir = tempfile::tempdir().unwrap();
    let [data, path] = ["data", "run"].map(|name| dir.path().join(name));
    stream(&data, i64::MAX);
    let run = RunDir::create(&path).unwrap();
    let summary = train_to(&data, AT_OWN_TIMES, Some(&run)).unwrap();
    let score = summary.test.score.unwrap();
    // one of eleven candidates in random order has a mean of about 0.27
    assert!(score > 0.4, "{score}");
    assert_eq!(summary.test.metric, "mrr");
    let saved = SavedRun::open(&path, false).unwrap();
    let links = SavedTypedLinks::of(&saved).unwrap();
    let scores = links.scores(&links.dataset(None).unwrap(), &graphmill_core::progress::Quiet).unwrap();
    assert_eq!(scores.test, summary.test.score);
    let names: Vec<&String> = scores.parts[1].scores.keys().collect();
    let has = |metric: &str| names.iter().any(|name| *name == metric);
    assert!(has("auc") && has("hits@10") && !has("recall@10"), "{names:?}");
    let found = |options: &[(&str, &str)]| {
        let summary = train(&data, &[AT_OWN_TIMES, options].concat()).unwrap();
        (losses(&summary), summary.test.score)
    };
    let own = found(&[]);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(own, pool.install(|| found(&[])));
    let more = found(&[("eval_negatives", "20")]);
    assert!(more.0 == own.0 && more.1 < own.1, "more candidates are harder to beat");
    let without = found(&[("link_times", "rows"), ("eval_negatives", "0")]);
    assert!(without.0 != own.0, "edges without times are learned with later ones");
    assert!(found(&[("metric", "auc"), ("epochs", "1")]).1.is_some_and(|auc| auc > 0.5));
    assert!(found(&[("metric", "map@10"), ("epochs", "1")]).1.is_some());
}

#[test]
fn edges_at_their_own_times_are_split_by_time_and_need_a_model_of_types() {
    let dir = tempfile::tempdir().unwrap();
    stream(dir.path(), i64::MAX);
    let split = |options: &[(&str, &str)]| {
        let config = config(dir.path(), &[&[("task", "user:buys:item")], options].concat()).unwrap();
        config.own.get::<LinkOptions>().split_edges.to_string()
    };
    assert_eq!(split(&[]), "85,5,10");
    assert_eq!(split(&[("link_times", "edges")]), "time:85,5,10");
    assert_eq!(split(&[("link_times", "edges"), ("split_edges", "85,5,10")]), "85,5,10");
    let one_type = [("task", "link"), ("model", "sage"), ("link_times", "edges")];
    let message = checked(TrainConfig::default(), &one_type).unwrap_err().to_string();
    assert!(message.contains("use a model of types"), "{message}");
}

#[test]
fn nothing_that_is_learned_depends_on_later_edges() {
    let dir = tempfile::tempdir().unwrap();
    let [whole, other] = ["whole", "other"].map(|name| dir.path().join(name));
    stream(&whole, i64::MAX);
    // from the first edge that tests
    stream(&other, i64::from(12 * USERS) * 85 / 100);
    let [whole, other] = [whole, other].map(|data| train(&data, AT_OWN_TIMES).unwrap());
    assert_eq!(losses(&whole), losses(&other));
    assert_eq!(whole.best.valid_score, other.best.valid_score);
    assert!(whole.test.score > other.test.score, "the later edges are others");
}

#[test]
fn edges_of_several_types_are_learned_together() {
    let dir = tempfile::tempdir().unwrap();
    stream(dir.path(), i64::MAX);
    let both = ("task", "user:buys:item,user:sees:item");
    let options = [both, ("decoder", "distmult"), ("split_edges", "time:70,15,15"), ("epochs", "2")];
    let summary = train(dir.path(), &options).unwrap();
    assert!(summary.test.score.is_some_and(|score| score > 0.0));
    let message = train(dir.path(), &[both, ("epochs", "1")]).unwrap_err().to_string();
    assert!(message.contains("--decoder dot"), "{message}");
    let message = train(dir.path(), &[AT_OWN_TIMES, &[both]].concat()).unwrap_err().to_string();
    assert!(message.contains("choose one with --task"), "{message}");
    let many = [AT_OWN_TIMES, &[("eval_negatives", "0")]].concat();
    let message = train(dir.path(), &many).unwrap_err().to_string();
    assert!(message.contains("rank each among drawn candidates by --eval-negatives 100"), "{message}");
    let random = [AT_OWN_TIMES, &[("split_edges", "70,15,15")]].concat();
    let message = train(dir.path(), &random).unwrap_err().to_string();
    assert!(message.contains("use --split-edges time:70,15,15"), "{message}");
    let inclusive = [AT_OWN_TIMES, &[("time_bound", "inclusive")]].concat();
    let message = train(dir.path(), &inclusive).unwrap_err().to_string();
    assert!(message.contains("use --time-bound strict"), "{message}");
}
