use graphmill_engine::{
    TrainConfig,
    record::{
        Best, DatasetRecord, DeviceRecord, MemorySample, RankRecord, ReuseRecord, ScoredRows, Stages,
        Staleness, TestScore, TierTraffic, workers,
    },
    timeline::{Busy, Stage},
};
use serde_json::json;

use super::*;

/// Workers of the stages: sequential or concurrent.
fn busy(stages: Stages, pipelined: bool) -> Vec<Busy> {
    let Stages { sample, extract, train, .. } = stages;
    let worker = |name: &str, seconds| Busy { worker: name.into(), seconds, ..Busy::default() };
    if !pipelined {
        return vec![worker("main", [sample, extract, train, 0.0, 0.0])];
    }
    vec![
        worker("sampler 0", [0.6 * sample, 0.0, 0.0, 0.0, 0.0]),
        worker("sampler 1", [0.4 * sample, 0.0, 0.0, 0.0, 0.0]),
        worker("extractor <0>", [0.0, extract, 0.0, 0.0, 0.0]),
        worker("trainer 0", [0.0, 0.0, 0.9 * train, 0.1 * train, 0.0]),
    ]
}

/// Realistic run. `pipelined`: stages overlap, there is a cache, the learning rate decays.
fn run(epochs: usize, scale: f64, pipelined: bool) -> Summary {
    let noise = |i: usize, salt: u64| {
        graphmill_core::keyed::Stream::new(graphmill_core::keyed::key(&[i as u64, salt])).uniform() - 0.5
    };
    let tier = |rows, bytes| TierTraffic { rows, bytes, nanos: bytes };
    let epoch = |i: usize| {
        let t = i as f64;
        let train = scale * (0.62 + 0.05 * noise(i, 1));
        let stages = Stages {
            order: 0.004 * scale,
            sample: scale * (0.41 + 0.04 * noise(i, 2)),
            extract: scale * (0.22 + 0.08 * noise(i, 3)),
            train,
        };
        let seconds = if pipelined { train * 1.07 } else { stages.parts().iter().map(|p| p.1).sum() };
        EpochRecord {
            epoch: i,
            loss: 0.31 + 2.1 / (1.0 + t * 0.4) + 0.03 * noise(i, 4),
            train_score: pipelined.then(|| 0.93 - 0.5 / (1.0 + t * 0.5)),
            valid_loss: Some(0.4 + 1.0 / (1.0 + t)),
            valid_score: Some(0.89 - 0.45 / (1.0 + t * 0.6) + 0.012 * noise(i, 5)),
            lr: if pipelined { 0.003 * (1.0 - t / (epochs as f64 + 1.0)) } else { 0.003 },
            seconds,
            eval_seconds: 0.18 * scale,
            stages,
            seeds: 186_626,
            sampled_edges: 31_234_567 + i as u64,
            seeds_per_second: 186_626.0 / seconds,
            traffic: if pipelined {
                Traffic {
                    device: tier(9_123_456 + i as u64 * 1000, 1_167_802_368),
                    host: tier(2_345_678, 300_246_784),
                    disk: tier(12_345, 1_580_160),
                    ..Traffic::default()
                }
            } else {
                Traffic { host: tier(11_481_479, 1_469_629_312), ..Traffic::default() }
            },
            hit_rate: Some(if pipelined { 0.79 + 0.04 * noise(i, 6) } else { 1.0 }),
            grad_norm: pipelined.then(|| 1.5 + 4.0 / t + noise(i, 7)),
            bottleneck: Some(if noise(i, 8) > 0.4 { Stage::Sample } else { Stage::Train }),
            workers: workers(&busy(stages, pipelined), seconds),
            memory_bytes: Some((1.05e9 + 8e7 * noise(i, 9)) as u64),
            memory: (0..400 / epochs)
                .map(|j| MemorySample {
                    seconds: seconds * j as f64 / (400 / epochs) as f64,
                    bytes: (9e8 + 2e7 * noise(j, 10) + 2e8 * (j % 50) as f64 / 50.0) as u64,
                })
                .collect(),
            ..EpochRecord::default()
        }
    };
    let epochs: Vec<EpochRecord> = (1..=epochs).map(epoch).collect();
    let best = epochs.iter().max_by(|a, b| a.valid_score.partial_cmp(&b.valid_score).unwrap()).unwrap();
    let best = Best { epoch: best.epoch, valid_score: best.valid_score };
    Summary {
        graphmill: "0.1.0".into(),
        dataset: DatasetRecord {
            name: "facebook <large> & co".into(),
            nodes: 373_252,
            edges: 28_072_756,
            feature_dim: 32,
            classes: 7,
            multilabel: false,
            train: 186_626,
            valid: 93_313,
            test: 93_313,
            checksum: None,
            ..DatasetRecord::default()
        },
        config: TrainConfig::default().to_json(),
        scored_rows: ScoredRows::Nodes,
        best,
        test: TestScore { metric: "accuracy".into(), score: Some(0.8765) },
        by_class: None,
        baseline: None,
        diagnostics: Vec::new(),
        staleness: if pipelined { Staleness { bound: 8, max: 7 } } else { Staleness::default() },
        presampling: None,
        peak_rss_bytes: 1_234_567_890,
        machine: None,
        nvidia: Vec::new(),
        all_reduce: None,
        seconds: epochs.iter().map(|e| e.seconds + e.eval_seconds).sum(),
        verification: None,
        epochs,
    }
}

