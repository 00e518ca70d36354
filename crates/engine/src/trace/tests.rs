use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use graphmill_graph::generate::{GenerateOptions, generate};
use serde_json::Value;

use super::*;
use crate::{Job, RunDir, TrainConfig, config::Fanout, observer::Quiet, timeline::Stage, train};

/// The events of a trace that is complete.
fn events(path: &Path) -> Vec<Value> {
    assert!(!suffixed(path, ".tmp").exists());
    let trace: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    trace["traceEvents"].as_array().unwrap().clone()
}

/// Start and end by track, in nanoseconds, in the order of the file.
fn slices(events: &[Value]) -> BTreeMap<u64, Vec<(u64, u64)>> {
    let mut tracks: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let nanos = |name: &str| (event[name].as_f64().unwrap() * 1e3).round() as u64;
        let slices = tracks.entry(event["tid"].as_u64().unwrap()).or_default();
        slices.push((nanos("ts"), nanos("ts") + nanos("dur")));
    }
    tracks
}

/// Every track is named and placed once, no two slices of one overlap, and no counter is below 0.
fn sound(events: &[Value]) {
    let tracks = slices(events);
    for (tid, slices) in &tracks {
        for name in ["thread_name", "thread_sort_index"] {
            assert_eq!(events.iter().filter(|e| e["name"] == name && e["tid"] == *tid).count(), 1, "{tid}");
        }
        for pair in slices.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "track {tid}: {pair:?}");
        }
    }
    for event in events {
        assert!(event["ts"].as_f64().unwrap() >= 0.0 && event["dur"].as_f64().unwrap_or(0.0) >= 0.0);
        if event["ph"] == "C" {
            assert!(event["args"].as_object().unwrap().values().all(|value| value.as_u64().is_some()));
        }
    }
}

#[test]
fn tracks_counters_and_batches_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let timeline = Timeline::new(true);
    let mut trace = Trace::create(&path, &timeline).unwrap();
    let began = Instant::now();
    let at = |ms: u64| began + Duration::from_millis(ms);
    let sampler = timeline.track("sampler \"0\"");
    timeline.begin_epoch(0);
    timeline.span("order", began);
    timeline.add(sampler, Stage::Sample, 0, at(0), 0.001);
    timeline.depth("sampled", 1);
    trace.flush().unwrap();
    // a worker that came later, and a slice that begins within the last one by no more than rounding
    let trainer = timeline.track("trainer 0");
    timeline.add(sampler, Stage::Sample, 1, at(1) - Duration::from_nanos(5), 0.001);
    timeline.add(trainer, Stage::Train, 0, at(1), 0.002);
    timeline.depth("sampled", 0);
    timeline.look_at_memory();
    trace.relieve().unwrap();
    trace.finish().unwrap();

    let events = events(&path);
    sound(&events);
    let one = |ph: &str, name: &str| -> Vec<&Value> {
        events.iter().filter(|event| event["ph"] == ph && event["name"] == name).collect()
    };
    let names: Vec<_> = one("M", "thread_name").iter().map(|event| event["args"]["name"].clone()).collect();
    assert_eq!(names, ["run", "sampler \"0\"", "trainer 0"]);
    let depths: Vec<_> = one("C", "sampled").iter().map(|event| event["args"]["batches"].clone()).collect();
    assert_eq!(depths, [1, 0]);
    assert_eq!(one("X", "train")[0]["args"], serde_json::json!({"epoch": 1, "batch": 1}));
    assert_eq!(one("X", "sample")[1]["args"], serde_json::json!({"epoch": 1, "batch": 2}));
    assert_eq!(one("C", "resident memory").len(), usize::from(graphmill_graph::memory::resident().is_some()));
}

#[test]
fn an_overlap_that_is_no_rounding_is_shown_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let timeline = Timeline::new(true);
    let trace = Trace::create(&path, &timeline).unwrap();
    let (track, now) = (timeline.track("main"), Instant::now());
    timeline.add(track, Stage::Sample, 0, now, 0.5);
    timeline.add(track, Stage::Train, 0, now, 0.5);
    drop(trace);
    let tracks = slices(&events(&path));
    assert!(tracks[&2][1].0 < tracks[&2][0].1, "{tracks:?}");
}

