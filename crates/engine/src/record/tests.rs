use serde_json::json;

use super::{timeline::Stage, *};

pub(super) fn epoch(epoch: usize) -> EpochRecord {
    EpochRecord {
        epoch,
        loss: 1.0 / epoch as f64,
        valid_score: Some(0.5 + 0.1 * (epoch % 3) as f64),
        stages: Stages { train: 0.25, ..Stages::default() },
        traffic: Traffic {
            host: TierTraffic { rows: 30, bytes: 120, nanos: 0 },
            disk: TierTraffic { rows: 10, bytes: 40, nanos: 0 },
            ..Traffic::default()
        },
        ..EpochRecord::default()
    }
}

#[test]
fn summary_json_has_the_documented_fields() {
    let summary = Summary { epochs: vec![epoch(1)], config: json!({"lr": 0.1}), ..Summary::default() };
    let json = serde_json::to_value(&summary).unwrap();
    let keys = |json: &serde_json::Value| json.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let top = [
        "graphmill",
        "dataset",
        "config",
        "epochs",
        "best",
        "test",
        "staleness",
        "peak_rss_bytes",
        "seconds",
    ];
    assert_eq!(keys(&json), top);
    for key in ["name", "nodes", "edges", "feature_dim", "classes", "multilabel"] {
        assert!(json["dataset"].get(key).is_some(), "{key}");
    }
    for key in ["epoch", "loss", "valid_score", "seconds", "seeds", "sampled_edges", "hit_rate"] {
        assert!(json["epochs"][0].get(key).is_some(), "{key}");
    }
    assert_eq!(keys(&json["epochs"][0]["stages"]), ["order", "sample", "extract", "train"]);
    assert_eq!(json["epochs"][0]["traffic"]["disk"], json!({"rows": 10, "bytes": 40, "seconds": 0.0}));
    assert_eq!(keys(&json["epochs"][0]["traffic"]), ["device", "peer", "host", "disk", "remote"]);
    assert_eq!(json["best"], json!({"epoch": 0, "valid_score": null}));
    assert_eq!(json["test"], json!({"metric": "", "score": null}));
    assert_eq!(json["staleness"], json!({"bound": 0, "max": 0}));
    assert_eq!(serde_json::from_value::<Summary>(json).unwrap(), summary);
}

#[test]
fn worker_records_round_trip_and_are_optional() {
    let worker = WorkerRecord {
        worker: "main".into(),
        stages: WorkerStages { sample: 0.5, ..WorkerStages::default() },
        utilisation: 0.5,
    };
    let memory = vec![MemorySample { seconds: 0.5, bytes: 7 }];
    let whole = EpochRecord {
        workers: vec![worker],
        bottleneck: Some(Stage::Sample),
        memory_bytes: Some(9),
        memory,
        ..epoch(1)
    };
    let mut json = serde_json::to_value(&whole).unwrap();
    assert_eq!(
        json["workers"],
        json!([{
            "worker": "main",
            "stages": {"sample": 0.5, "extract": 0.0, "train": 0.0, "update": 0.0},
            "utilisation": 0.5
        }])
    );
    assert_eq!((&json["bottleneck"], &json["memory_bytes"]), (&json!("sample"), &json!(9)));
    assert_eq!(serde_json::from_value::<EpochRecord>(json.clone()).unwrap(), whole);
    // records of versions without workers
    for name in ["workers", "bottleneck", "memory_bytes", "memory"] {
        json.as_object_mut().unwrap().remove(name).unwrap();
    }
    assert_eq!(serde_json::from_value::<EpochRecord>(json).unwrap(), epoch(1));
}

#[test]
fn hit_rate_counts_the_nearest_tier() {
    let traffic = epoch(1).traffic;
    assert_eq!((traffic.hit_rate(false), traffic.hit_rate(true)), (Some(0.75), Some(0.0)));
    assert_eq!(Traffic::default().hit_rate(false), None);
}

#[test]
fn datasets_compare_by_checksum_or_by_counts() {
    let named = |name: &str, nodes, checksum: Option<&str>| DatasetRecord {
        name: name.into(),
        nodes,
        checksum: checksum.map(str::to_string),
        ..DatasetRecord::default()
    };
    assert!(named("a", 3, Some("x")).is_same(&named("b", 3, Some("x"))), "moved");
    assert!(!named("a", 3, Some("x")).is_same(&named("a", 3, Some("y"))), "imported again");
    assert!(named("a", 3, None).is_same(&named("a", 3, Some("y"))));
    assert!(!named("a", 3, None).is_same(&named("a", 4, None)));
    let text = named("a", 3, Some("x")).to_string();
    assert_eq!(text, "a (3 nodes, 0 edges, 0 features, 0 classes, checksum x)");
}
