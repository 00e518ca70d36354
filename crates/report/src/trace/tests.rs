use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use graphmill_data::atomic::ForgettingDisk;
use graphmill_engine::timeline::Stage;
use serde_json::Value;

use super::*;

/// Events of a complete trace.
pub(crate) fn events(path: &Path) -> Vec<Value> {
    assert!(!suffixed(path, ".tmp").exists());
    let trace: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    trace["traceEvents"].as_array().unwrap().clone()
}

/// Start and end by track, in nanoseconds, in file order.
fn slices(events: &[Value]) -> BTreeMap<u64, Vec<(u64, u64)>> {
    let mut tracks: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let nanos = |name: &str| (event[name].as_f64().unwrap() * 1e3).round() as u64;
        let slices = tracks.entry(event["tid"].as_u64().unwrap()).or_default();
        slices.push((nanos("ts"), nanos("ts") + nanos("dur")));
    }
    tracks
}

/// Asserts that every track is named and positioned once, no two slices of one overlap, and no
/// counter is negative.
pub(crate) fn assert_consistent(events: &[Value]) {
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
fn tracks_counters_and_batches_are_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let timeline = Arc::new(Timeline::begin());
    let mut trace = Trace::create(&path, timeline.clone()).unwrap();
    let began = Instant::now();
    let at = |ms: u64| began + Duration::from_millis(ms);
    let sampler = timeline.track("sampler \"0\"");
    timeline.begin_epoch(0);
    timeline.span("order", began);
    timeline.add(sampler, Stage::Sample, 0, at(0), 0.001);
    timeline.depth("sampled", 1);
    trace.flush().unwrap();
    // A worker that started later, and a slice that begins within the last one by no more than
    // rounding.
    let trainer = timeline.track("trainer 0");
    timeline.add(sampler, Stage::Sample, 1, at(1) - Duration::from_nanos(5), 0.001);
    timeline.add(trainer, Stage::Train, 0, at(1), 0.002);
    timeline.depth("sampled", 0);
    timeline.sample_memory();
    trace.flush_if_full().unwrap();
    trace.finish().unwrap();

    let events = events(&path);
    assert_consistent(&events);
    let one = |ph: &str, name: &str| -> Vec<&Value> {
        events.iter().filter(|event| event["ph"] == ph && event["name"] == name).collect()
    };
    let names: Vec<_> = one("M", "thread_name").iter().map(|event| event["args"]["name"].clone()).collect();
    assert_eq!(names, ["run", "sampler \"0\"", "trainer 0"]);
    let depths: Vec<_> = one("C", "sampled").iter().map(|event| event["args"]["batches"].clone()).collect();
    assert_eq!(depths, [1, 0]);
    assert_eq!(one("X", "train")[0]["args"], serde_json::json!({"epoch": 1, "batch": 1}));
    assert_eq!(one("X", "sample")[1]["args"], serde_json::json!({"epoch": 1, "batch": 2}));
    assert_eq!(one("C", "resident memory").len(), usize::from(graphmill_core::memory::resident().is_some()));
}

#[test]
fn overlaps_beyond_rounding_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    let timeline = Arc::new(Timeline::begin());
    let trace = Trace::create(&path, timeline.clone()).unwrap();
    let (track, now) = (timeline.track("main"), Instant::now());
    timeline.add(track, Stage::Sample, 0, now, 0.5);
    timeline.add(track, Stage::Train, 0, now, 0.5);
    drop(trace);
    let tracks = slices(&events(&path));
    assert!(tracks[&2][1].0 < tracks[&2][0].1, "{tracks:?}");
}

#[test]
fn a_loss_of_power_leaves_the_old_or_the_new_trace() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("trace.json");
    std::fs::write(&path, "old").unwrap();
    let work = || Trace::create(&path, Arc::new(Timeline::begin())).unwrap().finish().unwrap();
    let disk = ForgettingDisk::record(root.path(), work).unwrap();
    assert_eq!(disk.mixture("trace.json").unwrap(), None);
    assert!(disk.ignoring_syncs().mixture("trace.json").unwrap().is_some());
}

#[test]
fn unwritable_traces_report_the_path() {
    let timeline = Arc::new(Timeline::begin());
    let error = Trace::create(Path::new("/nowhere/trace.json"), timeline).unwrap_err().to_string();
    assert!(error.contains("/nowhere/trace.json.tmp"), "{error}");
}
