//! Runs on streams of events.

use graphmill_data::{
    TypedBuilder, TypedDataset,
    typed::{self, EdgeType, Verify},
};
use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_engine::{
    Error, RunContext, RunDir,
    events::{cost::EventSeconds, train},
    observer::Quiet,
};

use super::*;

/// 420 visits that train, 90 of validation and 90 of test, of 20 users and 15 items.
fn visits(dir: &Path) -> TypedDataset {
    let count = 600u32;
    let (users, items): (Vec<u32>, Vec<u32>) = (0..count).map(|e| (e * 7 % 20, e * e % 15)).unzip();
    let times: Vec<i64> = (0..i64::from(count)).map(|e| e * 60).collect();
    let mut builder = TypedBuilder::new("visits");
    builder.node_type("user", 20).features(4, (0..80).map(|i| (i % 17) as f32).collect::<Vec<f32>>());
    builder.node_type("item", 15).features(4, (0..60).map(|i| (i % 13) as f32).collect::<Vec<f32>>());
    let on = || EdgeType::new("user", "visits", "item");
    builder
        .edge_type("user", "visits", "item")
        .edges(users.clone(), items.clone())
        .time(times.clone())
        .features(2, (0..2 * count).map(|i| (i % 5) as f32).collect::<Vec<f32>>());
    let pairs: Vec<u32> = users.iter().zip(&items).flat_map(|(u, v)| [*u, *v]).collect();
    let part = |rows: std::ops::Range<u32>| rows.collect::<Vec<u32>>();
    let task = builder.task("visits").on_edges(on()).pair_seeds(pairs).time(times);
    task.split(part(0..420), part(420..510), part(510..count));
    builder.build().unwrap().save(dir).unwrap();
    typed::open(dir, Verify::Once).unwrap()
}

