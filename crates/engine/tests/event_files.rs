//! Memory, features, times and neighbours of a stream that exceed the host's budget: in files, with
//! the bits of a run in memory, for any threads, across interruptions and other budgets, and for
//! saved runs.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use graphmill_data::TypedDataset;
use graphmill_engine::{
    Error, Result, RunContext, RunDir,
    events::{SavedEvents, train as run_events},
    observer::{Observer, Quiet},
    record::Summary,
    saved::SavedRun,
};

use super::events::{config, shop_of, visits};

/// Collects notes.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn note(&mut self, message: &str) {
        self.0.push(message.to_string());
    }
}

/// Trains in the directory `path`, or resumes there, for at most `batches` batches.
fn train(
    data: &TypedDataset,
    options: &[(&str, &str)],
    (path, resume): (&Path, bool),
    batches: usize,
) -> Result<(Summary, Vec<String>)> {
    let config = config(data, options)?;
    let run = if resume { RunDir::reopen(path) } else { RunDir::create(path) }?;
    let (done, mut notes) = (AtomicUsize::new(0), Notes::default());
    let stop = || done.fetch_add(1, SeqCst) + 1 >= batches;
    let context = RunContext { run: Some(&run), resume, observer: &mut notes, stop: &stop };
    let summary = run_events(&config, data, context)?;
    Ok((summary, notes.0))
}

/// Losses, scores, and files of a run.
fn results(summary: &Summary, run: &Path) -> (Vec<u64>, Vec<Vec<u8>>) {
    let of_epochs = summary.epochs.iter().flat_map(|of| [of.loss, of.valid_score.unwrap()]);
    let bits = of_epochs.chain(summary.test.score).map(f64::to_bits).collect();
    let files = ["best.safetensors", "checkpoint/model.safetensors", "checkpoint/optimizer.safetensors"];
    (bits, files.iter().map(|file| fs::read(run.join(file)).unwrap()).collect())
}

/// Bytes of the memory of the checkpoint of a run.
fn memory(run: &Path) -> Vec<u8> {
    fs::read(run.join("checkpoint/history.safetensors")).unwrap()
}

/// A model, a budget, and options.
type Case = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Models with the options of a run, and a budget between the rows of a batch and all rows.
const CASES: [Case; 8] = [
    ("tgn", "30000", &[("new_nodes", "0.1"), ("clip", "1")]),
    ("jodie", "7000", &[("new_nodes", "0.1")]),
    ("tgat", "12000", &[("batch_size", "10"), ("fanout", "2,2")]),
    ("graphmixer", "26000", &[("new_nodes", "0.1"), ("dropout", "0.2")]),
    ("dygformer", "26000", &[("patch_size", "2"), ("channel_dim", "4")]),
    ("gine", "20000", &[("batch_size", "10"), ("fanout", "4,2"), ("time_window", "9000")]),
    ("gatv2-edge", "20000", &[("batch_size", "10"), ("fanout", "4,2"), ("heads", "2")]),
    ("tgn", "24000", &[("batch_size", "10"), ("time_draw", "recency"), ("time_half_life", "600")]),
];

#[test]
fn rows_in_files_have_the_bits_of_those_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let data = shop_of(&dir.path().join("shop"), false, visits(600));
    for (number, (model, budget, more)) in CASES.into_iter().enumerate() {
        let own = [("model", model), ("checkpoint_batches", "2"), ("schedule", "cosine"), ("epochs", "2")];
        let plain = [&own[..], more].concat();
        let limited = [&plain[..], &[("host_budget", budget)]].concat();
        let model = format!("{model}-{number}");
        let path = |name: &str| dir.path().join(format!("{model}-{name}"));
        let has_memory = ["tgn", "jodie"].iter().any(|name| model.starts_with(name));
        let place = if has_memory { "memory, neighbours" } else { "neighbours" };
        let place = format!("{place} and features: in files");
        let (whole, notes) = train(&data, &plain, (&path("memory"), false), usize::MAX).unwrap();
        assert!(!notes.iter().any(|note| note.starts_with(&place)), "{model}: {notes:?}");
        let expected = results(&whole, &path("memory"));
        for threads in [1, 2, 3] {
            let path = path(&format!("files-{threads}"));
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (one, notes) = pool.install(|| train(&data, &limited, (&path, false), usize::MAX)).unwrap();
            assert!(notes.iter().any(|note| note.starts_with(&place)), "{model}: {notes:?}");
            assert!(expected == results(&one, &path), "{model}: in files, {threads} threads");
        }

        // stopped several times within both epochs, and resumed in files
        let batches = if more.contains(&("batch_size", "10")) { 19 } else { 3 };
        let mut resumed = train(&data, &limited, (&path("often"), false), batches);
        let mut stops = 0;
        while matches!(resumed, Err(Error::Interrupted { saved: true, .. })) {
            stops += 1;
            resumed = train(&data, &limited, (&path("often"), true), batches);
        }
        assert!(stops >= 4 && expected == results(&resumed.unwrap().0, &path("often")), "{model}: {stops}");
        let mut left = fs::read_dir(path("often")).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(!left.any(|name| name.to_string_lossy().starts_with(".rows-")), "{model}");

        let saved = SavedRun::open(&path("files-1"), false).unwrap();
        let scores = SavedEvents::of(&saved).unwrap().scores(&data, &Quiet).unwrap();
        assert_eq!(scores.test, whole.test.score, "{model}");
        let of_memory = SavedRun::open(&path("memory"), false).unwrap();
        let in_memory = SavedEvents::of(&of_memory).unwrap().scores(&data, &Quiet).unwrap();
        for (found, expected) in scores.parts.iter().zip(&in_memory.parts) {
            assert_eq!(found.scores, expected.scores, "{model}: {}", expected.part);
            if more.contains(&("new_nodes", "0.1")) {
                assert!(found.scores["inductive-auc"].is_some(), "{model}: {}", found.part);
            }
        }
    }
}

