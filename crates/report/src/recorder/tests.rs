use std::{
    collections::BTreeMap,
    fs,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_engine::{
    Dataset, RunContext,
    config::Fanout,
    observer::Quiet,
    record::TestScore,
    strategy::{self, LayeredOptions, RoundOptions},
    train,
};
use serde_json::Value;

use super::*;
use crate::trace::tests::{assert_consistent, events};

fn data() -> Dataset {
    let options = GenerateOptions { nodes: 600, classes: 3, dim: 8, ..GenerateOptions::default() };
    generate("sbm", &options).unwrap()
}

fn config() -> TrainConfig {
    TrainConfig { epochs: 3, hidden: 8, fanout: Fanout(vec![4, 4]), batch_size: 60, ..TrainConfig::default() }
        .with(|rounds: &mut RoundOptions| rounds.batches_per_update = 1)
}

/// Trains in `path`, and stops after `batches` batches.
fn run(config: &TrainConfig, path: &Path, resume: bool, batches: u64) -> Result<Summary> {
    let run = if resume { RunDir::reopen(path) } else { RunDir::create(path) }.unwrap();
    let mut recorder = Recorder::new(config, Some(&run), Box::new(Quiet));
    let done = AtomicU64::new(0);
    let stop = || done.fetch_add(1, Relaxed) + 1 >= batches;
    train(config, &data(), RunContext { run: Some(&run), resume, observer: &mut recorder, stop: &stop })
}

/// Report files in a run's directory.
fn files(path: &Path) -> Vec<&'static str> {
    ["report.html", "trace.json", "tensorboard"].into_iter().filter(|name| path.join(name).exists()).collect()
}

#[test]
fn options_select_the_report_files() {
    let dir = tempfile::tempdir().unwrap();
    for (trace, tensorboard) in [(false, false), (true, false), (false, true)] {
        let path = dir.path().join(format!("{trace}-{tensorboard}"));
        run(&TrainConfig { trace, tensorboard, ..config() }, &path, false, u64::MAX).unwrap();
        let mut expected = vec!["report.html"];
        expected.extend(trace.then_some("trace.json"));
        expected.extend(tensorboard.then_some("tensorboard"));
        assert_eq!(files(&path), expected);
    }
    let config = TrainConfig { trace: true, tensorboard: true, ..config() };
    let mut recorder = Recorder::new(&config, None, Box::new(Quiet));
    train(
        &config,
        &data(),
        RunContext { run: None, resume: false, observer: &mut recorder, stop: &|| false },
    )
    .unwrap();
}

#[test]
fn interrupted_runs_get_a_page_when_finished_or_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let config = TrainConfig { tensorboard: true, ..config() };
    let batches = data().split.train.len().div_ceil(60) as u64;
    run(&config, &path, false, batches + 2).unwrap_err();
    assert_eq!(files(&path), ["tensorboard"]);
    let page = write_report(&path).unwrap();
    assert!(fs::read_to_string(&page).unwrap().contains("1 epoch<"));
    run(&config, &path, true, u64::MAX).unwrap();
    assert!(fs::read_to_string(&page).unwrap().contains("3 epochs<"));
    assert_eq!(fs::read_dir(path.join("tensorboard")).unwrap().count(), 2);
}

#[test]
fn pages_are_rewritten_from_the_summary() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunDir::create(&dir.path().join("run")).unwrap();
    assert!(write_report(run.path()).unwrap_err().to_string().contains("there is no run here"));
    run.write_config(&TrainConfig::default()).unwrap();
    let test = TestScore { metric: "accuracy".into(), score: Some(0.9) };
    run.write_summary(&Summary { test, ..Summary::default() }).unwrap();
    assert!(fs::read_to_string(write_report(run.path()).unwrap()).unwrap().contains("test accuracy"));
}

