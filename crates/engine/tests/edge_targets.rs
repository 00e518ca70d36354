//! Classes and values of edges without times: rows are nodes between the ends of their edges.

use std::{fs, path::Path};

use graphmill_core::Labels;
use graphmill_data::{
    TypedBuilder,
    typed::{self, EdgeType, Keys, Targets, Verify},
};
use graphmill_engine::{
    AnyDataset, Error, Result, RunContext, RunDir, TrainConfig,
    observer::Quiet,
    record::Summary,
    saved::{Kind, SavedRun, Selection},
};

use super::set::checked;

/// Accounts of two groups, and a transfer from each to others, whose size is its feature. A
/// transfer is "odd" if it is large or leaves its group. The tasks "odd" and "cost" have the edges
/// as rows, "some" has every second pair.
fn bank(dir: &Path, has_features: bool) {
    let (count, mut ends) = (120u32, [Vec::new(), Vec::new()]);
    for v in 0..count {
        for k in 0..5 {
            ends[0].push(v);
            ends[1].push((v * 7 + k * 13 + 1) % count);
        }
    }
    let mut builder = TypedBuilder::new("bank");
    let groups: Vec<f32> = (0..count).flat_map(|v| [(v % 2) as f32, 1.0 - (v % 2) as f32]).collect();
    let keys: Vec<String> = (0..count).map(|v| format!("acc-{v}")).collect();
    builder
        .node_type("account", count as usize)
        .features(2, groups)
        .keys(Keys::Texts(keys.into_iter().collect()));
    let size = |e: usize| (e * 31 % 10) as f32 / 10.0;
    let rows = ends[0].len();
    let edges = builder.edge_type("account", "sends", "account").edges(ends[0].clone(), ends[1].clone());
    if has_features {
        edges.features(1, (0..rows).map(size).collect::<Vec<f32>>());
    }
    // the builder numbers rows as edges are stored: by destination
    let feature = |e: usize| if has_features { size(e) } else { 0.0 };
    let odd = |e: usize| i32::from(ends[0][e] % 2 != ends[1][e] % 2 || feature(e) > 0.6);
    let cost = |e: usize| 100.0 + 20.0 * odd(e) as f32 + feature(e);
    let parts = |rows: u32| {
        let of = |parts: std::ops::Range<u32>| (0..rows).filter(|e| parts.contains(&(e / 5 % 5))).collect();
        [of(0..3), of(3..4), of(4..5)] as [Vec<u32>; 3]
    };
    let [train, valid, test] = parts(rows as u32);
    let task = builder.task("odd").on_edges(on()).classes(2, (0..rows).map(odd).collect::<Vec<i32>>());
    task.split(train.clone(), valid.clone(), test.clone()).names(["plain", "odd"]);
    let task = builder.task("cost").on_edges(on()).values(1, (0..rows).map(cost).collect::<Vec<f32>>());
    task.split(train, valid, test);
    let half = (0..rows).step_by(2);
    let pairs: Vec<u32> = half.clone().flat_map(|e| [ends[0][e], ends[1][e]]).collect();
    let task = builder.task("some").on_edges(on()).pair_seeds(pairs);
    let [train, valid, test] = parts(rows as u32 / 2);
    task.classes(2, half.map(odd).collect::<Vec<i32>>()).split(train, valid, test);
    builder.build().unwrap().save(dir).unwrap();
}

fn on() -> EdgeType {
    EdgeType::new("account", "sends", "account")
}

fn config(data: &Path, options: &[(&str, &str)]) -> Result<TrainConfig> {
    let config = TrainConfig { dataset: data.to_str().unwrap().into(), ..TrainConfig::default() };
    let small = [("epochs", "12"), ("lr", "0.02"), ("hidden", "16"), ("batch_size", "60"), ("fanout", "4,4")];
    let all: Vec<(&str, &str)> = small.iter().chain(options).copied().collect();
    checked(config, &all)
}

fn train(config: &TrainConfig, dir: Option<&Path>, stop: &(dyn Fn() -> bool + Sync)) -> Result<Summary> {
    let run =
        dir.map(|dir| if dir.exists() { RunDir::open(dir) } else { RunDir::create(dir) }).transpose()?;
    let resume = run.as_ref().is_some_and(|run| run.path().join("checkpoint").exists());
    let context = RunContext { run: run.as_ref(), resume, observer: &mut Quiet, stop };
    AnyDataset::open(config)?.train(config, context)
}