/// Request of a run on `data` with these options, whose values are words of a command line.
fn request_of(data: &TypedDataset, given: &[(&'static str, &str)]) -> Request {
    let dataset = data.directory.as_deref().unwrap().to_str().unwrap().to_string();
    let mut config = TrainConfig { dataset: dataset.clone(), ..TrainConfig::default() };
    let values = given.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    config.set(&values).unwrap();
    config.derive_options(&given.iter().map(|(name, _)| *name).collect::<Vec<_>>()).unwrap();
    let words = given.iter().map(|(name, value)| (*name, value.to_string())).collect();
    Request { dataset, ..Request::new(config, words) }
}

const SMALL: [(&str, &str); 4] = [("model", "tgn"), ("hidden", "8"), ("time_dim", "6"), ("batch_size", "50")];

#[test]
fn an_epoch_on_a_stream_is_predicted_by_parts_with_a_command() {
    let dir = tempfile::tempdir().unwrap();
    let data = visits(&dir.path().join("visits"));
    let plan = plan_events(&request_of(&data, &SMALL), &data, dir.path()).unwrap();
    let sizes = &plan.sizes;
    assert_eq!((sizes.nodes, sizes.events, sizes.scored), (35, [420, 90, 90], 90));
    assert_eq!((sizes.batches, sizes.batch_size), (9, 50));
    for row in &plan.threads {
        let EventSeconds { draw, read, compute, update, replay, score } = row.seconds;
        let parts = [draw, read, compute, update, replay, score];
        assert!(parts.iter().all(|seconds| *seconds > 0.0), "{row:?}");
        assert!((row.epoch_seconds - parts.iter().sum::<f64>()).abs() < 1e-9, "{row:?}");
    }
    let best = &plan.recommendation;
    let fastest = plan.threads.iter().min_by(|a, b| a.epoch_seconds.total_cmp(&b.epoch_seconds)).unwrap();
    assert_eq!(best.threads, fastest.threads);
    let options = format!("--model=tgn --hidden=8 --time-dim=6 --batch-size=50 --threads={}", best.threads);
    assert!(best.command.starts_with("graphmill train ") && best.command.ends_with(&options), "{best:?}");
    let text = plan.to_string();
    assert!(text.contains("not predicted, because streams of events train on the processor"), "{text}");
    assert!(text.contains(&best.command), "{text}");
    // a score every other epoch takes half of its time
    let rare = [&SMALL[..], &[("eval_every", "2"), ("threads", "1")]].concat();
    let rare = plan_events(&request_of(&data, &rare), &data, dir.path()).unwrap();
    let [row] = &rare.threads[..] else { panic!("one number of threads: {rare:?}") };
    let expected = row.seconds.train() + row.seconds.validate() / 2.0;
    assert!(row.threads == 1 && (row.epoch_seconds - expected).abs() < 1e-9, "{row:?}");
}

#[test]
fn the_memory_of_a_stream_is_that_of_its_budget() {
    let dir = tempfile::tempdir().unwrap();
    let data = visits(&dir.path().join("visits"));
    let plan = |more: &[(&'static str, &'static str)]| {
        let given = [&SMALL[..], &[("threads", "1")], more].concat();
        plan_events(&request_of(&data, &given), &data, dir.path()).unwrap()
    };
    let bytes = |plan: &EventPlan, name: &str| {
        plan.memory.iter().find(|part| part.name == name).map(|part| part.bytes)
    };
    let plain = plan(&[]);
    // two memories of rows of 8, messages of 16 and two features, and times
    assert_eq!(bytes(&plain, "memory"), Some(2 * 35 * (4 * (8 + 16 + 2) + 24)));
    assert_eq!(bytes(&plain, "neighbours"), Some(35 * 16 + 600 * 32));
    assert_eq!(bytes(&plain, "features"), Some(4 * (35 * 4 + 600 * 2)));
    let tables = "tables of draws by recency";
    assert_eq!(bytes(&plain, tables), None);
    let recent = plan(&[("time_draw", "recency"), ("time_half_life", "600")]);
    assert_eq!(bytes(&recent, tables), Some(8 * 36 + 8 * 1200 + 32 * 35));
    assert!(recent.row_file_bytes.is_none() && recent.memory_bytes > plain.memory_bytes);
    // the same rows in files, with the memory of the budget
    let limited = plan(&[("host_budget", "41000")]);
    assert_eq!(bytes(&limited, "rows within --host-budget"), Some(41000));
    assert!(limited.row_file_bytes.unwrap() > 41000 && bytes(&limited, "memory").is_none());
    assert!(limited.to_string().contains("rows beyond --host-budget"), "{limited}");
}

#[test]
fn checkpoints_of_a_stream_take_the_space_of_a_runs() {
    let dir = tempfile::tempdir().unwrap();
    let data = visits(&dir.path().join("visits"));
    let request = request_of(&data, &[("model", "tgn"), ("batch_size", "50"), ("threads", "1")]);
    let plan = plan_events(&request, &data, dir.path()).unwrap();
    let run = RunDir::create(&dir.path().join("run")).unwrap();
    // stopped within the first epoch
    let batches = AtomicUsize::new(0);
    let stop = || batches.fetch_add(1, SeqCst) >= 5;
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &stop };
    assert!(matches!(train(request.config(), &data, context), Err(Error::Interrupted { saved: true, .. })));
    let len = |name: &str| {
        let path = dir.path().join(format!("run/checkpoint/{name}.safetensors"));
        std::fs::metadata(path).unwrap().len()
    };
    let [between, within] = plan.checkpoint_bytes;
    // no model is the best one yet
    for (planned, found) in [
        (between, 2 * len("model") + len("optimizer")),
        (within, 2 * len("model") + len("optimizer") + len("history")),
    ] {
        assert!((planned..planned + planned / 20).contains(&found), "{planned} {found}");
    }
}

#[test]
fn options_of_streams_and_of_machines_are_refused_for_the_other() {
    let mut config = TrainConfig::default();
    let refused = refuse_of_events(&config, &["hidden", "eval_nodes"]).unwrap_err().to_string();
    assert!(refused.starts_with("--eval-nodes: only the plan of a stream of events reads it"), "{refused}");
    // draws at times are those of several types, too
    assert!(refuse_of_events(&config, &["hidden", "time_draw", "fanout"]).is_ok());
    config.model = "tgn".into();
    assert!(refuse_of_events(&config, &["eval_nodes"]).is_ok());
    let refused = refuse_other_machines(&config, &["hidden", "hardware"]).unwrap_err().to_string();
    assert!(refused.starts_with("--hardware: streams of events train on the processor"), "{refused}");
}
