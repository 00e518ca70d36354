use graphmill_nn::metric::{
    classes::{ClassReport, ClassScore, Confusion},
    diagnostics::{Bin, Calibration, ColumnScores, Diagnostics, Residuals, ThresholdCurve, ThresholdPoint},
};
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

/// A record of an epoch with every field.
fn full_epoch() -> EpochRecord {
    EpochRecord {
        epoch: 1,
        loss: 1.0,
        train_score: Some(0.5),
        valid_score: Some(0.5),
        valid_loss: Some(1.0),
        lr: 0.1,
        seconds: 1.0,
        eval_seconds: 1.0,
        stages: Stages { order: 1.0, sample: 1.0, extract: 1.0, train: 1.0 },
        seeds: 1,
        sampled_edges: 1,
        bottom_edges: 1,
        seeds_per_second: 1.0,
        traffic: Traffic::default(),
        hit_rate: Some(0.5),
        grad_norm: Some(1.0),
        devices: vec![DeviceRecord::default()],
        ranks: vec![RankRecord::default()],
        reuse: Some(ReuseRecord::default()),
        node_types: vec![TypeCount::default()],
        type_traffic: vec![TypeTraffic::default()],
        edge_types: vec![TypeCount::default()],
        workers: vec![WorkerRecord {
            worker: "main".into(),
            stages: WorkerStages { sample: 1.0, extract: 1.0, train: 1.0, update: 1.0, embed: 1.0 },
            mark_seconds: 1.0,
            copy_seconds: 1.0,
            utilisation: 1.0,
        }],
        bottleneck: Some(Stage::Train),
        memory_bytes: Some(1),
        memory: vec![MemorySample { seconds: 1.0, bytes: 1 }],
    }
}

/// Scores by class with every field.
fn full_report() -> ClassReport {
    ClassReport {
        classes: vec![ClassScore::default()],
        confusion_matrix: Some(vec![vec![1]]),
        top_confusions: vec![Confusion::default()],
        ..ClassReport::default()
    }
}

/// Diagnostics with every field.
fn full_diagnostics() -> Diagnostics {
    Diagnostics {
        part: "test".into(),
        calibration: Some(Calibration { bins: vec![Bin::default()], ..Calibration::default() }),
        thresholds: Some(ThresholdCurve {
            class: Some(1),
            points: vec![ThresholdPoint::default()],
            ..ThresholdCurve::default()
        }),
        columns: vec![ColumnScores {
            by_class: full_report(),
            calibration: Some(Calibration::default()),
            thresholds: Some(ThresholdCurve::default()),
            ..ColumnScores::default()
        }],
        scores: [("rmse".to_string(), Some(0.5))].into(),
        residuals: vec![Residuals::default()],
    }
}

/// A record of a run with every field.
fn full_summary() -> Summary {
    let graphs = GraphRecord { captured: 1, replayed: 1, launched: 1, refused: Some("reason".into()) };
    Summary {
        graphmill: "0".into(),
        dataset: DatasetRecord {
            checksum: Some("0".into()),
            columns: vec![graphmill_core::ClassColumn::default()],
            node_types: vec![TypeCount::default()],
            edge_types: vec![TypeCount::default()],
            ..DatasetRecord::default()
        },
        config: json!({}),
        scored_rows: ScoredRows::Events,
        verification: Some(VerificationRecord {
            is_off: true,
            lacks_checksums: true,
            ..VerificationRecord::default()
        }),
        epochs: vec![full_epoch()],
        best: Best { epoch: 1, valid_score: Some(0.5) },
        test: TestScore { metric: "accuracy".into(), score: Some(0.5) },
        by_class: Some(full_report()),
        diagnostics: vec![full_diagnostics()],
        baseline: Some(Baseline { method: "label-propagation".into(), valid: Some(0.5), test: Some(0.5) }),
        staleness: Staleness { bound: 1, max: 1 },
        presampling: Some(PresamplingRecord { drawn_batches: 1, counted_batches: 1, seconds: 1.0 }),
        peak_rss_bytes: 1,
        machine: Some(MachineRecord {
            processor: "model".into(),
            cores: 1,
            memory_bytes: 1,
            system: "linux x86_64".into(),
        }),
        nvidia: vec![NvidiaRecord { graphs: Some(graphs), ..NvidiaRecord::default() }],
        all_reduce: Some("peer".into()),
        seconds: 1.0,
    }
}

/// Adds the names of all fields, at any depth.
fn add_fields(json: &serde_json::Value, found: &mut std::collections::BTreeSet<String>) {
    match json {
        serde_json::Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            found.insert(name.clone());
            add_fields(value, found);
        }),
        serde_json::Value::Array(values) => values.iter().for_each(|value| add_fields(value, found)),
        _ => {}
    }
}

#[test]
fn the_book_names_every_field_of_a_run() {
    let page = include_str!("../../../../book/src/reference/run-directory.md");
    let mut fields = std::collections::BTreeSet::new();
    add_fields(&serde_json::to_value(full_summary()).unwrap(), &mut fields);
    assert!(fields.len() > 70, "{}: {fields:?}", fields.len());
    let missing: Vec<_> = fields.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "book/src/reference/run-directory.md lacks {missing:?}");
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
        mark_seconds: 0.1,
        copy_seconds: 0.2,
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
            "mark_seconds": 0.1,
            "copy_seconds": 0.2,
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