#[test]
fn classes_and_values_of_edges_are_learned_from_ends_and_features() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("bank");
    bank(&data, true);
    for (task, model) in [("odd", "rsage"), ("odd", "gine"), ("some", "hgt"), ("cost", "rgat")] {
        let config = config(&data, &[("task", task), ("model", model), ("epochs", "30")]).unwrap();
        let summary = train(&config, None, &|| false).unwrap();
        let score = summary.test.score.unwrap();
        match task {
            "cost" => assert!(summary.test.metric == "rmse" && score < 6.0, "{model}: {:?}", summary.test),
            _ => assert!(summary.test.metric == "accuracy" && score > 0.9, "{model}: {:?}", summary.test),
        }
        let rows = if task == "some" { 300 } else { 600 };
        let node = summary.dataset.node_types.iter().find(|node| node.name == "sends").unwrap();
        assert_eq!((node.count, summary.dataset.node_types.len()), (rows, 2));
    }
}

#[test]
fn predictions_of_edges_have_the_keys_of_their_ends_and_the_score_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("bank");
    bank(&data, true);
    let config = config(&data, &[("task", "odd")]).unwrap();
    assert_eq!(config.model, "rsage");
    let run = dir.path().join("run");
    let summary = train(&config, Some(&run), &|| false).unwrap();
    let saved = SavedRun::open(&run, false).unwrap();
    let scores = saved.scores_on(None, &Quiet).unwrap();
    assert_eq!(scores.test, summary.test.score);
    let out = dir.path().join("odd.csv");
    let predict = |selection: Selection, kind| {
        saved.predict_on(None, (selection, false), (kind, &out), &Quiet).unwrap();
        fs::read_to_string(&out).unwrap().lines().map(String::from).collect::<Vec<_>>()
    };
    let all = predict(Selection::All, Kind::Classes);
    assert_eq!((all.len(), &all[0][..]), (601, "source,destination,class"));
    let stored = typed::open(&data, Verify::Once).unwrap();
    let edges = stored.edge_type(&on()).unwrap();
    let task = stored.task("odd").unwrap();
    let Targets::Classes(Labels::Single { class, .. }) = &task.targets else { panic!("classes") };
    let mut right = 0;
    for (e, destination) in edges.destinations().into_iter().enumerate() {
        let line = &all[1 + e];
        assert!(line.starts_with(&format!("acc-{},acc-{destination},", edges.indices[e])), "{line}");
        let truth = if class[e] == 1 { "odd" } else { "plain" };
        right += usize::from(task.split.test.contains(&(e as u32)) && line.ends_with(&format!(",{truth}")));
    }
    let score = right as f64 / task.split.test.len() as f64;
    assert!((score - summary.test.score.unwrap()).abs() < 1e-9, "{score}, {:?}: {all:?}", summary.test);
    let one = all[5].rsplit_once(',').unwrap().0.replace(',', "|");
    assert_eq!(predict(Selection::List(&one), Kind::Classes)[1], all[5]);
    assert_eq!(
        predict(Selection::All, Kind::Probabilities)[0],
        "source,destination,probability_plain,probability_odd"
    );
}

#[test]
fn runs_on_edges_have_the_same_bits_for_any_threads_and_after_interruptions() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("bank");
    bank(&data, false);
    let of =
        |threads: &str| config(&data, &[("task", "some"), ("epochs", "3"), ("threads", threads)]).unwrap();
    let results =
        |summary: &Summary| -> Vec<u64> { summary.epochs.iter().map(|epoch| epoch.loss.to_bits()).collect() };
    let whole = train(&of("1"), Some(&dir.path().join("whole")), &|| false).unwrap();
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let stop = || calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) >= 4;
    let parts = dir.path().join("parts");
    assert!(matches!(train(&of("3"), Some(&parts), &stop), Err(Error::Interrupted { .. })));
    let again = train(&of("3"), Some(&parts), &|| false).unwrap();
    assert_eq!(results(&again), results(&whole));
    let model = |run: &str| fs::read(dir.path().join(run).join("best.safetensors")).unwrap();
    assert_eq!(model("parts"), model("whole"));
    // the rows of the task stay in memory, and half of those of the accounts are read from the file
    let beyond = [("task", "some"), ("epochs", "3"), ("host_budget", "1900")];
    let beyond = config(&data, &beyond).unwrap();
    let from_disk = train(&beyond, Some(&dir.path().join("disk")), &|| false).unwrap();
    assert_eq!(results(&from_disk), results(&whole));
    assert!(from_disk.epochs[0].traffic.disk.rows > 0, "{:?}", from_disk.epochs[0].traffic);
    assert_eq!(model("disk"), model("whole"));
}