/// A link at the temporary name is replaced, and the link's target stays.
#[cfg(unix)]
#[test]
fn links_at_the_temporary_name_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (victim, path) = (dir.path().join("victim"), dir.path().join("report.html"));
    fs::write(&victim, "mine").unwrap();
    std::os::unix::fs::symlink(&victim, dir.path().join("report.html.tmp")).unwrap();
    write(dir.path(), &Summary::default()).unwrap();
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    assert!(!dir.path().join("report.html.tmp").exists());
    assert_eq!(fs::read(&victim).unwrap(), b"mine");
}

/// Number of occurrences of each stage of a batch, by epoch and batch.
fn stage_counts(events: &[Value]) -> BTreeMap<(u64, u64), BTreeMap<String, usize>> {
    let mut counts: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X" && event["args"]["batch"].is_u64()) {
        let number = |name: &str| event["args"][name].as_u64().unwrap();
        let stages = counts.entry((number("epoch"), number("batch"))).or_default();
        *stages.entry(event["name"].as_str().unwrap().to_string()).or_default() += 1;
    }
    counts
}

#[test]
fn traces_contain_every_stage_of_every_batch_once() {
    let dir = tempfile::tempdir().unwrap();
    let data = data();
    let config = TrainConfig { trace: true, ..config() };
    let batches = data.split.train.len().div_ceil(60) as u64;
    let once: BTreeMap<_, _> = ["extract", "sample", "train"].map(|stage| (stage.to_string(), 1)).into();
    for strategy in &strategy::TABLE {
        let mut config = TrainConfig { strategy: strategy.name.into(), ..config.clone() }
            .with(|layered: &mut LayeredOptions| layered.super_batch = 3);
        if (strategy.make.by_device)(&config) {
            config.devices = "virtual:2".parse().unwrap();
        }
        let go = |name: &str, resume: bool, stop: &(dyn Fn() -> bool + Sync), lr: f64| {
            let path = dir.path().join(format!("{}-{name}", strategy.name));
            let run = if resume { RunDir::reopen(&path) } else { RunDir::create(&path) }.unwrap();
            let config = TrainConfig { lr, ..config.clone() };
            let mut recorder = Recorder::new(&config, Some(&run), Box::new(Quiet));
            let job = RunContext { run: Some(&run), resume, observer: &mut recorder, stop };
            let outcome = train(&config, &data, job);
            let events = events(&path.join("trace.json"));
            assert_consistent(&events);
            (outcome.map(|_| ()), stage_counts(&events), events)
        };
        let (outcome, counts, events) = go("whole", false, &|| false, 0.01);
        outcome.unwrap();
        let all: Vec<_> = (1..=3).flat_map(|epoch| (1..=batches).map(move |batch| (epoch, batch))).collect();
        assert_eq!(counts.keys().copied().collect::<Vec<_>>(), all);
        let mut stages = counts.into_values();
        assert!(stages.all(|mut stages| {
            // A separate update is also recorded, under the batches or once for several.
            stages.remove("update");
            // Rows computed for several batches are recorded under the first of them.
            stages.remove("embed");
            stages == once
        }));
        for (name, times) in [("order", 3), ("score", 3)] {
            assert_eq!(events.iter().filter(|event| event["name"] == name).count(), times, "{name}");
        }

        // Stopped in the middle of the second epoch, and resumed: two traces, one after the other.
        let asked = AtomicU64::new(0);
        let stop = || asked.fetch_add(1, Relaxed) > batches;
        let (outcome, before, _) = go("stopped", false, &stop, 0.01);
        assert!(outcome.unwrap_err().to_string().starts_with("interrupted in epoch 2"));
        assert!(before.len() as u64 > batches && (before.len() as u64) < 3 * batches);
        let (outcome, after, _) = go("stopped", true, &|| false, 0.01);
        outcome.unwrap();
        assert!(!after.contains_key(&(1, 1)) && after.contains_key(&(3, batches)));
        assert!(all.iter().all(|batch| before.contains_key(batch) || after.contains_key(batch)));

        // An error.
        let (outcome, stages, _) = go("diverged", false, &|| false, 1e30);
        assert!(outcome.is_err() && stages.contains_key(&(1, 1)));
    }
}
