//! Views of a run: the trace, TensorBoard's event files and the report, also of runs of older
//! versions that have none of them.

use std::fs;

use serde_json::Value;

use crate::common::Sandbox;

const OPTIONS: &str = "train data --hidden 8 --fanout 3,3 --batch-size 500";

/// Names of the files in a directory.
fn names(sandbox: &Sandbox, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(sandbox.path(dir)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn traces_and_event_files_are_written_on_request() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok(&format!("{OPTIONS} --epochs 2 --out plain"));
    let plain = names(&sandbox, "plain");
    assert!(!plain.iter().any(|name| name.contains("trace") || name.contains("tensorboard")), "{plain:?}");

    let summary = sandbox.ok_json(&format!("{OPTIONS} --epochs 2 --out run --trace --tensorboard"));
    let epoch = &summary["epochs"][1];
    assert!(epoch["bottleneck"].is_string() && epoch["memory_bytes"].as_u64().is_some(), "{epoch}");
    let share = epoch["workers"][0]["utilisation"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&share) && epoch["workers"][0]["stages"]["train"].as_f64().unwrap() > 0.0);
    let events = sandbox.json("run/trace.json")["traceEvents"].as_array().unwrap().clone();
    let named =
        |name: &str| events.iter().filter(|event| event["name"] == name && event["ph"] == "X").count();
    assert_eq!([named("sample"), named("extract"), named("train"), named("score")], [6, 6, 6, 2]);
    let html = String::from_utf8(sandbox.read("run/report.html")).unwrap();
    assert!(html.contains("Utilisation") && html.contains("The bottleneck") && html.contains("Memory"));

    // a resumed run starts a new trace and adds an event file
    sandbox.ok("train --resume --out run --epochs 3");
    let events = sandbox.json("run/trace.json")["traceEvents"].as_array().unwrap().clone();
    let of_batches =
        events.iter().filter_map(|event| event["args"]["batch"].as_u64().and(event["args"].get("epoch")));
    assert!(of_batches.into_iter().all(|epoch| epoch == 3));
    assert_eq!(names(&sandbox, "run/tensorboard").len(), 2);
    sandbox.results("run");
}

#[test]
fn older_runs_without_worker_records_are_reported_and_resume() {
    let sandbox = Sandbox::new();
    sandbox.dataset("data");
    sandbox.ok(&format!("{OPTIONS} --epochs 2 --out run"));
    let strip = |epoch: &mut Value| {
        let fields = epoch.as_object_mut().unwrap();
        for name in ["workers", "bottleneck", "memory_bytes", "memory"] {
            fields.remove(name);
        }
    };
    let mut summary = sandbox.json("run/summary.json");
    summary["epochs"].as_array_mut().unwrap().iter_mut().for_each(strip);
    sandbox.write("run/summary.json", summary.to_string());
    let lines = String::from_utf8(sandbox.read("run/metrics.jsonl")).unwrap();
    let lines = lines.lines().map(|line| {
        let mut epoch = serde_json::from_str(line).unwrap();
        strip(&mut epoch);
        format!("{epoch}\n")
    });
    sandbox.write("run/metrics.jsonl", lines.collect::<String>());
    let config = String::from_utf8(sandbox.read("run/config.toml")).unwrap();
    let config = config.lines().filter(|line| !line.starts_with("trace") && !line.starts_with("tensorboard"));
    sandbox.write("run/config.toml", config.collect::<Vec<_>>().join("\n"));

    sandbox.ok("report run");
    let html = String::from_utf8(sandbox.read("run/report.html")).unwrap();
    assert!(html.contains("Training loss") && !html.contains("Utilisation"));
    sandbox.ok("train --resume --out run --epochs 3 --tensorboard");
    let html = String::from_utf8(sandbox.read("run/report.html")).unwrap();
    assert!(html.contains("Utilisation"), "the report shows the workers of the last epoch");
    assert_eq!(names(&sandbox, "run/tensorboard").len(), 1);
}