#[test]
fn runs_resume_in_files_or_in_memory_from_the_same_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let data = shop_of(&dir.path().join("shop"), false, visits(600));
    for (model, budget, more) in CASES.into_iter().take(3) {
        let plain =
            [&[("model", model), ("checkpoint_batches", "2"), ("schedule", "cosine")][..], more].concat();
        let limited = [&plain[..], &[("host_budget", budget)]].concat();
        let path = |name: &str| dir.path().join(format!("{model}-{name}"));
        let (whole, _) = train(&data, &plain, (&path("memory"), false), usize::MAX).unwrap();
        let expected = results(&whole, &path("memory"));
        // stopped twice within epochs
        let mut first = None;
        for (name, budgets) in
            [("to-memory", [&limited, &plain, &limited]), ("to-files", [&plain, &limited, &plain])]
        {
            for (i, batches) in [3, 9].into_iter().enumerate() {
                let stopped = train(&data, budgets[i], (&path(name), i > 0), batches);
                assert!(matches!(stopped, Err(Error::Interrupted { saved: true, .. })), "{model}: {name}");
                if model != "tgat" && i == 0 {
                    let found = memory(&path(name));
                    assert!(*first.get_or_insert_with(|| found.clone()) == found, "{model}: {name}");
                }
            }
            let (resumed, _) = train(&data, budgets[2], (&path(name), true), usize::MAX).unwrap();
            assert!(expected == results(&resumed, &path(name)), "{model}: resumed {name}");
        }
    }
}

#[test]
fn events_that_are_sorted_in_files_have_the_bits_of_those_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let data = shop_of(&dir.path().join("shop"), false, visits(600));
    // edges of a type are stored by destination; many of them have equal times in the other dataset
    let (users, items, times) = visits(600);
    let coarse = (users, items, times.into_iter().map(|time| time / 7000).collect());
    let equal_times = shop_of(&dir.path().join("equal"), false, coarse);
    for (name, data) in [("stream", &data), ("equal-times", &equal_times)] {
        for (model, budget, more) in [
            ("tgn", "12000", &[("batch_size", "10"), ("new_nodes", "0.1")][..]),
            ("jodie", "7000", &[("split_edges", "time:8,1,1")]),
        ] {
            let own = [("model", model), ("task", "user:visits:item"), ("checkpoint_batches", "2")];
            let plain = [&own[..], more].concat();
            let limited = [&plain[..], &[("host_budget", budget)]].concat();
            let path = |kind: &str| dir.path().join(format!("{name}-{model}-{kind}"));
            let (whole, _) = train(data, &plain, (&path("memory"), false), usize::MAX).unwrap();
            let expected = results(&whole, &path("memory"));
            for threads in [1, 3] {
                let path = path(&format!("files-{threads}"));
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let run = || train(data, &limited, (&path, false), usize::MAX);
                let (one, notes) = pool.install(run).unwrap();
                assert!(notes.iter().any(|note| note.contains("features: in files")), "{model}: {notes:?}");
                assert!(expected == results(&one, &path), "{name}, {model}: {threads} threads");
            }
            let stopped = train(data, &limited, (&path("often"), false), 3);
            assert!(matches!(stopped, Err(Error::Interrupted { saved: true, .. })), "{name}, {model}");
            let (resumed, _) = train(data, &limited, (&path("often"), true), usize::MAX).unwrap();
            assert!(expected == results(&resumed, &path("often")), "{name}, {model}: resumed");
            // rows that fit are in memory, though sorting them does not
            let fits = [&plain[..], &[("host_budget", "28000")]].concat();
            let (one, notes) = train(data, &fits, (&path("fits"), false), usize::MAX).unwrap();
            let in_files = notes.iter().any(|note| note.contains("in files"));
            assert_eq!(in_files, model == "tgn", "{notes:?}");
            assert!(expected == results(&one, &path("fits")), "{name}, {model}: in memory");
        }
    }
}

#[test]
fn the_least_budget_is_named_and_enough() {
    let dir = tempfile::tempdir().unwrap();
    let data = shop_of(&dir.path().join("shop"), false, visits(600));
    let path = |name: &str| dir.path().join(name);
    // all 35 nodes with a memory of 128 bytes and 4 features each, and the 50 events of a batch
    // with 2 features, ends and times; all rows are two memories and 600 events
    for budget in ["1", "6239"] {
        let refused = train(&data, &[("model", "jodie"), ("host_budget", budget)], (&path(budget), false), 1);
        let message = refused.err().unwrap().to_string();
        let expected = format!(
            "--host-budget {budget}: the nodes and events of the stream need 23920 bytes for their memory, \
             features and times, and a batch reads rows of up to 6240; raise it to 6240 or more, or lower \
             --batch-size"
        );
        assert!(message.contains(&expected), "{message}");
    }
    for (budget, in_files) in [("6240", true), ("23919", true), ("23920", false)] {
        let options = [("model", "jodie"), ("host_budget", budget), ("epochs", "1")];
        let (_, notes) = train(&data, &options, (&path(budget), false), usize::MAX).unwrap();
        assert_eq!(notes.iter().any(|note| note.contains("in files")), in_files, "{budget}: {notes:?}");
    }
}