/// Asserts that every tag that must be closed is closed.
fn balanced(html: &str) {
    for tag in ["main", "section", "div", "svg", "g", "ul", "li", "table", "dl", "details", "title", "text"] {
        let opened = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

/// Sets the `number`-th string in `value` to `text`; returns the strings left to pass.
fn replace_string(value: &mut serde_json::Value, number: usize, text: &str) -> Option<usize> {
    use serde_json::Value;
    match value {
        Value::String(word) if number == 0 => {
            *word = text.into();
            None
        }
        Value::String(_) => Some(number - 1),
        Value::Array(values) => {
            values.iter_mut().try_fold(number, |left, value| replace_string(value, left, text))
        }
        Value::Object(values) => {
            values.values_mut().try_fold(number, |left, value| replace_string(value, left, text))
        }
        _ => Some(number),
    }
}

#[test]
fn no_name_in_a_record_becomes_markup() {
    let mut summary = run(3, 1.0, true);
    summary.nvidia = vec![graphmill_engine::record::NvidiaRecord {
        device: "cuda:0".into(),
        name: "a device".into(),
        ..Default::default()
    }];
    let whole = serde_json::to_value(&summary).unwrap();
    let mut tried = 0;
    for number in 0.. {
        let mut forged = whole.clone();
        if replace_string(&mut forged, number, "<script>alert(1)</script>").is_some() {
            break;
        }
        // enums cannot hold it
        if let Ok(forged) = serde_json::from_value(forged) {
            let page = html(&forged);
            assert!(!page.contains("<script"), "string {number}");
            assert!(page.contains("default-src 'none'"));
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried}");
}

#[test]
fn the_page_is_self_contained_and_shows_the_run() {
    for (epochs, scale, pipelined) in
        [(1, 1.0, false), (3, 0.01, true), (200, 100.0, true), (2500, 1.0, false)]
    {
        let html = html(&run(epochs, scale, pipelined));
        balanced(&html);
        for shown in [
            "0.8765",
            "test accuracy",
            "28,072,756 edges",
            "1.15 GiB",
            "Where the time went",
            "weight-decay",
            "Utilisation",
            "Memory",
        ] {
            assert!(html.contains(shown), "{shown}");
        }
        assert!(html.contains("facebook &lt;large&gt; &amp; co") && !html.contains("<large>"));
        for foreign in ["http:", "https:", "<script", "@import", "url(", "NaN", "inf "] {
            assert!(!html.contains(foreign), "{foreign}");
        }
        assert!(html.len() < 1 << 20 || epochs > 2000, "{} bytes", html.len());
    }
}

#[test]
fn overlapping_stages_are_marked_against_elapsed_time() {
    assert!(html(&run(3, 1.0, true)).contains("add up to more than the elapsed time"));
    assert!(!html(&run(3, 1.0, false)).contains("add up to more than the elapsed time"));
}

#[test]
fn a_run_without_epochs_scores_or_dataset_has_a_page() {
    let page = html(&Summary::default());
    balanced(&page);
    assert!(page.contains("No epoch yet"));
    let mut bare = run(2, 1.0, false);
    bare.test.score = None;
    bare.best.valid_score = None;
    bare.config = json!({});
    for epoch in &mut bare.epochs {
        *epoch = EpochRecord { epoch: epoch.epoch, loss: epoch.loss, ..EpochRecord::default() };
    }
    let page = html(&bare);
    balanced(&page);
    assert!(
        page.contains("no validation nodes")
            && page.contains("93,313 test nodes")
            && !page.contains("Feature traffic")
            && !page.contains("Utilisation")
            && !page.contains("Memory")
            && !page.contains("Configuration")
    );
}

/// Pages for inspection: `GRAPHMILL_REPORTS=DIR cargo test -p graphmill-report
/// writes_pages_for_inspection`.
#[test]
fn writes_pages_for_inspection() {
    let Ok(dir) = std::env::var("GRAPHMILL_REPORTS") else { return };
    for (name, epochs, scale, pipelined) in [
        ("one", 1, 1.0, false),
        ("three", 3, 0.01, true),
        ("ten", 10, 3.0, false),
        ("many", 200, 100.0, true),
        ("most", 2500, 1.0, false),
    ] {
        let path = std::path::Path::new(&dir).join(format!("{name}.html"));
        std::fs::write(path, html(&run(epochs, scale, pipelined))).unwrap();
    }
}

#[test]
fn reused_rows_and_devices_have_separate_sections() {
    let mut summary = run(3, 1.0, true);
    let plain = html(&summary);
    assert!(!plain.contains("Reused rows") && !plain.contains("<h2>Devices"));
    for (epoch, i) in summary.epochs.iter_mut().zip(1u64..) {
        epoch.reuse = Some(ReuseRecord {
            super_batch: 4.0,
            hot_nodes: 5000.0,
            asked_rows: 1000,
            reused_rows: 750,
            made_rows: 200,
            variation: 0.1 * i as f64,
            split: 1.0,
            ..Default::default()
        });
        epoch.devices = vec![DeviceRecord {
            device: "virtual:<0>".into(),
            role: "trainer".into(),
            batches: 10,
            hit_rate: Some(0.25 * i as f64),
            link_bytes: 1 << 20,
            ..Default::default()
        }];
    }
    let page = html(&summary);
    for text in ["Reused rows", "2,250 · 75", "7 · bound 8", "Weight variation", "virtual:&lt;0&gt;", "50.0"]
    {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn several_ranks_have_a_section_with_sums() {
    let mut summary = run(3, 1.0, false);
    assert!(!html(&summary).contains("<h2>Ranks"));
    for epoch in &mut summary.epochs {
        epoch.ranks = (0..2u64)
            .map(|rank| RankRecord {
                rank: rank as usize,
                seeds: 1000 + rank,
                near_rows: 300,
                remote_rows: 100,
                feature_bytes: 1 << 20,
                ..Default::default()
            })
            .collect();
    }
    let page = html(&summary);
    for text in ["<h2>Ranks", "3,000", "3,003", "25.0", "3.00 MiB"] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn scores_by_class_have_a_table_and_a_matrix() {
    use graphmill_nn::metric::classes::{ClassReport, ClassScore, Confusion};
    let mut summary = run(1, 1.0, false);
    assert!(!html(&summary).contains("Scores by class"));
    let class = |name: &str| ClassScore {
        class: name.into(),
        support: 1234,
        precision: None,
        recall: Some(0.5),
        f1: Some(0.25),
        ..ClassScore::default()
    };
    let report = ClassReport {
        classes: vec![class("<mule>"), class("vip")],
        confusion_matrix: Some(vec![vec![3, 1], vec![0, 4]]),
        ..ClassReport::default()
    };
    summary.by_class = Some(report.clone());
    let page = html(&summary);
    balanced(&page);
    for text in ["<td>&lt;mule&gt;<td>1,234<td>0<td>–<td>0.5000<td>0.2500", "Confusion matrix", "--u:75.0%"]
    {
        assert!(page.contains(text), "{text}");
    }
    let many = vec![Confusion { truth: 0, predicted: 1, count: 9 }];
    summary.by_class = Some(ClassReport { confusion_matrix: None, top_confusions: many, ..report });
    let page = html(&summary);
    balanced(&page);
    assert!(page.contains("<td>&lt;mule&gt;<td>vip<td>9") && !page.contains("Confusion matrix"));
}