/// How often each stage of a batch is told, by epoch and batch.
fn told(events: &[Value]) -> BTreeMap<(u64, u64), BTreeMap<String, usize>> {
    let mut told: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X" && event["args"]["batch"].is_u64()) {
        let number = |name: &str| event["args"][name].as_u64().unwrap();
        let stages = told.entry((number("epoch"), number("batch"))).or_default();
        *stages.entry(event["name"].as_str().unwrap().to_string()).or_default() += 1;
    }
    told
}

#[test]
fn a_run_tells_every_stage_of_every_batch_once_however_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let options = GenerateOptions { nodes: 600, classes: 3, dim: 8, ..GenerateOptions::default() };
    let data = generate("sbm", &options).unwrap();
    let config = TrainConfig {
        epochs: 3,
        hidden: 8,
        fanout: Fanout(vec![4, 4]),
        batch_size: 60,
        batches_per_update: 1,
        trace: true,
        ..TrainConfig::default()
    };
    let batches = data.split.train.len().div_ceil(60) as u64;
    let once: BTreeMap<_, _> = ["extract", "sample", "train"].map(|stage| (stage.to_string(), 1)).into();
    for strategy in crate::strategy::TABLE {
        let mut config = TrainConfig { strategy: strategy.name.into(), super_batch: 3, ..config.clone() };
        if crate::strategy::is_by_device(&config) {
            config.devices = "virtual:2".into();
        }
        let go = |name: &str, resume: bool, stop: &(dyn Fn() -> bool + Sync), lr: f64| {
            let path = dir.path().join(format!("{}-{name}", strategy.name));
            let run = if resume { RunDir::reopen(&path) } else { RunDir::create(&path) }.unwrap();
            let config = TrainConfig { lr, ..config.clone() };
            let outcome = train(&config, &data, Job { run: Some(&run), resume, observer: &mut Quiet, stop });
            let events = events(&run.trace());
            sound(&events);
            (outcome.map(|_| ()), told(&events), events)
        };
        let (outcome, told, events) = go("whole", false, &|| false, 0.01);
        outcome.unwrap();
        let all: Vec<_> = (1..=3).flat_map(|epoch| (1..=batches).map(move |batch| (epoch, batch))).collect();
        assert_eq!(told.keys().copied().collect::<Vec<_>>(), all);
        let mut stages = told.into_values();
        assert!(stages.all(|mut stages| {
            // where the update is apart it is told too, under the batches or once for several
            stages.remove("update");
            // and rows that are made for several batches are told under the first of them
            stages.remove("embed");
            stages == once
        }));
        for (name, times) in [("order", 3), ("score", 3)] {
            assert_eq!(events.iter().filter(|event| event["name"] == name).count(), times, "{name}");
        }

        // told to stop in the middle of the second epoch, and taken up again: two traces, one after the other
        let asked = std::sync::atomic::AtomicU64::new(0);
        let stop = || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > batches;
        let (outcome, before, _) = go("stopped", false, &stop, 0.01);
        assert!(outcome.unwrap_err().to_string().starts_with("interrupted in epoch 2"));
        assert!(before.len() as u64 > batches && (before.len() as u64) < 3 * batches);
        let (outcome, after, _) = go("stopped", true, &|| false, 0.01);
        outcome.unwrap();
        assert!(!after.contains_key(&(1, 1)) && after.contains_key(&(3, batches)));
        assert!(all.iter().all(|batch| before.contains_key(batch) || after.contains_key(batch)));

        // an error
        let (outcome, told, _) = go("diverged", false, &|| false, 1e30);
        assert!(outcome.is_err() && told.contains_key(&(1, 1)));
    }
}

#[test]
fn a_trace_that_cannot_be_written_says_where() {
    let timeline = Timeline::new(true);
    let error = Trace::create(Path::new("/nowhere/trace.json"), &timeline).unwrap_err().to_string();
    assert!(error.contains("/nowhere/trace.json.tmp"), "{error}");
}
